package uidset

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestSet compares sets of all sizes with maps.
func TestSet(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{0, 1, 2, 3, 17, 1000, 20_000} {
		want := make(map[uint64]bool)
		var uids []uint64
		for range n {
			u := uint64(rng.IntN(9))<<50 | uint64(1+rng.IntN(2*n))
			want[u] = true
			uids = append(uids, u)
		}
		known := rng.IntN(n + 1)
		s := New(uids[:known], n-known)
		for _, u := range uids[known:] {
			if !s.Add(u) {
				t.Fatalf("seed %d: no room for one of %d", seed, n)
			}
		}
		if full := New(uids, 0); len(want) == n && full.Add(1<<60) {
			t.Fatalf("seed %d: a set of %d has room for one more", seed, n)
		}
		if s.Len() != len(want) {
			t.Fatalf("seed %d: %d of %d", seed, s.Len(), len(want))
		}
		for u := range s.All() {
			if !want[u] {
				t.Fatalf("seed %d: it yields %d", seed, u)
			}
		}
		if all := slices.Collect(s.All()); len(all) != len(want) {
			t.Fatalf("seed %d: it yields %d of %d", seed, len(all), len(want))
		}
		for range 1000 {
			u := uint64(rng.IntN(9))<<50 | uint64(1+rng.IntN(2*n+1))
			if s.Has(u) != want[u] {
				t.Fatalf("seed %d: of %d: %d in the set: %t", seed, n, u, s.Has(u))
			}
		}
	}
}
