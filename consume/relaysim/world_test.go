package relaysim

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/events"
	"github.com/google/go-cmp/cmp"
	"github.com/ipfs/go-cid"
)

func TestMain(m *testing.M) {
	// indigo's verification logs each commit that it looks at.
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

func testWorld(t testing.TB, seed uint64, frames int, truth bool) []*template {
	t.Helper()
	templates, err := newWorld(worldConfig{
		seed: seed, accounts: 200, truth: truth, begin: time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC),
	}).frames(frames)
	if err != nil {
		t.Fatal(err)
	}
	return templates
}

// originals returns the frames as they were generated, numbered from 1 on.
func originals(templates []*template) (frames [][]byte) {
	for i, tmpl := range templates {
		v := tmpl.original
		v.seq = int64(i + 1)
		frames = append(frames, tmpl.frame.append(nil, &v))
	}
	return frames
}

// decode reads a frame with indigo.
func decode(t testing.TB, frame []byte) *events.XRPCStreamEvent {
	t.Helper()
	var e events.XRPCStreamEvent
	if err := e.Deserialize(bytes.NewReader(frame)); err != nil {
		t.Fatal(err)
	}
	return &e
}

// chain is what a consumer that verifies commits knows of a repository.
type chain struct {
	rev  string
	data cid.Cid
}

// TestWorldVerifies checks each commit as a relay does (signature, structure, inversion of the
// ops), and that each follows on the one before: sync 1.1.
func TestWorldVerifies(t *testing.T) {
	const seed = 7
	templates := testWorld(t, seed, 3000, false)
	chains := make(map[string]chain)
	commits, updates, deletes := 0, 0, 0
	for i, frame := range originals(templates) {
		e := decode(t, frame)
		if e.RepoSync != nil {
			s := e.RepoSync
			commit := verifySignature(t, s.Blocks)
			if commit.Rev != s.Rev || commit.DID != s.Did || commit.Data != chains[s.Did].data && chains[s.Did].rev != "" {
				t.Fatalf("frame %d: #sync of %s does not say where its repository is", i, s.Did)
			}
		}
		c := e.RepoCommit
		if c == nil {
			continue
		}
		last, known := chains[c.Repo]
		if known && (*c.Since != last.rev || cid.Cid(*c.PrevData) != last.data) {
			t.Fatalf("frame %d: commit of %s does not follow on the one before", i, c.Repo)
		}
		if c.Rev <= *c.Since {
			t.Fatalf("frame %d: rev %s is not above %s", i, c.Rev, *c.Since)
		}
		if c.TooBig {
			delete(chains, c.Repo)
			continue
		}
		r, err := repo.VerifyCommitMessage(context.Background(), c)
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		commit := verifySignature(t, c.Blocks)
		if root, err := r.MST.RootCID(); err != nil || *root != commit.Data {
			t.Fatalf("frame %d: tree %v (%v), commit says %v", i, root, err, commit.Data)
		}
		for _, op := range c.Ops {
			switch op.Action {
			case "update":
				updates++
			case "delete":
				deletes++
			}
			if op.Action != "create" && op.Prev == nil {
				t.Fatalf("frame %d: %s without prev", i, op.Action)
			}
		}
		chains[c.Repo] = chain{rev: c.Rev, data: commit.Data}
		commits++
	}
	if commits < 2500 || updates < 5 || deletes < 20 {
		t.Errorf("%d commits, %d updates, %d deletes in 3000 frames", commits, updates, deletes)
	}
}

// TestWorldBrokenCommit makes sure that the verification above can fail.
func TestWorldBrokenCommit(t *testing.T) {
	for _, frame := range originals(testWorld(t, 7, 50, false)) {
		c := decode(t, frame).RepoCommit
		if c == nil || c.TooBig {
			continue
		}
		c.PrevData = &c.Commit
		if _, err := repo.VerifyCommitMessage(context.Background(), c); err == nil {
			t.Fatal("a commit with another's prevData verifies")
		}
		return
	}
	t.Fatal("no commit")
}

// verifySignature reads the commit in a CAR and checks its signature.
func verifySignature(t testing.TB, car []byte) *repo.Commit {
	t.Helper()
	commit, _, err := repo.LoadCommitFromCAR(context.Background(), bytes.NewReader(car))
	if err != nil {
		t.Fatal(err)
	}
	public, err := PublicKey(commit.DID)
	if err != nil {
		t.Fatal(err)
	}
	if err := commit.VerifySignature(public); err != nil {
		t.Fatal(err)
	}
	return commit
}

