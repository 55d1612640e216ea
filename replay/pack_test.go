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
	value := appendPacked([]byte("prefix"), frames, ends)
	got, err := unpack(value[len("prefix"):])
	if err != nil || !bytes.Equal(got, frames) || string(value[:6]) != "prefix" {
		t.Fatalf("%d bytes of %d letters: they become %d, %v", n, letters, len(got), err)
	}
	if len(value)-6+trailerBytes > maxPackedLen(n) {
		t.Errorf("%d bytes take %d, more than %d", n, len(value)-6, maxPackedLen(n)-trailerBytes)
	}
	if n >= minPacked && letters == 2 && len(value) > n/2 {
		t.Errorf("%d bytes of two letters take %d", n, len(value))
	}
	p, err := openPacked(value[6:])
	if err != nil {
		t.Fatal(err)
	}
	for at, i := 0, 0; at < n; i++ {
		from, to := p.piece(i)
		piece := make([]byte, to-from)
		switch err := p.unpack(piece, i); {
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
		_, _ = unpack(bad[:len(bad)-rng.IntN(2)]) // must not panic
	}
}

// TestPackedLayout pins the layout of pieces, apart from what MinLZ makes of them: here they are stored.
func TestPackedLayout(t *testing.T) {
	value := []byte{packedMinLZ, 0, 2, 0, 7, 0, 0, 0, // coding, pieces, bytes of the frames
		5, 0, 0, 0, 3, 0, 0, 0, // where the first ends
		11, 0, 0, 0, 7, 0, 0, 0,
		0, 0, 'a', 'b', 'c', 0, 0, 'd', 'e', 'f', 'g'}
	if got, err := unpack(value); err != nil || string(got) != "abcdefg" {
		t.Errorf("it becomes %q, %v", got, err)
	}
	for i := range value[:24] {
		bad := bytes.Clone(value)
		bad[i]++
		if got, err := unpack(bad); err == nil && i != 1 {
			t.Errorf("byte %d is %d: it becomes %q", i, bad[i], got)
		}
	}
}
