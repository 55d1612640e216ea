package replay

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// allStrands opens the plain part of block x, with all it has.
func allStrands(t *testing.T, l *Log, x *blockIndex) storedPart {
	t.Helper()
	p, err := l.blocks.openPart(x, format.RangePlain, x.Key(), int(x.PlainEnd[x.Events()-1]))
	if err != nil {
		t.Fatal(err)
	}
	if p.loadFor(nil); p.err != nil {
		t.Fatal(p.err)
	}
	if p.pages.NumSubstreams() < 2 || p.pages.NumPages() < 3 {
		t.Fatalf("%d substreams, %d pages", p.pages.NumSubstreams(), p.pages.NumPages())
	}
	return p
}

// TestPrepare: pages are unpacked ahead from the last one on, until there is an error or their reader comes.
func TestPrepare(t *testing.T) {
	l, want := fatBlocks(t)
	x := firstBlock(t, l)
	check := func(when string, p *storedPart, ready func(i int) bool) {
		t.Helper()
		for i := range p.pages.NumPages() {
			a := p.readyPage(i)
			if (a != nil) != ready(i) {
				t.Errorf("%s: page %d is ready: %v", when, i, a != nil)
			}
			if from, to := p.pages.Page(i); a != nil && !bytes.Equal(a.b, want[from:to]) {
				t.Errorf("%s: page %d has other frames", when, i)
			}
		}
	}
	var reached atomic.Int64
	p := allStrands(t, l, x)
	check("at first", &p, func(int) bool { return false })
	reached.Store(x.Key() - 1)
	p.prepare(&reached)
	check("before the block", &p, func(int) bool { return true })
	p.ready[1].free()
	p.ready[1] = nil
	kept := p.ready[0]
	p.prepare(&reached)
	check("again", &p, func(int) bool { return true })
	if p.ready[0] != kept {
		t.Error("what is ready is unpacked again")
	}
	p.close()
	check("closed", &p, func(int) bool { return false })

	p = allStrands(t, l, x)
	defer p.close()
	reached.Store(x.Key())
	p.prepare(&reached)
	check("in the block", &p, func(int) bool { return false })
	reached.Store(0)
	value, _, err := l.store.Value(format.SubstreamKey(x.Key(), 1))
	if err != nil {
		t.Fatal(err)
	}
	copy(value[1:], []byte{0xff, 0xff, 0xff, 0xff})
	if err := p.pages.SetSubstream(1, value[:len(value)-format.TrailerBytes]); err != nil {
		t.Fatal(err)
	}
	p.prepare(&reached)
	check("damaged at its begin", &p, func(i int) bool { return i > 0 })
	if p.err != nil || l.store.Err() != nil {
		t.Errorf("what its reader has not come to fails the log: %v, %v", p.err, l.store.Err())
	}
}

