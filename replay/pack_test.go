package replay

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{0, 1, 100, minPacked - 1, minPacked, packedChunk - 1, packedChunk, packedChunk + 1, 3*packedChunk + 77} {
		for _, letters := range []int{2, 256} {
			frames := make([]byte, n)
			for i := range frames {
				frames[i] = byte(rng.IntN(letters))
			}
			packed := appendPacked([]byte("prefix"), frames)
			got, err := unpack(packed[len("prefix"):])
			if err != nil || !bytes.Equal(got, frames) || string(packed[:6]) != "prefix" {
				t.Fatalf("%d bytes of %d letters: they become %d, %v", n, letters, len(got), err)
			}
			if len(packed)-6+trailerBytes > maxPackedLen(n) {
				t.Errorf("%d bytes take %d, more than %d", n, len(packed)-6, maxPackedLen(n)-trailerBytes)
			}
			if n >= minPacked && letters == 2 && len(packed) > n/2 {
				t.Errorf("%d bytes of two letters take %d", n, len(packed))
			}
			for range 20 {
				bad := bytes.Clone(packed[6:])
				bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
				_, _ = unpack(bad[:len(bad)-rng.IntN(2)]) // must not panic
			}
		}
	}
}
