package graph

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"millrace/consume/relaysim/testwait"
)

// fill gives a graph edges in runs of random lengths.
func fill(t *testing.T, r *rand.Rand, g *Graph, edges []Change) {
	t.Helper()
	f := g.Fill()
	for len(edges) > 0 {
		n := 1 + r.IntN(len(edges))
		if err := f.Add(edges[:n]); err != nil {
			t.Fatal(err)
		}
		edges = edges[n:]
	}
	if err := f.End(); err != nil {
		t.Fatal(err)
	}
	if g.reserve != 0 {
		t.Fatalf("%d bytes are still reserved", g.reserve)
	}
}

// checkSets compares all sets of a graph with the model.
func checkSets(t *testing.T, g *Graph, m model, accounts uint64) {
	t.Helper()
	for source := range testSources {
		for n := range accounts {
			for _, direction := range []Direction{Out, In} {
				check(t, g, m, Of(source, direction, n+1), 10_000)
			}
		}
	}
	if s := g.Stats(); s.Edges != int64(len(m)) {
		t.Fatalf("%d edges are counted, of %d", s.Edges, len(m))
	}
}

// TestFill compares a graph that is filled, and then changed, with the model. Actors are in order
// or not; there are edges of several records, edges from before, and sets that are bitmaps.
func TestFill(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	name := filepath.Join(t.TempDir(), "snapshot")
	for _, tc := range []struct {
		accounts      uint64
		edges, before int
		sorted        bool
		static        bool  // every third edge is
		chunks        int64 // of memory; 0: enough for one pass
	}{
		{accounts: 10},
		{accounts: 10, edges: 100, sorted: true},
		{accounts: 10, edges: 100},
		{accounts: 10, edges: 100, before: 10, sorted: true},
		{accounts: 200, edges: 3000, sorted: true, static: true},
		{accounts: 9000, edges: 60_000, static: true},
		{accounts: 9000, edges: 60_000, sorted: true},
		{accounts: 9000, edges: 60_000},
		{accounts: 20_000, edges: 600_000, sorted: true, chunks: 3}, // three passes
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			if testwait.Race && (tc.edges > 100_000 || tc.edges > 10_000 && !tc.sorted) {
				t.Skip("the race detector has watched the same with fewer edges")
			}
			cfg := testConfig()
			if tc.chunks > 0 {
				cfg.Memory = tc.chunks * chunkBytes
			}
			g, m := newTest(t, cfg), model{}
			var edges []Change
			for n := range tc.edges {
				e := Edge{Actor: 1 + r.Uint64N(tc.accounts), Subject: 1 + r.Uint64N(tc.accounts), Record: uint64(n + 1)}
				switch r.IntN(6) { // the first two have bitmaps, if there are enough accounts
				case 0, 1:
					e.Actor = 1
				case 2, 3:
					e.Subject = 2
				}
				if tc.static && n%3 == 0 {
					e.Record = 0
				}
				edges = append(edges, Change{Source: r.IntN(10) / 9, Edge: e})
				m.apply(edges[n])
			}
			if tc.sorted {
				slices.SortStableFunc(edges, func(a, b Change) int { return int(a.Actor) - int(b.Actor) })
			}
			if err := g.Build(edges[:tc.before]); err != nil {
				t.Fatal(err)
			}
			fill(t, r, g, edges[tc.before:])
			shown := min(tc.accounts, 30)
			checkSets(t, g, m, shown)
			if tc.accounts > largeFrom && (len(g.indexes[0].large) == 0 || len(g.indexes[1].large) == 0) {
				t.Fatal("no set is a bitmap")
			}
			g = reload(t, g, name)
			checkSets(t, g, m, shown)
			edges = slices.DeleteFunc(edges, func(c Change) bool { return c.Record == 0 }) // they stay
			for _, gone := range [][]Change{edges[:len(edges)/3], edges[len(edges)/3:]} {  // each record is known
				for i := range gone {
					gone[i].Remove = true
					m.apply(gone[i])
				}
				if err := g.Build(gone); err != nil {
					t.Fatal(err)
				}
				checkSets(t, g, m, shown)
			}
			if len(g.more) > 0 {
				t.Errorf("%d edges have records left", len(g.more))
			}
		})
	}
}

