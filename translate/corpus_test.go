package translate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/klauspost/compress/zstd"
)

// corpusPath returns the path of a file of the corpus, which is not part of the project, and skips
// the test where there is none.
func corpusPath(tb testing.TB, elem ...string) string {
	tb.Helper()
	path := filepath.Join(append([]string{"..", "..", "shared", "corpus"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("the corpus is not here: %v", err)
	}
	return path
}

func corpusFile(tb testing.TB, elem ...string) []byte {
	tb.Helper()
	data, err := os.ReadFile(corpusPath(tb, elem...))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func unzstd(tb testing.TB, packed []byte) []byte {
	tb.Helper()
	zr, err := zstd.NewReader(nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer zr.Close()
	data, err := zr.DecodeAll(packed, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// corpusFrames returns the captured frames.
func corpusFrames(tb testing.TB) [][]byte {
	tb.Helper()
	data := unzstd(tb, corpusFile(tb, "frames.bin.zst"))
	var frames [][]byte
	for len(data) > 0 {
		n := binary.LittleEndian.Uint32(data)
		frames = append(frames, data[4:4+n])
		data = data[4+n:]
	}
	return frames
}

// corpusLines returns what production served for the captured frames.
func corpusLines(tb testing.TB) [][]byte {
	tb.Helper()
	return bytes.Split(bytes.TrimSpace(corpusFile(tb, "expected.jsonl")), []byte("\n"))
}

func newTranslator(tb testing.TB, collections ...string) *Translator {
	tb.Helper()
	tr, err := New(Config{Collections: collections})
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

// corpusSeeds returns the captured frames, none if there is no corpus.
func corpusSeeds(tb testing.TB) [][]byte {
	tb.Helper()
	if _, err := os.Stat(filepath.Join("..", "..", "shared", "corpus")); err != nil {
		return nil
	}
	return corpusFrames(tb)
}

// corpusRecords returns the records within the captured frames, none if there is no corpus.
func corpusRecords(tb testing.TB) [][]byte {
	tb.Helper()
	var records [][]byte
	for _, frame := range corpusSeeds(tb) {
		for _, op := range readFrame(tb, frame).ops {
			if op.record != nil {
				records = append(records, op.record)
			}
		}
	}
	return records
}

// corpusCommit is a line of the corpus's larger set: an event, and its record put back into
// DAG-CBOR by indigo.
type corpusCommit struct {
	line   []byte
	event  jetstreamEvent
	record []byte
}

// corpusCommits returns the corpus's larger set, without its deletes.
func corpusCommits(tb testing.TB) []corpusCommit {
	tb.Helper()
	var out []corpusCommit
	for line := range bytes.Lines(unzstd(tb, corpusFile(tb, "records.ndjson.zst"))) {
		c := corpusCommit{line: bytes.TrimSpace(line)}
		if err := json.Unmarshal(line, &c.event); err != nil {
			tb.Fatal(err)
		}
		if c.event.Commit.Operation == "delete" {
			continue
		}
		obj, err := atdata.UnmarshalJSON(c.event.Commit.Record)
		if err != nil {
			tb.Fatal(err)
		}
		if c.record, err = atdata.MarshalCBOR(obj); err != nil {
			tb.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}
