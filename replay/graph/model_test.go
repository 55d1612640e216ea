package graph

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"

	"millrace/replay/references"
)

var testSources = []string{"follow:subject", "block:subject"}

func testConfig() Config { return Config{Sources: testSources, StoreID: "store", Generation: 3} }

func newTest(t *testing.T, cfg Config) *Graph {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

type modelEdge struct {
	source         int
	actor, subject uint64
	static         bool
}

// model has the records of each edge. A static edge has the record 0.
type model map[modelEdge]map[uint64]bool

func (m model) apply(c Change) {
	if c.All {
		maps.DeleteFunc(m, func(e modelEdge, _ map[uint64]bool) bool { return e.actor == c.Actor && !e.static })
		return
	}
	e := modelEdge{c.Source, c.Actor, c.Subject, c.Record == 0}
	if !c.Remove {
		if m[e] == nil {
			m[e] = map[uint64]bool{}
		}
		m[e][c.Record] = true
		return
	}
	if delete(m[e], c.Record); len(m[e]) == 0 {
		delete(m, e)
	}
}

func (m model) set(s Set) map[uint64]bool {
	members := map[uint64]bool{}
	for e := range m {
		if e.source == s.Source && s.Direction == Out && e.actor == s.UID {
			members[e.subject] = true
		}
		if e.source == s.Source && s.Direction == In && e.subject == s.UID {
			members[e.actor] = true
		}
	}
	return members
}

// isStatic says whether a set of e has static edges.
func (m model) isStatic(e *Expr) bool {
	if e.Op != 0 {
		return m.isStatic(e.Left) || m.isStatic(e.Right)
	}
	for edge := range m {
		if edge.static && e.Given == nil && edge.source == e.Set.Source && e.Set.UID == [2]uint64{edge.actor, edge.subject}[e.Set.Direction] {
			return true
		}
	}
	return false
}

func (m model) eval(e *Expr) map[uint64]bool {
	if e.Op == 0 && e.Given == nil {
		return m.set(e.Set)
	}
	members := map[uint64]bool{}
	if e.Op == 0 {
		for _, uid := range e.Given {
			members[uid] = true
		}
		return members
	}
	left, right := m.eval(e.Left), m.eval(e.Right)
	for uid := range left {
		if e.Op == Or || right[uid] == (e.Op == And) {
			members[uid] = true
		}
	}
	if e.Op == Or {
		maps.Copy(members, right)
	}
	return members
}

// allPages reads an expression page by page, and counts it in both ways.
func allPages(t *testing.T, g *Graph, e *Expr, limit int) (all []uint64, static bool) {
	t.Helper()
	ctx := context.Background()
	l := Limits{Limit: limit}
	for {
		r, err := g.Eval(ctx, e, l)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, r.UIDs...); len(all) > r.Count {
			t.Fatalf("the pages have %d members, of %d", len(all), r.Count)
		}
		if l.After, l.Build = r.Next, r.Build; l.After == 0 {
			c, err := g.Count(ctx, e, Limits{})
			if err != nil || c.Count != len(all) || r.Count != len(all) || c.Static != r.Static {
				t.Fatalf("%d members; counted %d and %d, %v, static %v and %v", len(all), c.Count, r.Count, err, c.Static, r.Static)
			}
			return all, r.Static
		}
	}
}

func check(t *testing.T, g *Graph, m model, e *Expr, limit int) {
	t.Helper()
	got, static := allPages(t, g, e, limit)
	slices.Sort(got)
	want := slices.Sorted(maps.Keys(m.eval(e)))
	if diff := cmp.Diff(want, got); diff != "" || static != m.isStatic(e) {
		t.Fatalf("static %v, (-want +got):\n%s", static, diff)
	}
}

// world is random changes, made to a graph and a model.
type world struct {
	r        *rand.Rand
	g        *Graph
	m        model
	accounts uint64
	position references.Position
	record   uint64
}

func (w *world) uid() uint64 { return (1 + w.r.Uint64N(w.accounts)) * 0x1234567 }

