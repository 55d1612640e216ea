package replay

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// noteClose notes which parts are closed.
type noteClose struct {
	closed *[]int64
	key    int64
}

func (n noteClose) Close() error {
	*n.closed = append(*n.closed, n.key)
	return nil
}

// TestParked: each part that is left is taken once or closed once: the oldest when there are too many, all when nobody comes
// for them, or when the log is closed.
func TestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bs := &blockStore{cache: newCache(1 << 20), store: &pebblestore.Store{CacheBytes: 1 << 20}}
		var closed []int64
		part := func(key int64) *storedPart {
			return &storedPart{bs: bs, r: format.RangePlain, key: key, closers: [format.MaxSubstreams]io.Closer{noteClose{&closed, key}}}
		}
		check := func(when string, want ...int64) {
			t.Helper()
			bs.parked.mu.Lock() // which sweeps hold
			defer bs.parked.mu.Unlock()
			if !slices.Equal(closed, want) {
				t.Errorf("%s: %v are closed, want %v", when, closed, want)
			}
			closed = nil
		}
		for key := range int64(maxParked + 2) {
			bs.parked.leave(part(key))
		}
		check("two too many", 0, 1)
		if _, ok := bs.parked.take(format.RangeZstd, 4); ok {
			t.Error("another range's part is taken")
		}
		p, ok := bs.parked.take(format.RangePlain, 4)
		if _, again := bs.parked.take(format.RangePlain, 4); !ok || p.key != 4 || again {
			t.Errorf("taken %v, again %v: %d", ok, again, p.key)
		}
		time.Sleep(parkedTime + time.Millisecond)
		check("after one sweep")
		bs.parked.leave(&p)
		if p, ok := bs.parked.take(format.RangePlain, 2); ok {
			p.close()
		}
		check("its user's", 2)
		time.Sleep(parkedTime)
		check("after two sweeps", 3, 5, 6, 7, 8, 9)
		time.Sleep(2 * parkedTime)
		check("after four sweeps", 4)
		synctest.Wait()
		if bs.parked.timer != nil {
			t.Error("sweeps go on with nothing left")
		}
		large := part(20)
		large.pages = format.RawPages(make([]byte, 1<<20/parkedShare+1))
		bs.parked.leave(large)
		check("a large one", 20)
		bs.parked.leave(part(21))
		bs.parked.leave(part(22))
		bs.parked.close()
		check("the log closes", 21, 22)
		time.Sleep(4 * parkedTime)
		check("afterwards")
	})
}

// TestParkedParts: a reader that goes on in a block finds its part where it left it, and finishes with none; nobody's does not
// keep the log from closing.
func TestParkedParts(t *testing.T) {
	l, want := fatBlocks(t)
	r, err := l.NewReader(ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 128 << 10})
	if err != nil {
		t.Fatal(err)
	}
	var c Chunk
	var got []byte
	found := 0
	for !c.Live {
		begun := time.Now()
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
		got = append(got, bytes.Join(c.Frames, nil)...)
		s := l.snap.Load()
		if i := slices.IndexFunc(s.tail, func(b *Block) bool { return b.idx.Key() >= r.next }); i >= 0 && r.next > s.beforeTail.TimeUS {
			continue
		}
		x, err := l.blocks.indexOf(format.RangeSlimIndex, r.block)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := l.blocks.parked.take(format.RangePlain, r.block)
		if within := r.next > x.TimeUS[0] && r.next <= x.Key(); within && !ok && time.Since(begun) < parkedTime/2 {
			t.Errorf("at stamp %d of block %d: its part is not parked", r.next, r.block)
		}
		if ok {
			found++
			l.blocks.parked.leave(&p)
		}
	}
	if !bytes.Equal(got, want) || found == 0 {
		t.Errorf("%d of %d bytes, parts were found %d times", len(got), len(want), found)
	}
	if r, err = l.NewReader(ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 128 << 10}); err != nil {
		t.Fatal(err)
	}
	if err := r.Next(&c); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
