package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/consume/relaysim/testwait"
	"millrace/replay/internal/format"
)

// TestFlushEndsGroup: when the log begins a flush, no group is open, and few memtables are full
// before. So no deletion of a small block comes to another memtable than the block.
func TestFlushEndsGroup(t *testing.T) {
	for _, events := range []int{1, 4} {
		t.Run(fmt.Sprint(events), func(t *testing.T) { flushGroups(t, events) })
	}
}

func flushGroups(t *testing.T, events int) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.hooks.keepSmall, cfg.TailBytes, cfg.PebbleBytes = false, 32<<20, 4<<20
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(3, 3))
	flushes, seq := 0, int64(0)
	pebbleFlushes := func() int64 {
		var m *pebble.Metrics
		testwait.Eventually(t, time.Minute, "the end of flushes", func() bool {
			m = l.store.Pebble().Metrics()
			return m.MemTable.Count == 1 && m.Flush.NumInProgress == 0
		})
		return m.Flush.Count
	}
	for range 3000 {
		tb := testBlock{epoch: 1, firstSeq: seq + 1}
		for range events {
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
		pebbleFlushes()
		if n := l.snap.Load().group; n > 0 {
			t.Errorf("flush %d began with a group of %d blocks open", flushes, n)
		}
	}
	// Pebble's first memtables are smaller: of a quarter, and of half the size. A span's end may
	// fill one.
	if n := pebbleFlushes(); flushes < 3 || n > int64(flushes+flushes/4+2) {
		t.Errorf("%d flushes, and Pebble made %d", flushes, n)
	}
}
