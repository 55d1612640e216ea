package replay

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/consume/relaysim/testwait"
	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
	"millrace/translate"
)

// quietLog appends n small blocks of size events each, as a quiet relay makes them, one Append
// each.
func quietLog(t testing.TB, l *Log, events []testEvent, size int) {
	t.Helper()
	for i := 0; i+size <= len(events); i += size {
		tb := testBlock{epoch: 1, firstSeq: events[i].Seq, lastSeq: events[i+size-1].Seq, events: events[i : i+size]}
		if err := l.Append(tb.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFlushedPartsStay: with a memtable of MinBlobMemTable compactions leave plain and zstd parts
// where a flush has put them. A trim takes them from the disk all the same.
func TestFlushedPartsStay(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.PebbleBytes = 4 * pebblestore.MinBlobMemTable
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(3, 1))
	payload := func() string {
		text := make([]byte, 10_000)
		for i := range text {
			text[i] = 'a' + byte(rng.IntN(26))
		}
		return string(text)
	}
	for i := range 120 {
		tb := testBlock{epoch: 1, firstSeq: int64(20*i + 1), lastSeq: int64(20*i + 20)}
		for op := range 20 {
			e := randomEvent(rng, format.Place{Epoch: 1, Seq: int64(20*i + 1 + op), Op: 0}, clock.us())
			e.payload = e.payload[:len(e.payload)-1] + `,"text":"` + payload() + `"}`
			tb.events = append(tb.events, e)
			clock.advance(time.Millisecond)
		}
		if err := l.Append(tb.seal(t, l)); err != nil {
			t.Fatal(err)
		}
		if err := l.store.Pebble().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	var m *pebble.Metrics
	testwait.Eventually(t, time.Minute, "two compactions", func() bool {
		m = l.store.Pebble().Metrics()
		return m.Compact.NumInProgress == 0 && m.Compact.Count >= 2
	})
	flushed, compacted := writtenByPebble(m)
	held := l.Range()
	if flushed < uint64(held.Bytes)/2 || compacted > flushed/20 {
		t.Errorf("of %d bytes flushes wrote %d, and compactions %d again", held.Bytes, flushed, compacted)
	}
	if err := l.TrimTo(t.Context(), held.Bytes/4); err != nil {
		t.Fatal(err)
	}
	if err := l.store.Pebble().Flush(); err != nil {
		t.Fatal(err)
	}
	testwait.Eventually(t, time.Minute, "the disk is free of what was trimmed", func() bool { return l.DiskBytes() <= int64(flushed)*6/10 })
}

// TestQuietLog: a log of small blocks is stored in large ones, and a flush writes little but those.
func TestQuietLog(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.hooks.keepSmall, cfg.TailBytes, cfg.PebbleBytes = false, 32<<20, 64<<20
	l := mustOpen(t, cfg)
	var events []testEvent
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 20_000 {
		events = append(events, randomEvent(rng, format.Place{Epoch: 1, Seq: int64(i + 1), Op: 0}, testStart.UnixMicro()+int64(i)*600))
	}
	quietLog(t, l, events, 8)
	s := l.snap.Load()
	held := s.Total.Minus(s.Trimmed)
	if held.Events != 20_000 || held.Blocks > 20_000/500+maxGroupEvents/8 {
		t.Errorf("%d events are in %d blocks", held.Events, held.Blocks)
	}
	if err := l.store.Pebble().Flush(); err != nil {
		t.Fatal(err)
	}
	m := l.store.Pebble().Metrics()
	if got := m.Levels[0].TableBytesFlushed + m.Levels[0].BlobBytesFlushed; got > uint64(held.Bytes)*11/10 {
		t.Errorf("a flush wrote %d bytes for %d bytes of blocks", got, held.Bytes)
	}
	// A memtable that fills in the middle of a group leaves those of one group.
	if n := m.Keys.TombstoneCount; n > uint64(m.Flush.Count)*4*maxGroupEvents/8 {
		t.Errorf("%d deletions came to the disk", n)
	}
	keys := 0
	it, err := l.store.NewIter(&pebble.IterOptions{LowerBound: format.RangeIndex.Start(), UpperBound: format.RangeIndex.End()})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		keys++
	}
	if int64(keys) != held.Blocks {
		t.Errorf("%d blocks are in the store, the log counts %d", keys, held.Blocks)
	}
}

// TestTrimCutsGroup: a trim that ends within the group drops the small blocks it must, and what is
// left of them is read as before.
func TestTrimCutsGroup(t *testing.T) {
	w := newWorld(t, 11)
	if err := w.log.Close(); err != nil {
		t.Fatal(err)
	}
	w.cfg.TailBytes, w.cfg.Retention, w.cfg.RetentionBytes = 4<<20, 30*time.Second, 0
	w.open()
	cuts := 0
	for range 40 {
		for range 6 {
			w.append()
		}
		s := w.log.snap.Load()
		if w.clock.wall.Add(-w.cfg.Retention).UnixMicro() > s.stable() && s.group > 0 {
			cuts++
		}
		w.trim()
		w.check()
		w.readAll()
		if n := w.log.snap.Load().group; w.log.snap.Load().stable() < w.m.floorUS() && n > 0 {
			t.Fatalf("the floor %d lies within a group of %d", w.m.floorUS(), n)
		}
	}
	if cuts == 0 {
		t.Error("no trim met a group")
	}
	w.restart()
	w.check()
	w.readAll()
}

// TestSettledBlocksJoinSpans: blocks that a trim leaves of a group are in spans later, all of them.
func TestSettledBlocksJoinSpans(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.hooks.keepSmall, cfg.TailBytes, cfg.Retention = false, 16<<10, 30*time.Second
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	for seq := range int64(3) {
		a.append(a.block(1, seq+1, seq+1, format.Place{Seq: seq + 1}))
		clock.advance(10 * time.Second)
	}
	if n := a.l.snap.Load().group; n != 3 {
		t.Fatalf("the group has %d blocks, want 3", n)
	}
	clock.advance(5 * time.Second)
	if err := a.l.Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held := a.l.Range(); held.Events != 2 {
		t.Fatalf("%d events are left, want 2", held.Events)
	}
	// Blocks that are not small and larger than the tail: what was before is read from the disk.
	want := []string{"1-2-0", "1-3-0"}
	for seq := int64(4); seq <= 6; seq++ {
		var places []format.Place
		for op := range uint32(maxSmallEvents + 1) {
			p := format.Place{Epoch: 1, Seq: seq, Op: op}
			places = append(places, p)
			want = append(want, strings.TrimPrefix(placeText(p), "00000"))
		}
		a.append(a.block(1, seq, seq, places...))
		clock.advance(time.Second)
	}
	if s := a.l.snap.Load(); len(s.tail) != 1 || s.spanned == 0 {
		t.Fatalf("%d blocks are in the tail, the newest span is %d", len(s.tail), s.spanned)
	}
	r := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0), Filter: must(NewFilter(FilterConfig{Kinds: Kinds(translate.KindCommit)}))})
	if got := a.read(r); got != strings.Join(want, " ") {
		t.Errorf("of %d events a reader that goes by spans gets %.100s", len(want), got)
	}
}

// TestGroupPolicy is the table of which blocks become one.
func TestGroupPolicy(t *testing.T) {
	for _, tc := range []struct {
		tail   int64
		events int
		bytes  int64
		small  bool
		fits   bool
	}{
		{1 << 30, 1, 1000, true, true},
		{1 << 30, maxSmallEvents, maxGroupBytes / 2, true, true},
		{1 << 30, maxSmallEvents + 1, 1000, false, true},
		{1 << 30, 1, maxGroupBytes/2 + 1, false, true},
		{1 << 30, maxGroupEvents, maxGroupBytes, false, true},
		{1 << 30, maxGroupEvents + 1, 1000, false, false},
		{1 << 30, 1, maxGroupBytes + 1, false, false},
		{8000, 1, 1000, true, true},
		{8000, 1, 1001, false, true},
		{8000, 1, 2001, false, false},
	} {
		p := newGroupPolicy(tc.tail)
		if small, fits := p.small(tc.events, tc.bytes), p.fits(tc.events, tc.bytes); small != tc.small || fits != tc.fits {
			t.Errorf("a tail of %d bytes: %d events of %d bytes are small: %v, fit a group: %v", tc.tail, tc.events, tc.bytes, small, fits)
		}
	}
}
