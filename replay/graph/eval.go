package graph

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"millrace/replay/references"
)

// Limits bounds an answer.
type Limits struct {
	Limit   int    // members of a page; default 100
	After   uint64 // UID of the last member of the page before, 0 for the first page
	Build   uint64 // with After: of that page's Result; another one than the graph's is ErrRenewed
	MaxCost int64  // members that the evaluation may visit; 0 for no limit
}

func (l Limits) withDefaults() Limits {
	if l.Limit <= 0 {
		l.Limit = 100
	}
	return l
}

// Result is an answer. Members come in an order that an account keeps while the process lives and
// over a snapshot: that of ordinals. An expression that may have members that the graph does not
// know, such as Given alone, has them by UID.
type Result struct {
	UIDs     []uint64
	Count    int                 // of all members, not of this page
	Next     uint64              // Limits.After of the next page; 0 after the last
	Build    uint64              // changes when members may have got another order
	Position references.Position // what the answer counts up to
	Complete bool                // no set of the expression misses members
	Static   bool                // a set has static edges
}

// Eval returns a page of an expression's members.
func (g *Graph) Eval(ctx context.Context, e *Expr, l Limits) (Result, error) {
	return one(g.EvalAll(ctx, []*Expr{e}, l))
}

// EvalAll returns a page of each of several expressions, all of one position. MaxCost is that of
// all together.
func (g *Graph) EvalAll(ctx context.Context, exprs []*Expr, l Limits) ([]Result, error) {
	l = l.withDefaults()
	return g.answer(ctx, exprs, l, func(q *query, e *Expr, r *Result) {
		v := q.eval(e)
		r.Count = v.len()
		if e.mayHaveUnknown() {
			q.pageByUID(v, l, r)
			return
		}
		page := v.after(q.firstAfter(l.After), l.Limit+1)
		if len(page) > l.Limit {
			page = page[:l.Limit]
			r.Next = q.uid(page[l.Limit-1])
		}
		r.UIDs = q.uids(page)
	})
}

// Count counts an expression's members.
func (g *Graph) Count(ctx context.Context, e *Expr, l Limits) (Result, error) {
	return one(g.answer(ctx, []*Expr{e}, l, func(q *query, e *Expr, r *Result) { r.Count = q.count(e) }))
}

// Sample returns up to Limit members, each of which is as likely as any other.
func (g *Graph) Sample(ctx context.Context, e *Expr, l Limits, random *rand.Rand) (Result, error) {
	l = l.withDefaults()
	return one(g.answer(ctx, []*Expr{e}, l, func(q *query, e *Expr, r *Result) {
		v := q.eval(e)
		r.Count = v.len()
		var picked []uint32
		for _, i := range pick(min(l.Limit, r.Count), r.Count, random) {
			picked = append(picked, v.at(i))
		}
		r.UIDs = q.uids(picked)
	}))
}

// pick returns k numbers below n, sorted (Floyd's algorithm).
func pick(k, n int, random *rand.Rand) []int {
	picked := map[int]bool{}
	for i := n - k; i < n; i++ {
		j := random.IntN(i + 1)
		if picked[j] {
			j = i
		}
		picked[j] = true
	}
	return slices.Sorted(maps.Keys(picked))
}

// Has says in Count (0 or 1) whether actor has an edge to subject.
func (g *Graph) Has(ctx context.Context, source int, actor, subject uint64) (Result, error) {
	return g.Count(ctx, Join(And, Given([]uint64{subject}), Of(source, Out, actor)), Limits{})
}

