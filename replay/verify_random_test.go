package replay

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/consume/relaysim/testwait"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// verifyWorld is a log that random things happen to.
type verifyWorld struct {
	t     *testing.T
	rng   *rand.Rand
	clock *testClock
	fs    *vfs.MemFS
	cfg   Config
	log   *Log
	us    int64
}

// append appends some blocks, of one epoch or the next, now and then after a gap.
func (w *verifyWorld) append() {
	at := w.log.Progress()
	epoch, seq := at.Epoch, at.Seq
	w.us = max(w.us, at.TimeUS)
	if w.rng.IntN(12) == 0 {
		epoch, seq = epoch+1, 0
	}
	var blocks []*Block
	for range 1 + w.rng.IntN(4) {
		w.us += 1 + int64(w.rng.IntN(1000))
		b := testBlock{epoch: epoch, firstSeq: seq + 1}
		if w.rng.IntN(15) == 0 {
			b.gap = &Gap{To: translate.Position{Stream: StreamOf(testRelay, epoch), Seq: b.firstSeq}, TimeUS: w.us}
		}
		most := []int{1, 8, 40, 700}[w.rng.IntN(4)]
		for range w.rng.IntN(most + 1) {
			w.us += 1 + int64(w.rng.IntN(1000))
			seq += 1 + int64(w.rng.IntN(2))
			b.events = append(b.events, shapedEvent(format.Place{Epoch: epoch, Seq: seq, Op: 0}, w.us, w.rng.IntN(1000)))
		}
		seq += int64(w.rng.IntN(2))
		if seq < b.firstSeq {
			seq = b.firstSeq
		}
		b.lastSeq = seq
		blocks = append(blocks, b.seal(w.t, w.log))
	}
	if err := w.log.Append(blocks...); err != nil {
		w.t.Fatal(err)
	}
}

// step does one of what may happen to a log.
func (w *verifyWorld) step() {
	switch k := w.rng.IntN(20); {
	case k == 0:
		held := w.log.Range()
		if err := w.log.TrimTo(w.t.Context(), 1+held.Bytes*int64(w.rng.IntN(10))/10); err != nil {
			w.t.Fatal(err)
		}
	case k == 1:
		w.clock.advance(time.Duration(w.rng.IntN(3600)) * time.Second)
		if err := w.log.Trim(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	case k == 2:
		w.reopen(false)
	case k == 3:
		w.reopen(true)
	default:
		w.append()
	}
}

// reopen closes the log, or crashes the machine under it, and opens what is left.
func (w *verifyWorld) reopen(crash bool) {
	if crash {
		w.fs = w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: w.rng})
	}
	if err := w.log.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.cfg.FS = w.fs
	w.check()
	w.log = mustOpen(w.t, w.cfg)
}

// check verifies the log, which is closed.
func (w *verifyWorld) check() {
	if r := mustVerify(w.t, w.fs); !r.Sound() {
		w.t.Fatalf("%d problems in a log that nobody touched: %v", r.Problems, r.Examples)
	}
}

// TestVerifyRandom: whatever happens to a log, merging, spans, trims, restarts and crashes, nothing
// is wrong with it.
func TestVerifyRandom(t *testing.T) {
	seeds := uint64(8)
	if testwait.Race {
		seeds = 2
	}
	if os.Getenv("MILLRACE_TEST_LONG") != "" {
		seeds = 30
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			clock := newTestClock()
			w := &verifyWorld{t: t, rng: rand.New(rand.NewPCG(seed, 6)), clock: clock, fs: vfs.NewCrashableMem(), us: clock.us()}
			w.cfg = testConfig(t, w.fs, clock)
			w.cfg.hooks.blobValue, w.cfg.hooks.substreamsBytes = int(seed%2), []int{0, 1, 1000}[seed%3]
			w.log = mustOpen(t, w.cfg)
			for range 120 {
				w.step()
			}
			_ = w.log.Close()
			w.check()
		})
	}
}