// TestFillOfTwoTables: an actor's edges of a source that has In sets already go on one by one,
// those of others do not come twice.
func TestFillOfTwoTables(t *testing.T) {
	g, m := newTest(t, testConfig()), model{}
	before := []Change{{Source: 1, Edge: Edge{1, 2, 1}}}
	if err := g.Build(before); err != nil {
		t.Fatal(err)
	}
	run := []Change{{Edge: Edge{1, 2, 2}}, {Source: 1, Edge: Edge{1, 3, 3}}, {Edge: Edge{1, 4, 0}}}
	fill(t, rand.New(rand.NewPCG(1, 2)), g, run)
	for _, c := range append(before, run...) {
		m.apply(c)
	}
	checkSets(t, g, m, 4)
	gone := Change{Edge: run[0].Edge, Remove: true}
	if err := g.Build([]Change{gone}); err != nil {
		t.Fatal(err)
	}
	m.apply(gone)
	checkSets(t, g, m, 4)
}

// TestFillWithoutRoom fills a graph with edges of two new accounts each: at first all at once, then
// one by one, and at last without room for the accounts. Only then do answers miss edges.
func TestFillWithoutRoom(t *testing.T) {
	cfg := testConfig()
	cfg.Memory = 2 * chunkBytes
	g := newTest(t, cfg)
	f := g.Fill()
	added := int64(0)
	add := func() {
		t.Helper()
		added++
		if err := f.Add([]Change{{Edge: Edge{Actor: uint64(2 * added), Subject: uint64(2*added + 1), Record: uint64(added)}}}); err != nil {
			t.Fatal(err)
		}
	}
	complete := func(when string, want bool) {
		t.Helper()
		r, err := g.Count(t.Context(), Of(0, Out, 1), Limits{})
		if s := g.Stats(); err != nil || r.Complete != want || s.Incomplete == 0 != want {
			t.Errorf("%s, with %d of %d edges: %d sets are incomplete, an unknown account's follows %+v, %v",
				when, s.Edges, added, s.Incomplete, r, err)
		}
	}
	for !f.single {
		add()
	}
	if s := g.Stats(); s.Edges != added-1 { // the last run is not in the graph
		t.Fatalf("%d edges of %d fit at once", s.Edges, added)
	}
	complete("one by one", true)
	for g.Stats().Edges == added-1 {
		add()
	}
	complete("without room", false)
}

// TestRoomAfterLoss frees memory after an edge was lost with its accounts, and gives each of them
// another edge. Their sets miss the lost one.
func TestRoomAfterLoss(t *testing.T) {
	cfg := testConfig()
	cfg.Memory = 2 * chunkBytes
	g := newTest(t, cfg)
	build := func(c Change) {
		t.Helper()
		if err := g.Build([]Change{c}); err != nil {
			t.Fatal(err)
		}
	}
	const twice = 20_000 // edges with a second record, which takes memory
	second := func(n uint64, remove bool) Change {
		return Change{Edge: Edge{Actor: 1, Subject: 2 + n, Record: twice + n}, Remove: remove}
	}
	for n := range uint64(twice) {
		build(Change{Edge: Edge{Actor: 1, Subject: 2 + n, Record: 1 + n}})
		build(second(n, false))
	}
	lost := Edge{Actor: 1_000_000, Subject: 1_000_001, Record: 1_000_000}
	for build(Change{Edge: lost}); g.Stats().Incomplete == 0; build(Change{Edge: lost}) {
		lost = Edge{Actor: lost.Actor + 2, Subject: lost.Subject + 2, Record: lost.Record + 2}
	}
	for n := range uint64(twice) {
		build(second(n, true))
	}
	build(Change{Edge: Edge{Actor: lost.Actor, Subject: 2, Record: 3}})
	build(Change{Edge: Edge{Actor: 2, Subject: lost.Subject, Record: 4}})
	for _, e := range []*Expr{Of(0, Out, lost.Actor), Of(0, In, lost.Subject)} {
		r, err := g.Count(t.Context(), e, Limits{})
		if err != nil || r.Count != 1 || r.Complete {
			t.Errorf("set %+v: %d members, complete: %t, %v; expected one of two", e.Set, r.Count, r.Complete, err)
		}
	}
}