// TestLend: a run of whole pages that are ready is given away, anything else is copied, from those that are.
func TestLend(t *testing.T) {
	l, want := fatBlocks(t)
	x := firstBlock(t, l)
	pages := 0
	for n := 0; n == 0 || n < pages*pages; n++ {
		p := allStrands(t, l, x)
		pages = p.pages.NumPages()
		first, last := n/pages, n%pages
		if first > last {
			p.close()
			continue
		}
		p.prepare(new(atomic.Int64))
		begin, _ := p.pages.Page(first)
		_, end := p.pages.Page(last)
		var c Chunk
		for _, r := range []format.Run{
			{From: uint32(begin) + 1, To: uint32(end)}, {From: uint32(begin), To: uint32(end) - 1}, // no whole pages
		} {
			if p.lendReady(&c, r) || len(c.Frames) > 0 {
				t.Fatalf("pages %d to %d: %v is borrowed", first, last, r)
			}
		}
		hole := p.ready[last]
		p.ready[last] = nil
		if p.lendReady(&c, format.Run{From: uint32(begin), To: uint32(end)}) || len(c.Frames) > 0 {
			t.Fatalf("pages %d to %d: the last is borrowed without being there", first, last)
		}
		p.ready[last] = hole
		hole.b[0] ^= 1 // shows where a copy is from
		marked := bytes.Clone(want[begin:end])
		at, _ := p.pages.Page(last)
		marked[at-begin] ^= 1
		b := make([]byte, end-begin)
		if err := p.copyRuns(b, []format.Run{{From: uint32(begin), To: uint32(end)}}); err != nil || !bytes.Equal(b, marked) {
			t.Fatalf("pages %d to %d: they are not copied from what is ready: %v", first, last, err)
		}
		if !p.lendReady(&c, format.Run{From: uint32(begin), To: uint32(end)}) || !bytes.Equal(bytes.Join(c.Frames, nil), marked) {
			t.Fatalf("pages %d to %d are not borrowed", first, last)
		}
		for i := range pages {
			if borrowed := i >= first && i <= last; (p.readyPage(i) == nil) != borrowed {
				t.Fatalf("pages %d to %d are borrowed: page %d is ready: %v", first, last, i, !borrowed)
			}
		}
		if p.close(); !bytes.Equal(bytes.Join(c.Frames, nil), marked) {
			t.Fatalf("pages %d to %d are gone with their part", first, last)
		}
		if c.Release(); len(c.borrowed) > 0 || len(c.Frames) > 0 {
			t.Fatalf("a chunk that is released has %d pages", len(c.borrowed))
		}
	}
}

// TestReadersOfReady: whatever is ready, readers read the same.
func TestReadersOfReady(t *testing.T) {
	l, want := fatBlocks(t)
	var blocks []*blockIndex
	for s, x := l.snap.Load(), firstBlock(t, l); ; {
		blocks = append(blocks, x)
		scan := blockScan{bs: l.blocks, before: x}
		if x.Key() >= s.beforeTail.TimeUS {
			break
		}
		var err error
		if x, err = scan.find(s, x.Key()+1); err != nil {
			t.Fatal(err)
		}
		scan.close()
	}
	borrowed := 0
	for mask := range 8 {
		for _, size := range []int{1 << 20, 256 << 10, 128 << 10, 100 << 10, 5000} {
			for _, x := range blocks {
				p := allStrands(t, l, x)
				p.prepare(new(atomic.Int64))
				for i := range p.ready {
					if mask&(1<<(i%3)) == 0 {
						p.ready[i].free()
						p.ready[i] = nil
					}
				}
				l.blocks.parked.leave(&p)
			}
			r, err := l.NewReader(ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: size})
			if err != nil {
				t.Fatal(err)
			}
			var c Chunk
			var got []byte
			for !c.Live {
				if err := r.Next(&c); err != nil {
					t.Fatal(err)
				}
				borrowed += len(c.borrowed)
				n := len(got)
				for _, b := range c.Frames {
					got = append(got, b...)
				}
				if len(got)-n != c.Bytes {
					t.Fatalf("chunks of %d, ready %b: %d bytes, it says %d", size, mask, len(got)-n, c.Bytes)
				}
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("chunks of %d, ready %b: other frames", size, mask)
			}
		}
	}
	if len(blocks) < 3 || borrowed == 0 {
		t.Errorf("%d blocks, %d pages borrowed", len(blocks), borrowed)
	}
}

