package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// benchHash shows what UIDs that are hashes would do: collisions among n AT URIs' xxHash64 cut to k bits, as expected
// from the birthday bound and as counted; then the bound for all 64 bits, where counting would take too long.
func benchHash(ctx context.Context, f *internFlags, out io.Writer) error {
	fmt.Fprintf(out, "xxHash64 of AT URIs cut to k bits: pairs that collide, expected n(n-1)/2^(k+1) and counted (seed %d).\n\n", f.seed)
	fmt.Fprintln(out, "| n | k | expected | counted |")
	fmt.Fprintln(out, "|---:|---:|---:|---:|")
	source := newTraffic(f.seed, 20, false)
	b := newBatch(1000)
	seen := make([]uint64, 0, slices.Max(f.hashKeys))
	slices.Sort(f.hashKeys)
	for _, n := range f.hashKeys {
		for len(seen) < n && ctx.Err() == nil {
			source.next(b)
			for i := range b.reqs {
				seen = append(seen, xxhash.Sum64(uri(&b.reqs[i])))
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, bits := range f.hashBits {
			expected := float64(n) * float64(n-1) / math.Exp2(float64(bits+1))
			fmt.Fprintf(out, "| %d | %d | %.3g | %d |\n", n, bits, expected, collisions(seen[:n], bits))
		}
	}
	fmt.Fprint(out, "\nThe bound at 64 bits: chance that at least one pair of n collides, 1 - exp(-n(n-1)/2^65).\n\n")
	fmt.Fprintln(out, "| n | pairs expected | chance |")
	fmt.Fprintln(out, "|---:|---:|---:|")
	for _, n := range []float64{1e8, 1e9, 5.06e9, 15e9, 100e9} {
		pairs := n * (n - 1) / math.Exp2(65)
		fmt.Fprintf(out, "| %.3g | %.3g | %.3g %% |\n", n, pairs, -math.Expm1(-pairs)*100)
	}
	fmt.Fprintln(out)
	return nil
}

// collisions counts the pairs with the same upper bits.
func collisions(hashes []uint64, bits int) (pairs int) {
	cut := make([]uint64, len(hashes))
	for i, h := range hashes {
		cut[i] = h >> (64 - bits)
	}
	slices.Sort(cut)
	run := 0
	for i := 1; i < len(cut); i++ {
		if cut[i] != cut[i-1] {
			run = 0
			continue
		}
		run++
		pairs += run // it collides with each of its run before it
	}
	return pairs
}
