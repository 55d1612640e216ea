package replay

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/format"
)

// TestFlushEndsGroup: when the log begins a flush, no group is open. So no deletion of a small
// block comes to another memtable than the block.
func TestFlushEndsGroup(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.hooks.keepSmall, cfg.TailBytes, cfg.PebbleBytes = false, 32<<20, 4<<20
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(3, 3))
	flushes, seq := 0, int64(0)
	for range 3000 {
		tb := testBlock{epoch: 1, firstSeq: seq + 1}
		for range 4 {
			seq++
			tb.events = append(tb.events, randomEvent(rng, format.Place{Epoch: 1, Seq: seq, Op: 0}, testStart.UnixMicro()+seq*600))
		}
		tb.lastSeq = seq
		if err := l.Append(tb.seal(t, l)); err != nil {
			t.Fatal(err)
		}
		if l.unflushed > 0 {
			continue
		}
		flushes++
		if n := l.snap.Load().group; n > 0 {
			t.Errorf("flush %d began with a group of %d blocks open", flushes, n)
		}
	}
	if flushes < 3 {
		t.Errorf("%d flushes", flushes)
	}
}
