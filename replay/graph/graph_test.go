package graph

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"millrace/consume/relaysim/testwait"
	"millrace/replay/references"
)

func TestDamage(t *testing.T) {
	g := newTest(t, testConfig())
	changes := []Change{{Edge: Edge{1, 2, 3}}, {Edge: Edge{1, 2, 4}}, {Edge: Edge{2, 1, 0}}, {Source: 1, Edge: Edge{5, 2, 6}}}
	if err := g.Apply(references.Position{Epoch: 1, Seq: 7}, changes); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "snapshot")
	reload(t, g, name)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, at int, file []byte) {
		t.Helper()
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := Load(name, testConfig())
		if err == nil {
			g.Close()
			t.Fatalf("%s at byte %d: loaded", what, at)
		}
		if !strings.Contains(err.Error(), name) {
			t.Fatalf("%s at byte %d: %v does not name the file", what, at, err)
		}
	}
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		refused("damage", at, damaged)
		refused("cut", at, whole[:at])
	}
	refused("more", len(whole), append(slices.Clone(whole), 0))
	for _, other := range []Config{
		{Sources: testSources, StoreID: "other", Generation: 3},
		{Sources: testSources, StoreID: "store", Generation: 4},
		{Sources: testSources[:1], StoreID: "store", Generation: 3},
	} {
		if err := os.WriteFile(name, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if g, err := Load(name, other); err == nil {
			g.Close()
			t.Errorf("%+v: loaded", other)
		}
	}
}