// TestReadyParked: what is ready of a part that is parked goes to its reader, or ends with him; what nobody came for ends
// unpacking ahead for a while.
func TestReadyParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bs := &blockStore{cache: newCache(1 << 20), store: &pebblestore.Store{CacheBytes: 1 << 20}}
		defer bs.parked.close()
		part := func(key int64, ready ...int) *storedPart {
			p := &storedPart{bs: bs, r: format.RangePlain, key: key, pages: format.RawPages(make([]byte, 1000))}
			if len(ready) > 0 {
				p.ready = make([]*pooledBuffer, 4)
			}
			for _, i := range ready {
				p.ready[i] = takeBuffer(0)
			}
			return p
		}
		ready := func(key int64) (got []int) {
			p, ok := bs.parked.take(format.RangePlain, key)
			if !ok {
				return []int{-1}
			}
			for i, a := range p.ready {
				if a != nil {
					got = append(got, i)
				}
			}
			bs.parked.leave(&p)
			return got
		}
		for _, tc := range []struct{ first, second, want []int }{
			{nil, nil, nil}, {[]int{1}, nil, []int{1}}, {nil, []int{1}, []int{1}}, {[]int{0, 3}, []int{1, 3}, []int{0, 1, 3}},
		} {
			bs.parked.leave(part(1, tc.first...))
			bs.parked.leave(part(1, tc.second...))
			if got := ready(1); !slices.Equal(got, tc.want) || len(bs.parked.parts) != 1 {
				t.Errorf("%v and %v: %v are ready, of %d parts", tc.first, tc.second, got, len(bs.parked.parts))
			}
			if p, ok := bs.parked.take(format.RangePlain, 1); ok {
				p.close()
			}
		}
		bs.parked.leave(part(2, 1))
		larger := part(2)
		larger.pages = format.RawPages(make([]byte, 1001))
		if bs.parked.leave(larger); len(bs.parked.parts) != 2 {
			t.Errorf("the part of a block and of what it was merged into become %d", len(bs.parked.parts))
		}
		bs.parked.finish(part(2))
		bs.parked.finish(part(2))
		if len(bs.parked.parts) != 1 || bs.parked.parts[0].pages.Size() != larger.pages.Size() {
			t.Errorf("its reader has gone on: %d parts", len(bs.parked.parts))
		}
		if !bs.parked.prepares(part(3)) {
			t.Error("nothing was wasted, nothing more is unpacked ahead")
		}
		large := part(3)
		if large.pages = format.RawPages(make([]byte, 1<<20/parkedShare+1)); bs.parked.prepares(large) {
			t.Error("a large part is unpacked ahead")
		}
		for key := range int64(maxParked + 1) {
			bs.parked.leave(part(10+key, 2))
		}
		if bs.parked.prepares(part(3)) {
			t.Error("pages were wasted, and more are unpacked ahead")
		}
		for key := range int64(maxParked + 1) { // all that are left
			if p, ok := bs.parked.take(format.RangePlain, 10+key); ok {
				p.close()
			}
		}
		if time.Sleep(parkedTime + time.Millisecond); !bs.parked.prepares(part(3)) {
			t.Error("what was wasted is not forgotten")
		}
		bs.parked.leave(part(4, 0))
		if time.Sleep(2*parkedTime + time.Millisecond); bs.parked.prepares(part(3)) {
			t.Error("a sweep wasted pages, and more are unpacked ahead")
		}
	})
}

// TestLateParts: a part whose reader has left its block behind meanwhile is not kept for him.
func TestLateParts(t *testing.T) {
	l, _ := fatBlocks(t)
	l.store.CacheBytes = 16 << 20 // else its blocks are too large to be unpacked ahead
	x := firstBlock(t, l)
	for reached, want := range map[int64]bool{0: true, x.Key(): true, x.Key() + 1: false} {
		a := ahead{reached: new(atomic.Int64)}
		a.reached.Store(reached)
		l.blocks.fetch(x, &a)
		p, ok := l.blocks.parked.take(format.RangePlain, x.Key())
		if ok != want {
			t.Errorf("its reader reached %d, the block is %d: the part is parked: %v", reached, x.Key(), ok)
		}
		if some := p.dropReady(); some != (reached < x.Key()) {
			t.Errorf("its reader reached %d, the block is %d: pages are ready: %v", reached, x.Key(), some)
		}
		p.close()
	}
}
