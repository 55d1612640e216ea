package relaysim

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/ipfs/go-cid"
)

func signedRelay(t *testing.T, cfg Config) *Relay {
	t.Helper()
	cfg.Signed, cfg.Clock = true, "virtual"
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSignedGoesOn: frames after the generated ones are real, too, and follow on them. A stream is
// a function of its seed.
func TestSignedGoesOn(t *testing.T) {
	cfg := Config{Seed: 4, Generate: 200, Accounts: 40}
	chains := make(map[string]cid.Cid)
	same := signedRelay(t, cfg).Take(200 + 2*signedFrames)
	commits := 0
	for i, m := range signedRelay(t, cfg).Take(len(same)) {
		if !bytes.Equal(m.Payload, same[i].Payload) {
			t.Fatalf("message %d differs between two streams of one seed", i)
		}
		c := decode(t, m.Payload).RepoCommit
		if c == nil {
			continue
		}
		if last, known := chains[c.Repo]; known && cid.Cid(*c.PrevData) != last {
			t.Fatalf("message %d: commit of %s does not follow on the one before", i, c.Repo)
		}
		if c.TooBig {
			delete(chains, c.Repo)
			continue
		}
		if _, err := repo.VerifyCommitMessage(context.Background(), c); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		chains[c.Repo] = verifySignature(t, c.Blocks).Data
		commits++
	}
	if commits < len(same)*8/10 {
		t.Errorf("%d commits in %d messages", commits, len(same))
	}
}

// TestFaultsArePlanted: each in turn, and no other message is changed. What a consumer must hold of
// them is in the truth.
func TestFaultsArePlanted(t *testing.T) {
	cfg := Config{Seed: 4, Generate: 300, Accounts: 40, FaultyEvery: 5, Truth: filepath.Join(t.TempDir(), "truth"), TruthSync: true}
	r := signedRelay(t, cfg)
	seen := make(map[string]int)
	var frames [][]byte
	var truth strings.Builder
	for _, m := range r.Take(1500) {
		seen[m.Fault]++
		frames = append(frames, m.Payload)
		if c := decode(t, m.Payload).RepoCommit; m.Fault == "" && c != nil && !c.TooBig {
			if _, err := repo.VerifyCommitMessage(context.Background(), c); err != nil {
				t.Fatal(err)
			}
			verifySignature(t, c.Blocks)
		}
	}
	for _, fault := range CommitFaults() {
		if fault.Name != "lost" && seen[fault.Name] < 2 {
			t.Errorf("%s was injected %d times", fault.Name, seen[fault.Name])
		}
	}
	again := signedRelay(t, cfg)
	for range frames {
		again.producer.batch.reset()
		again.producer.one()
		truth.Write(again.producer.batch.truth)
	}
	compareTranslate(t, frames, truth.String())
	if err := again.producer.truth.close(); err != nil {
		t.Fatal(err)
	}
}

// TestInjectFault: only commits can have faults.
func TestInjectFault(t *testing.T) {
	injected := 0
	for _, frame := range originals(testWorld(t, 7, 300, false)) {
		out, ok := InjectFault("prev-data", frame, time.Now())
		if c := decode(t, frame).RepoCommit; ok != (c != nil && !c.TooBig) {
			t.Fatalf("injected %v in %.100q", ok, frame)
		} else if ok {
			injected++
			if _, err := repo.VerifyCommitMessage(context.Background(), decode(t, out).RepoCommit); err == nil {
				t.Fatal("indigo finds nothing")
			}
		}
	}
	if _, ok := InjectFault("nice", nil, time.Now()); ok || injected == 0 {
		t.Errorf("injected %d, and an unknown fault: %v", injected, ok)
	}
}