// change is a creation, a removal of one record, or nothing of an edge that is not there.
func (w *world) change() Change {
	if len(w.m) > 0 && w.r.IntN(3) == 0 {
		edges := slices.SortedFunc(maps.Keys(w.m), func(a, b modelEdge) int {
			return cmpUint(a.actor*31+a.subject+uint64(a.source), b.actor*31+b.subject+uint64(b.source))
		})
		e := edges[w.r.IntN(len(edges))]
		if e.static {
			return Change{Source: e.source, Edge: Edge{Actor: e.actor, Subject: e.subject}}
		}
		records := slices.Sorted(maps.Keys(w.m[e]))
		if w.r.IntN(2) == 0 {
			return Change{Source: e.source, Edge: Edge{e.actor, e.subject, records[w.r.IntN(len(records))]}, Remove: true}
		}
		w.record++
		return Change{Source: e.source, Edge: Edge{e.actor, e.subject, w.record}}
	}
	if w.r.IntN(5) == 0 {
		return Change{Source: w.r.IntN(2), Edge: Edge{Actor: w.uid(), Subject: w.uid()}}
	}
	w.record++
	return Change{Source: w.r.IntN(2), Edge: Edge{w.uid(), w.uid(), w.record}}
}

func cmpUint(a, b uint64) int {
	if a < b {
		return -1
	}
	return 1
}

func (w *world) step(t *testing.T) {
	w.position.Seq++
	var changes []Change
	for range w.r.IntN(5) {
		change := w.change()
		if w.r.IntN(40) == 0 {
			change = Change{Edge: Edge{Actor: w.uid()}, Remove: true, All: true}
		}
		changes = append(changes, change)
		w.m.apply(change)
	}
	for range 1 + w.r.IntN(2) { // a repeated position changes nothing
		if err := w.g.Apply(w.position, changes); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) expr(depth int) *Expr {
	switch {
	case depth > 0 && w.r.IntN(3) > 0:
		return &Expr{Op: Op(1 + w.r.IntN(3)), Left: w.expr(depth - 1), Right: w.expr(depth - 1)}
	case w.r.IntN(4) == 0:
		var uids []uint64
		for range w.r.IntN(8) {
			uids = append(uids, w.uid(), w.r.Uint64N(5)+1)
		}
		return Given(uids)
	}
	return Of(w.r.IntN(2), Direction(w.r.IntN(2)), w.uid())
}

func TestModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &world{r: rand.New(rand.NewPCG(seed, 0)), g: newTest(t, testConfig()), m: model{}, accounts: 12}
	name := filepath.Join(t.TempDir(), "snapshot")
	for step := range 400 {
		w.step(t)
		if step%50 == 49 {
			w.g = reload(t, w.g, name)
		}
		for source := range testSources {
			for n := range w.accounts {
				for _, direction := range []Direction{Out, In} {
					check(t, w.g, w.m, Of(source, direction, (n+1)*0x1234567), 100)
				}
			}
		}
		for range 5 {
			check(t, w.g, w.m, w.expr(3), 1+w.r.IntN(6))
		}
		if s := w.g.Stats(); s.Edges != int64(len(w.m)) {
			t.Fatalf("%d edges are counted, of %d", s.Edges, len(w.m))
		}
	}
}

func reload(t *testing.T, g *Graph, name string) *Graph {
	t.Helper()
	if err := g.Save(context.Background(), name); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(name, g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loaded.Close() })
	if loaded.Position() != g.Position() {
		t.Fatalf("position %v, saved at %v", loaded.Position(), g.Position())
	}
	return loaded
}

