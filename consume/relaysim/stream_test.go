package relaysim

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/google/go-cmp/cmp"
	"github.com/ipfs/go-cid"
)

func checkTruth(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("truth differs (- recomputed, + written):\n%.3000s", diff)
	}
}

// TestTruthOfWorld recomputes the truth from what a consumer was sent: over the first cycle, which
// is real, and over later ones, which are rewritten.
func TestTruthOfWorld(t *testing.T) {
	const frames = 3000
	r := startRelay(t, "--frames", "3000", "--wait-for-consumer", "--first-seq", "1000")
	messages := r.connect("").read(frames)
	for i, m := range messages {
		if seq := seqOf(t, m.data); seq != int64(1000+i) {
			t.Fatalf("message %d has seq %d", i, seq)
		}
	}
	checkTruth(t, recompute(t, 0, messages), r.lines())
}

// TestTruthWithoutSync: the truth has the events of #sync frames only if they are asked for, also
// of a world that goes on.
func TestTruthWithoutSync(t *testing.T) {
	testTruthWithoutSync(t, false)
	testTruthWithoutSync(t, true)
}

func testTruthWithoutSync(t *testing.T, signed bool) {
	t.Helper()
	var truth [2][]byte
	for i, sync := range []bool{false, true} {
		name := filepath.Join(t.TempDir(), "truth")
		cfg := Config{Truth: name, TruthSync: sync, Signed: signed, Generate: 500, Accounts: 100, HostileEvery: 50, HostileKinds: "sync*", Clock: "virtual"}
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		produce(t, r, 2000)
		if truth[i], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	syncs := 0
	var rest []byte
	for line := range bytes.Lines(truth[1]) {
		if bytes.Contains(line, []byte(`"kind":"sync"`)) {
			syncs++
		} else {
			rest = append(rest, line...)
		}
	}
	if !bytes.Equal(rest, truth[0]) || syncs < 8 {
		t.Errorf("%d bytes of truth without #sync, %d with, of which %d are of others; %d of #sync", len(truth[0]), len(truth[1]), len(rest), syncs)
	}
}

func TestTruthOfCapture(t *testing.T) {
	file := corpus(t, "frames.bin.zst")
	for name, flags := range map[string][]string{
		"once":   {"--once"},
		"looped": {"--frames", "200"},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRelay(t, append(flags, "--capture", file, "--wait-for-consumer")...)
			n := 200
			if name == "once" {
				n = 60
			}
			messages := r.connect("").read(n)
			checkTruth(t, recompute(t, 0, messages), r.lines())
			frames, err := readCapture(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range messages {
				if same := bytes.Equal(m.data, frames[i%60]); same != (name == "once") {
					t.Fatalf("message %d equals the captured frame: %v", i, same)
				}
			}
		})
	}
}

// TestRewrittenEnvelopes: revs of commits rise, those of #sync frames stay; creates have fresh
// keys, deletes hit what was created, DIDs are many.
func TestRewrittenEnvelopes(t *testing.T) {
	r := startRelay(t, "--frames", "3000", "--wait-for-consumer", "--truth", "")
	messages := r.connect("").read(3000)
	created, dids := make(map[string]bool), make(map[string]int)
	last, deletes, syncs, hits := "", 0, 0, 0
	for i, m := range messages[600:] {
		e := decode(t, m.data)
		if s := e.RepoSync; s != nil {
			syncs++
			if before := decode(t, messages[i].data).RepoSync; s.Did != before.Did || s.Rev != before.Rev {
				t.Errorf("message %d: #sync of %s at %s, one cycle before of %s at %s", i, s.Did, s.Rev, before.Did, before.Rev)
			}
		}
		c := e.RepoCommit
		if c == nil {
			continue
		}
		dids[c.Repo]++
		if c.Rev <= last {
			t.Fatalf("message %d: rev %s after %s", i, c.Rev, last)
		}
		last = c.Rev
		for _, op := range c.Ops {
			path := c.Repo + "/" + op.Path
			switch op.Action {
			case "create":
				if created[path] && len(path) > didLen+tidLen && strings.Contains(path, ".feed.like/") {
					t.Fatalf("message %d creates %s again", i, path)
				}
				created[path] = true
			case "delete":
				if len(c.Ops) == 1 {
					deletes++
					if created[path] {
						hits++
					}
				}
			}
		}
	}
	if len(dids) < 200 {
		t.Errorf("only %d DIDs", len(dids))
	}
	if syncs == 0 {
		t.Error("no #sync")
	}
	if deletes == 0 || hits < deletes/3 {
		t.Errorf("%d of %d deletes hit a record", hits, deletes)
	}
}

