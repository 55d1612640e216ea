package replay

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/dict"
	"millrace/replay/internal/format"
)

// TestPending has pairs of live readers: one calls Next after each append, the other only if
// Pending says so. Both must get the same and be informed that they got as far.
func TestPending(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newWorld(t, seed)
	// one large block must not take all readers along
	w.log.cfg.RetentionBytes, w.cfg.RetentionBytes = 0, 0
	w.cfg.Retention = max(w.cfg.Retention, 5*time.Minute) // nor one step's time
	w.log.cfg.Retention = w.cfg.Retention
	type pair struct {
		cfg          ReaderConfig
		eager, lazy  *Reader
		want, got    []string
		woken, spare int
	}
	newPair := func() *pair {
		f, _ := w.filter()
		p := &pair{cfg: ReaderConfig{Cursor: Cursor{}, Filter: f, MaxChunkBytes: 1 << (4 + w.rng.IntN(14))}}
		if w.rng.IntN(2) == 0 {
			p.cfg.Dictionary = dict.BuiltIn().ID()
		}
		for _, r := range []**Reader{&p.eager, &p.lazy} {
			var err error
			if *r, err = w.log.NewReader(p.cfg); err != nil {
				t.Fatal(err)
			}
			w.drain(*r, p.cfg)
		}
		return p
	}
	w.append()
	var pairs []*pair
	for range 20 {
		pairs = append(pairs, newPair())
	}
	var g PendingScratch
	var c Chunk
	for range 300 {
		for range w.rng.IntN(3) {
			w.append()
		}
		if w.rng.IntN(20) == 0 {
			w.trim()
		}
		for _, p := range pairs {
			p.want = append(p.want, w.drain(p.eager, p.cfg)...)
			through, pending := p.lazy.Pending(&g)
			if pending {
				p.woken++
				p.got = append(p.got, w.drain(p.lazy, p.cfg)...)
			} else {
				p.spare++
				if through != p.eager.through {
					t.Fatalf("filter %+v: Pending went to %v, Next to %v", p.cfg.Filter, through, p.eager.through)
				}
			}
			if w.rng.IntN(10) > 0 {
				continue
			}
			if err := p.lazy.Next(&c); err != nil || c.Events > 0 || c.Gap != nil {
				t.Fatalf("filter %+v: %d events, gap %v, error %v are left", p.cfg.Filter, c.Events, c.Gap, err)
			}
		}
	}
	woken, spare := 0, 0
	for _, p := range pairs {
		if diff := cmp.Diff(p.want, p.got); diff != "" {
			t.Errorf("filter %+v: -eager +lazy\n%s", p.cfg.Filter, diff)
		}
		woken, spare = woken+p.woken, spare+p.spare
	}
	if woken == 0 || spare == 0 {
		t.Errorf("woken %d times, left alone %d times", woken, spare)
	}
}

// TestPendingEndsWithTheLog: a closed log is something to wake for.
func TestPendingEndsWithTheLog(t *testing.T) {
	w := newWorld(t, 1)
	w.append()
	r := mustRead(t, w.log, ReaderConfig{Cursor: Cursor{}})
	w.drain(r, ReaderConfig{MaxChunkBytes: 1})
	changed := w.log.Changed()
	var g PendingScratch
	if _, pending := r.Pending(&g); pending {
		t.Error("there is something at the end")
	}
	if err := w.log.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("no waiter learned that the log is closed")
	}
	if _, pending := r.Pending(&g); !pending {
		t.Error("a reader of a closed log sleeps on")
	}
}

// TestVerdictsAreShared: readers with one filter are matched once where they are at one place of
// one snapshot, and only there.
func TestVerdictsAreShared(t *testing.T) {
	l := mustOpen(t, testConfig(t, vfs.NewMem(), newTestClock()))
	f := must(NewFilter(FilterConfig{DIDs: []string{testDID(1)}}))
	first, second := mustRead(t, l, ReaderConfig{Filter: f}), mustRead(t, l, ReaderConfig{Filter: f})
	seq := int64(0)
	add := func(did int) {
		t.Helper()
		seq++
		e := shapedEvent(format.Place{Epoch: 1, Seq: seq}, testStart.UnixMicro()+seq, did)
		if err := l.Append(testBlock{epoch: 1, firstSeq: seq, lastSeq: seq, events: []testEvent{e}}.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
	var g PendingScratch
	pending := func(r *Reader, want bool) {
		t.Helper()
		if _, got := r.Pending(&g); got != want {
			t.Fatalf("after %d events: pending %t, want %t", seq, got, want)
		}
	}
	add(2)
	pending(first, false)
	add(1)
	pending(second, true) // first was where second is, but before there was something
	pending(first, true)
	var c Chunk
	if err := first.Next(&c); err != nil || c.Events != 1 {
		t.Fatalf("%d events, want 1: %v", c.Events, err)
	}
	add(2)
	pending(first, false)
	pending(second, true) // first is further on
	if err := second.Next(&c); err != nil || c.Events != 1 {
		t.Fatalf("%d events, want 1: %v", c.Events, err)
	}
	pending(second, false)

	add(2)
	pending(first, false)
	shared := &g.verdicts[f.ID()%uint64(len(g.verdicts))]
	shared.nothing = false // as no reader has set it
	pending(second, true)
}