// TestLargeSets takes sets across the sizes at which they become bitmaps and lists again.
func TestLargeSets(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	g, m := newTest(t, testConfig()), model{}
	const hubs = 3
	var edges []Change
	for n := range 6 * largeFrom {
		edges = append(edges, Change{Edge: Edge{uint64(1000 + r.IntN(4*largeFrom)), uint64(1 + n%hubs), uint64(n + 1)}})
	}
	for _, c := range edges {
		m.apply(c)
	}
	if err := g.Build(edges); err != nil {
		t.Fatal(err)
	}
	exprs := []*Expr{Of(0, In, 1), Join(And, Of(0, In, 1), Of(0, In, 2), Of(0, In, 3)), Join(Or, Of(0, In, 1), Of(0, In, 2)),
		Join(AndNot, Of(0, In, 1), Of(0, In, 2)), Join(And, Of(0, In, 1), Given([]uint64{1000, 1001, 7, 2000, 3000})),
		Join(AndNot, Of(0, In, 2), Given([]uint64{1000, 1500, 9000}), Of(0, In, 3))}
	if g.indexes[1].largeBytes == 0 {
		t.Fatal("no set is a bitmap")
	}
	for n := range uint32(hubs) {
		ordinal, _ := g.accounts.find(uint64(1 + n))
		s := g.indexes[1].set(ordinal)
		if bad := slices.IndexFunc(members(s), func(m uint32) bool { return !s.contains(m) }); bad >= 0 {
			t.Fatalf("set %d does not contain its member %d of %d", n+1, bad, s.members)
		}
	}
	name := filepath.Join(t.TempDir(), "snapshot")
	for round := range 4 {
		for _, e := range exprs {
			check(t, g, m, e, 1000)
		}
		g = reload(t, g, name)
		r.Shuffle(len(edges), func(i, j int) { edges[i], edges[j] = edges[j], edges[i] })
		gone := edges[:len(edges)*[]int{30, 50, 90, 100}[round]/100]
		for i := range gone {
			gone[i].Remove = true
			m.apply(gone[i])
		}
		if err := g.Build(gone); err != nil {
			t.Fatal(err)
		}
		edges = edges[len(gone):]
	}
	if s := g.Stats(); s.Edges != 0 {
		t.Errorf("%d edges are left", s.Edges)
	}
	for i, x := range g.indexes {
		if len(x.freeLarge) != len(x.large) || slices.ContainsFunc(x.large, func(b *roaring.Bitmap) bool { return b != nil }) {
			t.Errorf("index %d keeps bitmaps of empty sets: %d places, %d free", i, len(x.large), len(x.freeLarge))
		}
	}
}

// TestBitmapsAreCounted: bitmaps that come and go leave nothing in the count of the memory.
func TestBitmapsAreCounted(t *testing.T) {
	g := newTest(t, testConfig())
	var edges []Change
	for n := range uint64(largeFrom + 1000) {
		edges = append(edges, Change{Edge: Edge{n + 2, 1, n + 1}})
	}
	var first [2]int64 // bytes with the bitmap and without it
	for round := range 20 {
		for i, remove := range []bool{false, true} {
			for k := range edges {
				edges[k].Remove = remove
			}
			if err := g.Build(edges); err != nil {
				t.Fatal(err)
			}
			bytes := g.Stats().Bytes
			if round == 0 {
				first[i] = bytes
			}
			if d := bytes - first[i]; d < -largeFrom || d > largeFrom {
				t.Fatalf("round %d: %d bytes, in the first %d", round, bytes, first[i])
			}
		}
	}
	if d := first[0] - first[1]; d < 2*largeFrom || d > 4*largeFrom {
		t.Errorf("a bitmap counts as %d bytes", d)
	}
}

// FuzzAlgebra compares expressions of random sets with the model; the input chooses them.
func FuzzAlgebra(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Add(uint64(77), uint8(200))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) {
		w := &world{r: rand.New(rand.NewPCG(seed, 1)), g: newTest(t, testConfig()), m: model{}, accounts: 8}
		for range steps {
			w.step(t)
		}
		for range 4 {
			check(t, w.g, w.m, w.expr(3), 1+w.r.IntN(9))
		}
	})
}

func ExampleJoin() {
	g, _ := New(Config{Sources: []string{"follow"}})
	defer g.Close()
	_ = g.Build([]Change{{Edge: Edge{1, 2, 10}}, {Edge: Edge{1, 3, 11}}, {Edge: Edge{2, 4, 12}}})
	r, _ := g.Eval(context.Background(), Join(And, Of(0, Out, 1), Of(0, In, 4)), Limits{})
	fmt.Println(r.UIDs)
	// Output: [2]
}
