package replay

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
)

// TestUnreadSpans fails each read in turn, of a log whose tables nobody has read yet. A reader that
// spans lead ends with the disk's error, and passes over no event before it.
func TestUnreadSpans(t *testing.T) {
	filter := must(NewFilter(FilterConfig{Collections: testCollections[4:5]}))
	var want []string
	for n := int64(0); ; n++ { // 0: none fails
		var reads atomic.Int64
		disk := &failingFS{fails: func(op errorfs.Op) bool {
			return (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpOpen) && reads.Add(1) == n
		}}
		cfg := testConfig(t, disk.wrap(vfs.NewMem()), newTestClock())
		cfg.TailBytes = 1
		cfg.Retention = logstore.SpanRetentionShare * 50 * time.Millisecond // spans of 50 events
		l := mustOpen(t, cfg)
		rng := rand.New(rand.NewPCG(6, 6))
		for seq := int64(1); seq <= 300; seq += 10 {
			tb := testBlock{epoch: 1, firstSeq: seq, lastSeq: seq + 9}
			for i := seq; i <= tb.lastSeq; i++ {
				tb.events = append(tb.events, randomEvent(rng, format.Place{Epoch: 1, Seq: i, Op: 0}, testStart.UnixMicro()+1000*i))
			}
			if err := l.Append(tb.seal(t, l)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.store.Pebble().Flush(); err != nil {
			t.Fatal(err)
		}
		disk.armed.Store(true)
		got, err := drainOf(t, l, ReaderConfig{Cursor: TimeCursor(0), Filter: filter})
		disk.armed.Store(false)
		switch {
		case n == 0:
			if want = got; err != nil || len(want) == 0 || reads.Load() == 0 {
				t.Fatalf("%d events, %d reads, %v", len(want), reads.Load(), err)
			}
		case reads.Load() < n:
			return
		case err == nil && !slices.Equal(got, want) || err != nil && (!errors.Is(err, errDisk) || len(got) > len(want) || !slices.Equal(got, want[:len(got)])):
			t.Fatalf("read %d fails: %d of %d events, %v", n, len(got), len(want), err)
		}
	}
}