func one(results []Result, err error) (Result, error) {
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// answer calls do for each expression, in one hold of the lock.
func (g *Graph) answer(ctx context.Context, exprs []*Expr, l Limits, do func(*query, *Expr, *Result)) ([]Result, error) {
	given := map[*Expr][]uint64{}
	for _, e := range exprs {
		if _, err := e.check(len(g.cfg.Sources)); err != nil {
			return nil, err
		}
		sortedGiven(e, given)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil, ErrClosed
	}
	if l.After != 0 && l.Build != g.build {
		return nil, ErrRenewed
	}
	q := &query{g: g, leaves: map[*Expr]leaf{}}
	q.findUnknown(given)
	exprs = g.withStatic(exprs)
	results, cost := make([]Result, len(exprs)), int64(0)
	for i, e := range exprs {
		results[i] = Result{Build: g.build, Position: g.position, Complete: true}
		q.resolve(e, given, &results[i])
		cost += q.cost(e)
	}
	if l.MaxCost > 0 && cost > l.MaxCost {
		return nil, fmt.Errorf("%w: it may visit %d members, and %d are allowed", ErrTooCostly, cost, l.MaxCost)
	}
	for i, e := range exprs {
		do(q, e, &results[i])
	}
	return results, nil
}

// withStatic returns expressions whose sets have their static edges, too.
func (g *Graph) withStatic(exprs []*Expr) []*Expr {
	if !slices.ContainsFunc(g.indexes[g.tables():], func(x *index) bool { return len(x.refs) > 0 }) {
		return exprs
	}
	var with func(e *Expr) *Expr
	with = func(e *Expr) *Expr {
		if e.Op != 0 {
			return &Expr{Op: e.Op, Left: with(e.Left), Right: with(e.Right)}
		}
		static := &Expr{Set: e.Set}
		static.Set.Source += len(g.cfg.Sources)
		ordinal, found := g.accounts.find(e.Set.UID)
		if e.Given != nil || !found || g.indexOf(static.Set).set(ordinal).members == 0 {
			return e
		}
		return Join(Or, e, static)
	}
	all := make([]*Expr, len(exprs))
	for i, e := range exprs {
		all[i] = with(e)
	}
	return all
}

// indexOf returns where a set is; Source is its table.
func (g *Graph) indexOf(s Set) *index { return g.indexes[2*s.Source+int(s.Direction)] }

// sortedGiven collects the given UIDs, sorted, of all leaves: outside the lock.
func sortedGiven(e *Expr, into map[*Expr][]uint64) {
	switch {
	case e.Op != 0:
		sortedGiven(e.Left, into)
		sortedGiven(e.Right, into)
	case e.Given != nil:
		uids := slices.Clone(e.Given)
		slices.Sort(uids)
		into[e] = slices.Compact(uids)
	}
}

// query is an evaluation, in the read lock.
type query struct {
	g       *Graph
	unknown []uint64 // given UIDs without an ordinal, sorted; largeBit|i stands for unknown[i]
	leaves  map[*Expr]leaf
}

// leaf is a set of the graph, or given members.
type leaf struct {
	set
	list []uint32
}

func (q *query) findUnknown(given map[*Expr][]uint64) {
	for _, uids := range given {
		for _, uid := range uids {
			if _, found := q.g.accounts.find(uid); !found {
				q.unknown = append(q.unknown, uid)
			}
		}
	}
	slices.Sort(q.unknown)
	q.unknown = slices.Compact(q.unknown)
}

// resolve finds the sets of an expression.
func (q *query) resolve(e *Expr, given map[*Expr][]uint64, r *Result) {
	if e.Op != 0 {
		q.resolve(e.Left, given, r)
		q.resolve(e.Right, given, r)
		return
	}
	if e.Given != nil {
		list := make([]uint32, 0, len(given[e]))
		for _, uid := range given[e] {
			member, _ := q.member(uid)
			list = append(list, member)
		}
		slices.Sort(list)
		q.leaves[e] = leaf{set: set{members: len(list)}, list: list}
		return
	}
	x := q.g.indexOf(e.Set)
	ordinal, found := q.g.accounts.find(e.Set.UID)
	if !found {
		r.Complete = r.Complete && !q.g.lost
		q.leaves[e] = leaf{}
		return
	}
	q.leaves[e] = leaf{set: x.set(ordinal)}
	r.Complete = r.Complete && !x.incomplete.Contains(ordinal)
	r.Static = r.Static || e.Set.Source >= len(q.g.cfg.Sources)
}

// member returns the ordinal of a UID or, if the graph has none, the number that its place among
// the query's unknown UIDs gives. If the UID is not among those either, found is false, and member
// is the number of the next greater one.
func (q *query) member(uid uint64) (member uint32, found bool) {
	if n, found := q.g.accounts.find(uid); found {
		return n, true
	}
	i, found := slices.BinarySearch(q.unknown, uid)
	return largeBit | uint32(i), found
}

// firstAfter is the lowest member of the page after a UID.
func (q *query) firstAfter(after uint64) uint32 {
	if after == 0 {
		return 0
	}
	member, found := q.member(after)
	if found {
		member++
	}
	return member
}

func (q *query) uid(member uint32) uint64 {
	if member&largeBit != 0 {
		return q.unknown[member&^largeBit]
	}
	return q.g.accounts.uids[member]
}

func (q *query) uids(page []uint32) []uint64 {
	uids := make([]uint64, len(page))
	for i, member := range page {
		uids[i] = q.uid(member)
	}
	return uids
}

// pageByUID makes the page that is in the order of UIDs.
func (q *query) pageByUID(v value, l Limits, r *Result) {
	all := q.uids(v.after(0, r.Count))
	slices.Sort(all)
	from, found := slices.BinarySearch(all, l.After)
	if found {
		from++
	}
	r.UIDs = all[from:]
	if len(r.UIDs) > l.Limit {
		r.UIDs = r.UIDs[:l.Limit]
		r.Next = r.UIDs[l.Limit-1]
	}
}

// bound is how many members an expression has at most.
func (q *query) bound(e *Expr) int {
	switch e.Op {
	case And:
		return min(q.bound(e.Left), q.bound(e.Right))
	case Or:
		return q.bound(e.Left) + q.bound(e.Right)
	case AndNot:
		return q.bound(e.Left)
	default:
		return q.leaves[e].members
	}
}

func (q *query) cost(e *Expr) int64 {
	switch e.Op {
	case And:
		small, other := q.order(e)
		return q.cost(small) + min(q.cost(other), 4*int64(q.bound(small)))
	case AndNot:
		return q.cost(e.Left) + min(q.cost(e.Right), 4*int64(q.bound(e.Left)))
	case Or:
		return q.cost(e.Left) + q.cost(e.Right)
	default:
		return int64(q.leaves[e].members)
	}
}

// order returns the sides of an And, the smaller one first.
func (q *query) order(e *Expr) (small, other *Expr) {
	if q.bound(e.Right) < q.bound(e.Left) {
		return e.Right, e.Left
	}
	return e.Left, e.Right
}
