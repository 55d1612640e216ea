package replay

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// TestMergeEqualsSeal: a merged block is the block that all its events would have been sealed to, byte
// for byte in every part.
func TestMergeEqualsSeal(t *testing.T) {
	l := mustOpen(t, testConfig(t, vfs.NewMem(), newTestClock()))
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		whole := testBlock{epoch: 1, firstSeq: 1}
		var parts []*Block
		seq, us := int64(0), testStart.UnixMicro()
		for range 1 + rng.IntN(6) {
			part := testBlock{epoch: 1, firstSeq: seq + 1}
			for range 1 + rng.IntN(20) {
				seq++
				us += int64(1 + rng.IntN(1000))
				e := randomEvent(rng, place{1, seq, 0}, us)
				if rng.IntN(2) == 0 && len(parts)%2 == 0 {
					e.didUID, e.uriUID = 0, 0
				}
				part.events = append(part.events, e)
			}
			part.lastSeq = seq
			whole.events = append(whole.events, part.events...)
			parts = append(parts, part.seal(t, l))
		}
		whole.lastSeq = seq
		want, got := whole.seal(t, l), merge(parts)
		for name, p := range map[string][2][]byte{
			"index": {want.sealedIndex, got.sealedIndex}, "plain": {slices.Concat(want.sealedPlain...), slices.Concat(got.sealedPlain...)}, "zstd": {want.sealedZstd, got.sealedZstd},
		} {
			if diff := cmp.Diff(p[0], p[1]); diff != "" {
				t.Fatalf("seed %d: %s part of %d blocks: -sealed +merged\n%s", seed, name, len(parts), diff)
			}
		}
		if want.stored() != got.stored() || want.Events() != got.Events() {
			t.Fatalf("seed %d: %d bytes, %d events, want %d, %d", seed, got.stored(), got.Events(), want.stored(), want.Events())
		}
	}
}

// quietLog appends n small blocks of size events each, as a quiet relay makes them, one Append each.
func quietLog(t testing.TB, l *Log, events []testEvent, size int) {
	t.Helper()
	for i := 0; i+size <= len(events); i += size {
		tb := testBlock{epoch: 1, firstSeq: events[i].seq, lastSeq: events[i+size-1].seq, events: events[i : i+size]}
		if err := l.Append(tb.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFlushedPartsStay: with a memtable of MinBlobMemTable compactions leave plain and zstd parts where a flush has put
// them, and a trim takes them from the disk all the same.
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
			e := randomEvent(rng, place{1, int64(20*i + 1 + op), 0}, clock.us())
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
	m := l.store.Pebble().Metrics()
	for end := time.Now().Add(time.Minute); m.Compact.NumInProgress > 0 || m.Compact.Count < 2 && time.Now().Before(end); m = l.store.Pebble().Metrics() {
		time.Sleep(time.Millisecond)
	}
	if m.Compact.Count < 2 {
		t.Fatalf("%d compactions", m.Compact.Count)
	}
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
	for end := time.Now().Add(time.Minute); l.DiskBytes() > int64(flushed)*6/10; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes of %d remain on the disk: %s", l.DiskBytes(), flushed, l.store.Pebble().Metrics())
		}
	}
}

// TestQuietLog: a log of small blocks is stored in large ones, and a flush writes little but those.
func TestQuietLog(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.keepSmall, cfg.TailBytes, cfg.PebbleBytes = false, 32<<20, 64<<20
	l := mustOpen(t, cfg)
	var events []testEvent
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 20_000 {
		events = append(events, randomEvent(rng, place{1, int64(i + 1), 0}, testStart.UnixMicro()+int64(i)*600))
	}
	quietLog(t, l, events, 8)
	s := l.snap.Load()
	held := s.total.minus(s.trimmed)
	if held.events != 20_000 || held.blocks > 20_000/500+maxGroupEvents/8 {
		t.Errorf("%d events are in %d blocks", held.events, held.blocks)
	}
	if err := l.store.Pebble().Flush(); err != nil {
		t.Fatal(err)
	}
	m := l.store.Pebble().Metrics()
	if got := m.Levels[0].TableBytesFlushed + m.Levels[0].BlobBytesFlushed; got > uint64(held.bytes)*11/10 {
		t.Errorf("a flush wrote %d bytes for %d bytes of blocks", got, held.bytes)
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
	if int64(keys) != held.blocks {
		t.Errorf("%d blocks are in the store, the log counts %d", keys, held.blocks)
	}
}

// TestTrimCutsGroup: a trim that ends within the group drops the small blocks it must, and what is left of
// them is read as before.
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
