package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/consume/relaysim/testwait"
	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// TestConcurrentReaders: readers of all sorts that run beside an appender and trims see each event
// from their cursor on once, in order, live or not.
func TestConcurrentReaders(t *testing.T) {
	const blocks, readers = 400, 8
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes, cfg.CacheBytes = 8<<10, 64<<10
	l := mustOpen(t, cfg)
	a := &lines{t: t, l: l, clock: clock}
	inputs := make([]*Block, blocks)
	var seqs [blocks + 1]int64 // last seq of the blocks before
	seq := int64(0)
	for i := range inputs {
		var places []format.Place
		first := seq + 1
		for range rng.IntN(6) {
			seq++
			places = append(places, format.Place{Seq: seq})
		}
		seq++ // a frame without events
		inputs[i] = a.block(1, first, seq, places...).seal(t, l)
		seqs[i+1] = seq
	}
	newest := seq
	var appended atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, b := range inputs {
			if err := l.Append(b); err != nil {
				t.Error(err)
				return
			}
			appended.Store(int64(i + 1))
			if i%100 == 50 {
				if err := l.Trim(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	want := make(map[int64]bool) // seqs with events
	for _, b := range inputs {
		if b.idx != nil {
			for _, s := range b.idx.Seq {
				want[s] = true
			}
		}
	}
	for n := range readers {
		rc := ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << (4 + n)}
		switch n % 4 {
		case 1:
			rc.Cursor = PositionCursor(translate.Position{Stream: StreamOf(testRelay, 1), Seq: int64(rng.IntN(500))})
		case 2:
			rc.Extended = true
		case 3:
			rc.Dictionary = dict.BuiltIn().ID()
		}
		begin := rng.Int64N(newest)
		wg.Go(func() {
			if err := follow(l, rc, begin, newest, want); err != nil {
				t.Errorf("seed %d, reader %d: %v", seed, n, err)
			}
		})
	}
	wg.Wait()
}

// follow begins once the log has come to frame begin, reads until frame newest, and checks what it
// counts. Through positions must ascend, and the events between must be as many as want says.
func follow(l *Log, rc ReaderConfig, begin, newest int64, want map[int64]bool) error {
	for changed := l.Changed(); l.Progress().Seq <= begin; changed = l.Changed() {
		<-changed
	}
	r, err := l.NewReader(rc)
	if err != nil {
		return err
	}
	defer r.Close()
	var from int64
	if rc.Cursor.kind == cursorPosition {
		from = rc.Cursor.position.Seq
	}
	return followFrom(r, from, newest, want)
}

func followFrom(r *Reader, at, newest int64, want map[int64]bool) error {
	var c Chunk
	for at < newest {
		changed := r.log.Changed()
		if err := r.Next(&c); err != nil {
			return err
		}
		events := 0
		to := max(at, c.Through.Position.Seq)
		for s := at + 1; s <= to; s++ {
			if want[s] {
				events++
			}
		}
		if events != c.Events {
			return fmt.Errorf("%d events in frames %d to %d, want %d", c.Events, at+1, to, events)
		}
		if at = to; !c.Live || at == newest {
			continue
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			return fmt.Errorf("nothing comes after frame %d of %d, the log is at %+v", at, newest, r.log.Progress())
		}
	}
	return nil
}

// TestSharedLoads: many readers of the same cold blocks load each index once, and build the variant
// of a block of the tail once.
func TestSharedLoads(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes, cfg.CacheBytes = 1, 16<<20
	a := tenBlocks(t, cfg, clock) // 9 blocks are not in the tail
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			r, err := a.l.NewReader(ReaderConfig{Cursor: TimeCursor(0), Extended: true, Dictionary: otherDictionaryID})
			if err != nil {
				t.Error(err)
				return
			}
			var c Chunk
			for !c.Live {
				if err := r.Next(&c); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	// 9 indexes, a variant
	if misses := a.l.blocks.cache.Stats().Misses; misses != 10 {
		t.Errorf("%d loads and builds, want 10", misses)
	}
}

// A chunk of a variant that is not stored has its frames in memory of its own, and holds nothing
// else of a large block.
func TestBuiltChunksAreSmall(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes = 1
	a := tenBlocks(t, cfg, clock)
	for _, v := range []variant{{extended: true}, {dictionary: otherDictionaryID}, {extended: true, dictionary: dict.BuiltIn().ID()}} {
		r := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0), Extended: v.extended, Dictionary: v.dictionary, MaxChunkBytes: 300})
		var c Chunk
		for r.next <= a.l.snap.Load().beforeTail.TimeUS {
			if err := r.Next(&c); err != nil {
				t.Fatal(err)
			}
			if r.next > a.l.snap.Load().beforeTail.TimeUS {
				break // it may have some of the tail
			}
			for _, f := range c.Frames {
				if !overlaps(c.buffer.B, f) {
					t.Fatalf("%+v: a frame is not in the chunk's memory", v)
				}
			}
		}
	}
	for k := range a.l.blocks.cache.Values() {
		if k.variant != (variant{}) && k.block <= a.l.snap.Load().beforeTail.TimeUS {
			t.Errorf("the cache has %+v of a block on disk", k)
		}
	}
}

