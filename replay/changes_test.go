package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// changes compares what Changes gives from a random frame on with the model, and that each step
// says how far it comes.
func (w *world) changes() {
	t, m := w.t, w.m
	t.Helper()
	after := EpochEnd{Epoch: 1 + uint32(w.rng.IntN(int(m.epoch))), Seq: int64(w.rng.IntN(400))}
	if all := m.items(); len(all) > 0 && w.rng.IntN(3) > 0 {
		if e := all[w.rng.IntN(len(all))].event; e != nil {
			after = EpochEnd{Epoch: e.Epoch, Seq: e.Seq}
		}
	}
	p := format.Place{Epoch: after.Epoch, Seq: after.Seq, Op: math.MaxUint32}
	var want []string
	for _, it := range m.items() {
		switch {
		case it.gap != nil && m.gapIsAfter(*it.gap, p):
			want = append(want, fmt.Sprintf("gap %v", *it.gap))
		case it.event != nil && p.Before(it.event.Place):
			e := it.event
			refs := slices.DeleteFunc(slices.Clone(e.refs), func(r Reference) bool { return r.Had })
			want = append(want, fmt.Sprint(e.Seq, e.kind, e.operation, e.didUID, e.uriUID, e.payload, refs))
		}
	}
	var got []string
	through := after
	err := w.log.Changes(t.Context(), after, func(c *Changes) error {
		if !through.Before(c.Through) && (c.Gap == nil || c.Through != through) {
			t.Fatalf("after %v came %v", through, c.Through)
		}
		if c.Gap != nil {
			got = append(got, fmt.Sprintf("gap %v", *c.Gap))
		}
		for i := range c.Events {
			e := &c.Events[i]
			if c.Gap != nil || !(EpochEnd{Epoch: c.Through.Epoch, Seq: e.Seq - 1}).Before(c.Through) ||
				!through.Before(EpochEnd{Epoch: c.Through.Epoch, Seq: e.Seq}) {
				t.Fatalf("frame %d is not between %v and %v", e.Seq, through, c.Through)
			}
			got = append(got, fmt.Sprint(e.Seq, e.Kind, e.Operation, e.DIDUID, e.URIUID, string(e.Payload), w.unnumbered(slices.Clone(e.References))))
		}
		through = c.Through
		return nil
	})
	if f := m.floor(); f != nil && p.Before(f.Place) {
		if !errors.Is(err, ErrTrimmed) {
			t.Fatalf("after %v, of which some was trimmed: %v", after, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("after %v: %v", after, err)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("after %v came\n%q, want\n%q", after, got, want)
	}
	if end := (EpochEnd{Epoch: m.epoch, Seq: m.seq}); after.Before(end) && through != end {
		t.Fatalf("it ends at %v, the log at %v", through, end)
	}
}

// TestChanges compares what Changes gives with a plain slice, while the log grows, is trimmed and
// opened again.
func TestChanges(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for i := range uint64(2) {
		t.Run(fmt.Sprint(base+i), func(t *testing.T) {
			w := newWorld(t, base+i)
			for range 60 {
				switch k := w.rng.IntN(10); {
				case k < 4:
					w.append()
				case k < 5:
					w.trim()
				case k < 6:
					w.restart()
				default:
					w.adoptBlocks()
					w.changes()
				}
			}
		})
	}
}

// TestLastChange: of a frame that the log has reached without events, the last change is before it.
func TestLastChange(t *testing.T) {
	clock := newTestClock()
	a := &lines{t: t, l: mustOpen(t, testConfig(t, vfs.NewMem(), clock)), clock: clock}
	check := func(frames map[int64]int64) {
		t.Helper()
		for seq, want := range frames {
			if got := a.l.LastChange(EpochEnd{Epoch: 1, Seq: seq}); got != (EpochEnd{Epoch: 1, Seq: want}) {
				t.Errorf("of frame %d: %v, want %d", seq, got, want)
			}
		}
	}
	a.append(a.block(1, 1, 9, format.Place{Seq: 5}))
	check(map[int64]int64{4: 4, 5: 5, 6: 5, 9: 5, 10: 10})
	b, stream := a.block(1, 20, 25), StreamOf(testRelay, 1)
	b.gap = &Gap{From: translate.Position{Stream: stream, Seq: 9}, To: translate.Position{Stream: stream, Seq: 20}, TimeUS: a.stamp + 1}
	a.stamp++
	a.append(b)
	check(map[int64]int64{9: 9, 20: 20, 21: 20, 25: 20, 26: 26})
}

// TestChangesEnds: an error of the caller's ends it, as does its context, and a closed log.
func TestChangesEnds(t *testing.T) {
	w := newWorld(t, 1)
	for w.m.seq == 0 || len(w.m.blocks) < 3 {
		w.append()
	}
	own := errors.New("own")
	calls := 0
	if err := w.log.Changes(t.Context(), EpochEnd{}, func(*Changes) error { calls++; return own }); !errors.Is(err, own) || calls != 1 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := w.log.Changes(ctx, EpochEnd{}, func(*Changes) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("without its context: %v", err)
	}
	_ = w.log.Close()
	if err := w.log.Changes(t.Context(), EpochEnd{}, func(*Changes) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed log: %v", err)
	}
}
