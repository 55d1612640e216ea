package replay

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"millrace/replay/internal/format"
)

// midBlock returns a reader that has read a chunk that ends within the first block, of fatBlocks,
// and the chunk's bytes.
func midBlock(t *testing.T, l *Log) (*Reader, []byte) {
	t.Helper()
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 128 << 10})
	var c Chunk
	if err := r.Next(&c); err != nil || c.Events == 0 {
		t.Fatalf("%d events, %v", c.Events, err)
	}
	return r, bytes.Join(c.Frames, nil)
}

// readToEnd reads on to the end of the log.
func readToEnd(t *testing.T, r *Reader, got []byte) []byte {
	t.Helper()
	for c := (Chunk{}); !c.Live; {
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
		got = append(got, bytes.Join(c.Frames, nil)...)
	}
	return got
}

// checkHeld checks how many parts readers hold open, and that the cache is charged for those.
func checkHeld(t *testing.T, when string, l *Log, want int) {
	t.Helper()
	waitReadAhead(l)
	n := 0
	var bytes int64
	for r := range l.blocks.readers.Range {
		parts := &r.(*Reader).parts
		for _, p := range append([]storedPart{parts.part}, parts.ahead...) {
			if p.bs == nil {
				continue
			}
			n++
			if bytes += p.charged; p.charged != int64(p.pages.StoredBytes()) || p.charged == 0 {
				t.Errorf("%s: %d bytes are charged for a part of %d", when, p.charged, p.pages.StoredBytes())
			}
		}
	}
	if n != want || l.blocks.cache.Stats().Charges != n || l.blocks.cache.Stats().Charged != bytes {
		t.Errorf("%s: %d parts are held, want %d; %d are charged, for %d bytes, want %d", when, n, want,
			l.blocks.cache.Stats().Charges, l.blocks.cache.Stats().Charged, bytes)
	}
}

// holdNoneAhead has nothing be read ahead.
func holdNoneAhead(l *Log) {
	for range cap(l.blocks.readahead.slots) {
		l.blocks.readahead.slots <- struct{}{}
	}
}

// TestHeldPart: a reader goes on in the part that it has open, and takes those that were read ahead
// for it. It holds none once it has reached the end, is released or closed.
func TestHeldPart(t *testing.T) {
	l, want := fatBlocks(t)
	l.blocks.cache = newCache(256 << 20)
	r, got := midBlock(t, l)
	waitReadAhead(l)
	held := r.parts.part.closers[0]
	var c Chunk
	if err := r.Next(&c); err != nil || r.parts.part.closers[0] != held || held == nil {
		t.Errorf("the next chunk of the block opened it again: %v", err)
	}
	got = append(got, bytes.Join(c.Frames, nil)...)
	for block := r.block; r.block == block; {
		waitReadAhead(l)
		if len(r.parts.ahead) == 0 {
			t.Fatal("nothing was read ahead")
		}
		held = r.parts.ahead[0].closers[0]
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
		got = append(got, bytes.Join(c.Frames, nil)...)
	}
	if r.parts.part.closers[0] != held {
		t.Error("it opened a part that was read ahead for it")
	}
	r.Release()
	r.Release()
	checkHeld(t, "released", l, 0)
	if got = readToEnd(t, r, got); !bytes.Equal(got, want) {
		t.Errorf("it read %d bytes, want the %d that are in the log", len(got), len(want))
	}
	checkHeld(t, "at the end", l, 0)

	r, _ = midBlock(t, l)
	r.Close()
	r.Close()
	checkHeld(t, "closed", l, 0)
	if err := r.Next(&c); !errors.Is(err, errReaderClosed) {
		t.Errorf("Next of a reader that is closed says %v", err)
	}
	if _, known := l.blocks.readers.Load(r); known {
		t.Error("a reader that is closed is known")
	}
}

// TestHeldPartOfAnotherFilter: a reader whose new filter passes nothing more of the block lets go
// of it.
func TestHeldPartOfAnotherFilter(t *testing.T) {
	l, _ := fatBlocks(t)
	holdNoneAhead(l)
	r, _ := midBlock(t, l)
	r.SetFilter(must(NewFilter(FilterConfig{DIDs: []string{"did:plc:nobody"}})))
	readToEnd(t, r, nil)
	if r.parts.part.bs != nil || l.blocks.cache.Stats().Charged != 0 {
		t.Errorf("it holds a part that it has left, of %d bytes", l.blocks.cache.Stats().Charged)
	}
	for range cap(l.blocks.readahead.slots) {
		<-l.blocks.readahead.slots
	}
}

// TestLateParts: what was read ahead for a reader that has come to the block, or is idle, is not
// kept for it.
func TestLateParts(t *testing.T) {
	l, _ := fatBlocks(t)
	l.blocks.cache = newCache(256 << 20)
	x := firstBlock(t, l)
	for _, tc := range []struct {
		name    string
		reached int64
		idle    bool
		want    int
	}{{"before", x.Key() - 1, false, 1}, {"in", x.Key(), false, 0}, {"behind", x.Key() + 1, false, 0}, {"resting before", x.Key() - 1, true, 0}} {
		r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0)})
		r.parts.reached.Store(tc.reached)
		r.parts.idle = tc.idle
		l.blocks.fetch(x, &aheadBlock{parts: &r.parts}, nil)
		checkHeld(t, tc.name+" the block", l, tc.want)
		r.Close()
		checkHeld(t, "closed", l, 0)
	}
}

