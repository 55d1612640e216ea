package replay

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{0, 1, 100, minPacked - 1, minPacked, pieceBytes - 1, pieceBytes, pieceBytes + 1, 9*pieceBytes + 77, maxPieceBytes, 3*maxPieceBytes + 77} {
		for _, letters := range []int{2, 256} {
			for _, most := range []int{1000, pieceBytes, 2 * maxPieceBytes, 4 * maxPieceBytes} {
				testPack(t, rng, n, letters, most)
			}
		}
	}
}

// testPack packs n bytes of so many letters, in frames of most bytes at most.
func testPack(t *testing.T, rng *rand.Rand, n, letters, most int) {
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
		collections[i] = uint16(rng.IntN(1 + rng.IntN(2*maxStrands)))
	}
	if rng.IntN(4) == 0 {
		collections = nil
	}
	value := appendPacked([]byte("prefix"), frames, ends, collections)
	got, err := unpack(value[len("prefix"):], ends)
	if err != nil || !bytes.Equal(got, frames) || string(value[:6]) != "prefix" {
		t.Fatalf("%d bytes of %d letters: they become %d, %v", n, letters, len(got), err)
	}
	if len(value)-6+trailerBytes > maxPackedLen(n, len(ends)) {
		t.Errorf("%d bytes take %d, more than %d", n, len(value)-6, maxPackedLen(n, len(ends))-trailerBytes)
	}
	if n >= minPacked && letters == 2 && len(value) > n/2 {
		t.Errorf("%d bytes of two letters take %d", n, len(value))
	}
	p, err := openPacked(value[6:], ends)
	if err != nil {
		t.Fatal(err)
	}
	var mem loan
	defer mem.free()
	for at, i := 0, 0; at < n; i++ {
		from, to := p.piece(i)
		piece := make([]byte, to-from)
		switch err := p.unpack(piece, i, &mem); {
		case err != nil || from != at || !bytes.Equal(piece, frames[from:to]) || p.pieceAt(from) != i || p.pieceAt(to-1) != i:
			t.Fatalf("piece %d is %d to %d, not from %d: %v", i, from, to, at, err)
		case most <= pieceBytes && (!isEnd[to] || to-from > pieceBytes):
			t.Fatalf("piece %d, %d to %d, is not of whole frames, or too large", i, from, to)
		}
		at = to
	}
	for range 20 {
		bad := bytes.Clone(value[6:])
		bad[rng.IntN(min(len(bad), 200))] ^= 1 << rng.IntN(8)
		_, _ = unpack(bad[:len(bad)-rng.IntN(2)], ends) // must not panic
		_, _ = unpack(value[6:], ends[:rng.IntN(1+len(ends))])
	}
	testGather(t, rng, &p, frames)
}

// testGather takes random events out of p, and only those.
func testGather(t *testing.T, rng *rand.Rand, p *packed, frames []byte) {
	t.Helper()
	if p.strands < 2 {
		return
	}
	var mem loan
	defer mem.free()
	for i, from := 0, 0; from < len(frames); i++ {
		begin, to := p.piece(i)
		var runs []run
		var want []byte
		for e, end := range p.ends {
			if start := startOf(p.ends, e); int(end) > begin && int(start) < to && rng.IntN(4) == 0 {
				runs = append(runs, run{start, end})
				want = append(want, frames[max(int(start), begin):min(int(end), to)]...)
			}
		}
		dst := make([]byte, len(want))
		if n, err := p.gather(dst, i, runs, &mem, nil); err != nil || n != len(want) || !bytes.Equal(dst, want) {
			t.Fatalf("piece %d of %d strands: %d bytes of %d runs, want %d: %v", i, p.strands, n, len(runs), len(want), err)
		}
		from = to
	}
}

// TestStrands: a collection that has much of a block is a strand, for which nothing else is unpacked.
func TestStrands(t *testing.T) {
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
	value := appendPacked(nil, frames, ends, collections)
	p, err := openPacked(value, ends)
	if err != nil || p.strands != 4 {
		t.Fatalf("%d strands, %v", p.strands, err)
	}
	for strand, want := range [][]uint16{{4, 15}, {1}, {2}, {3}} { // what no other strand has is in the first
		at := len(value) - len(p.body)
		bad := bytes.Clone(value)
		for s := range p.strands {
			if s != strand {
				start := at
				if s > 0 {
					start += p.head(0, s)
				}
				for k := start; k < at+p.head(0, 1+s); k++ {
					bad[k] = 0xff
				}
			}
		}
		q, err := openPacked(bad, ends)
		if err != nil {
			t.Fatal(err)
		}
		var mem loan
		_, to := q.piece(0)
		for _, c := range want {
			for e := range events {
				if collections[e] != c || int(ends[e]) > to {
					continue
				}
				dst := make([]byte, size)
				if _, err := q.gather(dst, 0, []run{{startOf(ends, e), ends[e]}}, &mem, nil); err != nil || !bytes.Equal(dst, frames[startOf(ends, e):ends[e]]) {
					t.Fatalf("event %d of collection %d, with strand %d alone: %v", e, c, strand, err)
				}
			}
		}
		if err := q.unpack(make([]byte, to), 0, &mem); err == nil {
			t.Errorf("the other strands than %d are not missed", strand)
		}
		mem.free()
	}
}

// TestPackedLayout pins the layout of pieces, apart from what MinLZ makes of them: here they are stored.
func TestPackedLayout(t *testing.T) {
	value := []byte{packedMinLZ, 1, 2, 0, 7, 0, 0, 0, // coding, strands, pieces, bytes of the frames
		3, 0, 0, 0, 5, 0, 0, 0, // where the first ends
		7, 0, 0, 0, 11, 0, 0, 0,
		0, 0, 'a', 'b', 'c', 0, 0, 'd', 'e', 'f', 'g'}
	if got, err := unpack(value, nil); err != nil || string(got) != "abcdefg" {
		t.Errorf("it becomes %q, %v", got, err)
	}
	stranded := []byte{packedMinLZ, 2, 1, 0, 7, 0, 0, 0,
		7, 0, 0, 0, 6, 0, 0, 0, 11, 0, 0, 0, // where the piece ends, and its strands
		1, 0, 1, // the strand of each event
		0, 0, 'c', 'd', 'e', 'f', 0, 0, 'a', 'b', 'g'}
	ends := []uint32{2, 6, 7}
	if got, err := unpack(stranded, ends); err != nil || string(got) != "abcdefg" {
		t.Errorf("it becomes %q, %v", got, err)
	}
	for _, value := range [][]byte{value, stranded} {
		for i := range value[:24] {
			bad := bytes.Clone(value)
			bad[i]++
			if got, err := unpack(bad, ends); err == nil {
				t.Errorf("byte %d is %d: it becomes %q", i, bad[i], got)
			}
		}
	}
}
