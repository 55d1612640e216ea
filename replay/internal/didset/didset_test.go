package didset

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

func randomPLC(rng *rand.Rand) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	id := make([]byte, plcChars)
	for i := range id {
		id[i] = alphabet[rng.IntN(32)]
	}
	return plcPrefix + string(id)
}

// TestSet compares sets of all sizes with maps.
func TestSet(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	random := func() string {
		d := []byte(randomPLC(rng))
		switch rng.IntN(8) {
		case 0: // nearly of the form
			d[rng.IntN(len(d))] = "A189_:-z"[rng.IntN(8)]
		case 1:
			d = append(d, 'a')
		case 2:
			d = d[:len(d)-1]
		case 3:
			d = fmt.Appendf(nil, "did:web:%d.example", rng.IntN(1000))
		}
		return string(d)
	}
	for _, n := range []int{0, 1, 2, 3, 4, 5, 17, 1000, 20_000} {
		want := map[string]struct{}{}
		var dids, probes []string
		for range n {
			d := random()
			want[d] = struct{}{}
			dids = append(dids, d)
			// Neighbours: another tag or another packed byte.
			near := []byte(d)
			near[len(near)-1-rng.IntN(min(len(near), 24))] = 'q'
			probes = append(probes, d, string(near), random())
		}
		if n > 0 {
			dids = append(dids, dids[rng.IntN(n)])
		}
		s := New(dids)
		for _, d := range probes {
			if _, ok := want[d]; s.Has(xxhash.Sum64String(d), d) != ok {
				t.Fatalf("of %d: %s in the set: %t", n, d, !ok)
			}
		}
		got, yielded := map[string]struct{}{}, 0
		for d := range s.All() {
			got[d] = struct{}{}
			yielded++
		}
		if !maps.Equal(got, want) || yielded != s.Len() {
			t.Errorf("of %d: it yields %d different ones of %d, len is %d", len(want), len(got), yielded, s.Len())
		}
	}
}

func BenchmarkSet(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var dids []string
	for range 10_000 {
		dids = append(dids, randomPLC(rng))
	}
	s := New(dids)
	var unknown []string
	var hashes []uint64
	for range 1024 {
		unknown = append(unknown, randomPLC(rng))
		hashes = append(hashes, xxhash.Sum64String(unknown[len(unknown)-1]))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if s.Has(hashes[i%1024], unknown[i%1024]) {
			b.Fatal("an unknown DID is in the set")
		}
	}
}
