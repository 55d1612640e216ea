package references

import (
	"math/rand/v2"
	"testing"
	"time"

	"millrace/replay/internal/postings"
)

// TestRecentLinks compares what recent links say with all links that were made in that time. There
// are more sets than are counted.
func TestRecentLinks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	type link struct {
		set     postings.Set
		arrival uint64
	}
	var (
		r       recentLinks
		made    []link
		arrival uint64
		often   = rand.NewZipf(rng, 1.05, 4, 1<<20)
	)
	start := time.Now()
	for now := start; now.Sub(start) < 2*time.Hour; now = now.Add(time.Duration(rng.Int64N(int64(3 * time.Minute)))) {
		var edges []edge
		for range rng.IntN(10_000) {
			arrival++
			l := link{postings.Set{Subject: often.Uint64(), Path: uint32(rng.IntN(2))}, arrival}
			made = append(made, l)
			edges = append(edges, edge{set: l.set, arrival: arrival}, edge{set: l.set, arrival: 1 + rng.Uint64N(arrival), removed: true})
		}
		rng.Shuffle(len(edges), func(i, j int) { edges[i], edges[j] = edges[j], edges[i] })
		r.add(now, edges)

		if rng.IntN(6) > 0 {
			continue
		}
		got := r.report(now)
		truth := make(map[postings.Set]uint64)
		for len(made) > 0 && made[0].arrival < got.From {
			made = made[1:]
		}
		for _, l := range made {
			truth[l.set]++
		}
		if age := now.Sub(got.Since); age > recentSpan || now.Sub(start) > recentSpan && age < recentSpan-2*recentPeriod {
			t.Fatalf("it is of the last %v", age)
		}
		last := uint64(1 << 63)
		for _, s := range got.Sets {
			set := postings.Set{Subject: s.Subject, Path: s.Path}
			if truth[set] > s.AtMost || s.AtMost > last || s.AtMost-got.Others > truth[set] {
				t.Fatalf("%+v has %d links, others at most %d; before it %d", s, truth[set], got.Others, last)
			}
			last = s.AtMost
			delete(truth, set)
		}
		for set, n := range truth {
			if n > got.Others {
				t.Fatalf("%+v has %d links, and others at most %d", set, n, got.Others)
			}
		}
		if len(r.periods) > 13 || len(got.Sets) > 0 && got.Others > got.Sets[0].AtMost/2 {
			t.Fatalf("%d periods; others have at most %d, the first %d", len(r.periods), got.Others, got.Sets[0].AtMost)
		}
	}
	if got := r.report(start.Add(5 * time.Hour)); len(got.Sets) > 0 || got.Others > 0 || !got.Since.IsZero() {
		t.Errorf("an hour later it still has %d sets", len(got.Sets))
	}
}

// TestRecentLinksAreBounded: however many sets get links, few are kept.
func TestRecentLinksAreBounded(t *testing.T) {
	var r recentLinks
	now := time.Now()
	for n := range uint64(1 << 18) {
		r.add(now, []edge{{set: postings.Set{Subject: n}, arrival: n + 1}, {set: postings.Set{Subject: n % 1000, Path: 1}, arrival: n + 1}})
		now = now.Add(recentSpan >> 16)
		for i := range r.periods {
			n := len(r.periods[i].counts)
			if n > recentSets || i < len(r.periods)-1 && n > recentTop {
				t.Fatalf("period %d of %d has %d sets", i, len(r.periods), n)
			}
		}
	}
	if len(r.periods) < int(recentSpan/recentPeriod) {
		t.Errorf("%d periods", len(r.periods))
	}
}
