package format

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

func TestPages(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{0, 1, 100, minPackedBytes - 1, minPackedBytes, PageBytes - 1, PageBytes, PageBytes + 1, 9*PageBytes + 77, maxPageBytes, 3*maxPageBytes + 77} {
		for _, letters := range []int{2, 256} {
			for _, most := range []int{1000, PageBytes, 2 * maxPageBytes, 4 * maxPageBytes} {
				testPages(t, rng, n, letters, most)
			}
		}
	}
}

// pageValues returns the first value, and those of the other substreams, in memory of their own.
func pageValues(frames []byte, ends []uint32, collections []uint16, substreamsBytes int) (first []byte, substreams [MaxSubstreams][]byte) {
	var k pagePacker
	n := k.pack(frames, ends, collections, substreamsBytes)
	for s := 1; s < n; s++ {
		substreams[s] = k.appendValue(nil, s)
	}
	return k.appendValue(nil, 0), substreams
}

// openSubstreams is OpenPages with all substreams.
func openSubstreams(t *testing.T, first []byte, substreams [MaxSubstreams][]byte, ends []uint32) Pages {
	t.Helper()
	p, err := OpenPages(first, ends)
	if err != nil {
		t.Fatal(err)
	}
	for s := 1; s < p.substreams; s++ {
		if err := p.SetSubstream(s, substreams[s]); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// testPages packs n bytes of so many letters, in frames of most bytes at most.
func testPages(t *testing.T, rng *rand.Rand, n, letters, most int) {
	t.Helper()
	frames := make([]byte, n)
	for i := range frames {
		frames[i] = byte(rng.IntN(letters))
	}
	var ends []uint32
	isEnd := map[int]bool{0: true}
	for at := 0; at < n; isEnd[at] = true {
		at = min(n, at+1+rng.IntN(most))
		ends = append(ends, uint32(at))
	}
	collections := make([]uint16, len(ends))
	for i := range collections {
		collections[i] = uint16(rng.IntN(1 + rng.IntN(2*MaxSubstreams)))
	}
	if rng.IntN(4) == 0 {
		collections = nil
	}
	substreamsBytes := []int{1, minSubstreamsBytes}[rng.IntN(2)]
	value, substreams := pageValues(frames, ends, collections, substreamsBytes)
	got, err := UnpackFrames(value, ends, &substreams)
	if err != nil || !bytes.Equal(got, frames) {
		t.Fatalf("%d bytes of %d letters: they become %d, %v", n, letters, len(got), err)
	}
	size := len(value) + TrailerBytes
	for _, b := range substreams {
		if size += len(b); b != nil {
			size += TrailerBytes
		}
	}
	if size > maxPagesLen(n, len(ends)) {
		t.Errorf("%d bytes take %d, more than %d", n, size, maxPagesLen(n, len(ends)))
	}
	if n >= minPackedBytes && letters == 2 && size > n/2+MaxSubstreams*TrailerBytes {
		t.Errorf("%d bytes of two letters take %d", n, size)
	}
	p := openSubstreams(t, value, substreams, ends)
	if p.substreams > 1 && n < substreamsBytes || p.StoredBytes() > size {
		t.Errorf("%d bytes are in %d substreams, of %d bytes; several from %d on", n, p.substreams, p.StoredBytes(), substreamsBytes)
	}
	var mem grown
	for at, i := 0, 0; at < n; i++ {
		from, to := p.Page(i)
		page := make([]byte, to-from)
		switch err := p.unpack(page, i, &mem); {
		case err != nil || from != at || !bytes.Equal(page, frames[from:to]) || p.PageAt(from) != i || p.PageAt(to-1) != i:
			t.Fatalf("page %d is %d to %d, not from %d: %v", i, from, to, at, err)
		case most <= PageBytes && (!isEnd[to] || to-from > PageBytes):
			t.Fatalf("page %d, %d to %d, is not of whole frames, or too large", i, from, to)
		}
		at = to
	}
	for range 20 {
		bad := bytes.Clone(value)
		bad[rng.IntN(min(len(bad), 200))] ^= 1 << rng.IntN(8)
		_, _ = UnpackFrames(bad[:len(bad)-rng.IntN(2)], ends, &substreams) // must not panic
		_, _ = UnpackFrames(value, ends[:rng.IntN(1+len(ends))], &substreams)
	}
	testGather(t, rng, &p, frames)
}

// testGather takes random events out of p, and only those.
func testGather(t *testing.T, rng *rand.Rand, p *Pages, frames []byte) {
	t.Helper()
	if p.substreams < 2 {
		return
	}
	var mem grown
	for i, from := 0, 0; from < len(frames); i++ {
		begin, to := p.Page(i)
		var runs []Run
		var want []byte
		for e, end := range p.ends {
			if start := FrameStart(p.ends, e); int(end) > begin && int(start) < to && rng.IntN(4) == 0 {
				runs = append(runs, Run{start, end})
				want = append(want, frames[max(int(start), begin):min(int(end), to)]...)
			}
		}
		dst := make([]byte, len(want))
		if n, err := p.Gather(dst, i, runs, &mem, nil); err != nil || n != len(want) || !bytes.Equal(dst, want) {
			t.Fatalf("page %d of %d substreams: %d bytes of %d runs, want %d: %v", i, p.substreams, n, len(runs), len(want), err)
		}
		from = to
	}
}

// TestSubstreams: a collection that has much of a block is a substream, for which no other is
// looked at.
func TestSubstreams(t *testing.T) {
	const events, size = 600, 500
	rng := rand.New(rand.NewPCG(6, 6))
	var frames []byte
	var ends []uint32
	var collections []uint16
	for i := range events {
		c := uint16(1 + i%3) // three large ones, and small ones
		if i%50 == 7 {
			c = uint16(4 + i/50)
		}
		for range size {
			frames = append(frames, byte(c)<<4|byte(rng.IntN(16)))
		}
		ends, collections = append(ends, uint32(len(frames))), append(collections, c)
	}
	value, substreams := pageValues(frames, ends, collections, minSubstreamsBytes)
	if p := openSubstreams(t, value, substreams, ends); p.substreams != 4 {
		t.Fatalf("%d substreams", p.substreams)
	}
	// what no other substream has is in the first
	for substream, want := range [][]uint16{{4, 15}, {1}, {2}, {3}} {
		q := openSubstreams(t, value, substreams, ends)
		for s := range q.substreams {
			if s != substream {
				q.bodies[s] = nil
			}
		}
		var mem grown
		_, to := q.Page(0)
		for _, c := range want {
			for e := range events {
				if collections[e] != c || int(ends[e]) > to {
					continue
				}
				dst := make([]byte, size)
				if _, err := q.Gather(dst, 0, []Run{{FrameStart(ends, e), ends[e]}}, &mem, nil); err != nil || !bytes.Equal(dst, frames[FrameStart(ends, e):ends[e]]) {
					t.Fatalf("event %d of collection %d, with substream %d alone: %v", e, c, substream, err)
				}
			}
		}
		if err := q.unpack(make([]byte, to), 0, &mem); !errors.Is(err, ErrMissing) {
			t.Errorf("the other substreams than %d are not missed: %v", substream, err)
		}
	}
	substreams[1], substreams[2] = substreams[2], substreams[1]
	if _, err := UnpackFrames(value, ends, &substreams); err == nil {
		t.Error("substreams may change places")
	}
	substreams[1], substreams[2] = substreams[2], substreams[1]
	substreams[3] = nil
	if _, err := UnpackFrames(value, ends, &substreams); !errors.Is(err, ErrMissing) {
		t.Errorf("without one of its substreams: %v", err)
	}
}

// TestPageLayout pins the layout of pages, apart from what MinLZ makes of them: here they are
// stored.
func TestPageLayout(t *testing.T) {
	// coding, substreams, pages, bytes of the frames
	value := []byte{pagesMinLZ, 1, 2, 0, 7, 0, 0, 0,
		3, 0, 0, 0, 5, 0, 0, 0, // where the first ends
		7, 0, 0, 0, 11, 0, 0, 0,
		0, 0, 'a', 'b', 'c', 0, 0, 'd', 'e', 'f', 'g'}
	if got, err := UnpackFrames(value, nil, nil); err != nil || string(got) != "abcdefg" {
		t.Errorf("it becomes %q, %v", got, err)
	}
	substreamsBytes := []byte{pagesMinLZ, 2, 1, 0, 7, 0, 0, 0,
		7, 0, 0, 0, 6, 0, 0, 0, 5, 0, 0, 0, // where the page ends, and its substreams
		1, 0, 1, // the substream of each event
		0, 0, 'c', 'd', 'e', 'f'}
	substreams := [MaxSubstreams][]byte{1: {1, 0, 0, 'a', 'b', 'g'}}
	ends := []uint32{2, 6, 7}
	if got, err := UnpackFrames(substreamsBytes, ends, &substreams); err != nil || string(got) != "abcdefg" {
		t.Errorf("it becomes %q, %v", got, err)
	}
	for n, value := range [][]byte{value, substreamsBytes} {
		var others *[MaxSubstreams][]byte
		if n == 1 {
			others = &substreams
		}
		for i := range value[:24] {
			bad := bytes.Clone(value)
			bad[i]++
			if got, err := UnpackFrames(bad, ends, others); err == nil {
				t.Errorf("byte %d is %d: it becomes %q", i, bad[i], got)
			}
		}
		for i := 0; others != nil && i < len(substreams[1]); i++ {
			bad := substreams
			if bad[1] = bytes.Clone(substreams[1]); i < 3 {
				bad[1][i]++
			} else {
				bad[1] = bad[1][:i]
			}
			if got, err := UnpackFrames(value, ends, &bad); err == nil {
				t.Errorf("substream 1 is %x: it becomes %q", bad[1], got)
			}
		}
	}
}
