package replay

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/dict"
	"millrace/replay/internal/ahead"
	"millrace/replay/internal/format"
)

// TestReadAhead: while a reader of everything has one block, the next is loaded, and only that.
func TestReadAhead(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes = 1
	held, opened := holdReadAhead(&cfg), noteParts(&cfg)
	a := tenBlocks(t, cfg, clock)
	filter := must(NewFilter(FilterConfig{DIDs: []string{testDID(1)}}))
	s, scan := a.l.snap.Load(), blockScan{bs: a.l.blocks}
	first, err := scan.find(s, s.Floor.TimeUS+1)
	if err != nil {
		t.Fatal(err)
	}
	x, err := scan.find(s, first.Key()+1)
	if err != nil {
		t.Fatal(err)
	}
	second := x.Key()
	scan.close()
	var small uint64
	for _, tc := range []struct {
		name  string
		cfg   ReaderConfig
		cache int64
		busy  bool         // others read ahead already
		loads uint64       // into the cache
		part  format.Range // of the second block, that was read ahead
	}{
		// The indexes of two blocks, as the second shows that the chunk is full. Then what was read
		// ahead. It walks on over the slim indexes of all nine blocks on disk.
		{"everything", ReaderConfig{}, 1 << 20, false, 9, format.RangePlain},
		{"compressed", ReaderConfig{Dictionary: dict.BuiltIn().ID()}, 1 << 20, false, 9, format.RangeZstd},
		{"others are first", ReaderConfig{}, 1 << 20, true, 2, 0},
		{"extended", ReaderConfig{Extended: true}, 1 << 20, false, 2, format.RangePlain},
		{"extended, others are first", ReaderConfig{Extended: true}, 1 << 20, true, 2, 0},
		{"filtered", ReaderConfig{Filter: filter}, 1 << 20, false, 2, format.RangePlain},
		{"filtered, others are first", ReaderConfig{Filter: filter}, 1 << 20, true, 2, 0},
		{"a small cache", ReaderConfig{}, 100, true, 0, 0},
		{"a small cache", ReaderConfig{}, 100, false, 0, 0},
	} {
		for range cap(a.l.blocks.readahead.slots) {
			if tc.busy {
				a.l.blocks.readahead.slots <- struct{}{}
			}
		}
		opened.forget()
		a.l.blocks.cache = newCache(tc.cache)
		tc.cfg.Cursor, tc.cfg.MaxChunkBytes = TimeCursor(0), 1
		r := mustRead(t, a.l, tc.cfg)
		var c Chunk
		held.Lock() // it finds nothing that it reads ahead
		err = r.Next(&c)
		held.Unlock()
		if err != nil || c.Events != 1 {
			t.Fatalf("%s: %d events, %v", tc.name, c.Events, err)
		}
		for range cap(a.l.blocks.readahead.slots) {
			if !tc.busy {
				a.l.blocks.readahead.slots <- struct{}{} // waits
			}
		}
		for range cap(a.l.blocks.readahead.slots) {
			<-a.l.blocks.readahead.slots
		}
		loads := a.l.blocks.cache.Stats().Misses
		if tc.loads == 0 {
			if small == 0 {
				small = loads // this time nothing can be read ahead
			}
			tc.loads = small
		}
		if loads != tc.loads {
			t.Errorf("%s: %d parts were loaded, want %d", tc.name, loads, tc.loads)
		}
		var want []format.Range
		if tc.part != 0 {
			want = []format.Range{tc.part}
		}
		if got := opened.of(second); !slices.Equal(got, want) {
			t.Errorf("%s: of the second block the parts %v were opened, want %v", tc.name, got, want)
		}
	}
	// A log may be closed while it reads ahead.
	for range 20 {
		l := a.l
		r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1})
		var c Chunk
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		a.l = mustOpen(t, cfg)
	}
}

// TestWalkOn: a reader of everything finds the slim indexes of the next blocks in the cache, some
// at a time, each read once.
func TestWalkOn(t *testing.T) {
	const blocks = 60
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes, cfg.CacheBytes = 1, 16<<20
	held, opened := holdReadAhead(&cfg), noteParts(&cfg)
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	for i := range int64(blocks) {
		clock.advance(time.Second)
		a.append(a.block(1, i+1, i+1, format.Place{Seq: i + 1}))
	}
	l := a.l
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1})
	onDisk := blocks - len(l.snap.Load().tail)
	var c Chunk
	for i := 0; i < onDisk; i++ {
		held.Lock()
		err := r.Next(&c)
		held.Unlock()
		if err != nil || c.Events != 1 {
			t.Fatalf("block %d: %d events, %v", i, c.Events, err)
		}
		waitReadAhead(l)
		known, read := 0, 0
		for k := range l.blocks.cache.Values() {
			if k.part != format.RangeSlimIndex {
				continue
			}
			if known++; len(opened.of(k.block)) > 0 {
				read++
			}
		}
		// At the first block the second one's slim index was not there yet: reading ahead was held.
		if want := min(i+1+min(i+1, ahead.NextBlocks), onDisk); read != want {
			t.Errorf("after block %d the parts of %d were read, want %d", i, read, want)
		}
		if least, most := min(i+1+3, onDisk), min(i+1+3+ahead.WalkBlocks, onDisk); known < least || known > most {
			t.Errorf("after block %d the cache has %d slim indexes, want %d to %d", i, known, least, most)
		}
	}
	if loads := l.blocks.cache.Stats().Misses; loads != uint64(onDisk) {
		t.Errorf("%d slim indexes were read, there are %d", loads, onDisk)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// holdReadAhead has nothing be read ahead while held is locked.
func holdReadAhead(cfg *Config) (held *sync.RWMutex) {
	held = new(sync.RWMutex)
	cfg.hooks.readAhead = func() {
		held.RLock()
		defer held.RUnlock()
	}
	return held
}

// waitReadAhead waits for what is read ahead.
func waitReadAhead(l *Log) {
	for range cap(l.blocks.readahead.slots) {
		l.blocks.readahead.slots <- struct{}{}
	}
	for range cap(l.blocks.readahead.slots) {
		<-l.blocks.readahead.slots
	}
}

// TestTooLate: frames that their reader has come to are not read ahead for it.
func TestTooLate(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes, cfg.CacheBytes = 1, 16<<20
	opened := noteParts(&cfg)
	a := tenBlocks(t, cfg, clock)
	r := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1})
	s, scan := a.l.snap.Load(), blockScan{bs: a.l.blocks, slim: true}
	defer scan.close()
	first, err := scan.find(s, s.Floor.TimeUS+1)
	if err != nil {
		t.Fatal(err)
	}
	second, err := scan.find(s, first.Key()+1)
	if err != nil {
		t.Fatal(err)
	}
	var c Chunk
	for i, want := range []bool{true, false} { // before the second block, and in it
		if err := r.Next(&c); err != nil || c.Events != 1 {
			t.Fatalf("%d events, %v", c.Events, err)
		}
		waitReadAhead(a.l)
		opened.forget()
		a.l.blocks.load(&aheadBlock{s: s, from: second.Key(), exact: true, slim: true, sparse: true, parts: &r.parts})
		if got := len(opened.of(second.Key())) > 0; got != want {
			t.Errorf("reader in block %d: the second was read: %v, want %v", i, got, want)
		}
	}
}