// TestKeptRecordKeys: what a repeated frame creates is in its tree, by its path.
func TestKeptRecordKeys(t *testing.T) {
	const frames = 1500
	r := startRelay(t, "--frames", "1500", "--wait-for-consumer", "--keep-record-keys")
	messages := r.connect("").read(frames)
	found := 0
	for i, m := range messages {
		c := decode(t, m.data).RepoCommit
		if c == nil || c.TooBig {
			continue
		}
		_, slice, err := repo.LoadRepoFromCAR(t.Context(), bytes.NewReader(c.Blocks))
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range c.Ops {
			if op.Action == "delete" {
				continue
			}
			collection, rkey, _ := strings.Cut(op.Path, "/")
			if id, err := slice.MST.Get([]byte(op.Path)); err != nil || id == nil || *id != cid.Cid(*op.Cid) {
				t.Fatalf("message %d: %s is %v in the tree, want %v: %v", i, op.Path, id, op.Cid, err)
			}
			if _, _, err := slice.GetRecordBytes(t.Context(), syntax.NSID(collection), syntax.RecordKey(rkey)); err != nil {
				t.Fatalf("message %d: %s: %v", i, op.Path, err)
			}
			found++
		}
	}
	if found < frames/2 {
		t.Errorf("only %d records", found)
	}
	checkTruth(t, recompute(t, 0, messages), r.lines())
}

// TestSameBytesTwice: with the virtual clock the stream follows from the flags alone, hostile
// messages included.
func TestSameBytesTwice(t *testing.T) {
	var streams [2][]received
	var truths [2][]string
	for i := range streams {
		r := startRelay(t, "--frames", "2500", "--wait-for-consumer", "--hostile-every", "7", "--churn-every", "5", "--seed", "99",
			"--truth-references")
		streams[i] = r.connect("").read(2500)
		truths[i] = r.lines()
	}
	for i, m := range streams[0] {
		if other := streams[1][i]; m.text != other.text || !bytes.Equal(m.data, other.data) {
			t.Fatalf("message %d differs:\n%.300q\n%.300q", i, m.data, other.data)
		}
	}
	if !slices.Equal(truths[0], truths[1]) {
		t.Error("the truths differ")
	}
}

// TestRate: a rated stream is as fast as it says, smooth, and catches up with maxBehind after a
// standstill.
func TestRate(t *testing.T) {
	const rate = 1000
	now := time.Unix(1_800_000_000, 0)
	p := &producer{cfg: Config{Rate: rate}, due: now}
	after := func(d time.Duration, left int64) (made int64) {
		now = now.Add(d)
		for {
			n, wait := p.rated(now, left)
			if n == 0 {
				if wait <= 0 || wait > time.Second/rate {
					t.Errorf("the next frame is due in %v", wait)
				}
				return made
			}
			p.spend(n)
			made += n
		}
	}
	if n := after(0, batchFrames); n != 1 {
		t.Errorf("%d frames are due at once, want 1", n)
	}
	for _, step := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 250 * time.Millisecond, maxBehind} {
		want := int64(step.Seconds() * rate)
		for range 5 {
			if n := after(step, batchFrames); n < want-1 || n > want+1 {
				t.Errorf("after %v %d frames are due, want %d", step, n, want)
			}
		}
	}
	if n, most := after(time.Hour, batchFrames), int64(maxBehind.Seconds()*rate)+1; n < most-1 || n > most {
		t.Errorf("after a standstill %d frames are due, want %d", n, most)
	}
}
