package graph

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestProgressText: how far a build is, for people.
func TestProgressText(t *testing.T) {
	for p, want := range map[Progress]string{{Complete: true, Done: 1}: "complete", {Done: 0.1234, Edges: 7}: "12.3 % built, 7 edges"} {
		if got := p.String(); got != want {
			t.Errorf("%+v: %s", p, got)
		}
	}
}

// TestInvalidExpr: an expression of what there is not is refused, wherever in it that is.
func TestInvalidExpr(t *testing.T) {
	good := Of(1, In, 7)
	for name, e := range map[string]*Expr{
		"operator": Join(AndNot+1, good, good), "source": Of(2, Out, 7), "a source below all": Of(-1, Out, 7), "direction": Of(0, In+1, 7), "left": Join(And, Of(2, Out, 7), good),
		"right": Join(Or, good, Of(2, Out, 7)), "no operand": {Op: And, Left: good}, "nothing": nil,
	} {
		if _, err := e.check(2); !errors.Is(err, errInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := good
	for n := 2; n <= maxSets+1; n++ {
		e = Join(Or, e, good)
		if sets, err := e.check(2); (err == nil) != (n <= maxSets) || err == nil && sets != n {
			t.Errorf("%d sets: %d, %v", n, sets, err)
		}
	}
}

// TestSampleByDefault: a sample without a limit has a hundred members.
func TestSampleByDefault(t *testing.T) {
	g := newTest(t, testConfig())
	var edges []Change
	for n := range uint64(300) {
		edges = append(edges, Change{Edge: Edge{Actor: 1, Subject: 10 + n, Record: n + 1}})
	}
	if err := g.Build(edges); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]int{0: 100, 1: 1, 400: 300} {
		r, err := g.Sample(t.Context(), Of(0, Out, 1), Limits{Limit: limit}, rand.New(rand.NewPCG(1, 2)))
		if err != nil || len(r.UIDs) != want || r.Count != 300 {
			t.Errorf("limit %d: %d of %d members, %v", limit, len(r.UIDs), r.Count, err)
		}
	}
}