// TestChunkCopies: a chunk that takes little of many large blocks does not keep them all in memory.
func TestChunkCopies(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes, cfg.CacheBytes = 1, 1<<20
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	pad := strings.Repeat("x", 1000)
	for i := range int64(40) {
		b := a.block(1, i*10+1, i*10+10, format.Place{Seq: i*10 + 1}, format.Place{Seq: i*10 + 2}, format.Place{Seq: i*10 + 3}, format.Place{Seq: i*10 + 4}, format.Place{Seq: i*10 + 5}, format.Place{Seq: i*10 + 6})
		for j := range b.events {
			b.events[j].payload = `{"x":"` + pad + `"}`
		}
		b.events[3].did, b.events[3].payload = testDID(2), `{"small":1}`
		a.append(b)
	}
	f, err := NewFilter(FilterConfig{DIDs: []string{testDID(2)}})
	if err != nil {
		t.Fatal(err)
	}
	r := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0), Filter: f, MaxChunkBytes: 1000})
	var c Chunk
	if err := r.Next(&c); err != nil {
		t.Fatal(err)
	}
	if c.Events != 40 || !c.Live {
		t.Fatalf("%d events, live %t", c.Events, c.Live)
	}
	copied := 0
	for _, f := range c.Frames {
		if cap(f) == len(f) && len(f) < 20 {
			copied++
		}
	}
	// Every slice is full-capacity; those that alias share an array with the cache.
	aliased := 0
	for _, f := range c.Frames {
		for _, e := range a.l.blocks.cache.Values() {
			if len(e.data) > 0 && len(f) > 0 && overlaps(e.data, f) {
				aliased++
			}
		}
	}
	if aliased > pinFactor*1000/5000+1 {
		t.Errorf("%d of %d slices keep their blocks alive", aliased, copied)
	}
	c.Reset()
	if full := c.Frames[:40]; full[0] != nil || full[39] != nil {
		t.Error("Reset keeps the bytes")
	}
}

// overlaps says whether b is part of a's array.
func overlaps(a, b []byte) bool {
	for i := range a {
		if &a[i] == &b[0] {
			return true
		}
	}
	return false
}

// TestSetFilter: a new filter is in force from the next event.
func TestSetFilter(t *testing.T) {
	clock := newTestClock()
	a := &lines{t: t, l: mustOpen(t, testConfig(t, vfs.NewMem(), clock)), clock: clock}
	a.append(a.block(1, 1, 4, format.Place{Seq: 1}, format.Place{Seq: 2}, format.Place{Seq: 3}, format.Place{Seq: 4}))
	r := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1})
	var c Chunk
	if err := r.Next(&c); err != nil || c.Events != 1 || c.Live {
		t.Fatal(c.Events, err)
	}
	none, err := NewFilter(FilterConfig{DIDs: []string{"did:web:nobody.example"}})
	if err != nil {
		t.Fatal(err)
	}
	r.SetFilter(none)
	if got := a.read(r); got != "" {
		t.Errorf("got %q", got)
	}
	a.append(a.block(1, 5, 6, format.Place{Seq: 5}))
	if got := a.read(r); got != "" {
		t.Errorf("got %q", got)
	}
	r.SetFilter(nil)
	a.append(a.block(1, 7, 7, format.Place{Seq: 7}))
	if got := a.read(r); got != "1-7-0" {
		t.Errorf("got %q", got)
	}
}

// TestNextAllocs: an unfiltered or filtered live read allocates nothing. The runtime counts what
// the whole process allocates, so of several counts the lowest is Next's.
func TestNextAllocs(t *testing.T) {
	if testwait.Race {
		t.Skip("the race detector allocates")
	}
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes, cfg.PebbleBytes = 16<<20, 256<<20 // no flush shall allocate meanwhile
	l := mustOpen(t, cfg)
	w := &world{t: t, rng: rand.New(rand.NewPCG(1, 1)), clock: clock, m: &model{epoch: 1, bases: make(map[uint32]int64)}, log: l}
	for range 50 {
		w.append()
	}
	f, err := NewFilter(FilterConfig{Collections: []string{"app.bsky.feed.*"}, DIDs: []string{testDID(1), testDID(2)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, rc := range []ReaderConfig{{}, {Dictionary: dict.BuiltIn().ID()}, {Filter: f}} {
		rc.Cursor = TimeCursor(0)
		r := mustRead(t, l, rc)
		var c Chunk
		next, gapNext, through, atFloor := r.next, r.gapNext, r.through, r.atFloor
		events := 0
		n := math.Inf(1)
		for range 10 {
			n = min(n, testing.AllocsPerRun(10, func() {
				r.next, r.gapNext, r.through, r.atFloor = next, gapNext, through, atFloor
				for c.Live = false; !c.Live; {
					if err := r.Next(&c); err != nil {
						t.Fatal(err)
					}
					events += c.Events
				}
			}))
		}
		if n > 0 || events == 0 {
			t.Errorf("%v allocations for %d events", n, events)
		}
	}
}