// TestWorldMix counts ops: the live network's proportions.
func TestWorldMix(t *testing.T) {
	count := make(map[string]int)
	ops, dids := 0, make(map[string]int)
	for _, frame := range originals(testWorld(t, 3, 8000, false)) {
		e := decode(t, frame)
		switch {
		case e.RepoCommit != nil:
			dids[e.RepoCommit.Repo]++
			if e.RepoCommit.TooBig {
				count["tooBig"]++
			}
			for _, op := range e.RepoCommit.Ops {
				collection, _, _ := strings.Cut(op.Path, "/")
				count[op.Action+" "+collection]++
				ops++
			}
		case e.RepoIdentity != nil:
			count["identity"]++
		case e.RepoAccount != nil:
			count["account"]++
		case e.RepoSync != nil:
			count["sync"]++
		}
	}
	for _, want := range []struct {
		what     string
		low, top float64 // of all ops
	}{
		{"create app.bsky.feed.like", .55, .70},
		{"create app.bsky.feed.post", .09, .14},
		{"create app.bsky.feed.repost", .08, .12},
		{"create app.bsky.graph.follow", .06, .12},
	} {
		if share := float64(count[want.what]) / float64(ops); share < want.low || share > want.top {
			t.Errorf("%s: %.3f of all ops, want %.2f to %.2f", want.what, share, want.low, want.top)
		}
	}
	for _, what := range []string{"identity", "account", "sync", "tooBig", "update app.bsky.actor.profile",
		"create app.bsky.actor.profile", "create app.bsky.graph.block", "create app.bsky.graph.list",
		"create app.bsky.graph.listitem", "create app.bsky.feed.threadgate", "delete app.bsky.feed.like",
		"create fm.teal.alpha.feed.play"} {
		if count[what] == 0 {
			t.Errorf("no %s in 8000 frames", what)
		}
	}
	busiest := 0
	for _, n := range dids {
		busiest = max(busiest, n)
	}
	if busiest < 3*8000/len(dids) {
		t.Errorf("the busiest of %d accounts has %d of 8000 frames: no skew", len(dids), busiest)
	}
}

// TestWorldDeterministic: one seed, one world; two seeds, two.
func TestWorldDeterministic(t *testing.T) {
	one, same := originals(testWorld(t, 5, 1500, false)), originals(testWorld(t, 5, 1500, false))
	for i := range one {
		if !bytes.Equal(one[i], same[i]) {
			t.Fatalf("frame %d differs between two worlds of one seed", i)
		}
	}
	if other := originals(testWorld(t, 6, 1, false)); bytes.Equal(one[0], other[0]) {
		t.Error("two seeds give the same frame")
	}
}

// TestWorldRoundTrip decodes each frame with indigo and encodes it again: nothing in it but what
// the lexicon has, and canonical.
func TestWorldRoundTrip(t *testing.T) {
	for i, frame := range originals(testWorld(t, 9, 1500, false)) {
		e := decode(t, frame)
		if e.RepoCommit != nil && e.RepoCommit.TooBig {
			continue // has empty blocks, as relays send it; indigo would leave them out
		}
		var buf bytes.Buffer
		if err := e.Serialize(&buf); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buf.Bytes(), frame) {
			t.Fatalf("frame %d:\n%s", i, cmp.Diff(buf.Bytes(), frame))
		}
	}
}

// TestRecordsAreCanonical encodes each record again with indigo.
func TestRecordsAreCanonical(t *testing.T) {
	records := 0
	for i, frame := range originals(testWorld(t, 9, 1500, false)) {
		c := decode(t, frame).RepoCommit
		if c == nil {
			continue
		}
		blocks, err := carBlocks(c.Blocks)
		if err != nil && !c.TooBig {
			t.Fatalf("frame %d: %v", i, err)
		}
		for _, op := range c.Ops {
			if op.Cid == nil {
				continue
			}
			records++
			checkCanonical(t, op, blocks[cid.Cid(*op.Cid)])
		}
	}
	if records < 1400 {
		t.Errorf("only %d records", records)
	}
}

func checkCanonical(t *testing.T, op *comatproto.SyncSubscribeRepos_RepoOp, record []byte) {
	t.Helper()
	if strings.HasPrefix(op.Path, "com.example.game.move/") {
		return // has a legacy blob, which indigo reads but does not write
	}
	again := reencode(t, record)
	if !bytes.Equal(record, again) {
		t.Errorf("%s is not canonical:\n%q\n%q", op.Path, record, again)
	}
}

// BenchmarkGenerate makes the default world.
func BenchmarkGenerate(b *testing.B) {
	for b.Loop() {
		_, err := newWorld(worldConfig{seed: 1, accounts: 4000, begin: time.Now()}).frames(20_000)
		if err != nil {
			b.Fatal(err)
		}
	}
}
