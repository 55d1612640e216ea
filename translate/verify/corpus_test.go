package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/ipfs/go-cid"
	"github.com/klauspost/compress/zstd"
	"gitlab.com/yawning/secp256k1-voi/secec"

	"millrace/translate"
)

// corpusFile returns a file of the corpus, which is not part of the project, and skips the test
// where there is none.
func corpusFile(tb testing.TB, elem ...string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "..", "shared", "corpus"}, elem...)...))
	if err != nil {
		tb.Skipf("the corpus is not here: %v", err)
	}
	return data
}

// corpusFrames returns the captured frames.
func corpusFrames(tb testing.TB) (frames [][]byte) {
	tb.Helper()
	zr, err := zstd.NewReader(nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer zr.Close()
	data, err := zr.DecodeAll(corpusFile(tb, "frames.bin.zst"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	for len(data) > 0 {
		n := binary.LittleEndian.Uint32(data)
		frames = append(frames, data[4:4+n])
		data = data[4+n:]
	}
	return frames
}

// corpusNow is after the frames were captured.
func corpusNow() time.Time { return time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC) }

// TestCorpus: real commits verify but for their signatures, whose keys are not known here.
func TestCorpus(t *testing.T) {
	commits := 0
	states := make(map[string]State)
	for i, frame := range corpusFrames(t) {
		c := decode(t, frame)
		if c == nil {
			continue
		}
		commits++
		verdict := compare(t, frame, nil, corpusNow())
		reason, state := verdict.Follow(states[c.Repo])
		if states[c.Repo] = state; reason != NoKey {
			t.Errorf("frame %d of %s: %v", i, c.Repo, reason)
		}
	}
	if commits < 50 {
		t.Errorf("only %d commits", commits)
	}
}

// TestCorpusSignatures: real commits verify with the keys that follow from their signatures, as
// with indigo, and with no other.
func TestCorpusSignatures(t *testing.T) {
	for i, frame := range corpusFrames(t) {
		c := decode(t, frame)
		if c == nil {
			continue
		}
		keys := recoverKeys(t, c.Blocks)
		if len(keys) == 0 {
			t.Errorf("frame %d: no key", i)
		}
		for _, key := range keys {
			if verdict := compare(t, frame, key, corpusNow()); verdict.Reason != Valid {
				t.Errorf("frame %d: %v", i, verdict.Reason)
			}
		}
		if verdict := compare(t, frame, publicKey(t, c.Repo), corpusNow()); verdict.Reason != BadSignature {
			t.Errorf("frame %d, with a foreign key: %v", i, verdict.Reason)
		}
	}
}

// recoverKeys returns the keys of curve K-256 that verify the commit in a CAR, by indigo.
func recoverKeys(t *testing.T, blocks []byte) (keys []atcrypto.PublicKey) {
	t.Helper()
	commit, _, err := repo.LoadCommitFromCAR(context.Background(), bytes.NewReader(blocks))
	if err != nil {
		t.Fatal(err)
	}
	unsigned, err := commit.UnsignedBytes()
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(unsigned)
	r, s, err := secec.ParseCompactSignature(commit.Sig)
	if err != nil {
		t.Fatal(err)
	}
	for id := range byte(4) {
		recovered, err := secec.RecoverPublicKey(digest[:], r, s, id)
		if err != nil {
			continue // no such point
		}
		key, err := atcrypto.ParsePublicUncompressedBytesK256(recovered.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if commit.VerifySignature(key) == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestProofFixtures undoes the ops of the AT Protocol's own fixtures.
func TestProofFixtures(t *testing.T) {
	var fixtures []struct {
		Comment                           string
		LeafValue                         string
		Keys, Adds, Dels                  []string
		RootBeforeCommit, RootAfterCommit string
	}
	if err := json.Unmarshal(corpusFile(t, "interop", "firehose", "commit-proof-fixtures.json"), &fixtures); err != nil {
		t.Fatal(err)
	}
	if len(fixtures) == 0 {
		t.Fatal("no fixtures")
	}
	for _, f := range fixtures {
		t.Run(f.Comment, func(t *testing.T) {
			value := cid.MustParse(f.LeafValue)
			records := make(map[string]cid.Cid)
			for _, k := range f.Keys {
				records[k] = value
			}
			before, err := mst.LoadTreeFromMap(records)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := before.RootCID(); err != nil { // only what changes from here on is written
				t.Fatal(err)
			}
			var ops frame
			for _, k := range f.Adds {
				ops.ops = append(ops.ops, op{translate.OpCreate, []byte(k), value.Bytes(), nil})
				if _, err := repo.ApplyOp(before, k, &value); err != nil {
					t.Fatal(err)
				}
			}
			for _, k := range f.Dels {
				ops.ops = append(ops.ops, op{translate.OpDelete, []byte(k), nil, value.Bytes()})
				if _, err := repo.ApplyOp(before, k, nil); err != nil {
					t.Fatal(err)
				}
			}
			var s sink
			root, err := before.WriteDiffBlocks(context.Background(), &s)
			if err != nil || root.String() != f.RootAfterCommit {
				t.Fatalf("root after the commit %v, want %s (%v)", root, f.RootAfterCommit, err)
			}
			var car translate.CAR
			if car.Open(carOf(*root, s.blocks)) == nil || !ops.sortOps() {
				t.Fatal("the test's CAR or ops are invalid")
			}
			var tr tree
			if reason := tr.load(&car, root.Bytes()); reason != Valid {
				t.Fatalf("load: %v", reason)
			}
			if reason := tr.undo(ops.ops); reason != Valid {
				t.Fatalf("undo: %v", reason)
			}
			got, reason := tr.rootBefore()
			if want := cid.MustParse(f.RootBeforeCommit).Bytes(); reason != Valid || !bytes.Equal(got[:], want[len(cidPrefix):]) {
				t.Errorf("root before %x (%v), want %x", got, reason, want)
			}
		})
	}
}

// TestLayers compares layers with the AT Protocol's fixtures.
func TestLayers(t *testing.T) {
	var fixtures []struct {
		Key    string
		Height int
	}
	if err := json.Unmarshal(corpusFile(t, "interop", "mst", "key_heights.json"), &fixtures); err != nil {
		t.Fatal(err)
	}
	for _, f := range fixtures {
		if got := layerOf([]byte(f.Key)); got != f.Height {
			t.Errorf("%q is at layer %d, want %d", f.Key, got, f.Height)
		}
	}
	if len(fixtures) < 5 {
		t.Errorf("only %d fixtures", len(fixtures))
	}
}
