package replay

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"millrace/replay/internal/format"
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

// packValues returns the first value, and those of the other strands, in memory of their own.
func packValues(frames []byte, ends []uint32, collections []uint16, stranded int) (first []byte, strands [format.MaxSubstreams][]byte) {
	var k packer
	n := k.pack(frames, ends, collections, stranded)
	for s := 1; s < n; s++ {
		strands[s] = k.appendValue(nil, s)
	}
	return k.appendValue(nil, 0), strands
}

// openStrands is openPacked with all strands.
func openStrands(t *testing.T, first []byte, strands [format.MaxSubstreams][]byte, ends []uint32) packed {
	t.Helper()
	p, err := openPacked(first, ends)
	if err != nil {
		t.Fatal(err)
	}
	for s := 1; s < p.strands; s++ {
		if err := p.setStrand(s, strands[s]); err != nil {
			t.Fatal(err)
		}
	}
	return p
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
		collections[i] = uint16(rng.IntN(1 + rng.IntN(2*format.MaxSubstreams)))
	}
	if rng.IntN(4) == 0 {
		collections = nil
	}
	stranded := []int{1, minStranded}[rng.IntN(2)]
	value, strands := packValues(frames, ends, collections, stranded)
	got, err := unpack(value, ends, &strands)
	if err != nil || !bytes.Equal(got, frames) {
		t.Fatalf("%d bytes of %d letters: they become %d, %v", n, letters, len(got), err)
	}
	size := len(value) + format.TrailerBytes
	for _, b := range strands {
		if size += len(b); b != nil {
			size += format.TrailerBytes
		}
	}
	if size > maxPackedLen(n, len(ends)) {
		t.Errorf("%d bytes take %d, more than %d", n, size, maxPackedLen(n, len(ends)))
	}
	if n >= minPacked && letters == 2 && size > n/2+format.MaxSubstreams*format.TrailerBytes {
		t.Errorf("%d bytes of two letters take %d", n, size)
	}
	p := openStrands(t, value, strands, ends)
	if p.strands > 1 && n < stranded || p.stored() > size {
		t.Errorf("%d bytes are in %d strands, of %d bytes; several from %d on", n, p.strands, p.stored(), stranded)
	}
	var mem loan
	defer mem.free()
	for at, i := 0, 0; at < n; i++ {
		from, to := p.piece(i)
		piece := make([]byte, to-from)
		switch err := p.unpack(piece, i, &mem, nil); {
		case err != nil || from != at || !bytes.Equal(piece, frames[from:to]) || p.pieceAt(from) != i || p.pieceAt(to-1) != i:
			t.Fatalf("piece %d is %d to %d, not from %d: %v", i, from, to, at, err)
		case most <= pieceBytes && (!isEnd[to] || to-from > pieceBytes):
			t.Fatalf("piece %d, %d to %d, is not of whole frames, or too large", i, from, to)
		}
		at = to
	}
	for range 20 {
		bad := bytes.Clone(value)
		bad[rng.IntN(min(len(bad), 200))] ^= 1 << rng.IntN(8)
		_, _ = unpack(bad[:len(bad)-rng.IntN(2)], ends, &strands) // must not panic
		_, _ = unpack(value, ends[:rng.IntN(1+len(ends))], &strands)
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

// TestStrands: a collection that has much of a block is a strand, for which no other is looked at.
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
	value, strands := packValues(frames, ends, collections, minStranded)
	if p := openStrands(t, value, strands, ends); p.strands != 4 {
		t.Fatalf("%d strands", p.strands)
	}
	for strand, want := range [][]uint16{{4, 15}, {1}, {2}, {3}} { // what no other strand has is in the first
		q := openStrands(t, value, strands, ends)
		for s := range q.strands {
			if s != strand {
				q.bodies[s] = nil
			}
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
		if err := q.unpack(make([]byte, to), 0, &mem, nil); !errors.Is(err, format.ErrMissing) {
			t.Errorf("the other strands than %d are not missed: %v", strand, err)
		}
		mem.free()
	}
	strands[1], strands[2] = strands[2], strands[1]
	if _, err := unpack(value, ends, &strands); err == nil {
		t.Error("strands may change places")
	}
	strands[1], strands[2] = strands[2], strands[1]
	strands[3] = nil
	if _, err := unpack(value, ends, &strands); !errors.Is(err, format.ErrMissing) {
		t.Errorf("without one of its strands: %v", err)
	}
}

// TestPackedLayout pins the layout of pieces, apart from what MinLZ makes of them: here they are stored.
func TestPackedLayout(t *testing.T) {
	value := []byte{packedMinLZ, 1, 2, 0, 7, 0, 0, 0, // coding, strands, pieces, bytes of the frames
		3, 0, 0, 0, 5, 0, 0, 0, // where the first ends
		7, 0, 0, 0, 11, 0, 0, 0,
		0, 0, 'a', 'b', 'c', 0, 0, 'd', 'e', 'f', 'g'}
	if got, err := unpack(value, nil, nil); err != nil || string(got) != "abcdefg" {
		t.Errorf("it becomes %q, %v", got, err)
	}
	stranded := []byte{packedMinLZ, 2, 1, 0, 7, 0, 0, 0,
		7, 0, 0, 0, 6, 0, 0, 0, 5, 0, 0, 0, // where the piece ends, and its strands
		1, 0, 1, // the strand of each event
		0, 0, 'c', 'd', 'e', 'f'}
	strands := [format.MaxSubstreams][]byte{1: {1, 0, 0, 'a', 'b', 'g'}}
	ends := []uint32{2, 6, 7}
	if got, err := unpack(stranded, ends, &strands); err != nil || string(got) != "abcdefg" {
		t.Errorf("it becomes %q, %v", got, err)
	}
	for n, value := range [][]byte{value, stranded} {
		var others *[format.MaxSubstreams][]byte
		if n == 1 {
			others = &strands
		}
		for i := range value[:24] {
			bad := bytes.Clone(value)
			bad[i]++
			if got, err := unpack(bad, ends, others); err == nil {
				t.Errorf("byte %d is %d: it becomes %q", i, bad[i], got)
			}
		}
		for i := 0; others != nil && i < len(strands[1]); i++ {
			bad := strands
			if bad[1] = bytes.Clone(strands[1]); i < 3 {
				bad[1][i]++
			} else {
				bad[1] = bad[1][:i]
			}
			if got, err := unpack(value, ends, &bad); err == nil {
				t.Errorf("strand 1 is %x: it becomes %q", bad[1], got)
			}
		}
	}
}
