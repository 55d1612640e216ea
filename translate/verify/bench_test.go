package verify

import (
	"bytes"
	"context"
	"syscall"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/repo"

	"millrace/consume/relaysim"
)

// benchFrame is a commit, its key, and what indigo decodes of it.
type benchFrame struct {
	frame   []byte
	key     atcrypto.PublicKey
	message *comatproto.SyncSubscribeRepos_Commit
}

// benchFrames returns commits of the simulated relay whose accounts have keys of a type.
func benchFrames[Key atcrypto.PublicKey](b *testing.B) (frames []benchFrame) {
	for _, m := range stream(b, relaysim.Config{Generate: 4000, Accounts: 300}, 4000) {
		c := decode(b, m.Payload)
		if c == nil || c.TooBig {
			continue
		}
		if key := publicKey(b, c.Repo); isKey[Key](key) {
			frames = append(frames, benchFrame{m.Payload, key, c})
		}
	}
	return frames
}

func isKey[Key atcrypto.PublicKey](key atcrypto.PublicKey) bool {
	_, ok := key.(Key)
	return ok
}

// BenchmarkCommit verifies commits of the simulated relay, with their signatures; without, also the
// captured ones. Indigo's side does not decode the frame.
func BenchmarkCommit(b *testing.B) {
	b.Run("k256", func(b *testing.B) { benchmark(b, benchFrames[*atcrypto.PublicKeyK256](b), testNow()) })
	b.Run("p256", func(b *testing.B) { benchmark(b, benchFrames[*atcrypto.PublicKeyP256](b), testNow()) })
	b.Run("tree", func(b *testing.B) { benchmark(b, keyless(benchFrames[atcrypto.PublicKey](b)), testNow()) })
	b.Run("real-tree", func(b *testing.B) {
		var frames []benchFrame
		for _, f := range corpusFrames(b) {
			if c := decode(b, f); c != nil {
				frames = append(frames, benchFrame{f, nil, c})
			}
		}
		benchmark(b, frames, corpusNow())
	})
}

func keyless(frames []benchFrame) []benchFrame {
	for i := range frames {
		frames[i].key = nil
	}
	return frames
}

// reportCPU reports the processor time of an iteration, which does not depend on what else runs.
func reportCPU(b *testing.B) func() {
	spent := func() (n int64) {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := spent()
	return func() { b.ReportMetric(float64(spent()-before)/1e3/float64(b.N), "cpu-µs/op") }
}

func benchmark(b *testing.B, frames []benchFrame, now time.Time) {
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		defer reportCPU(b)()
		var v Verifier
		i := 0
		for b.Loop() {
			f := &frames[i%len(frames)]
			i++
			v.Open(f.frame)
			if verdict := v.Check(f.key, now); verdict.Reason > NoKey {
				b.Fatal(verdict.Reason)
			}
		}
	})
	b.Run("indigo", func(b *testing.B) {
		b.ReportAllocs()
		defer reportCPU(b)()
		ctx := context.Background()
		i := 0
		for b.Loop() {
			f := &frames[i%len(frames)]
			i++
			if _, err := repo.VerifyCommitMessage(ctx, f.message); err != nil {
				b.Fatal(err)
			}
			if f.key == nil {
				continue
			}
			commit, _, err := repo.LoadCommitFromCAR(ctx, bytes.NewReader(f.message.Blocks))
			if err != nil {
				b.Fatal(err)
			}
			if err := commit.VerifySignature(f.key); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestNoAllocations: without a signature nothing is allocated for a frame.
func TestNoAllocations(t *testing.T) {
	var v Verifier
	var frames [][]byte
	for _, m := range stream(t, relaysim.Config{Generate: 500, Accounts: 30}, 500) {
		if decode(t, m.Payload) != nil {
			frames = append(frames, m.Payload)
		}
	}
	all := func() {
		for _, f := range frames {
			v.Open(f)
			v.Check(nil, testNow())
		}
	}
	all()
	if n := testing.AllocsPerRun(5, all); n > 0 {
		t.Errorf("%v allocations in %d frames", n, len(frames))
	}
}
