package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/translate"
)

const corpusDir = "../../shared/corpus"

// corpusFrames returns the real frames, or skips.
func corpusFrames(t testing.TB) [][]byte {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join(corpusDir, "frames.bin.zst"))
	if err != nil {
		t.Skipf("needs the corpus: %v", err)
	}
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	b, err := dec.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for len(b) >= 4 {
		n := binary.LittleEndian.Uint32(b)
		frames = append(frames, b[4:4+n])
		b = b[4+n:]
	}
	return frames
}

// withoutStamp takes the time_us out, which differs from production's.
func withoutStamp(s string) string {
	i := strings.Index(s, `"time_us":`)
	return s[:i] + s[i+len(`"time_us":`)+16:]
}

// TestCorpus: real frames, sealed from batches frame by frame, come out of the log as production
// served them. They come live, replayed from disk, and compressed with the dictionary that clients
// carry.
func TestCorpus(t *testing.T) {
	frames := corpusFrames(t)
	lines, err := os.ReadFile(filepath.Join(corpusDir, "expected.jsonl"))
	if err != nil {
		t.Skipf("needs the corpus: %v", err)
	}
	raw, err := os.ReadFile(filepath.Join(corpusDir, "jetstream_v1.zdict"))
	if err != nil {
		t.Skipf("needs the corpus: %v", err)
	}
	want := strings.Split(strings.TrimSpace(string(lines)), "\n")
	d, err := dict.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := dict.NewDecoder(1<<20, d)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	if cfg.Dictionaries, err = dict.NewRegistry(d); err != nil {
		t.Fatal(err)
	}
	defer cfg.Dictionaries.Close()
	l := mustOpen(t, cfg)
	live := mustRead(t, l, ReaderConfig{})
	appendFrames(t, l, frames, clock)
	check := func(name string, r *Reader, compressed bool) {
		t.Helper()
		var got []string
		for c := (Chunk{}); !c.Live; {
			if err := r.Next(&c); err != nil {
				t.Fatal(err)
			}
			opcode := format.OpcodeText
			if compressed {
				opcode = format.OpcodeBinary
			}
			for _, p := range parseFrames(t, &c, opcode) {
				if compressed {
					if p, err = dec.Append(nil, p); err != nil {
						t.Fatal(err)
					}
				}
				got = append(got, string(p))
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%s: %d events, want %d", name, len(got), len(want))
		}
		for i := range got {
			if withoutStamp(got[i]) != withoutStamp(want[i]) {
				t.Errorf("%s: event %d is\n%s\nwant\n%s", name, i, got[i], want[i])
			}
		}
	}
	check("live", live, false)
	_ = l.Close()
	l = mustOpen(t, cfg)
	for _, id := range []uint32{0, d.ID()} {
		r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), Dictionary: id})
		check("replayed", r, id != 0)
	}
	checkCorpusV2(t, l)
}

// checkCorpusV2: real events on v2's wire are what encoding/json makes of those that v1's has.
func checkCorpusV2(t *testing.T, l *Log) {
	t.Helper()
	read := func(cfg ReaderConfig) (payloads []string) {
		cfg.Cursor = TimeCursor(0)
		r := mustRead(t, l, cfg)
		for c := (Chunk{}); !c.Live; {
			if err := r.Next(&c); err != nil {
				t.Fatal(err)
			}
			for _, p := range parseFrames(t, &c, format.OpcodeText) {
				payloads = append(payloads, string(p))
			}
		}
		return payloads
	}
	plain, extended, v2 := read(ReaderConfig{}), read(ReaderConfig{Extended: true}), read(ReaderConfig{V2: true})
	if len(v2) != len(plain) {
		t.Fatalf("%d events on v2's wire, %d on v1's", len(v2), len(plain))
	}
	for i, p := range plain {
		var event struct {
			TimeUS int64 `json:"time_us"`
			Kind   string
			Cursor string
		}
		if err := json.Unmarshal([]byte(extended[i]), &event); err != nil {
			t.Fatal(err)
		}
		position, err := translate.ParsePosition(event.Cursor)
		if err != nil {
			t.Fatal(err)
		}
		e := testEvent{payload: p, timeUS: event.TimeUS, did: p[len(`{"did":"`):][:len("did:plc:wq4aajammjtxdomz3e23667t")]}
		for _, kind := range []translate.Kind{translate.KindCommit, translate.KindIdentity, translate.KindAccount} {
			if kind.String() == event.Kind {
				e.kind = kind
			}
		}
		if want := e.v2JSON(t, position.Seq*1024+int64(position.Op), false); v2[i] != want {
			t.Errorf("event %d is\n%s\nwant\n%s", i, v2[i], want)
		}
	}
	checkV2Encoder(t, v2)
}