// TestSaveOfOnePosition changes sets on both sides of the walk of a Save.
func TestSaveOfOnePosition(t *testing.T) {
	g := newTest(t, testConfig())
	var edges, removals []Change
	for n := range uint64(3 * saveBatch) {
		edges = append(edges, Change{Source: int(n % 2), Edge: Edge{n + 1, n%7 + 1, n + 1}})
	}
	removals = slices.Clone(edges)
	for i := range removals {
		removals[i].Remove = true
	}
	if err := g.Apply(references.Position{Seq: 1}, edges); err != nil {
		t.Fatal(err)
	}
	header, _, _, _, err := g.begin()
	if err != nil {
		t.Fatal(err)
	}
	var walked []byte
	var saved [][]byte
	for source := range testSources {
		for first := 0; first < header.Accounts; {
			walked, first, _ = g.appendSets(nil, source, first)
			saved = append(saved, walked)
			if len(saved) == 1 { // all of the first source is walked, none of the other
				if err := g.Apply(references.Position{Seq: 2}, removals); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if n := len(g.walk.saved); n != 0 {
		t.Errorf("%d sets are still kept for a walk that is through", n)
	}
	if b := g.walk.bytes.Load(); b != 0 {
		t.Errorf("%d bytes are counted of no sets", b)
	}
	g.walk = nil
	other := newTest(t, testConfig())
	if err := other.Build(edges); err != nil {
		t.Fatal(err)
	}
	if _, _, _, _, err := other.begin(); err != nil {
		t.Fatal(err)
	}
	for source := range testSources {
		for first := 0; first < header.Accounts; {
			var want []byte
			want, first, _ = other.appendSets(nil, source, first)
			if !slices.Equal(want, saved[0]) {
				t.Fatalf("source %d: the sets saved are not those of the position at the start", source)
			}
			saved = saved[1:]
		}
	}
}

func TestConcurrent(t *testing.T) {
	g := newTest(t, testConfig())
	name := filepath.Join(t.TempDir(), "snapshot")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group errgroup.Group
	group.Go(func() error {
		defer cancel()
		for n := range int64(2000) { // each position has account 1 follow one more, and be followed by it
			u := uint64(n + 2)
			edges := []Change{{Edge: Edge{1, u, 2 * u}}, {Edge: Edge{u, 1, 2*u + 1}}}
			if err := g.Apply(references.Position{Seq: n + 1}, edges); err != nil {
				return err
			}
		}
		return nil
	})
	for range 2 {
		group.Go(func() error {
			for ctx.Err() == nil {
				r, err := g.Count(context.Background(), Join(And, Of(0, Out, 1), Of(0, In, 1)), Limits{})
				if err != nil {
					return err
				}
				if int64(r.Count) != r.Position.Seq {
					return errors.New("an answer is not that of its position")
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		for ctx.Err() == nil {
			if err := g.Save(context.Background(), name); err != nil {
				return err
			}
			loaded, err := Load(name, testConfig())
			if err != nil {
				return err
			}
			r, err := loaded.Count(context.Background(), Join(And, Of(0, Out, 1), Of(0, In, 1)), Limits{})
			loaded.Close()
			if err != nil || int64(r.Count) != r.Position.Seq {
				return errors.Join(err, errors.New("a snapshot is not that of its position"))
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestMemory fills a graph: what is lost is said, what is answered as complete is exact.
func TestMemory(t *testing.T) {
	if testwait.Race {
		t.Skip("it computes much, and what Fill does at once TestFill runs")
	}
	t.Run("Build", func(t *testing.T) { testMemory(t, (*Graph).Build) })
	t.Run("Fill", func(t *testing.T) {
		testMemory(t, func(g *Graph, edges []Change) error {
			f := g.Fill()
			err := f.Add(edges[:1000])
			if f.single {
				t.Error("the first edges are added one by one")
			}
			return errors.Join(err, f.Add(edges[1000:]), f.End())
		})
	})
}

func testMemory(t *testing.T, build func(*Graph, []Change) error) {
	cfg := testConfig()
	cfg.Memory = 3 * chunkBytes
	g, m := newTest(t, cfg), model{}
	r := rand.New(rand.NewPCG(1, 1))
	var edges []Change
	for n := range uint64(600_000) {
		c := Change{Edge: Edge{r.Uint64N(200_000) + 1, r.Uint64N(200_000) + 1, n + 1}}
		edges = append(edges, c)
		m.apply(c)
	}
	if err := build(g, edges); err != nil {
		t.Fatal(err)
	}
	if s := g.Stats(); s.Bytes > cfg.Memory || s.Incomplete == 0 {
		t.Fatalf("%d bytes, of %d; %d sets incomplete", s.Bytes, cfg.Memory, s.Incomplete)
	}
	wants := map[uint64]map[uint64]bool{}
	for e := range m {
		if wants[e.actor] == nil {
			wants[e.actor] = map[uint64]bool{}
		}
		wants[e.actor][e.subject] = true
	}
	complete := 0
	for actor := range uint64(200_000) {
		res, err := g.Count(context.Background(), Of(0, Out, actor+1), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if res.Complete {
			complete++
		}
		if want := len(wants[actor+1]); res.Count > want || res.Complete && res.Count != want {
			t.Fatalf("account %d: %d of %d, complete=%t", actor+1, res.Count, want, res.Complete)
		}
	}
	if complete == 0 {
		t.Error("no set is complete")
	}
	for i := range edges { // removals need no memory
		edges[i].Remove = true
	}
	if err := g.Build(edges); err != nil {
		t.Fatal(err)
	}
	if s := g.Stats(); s.Edges != 0 {
		t.Errorf("%d edges are left", s.Edges)
	}
}

func TestStaticAndGiven(t *testing.T) {
	g := newTest(t, testConfig())
	if err := g.Build([]Change{{Edge: Edge{1, 2, 0}}, {Edge: Edge{1, 2, 0}}, {Edge: Edge{3, 4, 9}}}); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, c := range []struct {
		e      *Expr
		count  int
		static bool
	}{
		{Of(0, Out, 1), 1, true},
		{Of(0, In, 2), 1, true},
		{Of(0, Out, 3), 1, false},
		{Join(Or, Of(0, Out, 3), Of(0, In, 2)), 2, true},
		{Join(Or, Of(0, In, 2), Of(0, Out, 3)), 2, true},
		{Given([]uint64{2, 2, 99}), 2, false},
	} {
		r, err := g.Eval(ctx, c.e, Limits{})
		if err != nil || r.Count != c.count || r.Static != c.static || !r.Complete {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
	}
	if r, err := g.Has(ctx, 0, 3, 4); err != nil || r.Count != 1 {
		t.Errorf("an edge is not found: %+v, %v", r, err)
	}
	if r, err := g.Sample(ctx, Given([]uint64{7, 8, 9}), Limits{Limit: 2}, rand.New(rand.NewPCG(1, 2))); err != nil || len(r.UIDs) != 2 {
		t.Errorf("a sample of 2: %+v, %v", r, err)
	}
}

// TestOpenPages lists accounts that become known between the pages.
func TestOpenPages(t *testing.T) {
	g, ctx := newTest(t, testConfig()), context.Background()
	e := Join(Or, Given([]uint64{50, 40, 30, 20}), Of(0, Out, 1))
	first, err := g.Eval(ctx, e, Limits{Limit: 2})
	if err != nil || !slices.Equal(first.UIDs, []uint64{20, 30}) || first.Count != 4 || first.Next != 30 {
		t.Fatalf("the first page: %+v, %v", first, err)
	}
	if err := g.Build([]Change{{Edge: Edge{40, 20, 1}}, {Edge: Edge{1, 45, 2}}}); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[uint64][]uint64{first.Next: {40, 45}, 35: {40, 45}, 45: {50}, 50: {}} {
		r, err := g.Eval(ctx, e, Limits{Limit: 2, After: after, Build: first.Build})
		if err != nil || !slices.Equal(r.UIDs, want) || (r.Next != 0) != (len(want) == 2) {
			t.Errorf("the page after %d: %+v, %v", after, r, err)
		}
	}
}

func TestEvalAll(t *testing.T) {
	g, ctx := newTest(t, testConfig()), context.Background()
	if err := g.Build([]Change{{Edge: Edge{1, 2, 1}}, {Edge: Edge{1, 3, 0}}, {Edge: Edge{4, 5, 3}}}); err != nil {
		t.Fatal(err)
	}
	exprs := []*Expr{Of(0, Out, 1), Of(0, Out, 4), Of(0, Out, 9)}
	all, err := g.EvalAll(ctx, exprs, Limits{Limit: 1, MaxCost: 3})
	if err != nil || len(all) != len(exprs) {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, e := range exprs {
		alone, err := g.Eval(ctx, e, Limits{Limit: 1})
		if diff := cmp.Diff(alone, all[i]); diff != "" || err != nil {
			t.Errorf("%+v: %v\n%s", e, err, diff)
		}
	}
	if _, err := g.EvalAll(ctx, exprs, Limits{MaxCost: 2}); !errors.Is(err, ErrTooCostly) {
		t.Errorf("three members, of which two are allowed: %v", err)
	}
}

// TestChangeOfNoSource: if one change is of no source of the graph, all are refused.
func TestChangeOfNoSource(t *testing.T) {
	g := newTest(t, testConfig())
	for _, source := range []int{-1, len(testSources)} {
		changes := []Change{{Edge: Edge{1, 2, 3}}, {Source: source, Edge: Edge{1, 2, 4}}}
		want := fmt.Sprintf("graph: a change has source %d, but there are 2 sources", source)
		if err := g.Build(changes); err == nil || err.Error() != want {
			t.Errorf("Build: %v, want %s", err, want)
		}
		if err := g.Apply(references.Position{Seq: 1}, changes); err == nil || err.Error() != want {
			t.Errorf("Apply: %v, want %s", err, want)
		}
	}
	if s := g.Stats(); s.Accounts != 0 || s.Edges != 0 || g.Position() != (references.Position{}) {
		t.Errorf("%+v at %v", s, g.Position())
	}
	g.Close()
	if err := g.Build(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestListsMeetBitmaps: each operator, of sets that are lists, bitmaps and empty.
func TestListsMeetBitmaps(t *testing.T) {
	if testwait.Race {
		t.Skip("one goroutine that computes much: the race detector finds nothing")
	}
	g, m := newTest(t, testConfig()), model{}
	var edges []Change
	add := func(actor uint64, members, step int) {
		for n := range members {
			edges = append(edges, Change{Edge: Edge{actor, uint64(1000 + n*step), uint64(len(edges) + 1)}})
			m.apply(edges[len(edges)-1])
		}
	}
	add(1, largeFrom+100, 2)
	add(2, largeFrom+200, 3)
	add(3, largeFrom-500, 4) // the lists together are longer than the bitmaps
	add(4, largeFrom-500, 5)
	add(5, 10, 6)
	if err := g.Build(edges); err != nil {
		t.Fatal(err)
	}
	for actor, bitmap := range map[uint64]bool{1: true, 2: true, 3: false, 4: false, 5: false} {
		if ordinal, found := g.accounts.find(actor); !found || (g.indexes[0].set(ordinal).bitmap != nil) != bitmap {
			t.Fatalf("account %d: bitmap=%t expected", actor, bitmap)
		}
	}
	of := func(actor uint64) *Expr { return Of(0, Out, actor) }
	sides := []*Expr{of(1), of(2), of(3), of(5), of(9), Join(Or, of(3), of(4)), Join(And, of(1), of(2)), Given([]uint64{1000, 1001, 1012, 7})}
	for _, left := range sides {
		for _, right := range sides {
			for _, op := range []Op{And, Or, AndNot} {
				check(t, g, m, Join(op, left, right), 10_000)
			}
		}
	}
}

func TestPick(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var times [5]int
	for range 10_000 {
		picked := pick(2, 5, random)
		if len(picked) != 2 || picked[0] >= picked[1] {
			t.Fatalf("picked %v", picked)
		}
		times[picked[0]]++
		times[picked[1]]++
	}
	for n, many := range times {
		if many < 3800 || many > 4200 { // four standard deviations
			t.Errorf("%d was picked %d times, of some 4,000", n, many)
		}
	}
	if all := pick(3, 3, random); !slices.Equal(all, []int{0, 1, 2}) {
		t.Errorf("of three: %v", all)
	}
}

func TestRefused(t *testing.T) {
	g := newTest(t, testConfig())
	if err := g.Build([]Change{{Edge: Edge{1, 2, 1}}, {Edge: Edge{1, 3, 2}}}); err != nil {
		t.Fatal(err)
	}
	leaf := Of(0, Out, 1)
	for _, c := range []struct {
		e    *Expr
		l    Limits
		want error
	}{
		{nil, Limits{}, errInvalid},
		{Of(2, Out, 1), Limits{}, errInvalid},
		{&Expr{Op: And, Left: leaf}, Limits{}, errInvalid},
		{Join(And, leaf, leaf, leaf, leaf, leaf, leaf, leaf, leaf, leaf), Limits{}, errInvalid},
		{Join(And, leaf, leaf, leaf, leaf, leaf, leaf, leaf, leaf), Limits{}, nil},
		{leaf, Limits{MaxCost: 1}, ErrTooCostly},
		{leaf, Limits{MaxCost: 2}, nil},
	} {
		if _, err := g.Eval(context.Background(), c.e, c.l); !errors.Is(err, c.want) {
			t.Errorf("%+v, %+v: %v, want %v", c.e, c.l, err, c.want)
		}
	}
	g.Close()
	if _, err := g.Count(context.Background(), leaf, Limits{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestRenewed: a page does not go on from one of another numbering of accounts. A snapshot keeps
// the numbering.
func TestRenewed(t *testing.T) {
	g, ctx := newTest(t, testConfig()), context.Background()
	if err := g.Build([]Change{{Edge: Edge{1, 2, 1}}, {Edge: Edge{1, 3, 2}}}); err != nil {
		t.Fatal(err)
	}
	e := Of(0, Out, 1)
	first, err := g.Eval(ctx, e, Limits{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	next := Limits{After: first.Next, Build: first.Build}
	name := filepath.Join(t.TempDir(), "graph")
	if err := g.Save(ctx, name); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(name, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	for what, g := range map[string]*Graph{"the same": g, "loaded": loaded} {
		if r, err := g.Eval(ctx, e, next); err != nil || !slices.Equal(r.UIDs, []uint64{3}) {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	loaded.Renew()
	for what, g := range map[string]*Graph{"renewed": loaded, "another": newTest(t, testConfig())} {
		if _, err := g.Eval(ctx, e, next); !errors.Is(err, ErrRenewed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMuchChangesDuringSave: a Save gives up when copies of changed sets take too much memory.
func TestMuchChangesDuringSave(t *testing.T) {
	g := newTest(t, testConfig())
	actors := uint64(20_000)
	build := func(subject uint64) {
		var changes []Change
		for actor := range actors {
			changes = append(changes, Change{Edge: Edge{actor + 1, subject, subject}})
		}
		if err := g.Build(changes); err != nil {
			t.Fatal(err)
		}
	}
	build(1 << 40)
	g.cfg.Memory = g.bytesLocked() + 1<<20
	if _, _, _, _, err := g.begin(); err != nil {
		t.Fatal(err)
	}
	build(1<<40 + 1)
	if !g.walk.failed {
		t.Error("too much was copied")
	}
	if b := g.walk.bytes.Load(); b != 0 {
		t.Errorf("%d bytes are kept", b)
	}
}