// twoBlocks is a log with its first two blocks, and room for their parts.
func twoBlocks(t *testing.T) (l *Log, first, second *blockIndex) {
	t.Helper()
	l, _ = fatBlocks(t)
	l.blocks.cache = newCache(256 << 20)
	first = firstBlock(t, l)
	scan := blockScan{bs: l.blocks, before: first}
	defer scan.close()
	second, err := scan.find(l.snap.Load(), first.Key()+1)
	if err != nil {
		t.Fatal(err)
	}
	return l, first, second
}

// TestStaleParts: a reader that comes to a block closes what was read ahead of those before it, and
// finds its own.
func TestStaleParts(t *testing.T) {
	l, first, second := twoBlocks(t)
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0)})
	for _, x := range []*blockIndex{first, second, second} {
		l.blocks.fetch(x, &aheadBlock{parts: &r.parts}, nil)
	}
	checkHeld(t, "read ahead", l, 3)
	r.parts.reached.Store(second.Key())
	held := r.parts.ahead[1].closers[0]
	size := int(second.PlainEnd[second.Events()-1])
	p, err := r.parts.open(second, format.RangePlain, second.Key(), size)
	if err != nil || p.closers[0] != held {
		t.Errorf("the part is not the one that was read ahead: %v", err)
	}
	checkHeld(t, "in the second block", l, 1)
}

// TestReadAheadAfterRelease: what is read ahead is kept again for a reader that opens a part after
// its release.
func TestReadAheadAfterRelease(t *testing.T) {
	l, first, second := twoBlocks(t)
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0)})
	r.Release()
	if _, err := r.parts.open(first, format.RangePlain, first.Key(), int(first.PlainEnd[first.Events()-1])); err != nil {
		t.Fatal(err)
	}
	l.blocks.fetch(second, &aheadBlock{parts: &r.parts}, nil)
	if len(r.parts.ahead) != 1 || r.parts.ahead[0].key != second.Key() {
		t.Errorf("%d parts are kept", len(r.parts.ahead))
	}
}

// TestUnfinishedPartIsKept: a part that is not read to its end is open when the reader comes to it
// again. A span's copies between two blocks are such.
func TestUnfinishedPartIsKept(t *testing.T) {
	l, first, second := twoBlocks(t)
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0)})
	open := func(x *blockIndex) *storedPart {
		t.Helper()
		p, err := r.parts.open(x, format.RangePlain, x.Key(), int(x.PlainEnd[x.Events()-1]))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := open(second)
	held := p.closers[0]
	l.blocks.charge(p)
	l.blocks.charge(open(first))
	checkHeld(t, "in another", l, 2)
	if open(second).closers[0] != held {
		t.Error("it is opened again")
	}
}

// TestFewPartsAreHeld: no more than maxHeldParts, of half of the cache, are held; readers without
// read the same.
func TestFewPartsAreHeld(t *testing.T) {
	l, want := fatBlocks(t)
	l.blocks.cache = newCache(256 << 20)
	var readers []*Reader
	var begun [][]byte
	for range maxHeldParts + 2 {
		r, got := midBlock(t, l)
		readers, begun = append(readers, r), append(begun, got)
	}
	checkHeld(t, "many", l, maxHeldParts)
	for i, r := range readers {
		if got := readToEnd(t, r, begun[i]); !bytes.Equal(got, want) {
			t.Errorf("reader %d read %d bytes, want %d", i, len(got), len(want))
		}
	}
	checkHeld(t, "all at the end", l, 0)

	l.blocks.cache = newCache(20_000)
	midBlock(t, l)
	checkHeld(t, "a small cache", l, 0)
}

// TestHeldPartsOfAClosedLog: a log closes while readers hold parts, and readers close while it
// does.
func TestHeldPartsOfAClosedLog(t *testing.T) {
	l, _ := fatBlocks(t)
	l.blocks.cache = newCache(256 << 20)
	var readers []*Reader
	for range maxHeldParts {
		r, _ := midBlock(t, l)
		readers = append(readers, r)
	}
	checkHeld(t, "before", l, maxHeldParts)
	var wg sync.WaitGroup
	for _, r := range readers {
		wg.Go(r.Close)
	}
	if err := l.Close(); err != nil { // Pebble says so if something is still open
		t.Error(err)
	}
	wg.Wait()
	var c Chunk
	for _, r := range readers {
		if r.Close(); r.parts.part.bs != nil || len(r.parts.ahead) > 0 {
			t.Error("a part is open")
		}
		if err := r.Next(&c); err == nil {
			t.Error("a reader that is closed reads")
		}
	}
	if n, bytes := l.blocks.cache.Stats().Charges, l.blocks.cache.Stats().Charged; n != 0 || bytes != 0 {
		t.Errorf("%d parts of %d bytes are charged", n, bytes)
	}
}

// TestHeldPartOfAFailedLog: a reader of a log that has failed does not touch the store.
func TestHeldPartOfAFailedLog(t *testing.T) {
	l, _ := fatBlocks(t)
	l.blocks.cache = newCache(256 << 20)
	holdNoneAhead(l)
	r, _ := midBlock(t, l)
	for range cap(l.blocks.readahead.slots) {
		<-l.blocks.readahead.slots
	}
	l.store.Fail(errors.New("a sync failed"))
	var c Chunk
	if err := r.Next(&c); !errors.Is(err, ErrFailed) {
		t.Errorf("Next says %v", err)
	}
	r.Close()
	checkHeld(t, "closed", l, 1)
	if _ = l.Close(); r.parts.part.bs != nil { // its error is that of the failure
		t.Error("the log is closed, a part is open")
	}
}