const (
	// v2FramesVariable names a file of what Jetstream v2's encoder (EncodeV2 of its
	// internal/subscribe) makes of the corpus, one frame a line.
	v2FramesVariable = "MILLRACE_TEST_JETSTREAM_V2_FRAMES"
	// corpusV2Sum is the SHA-256 of the corpus on v2's wire, one frame a line, each without its
	// last seq and time.
	corpusV2Sum = "60b6df8bf7f3196f3aa496760e4aa3f0086cfa7b59ecc8f8c4412329a77dd24a"
)

// v2Stamp is what servers of v2's wire differ in.
var v2Stamp = regexp.MustCompile(`,"seq":[0-9]+,"time":"[^"]*"}}$`)

// checkV2Encoder: but for seq and time, frames are those of v2's encoder, byte for byte.
func checkV2Encoder(t *testing.T, frames []string) {
	t.Helper()
	sum := sha256.New()
	var got []string
	for _, f := range frames {
		got = append(got, v2Stamp.ReplaceAllString(f, ""))
		fmt.Fprintln(sum, got[len(got)-1])
	}
	if s := hex.EncodeToString(sum.Sum(nil)); s != corpusV2Sum {
		t.Errorf("the sum of the corpus on v2's wire is %s, want %s: compare with v2's encoder (%s)", s, corpusV2Sum, v2FramesVariable)
	}
	t.Run("v2's encoder", func(t *testing.T) {
		name := os.Getenv(v2FramesVariable)
		if name == "" {
			t.Skipf("SKIPPED: %s names no frames of Jetstream v2's encoder", v2FramesVariable)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for f := range strings.Lines(string(text)) {
			want = append(want, v2Stamp.ReplaceAllString(strings.TrimSuffix(f, "\n"), ""))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("frames (-v2 +millrace):\n%s", diff)
		}
	})
}

// appendFrames runs frames through translate into the log, five frames a block.
func appendFrames(t testing.TB, l *Log, frames [][]byte, clock *testClock) {
	t.Helper()
	tr, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stamper := NewStamper(l.Progress().TimeUS, clock.now)
	var batch translate.Batch
	for len(frames) > 0 {
		n := min(5, len(frames))
		batch.Reset()
		first := l.Progress().Seq + 1
		for _, f := range frames[:n] {
			tr.AppendFrame(&batch, f)
		}
		frames = frames[n:]
		clock.advance(time.Second)
		stamper.StampBatch(&batch)
		in := Input{Epoch: 1, FirstSeq: first, LastSeq: first, Batch: &batch}
		for i := range batch.Events {
			batch.Events[i].DIDUID, batch.Events[i].URIUID = uint64(i+1), uint64(i+2)
			in.LastSeq = batch.Events[i].Seq
		}
		b, err := l.Seal(in)
		if err != nil {
			t.Fatal(err)
		}
		// Seal keeps nothing of its input.
		for i := range batch.JSON {
			batch.JSON[i] = 0xaa
		}
		if err := l.Append(b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSealRefuses: inputs that break the log's order are refused before they are stored.
func TestSealRefuses(t *testing.T) {
	frames := corpusFrames(t)
	clock := newTestClock()
	l := mustOpen(t, testConfig(t, vfs.NewMem(), clock))
	tr, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var batch translate.Batch
	for _, f := range frames {
		tr.AppendFrame(&batch, f)
	}
	first, last := batch.Events[0].Seq, batch.Events[len(batch.Events)-1].Seq
	seal := func(in Input) error { _, err := l.Seal(in); return err }
	good := Input{Epoch: 1, FirstSeq: first, LastSeq: last, Batch: &batch}
	if seal(good) == nil {
		t.Error("a batch without stamps is taken")
	}
	NewStamper(0, clock.now).StampBatch(&batch)
	if err := seal(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Input){
		"no frames":                func(in *Input) { in.FirstSeq, in.LastSeq, in.Batch = 0, 0, nil },
		"frames back to front":     func(in *Input) { in.FirstSeq, in.LastSeq = last, first },
		"events before its frames": func(in *Input) { in.FirstSeq++ },
		"events after its frames":  func(in *Input) { in.LastSeq-- },
		"gap within":               func(in *Input) { in.Gap = &Gap{TimeUS: batch.Events[1].TimeUS} },
		"gap without a stamp":      func(in *Input) { in.Gap, in.Batch = &Gap{}, nil },
	} {
		in := good
		change(&in)
		if seal(in) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	in := good
	in.Gap = &Gap{}
	if b, err := l.Seal(in); err != nil || b.gap.TimeUS != batch.Events[0].TimeUS || in.Gap.TimeUS != 0 {
		t.Errorf("gap without a stamp before events: %v", err)
	}
}
