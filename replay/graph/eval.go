package graph

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"

	"millrace/replay/references"
)

// Limits bounds an answer.
type Limits struct {
	Limit   int    // members of a page; default 100
	After   uint64 // UID of the last member of the page before, 0 for the first page
	MaxCost int64  // see Cost; 0 for no limit
}

// Result is an answer. Members come in an order that an account keeps while the process lives and
// over a snapshot: that of ordinals. UIDs of Given that the graph does not know come last, by UID.
type Result struct {
	UIDs     []uint64
	Count    int                 // of all members, not of this page
	Next     uint64              // Limits.After of the next page; 0 after the last
	Position references.Position // what the answer counts up to
	Complete bool                // no set of the expression misses members
	Static   bool                // a set has or had edges that were imported without records
}

// Eval returns a page of an expression's members.
func (g *Graph) Eval(ctx context.Context, e *Expr, l Limits) (Result, error) {
	if l.Limit <= 0 {
		l.Limit = 100
	}
	return g.answer(ctx, e, l, func(q *query, r *Result) {
		v := q.eval(e)
		r.Count = v.len()
		page := v.after(q.place(l.After), l.Limit+1)
		if len(page) > l.Limit {
			page = page[:l.Limit]
			r.Next = q.uid(page[l.Limit-1])
		}
		r.UIDs = q.uids(page)
	})
}

// Count counts an expression's members.
func (g *Graph) Count(ctx context.Context, e *Expr, l Limits) (Result, error) {
	return g.answer(ctx, e, l, func(q *query, r *Result) { r.Count = q.count(e) })
}

// Sample returns up to Limit members, each of which is as likely as any other.
func (g *Graph) Sample(ctx context.Context, e *Expr, l Limits, random *rand.Rand) (Result, error) {
	if l.Limit <= 0 {
		l.Limit = 100
	}
	return g.answer(ctx, e, l, func(q *query, r *Result) {
		v := q.eval(e)
		r.Count = v.len()
		var picked []uint32
		for i := range r.Count { // selection sampling: each member by what is still wanted of what is left
			if random.IntN(r.Count-i) < min(l.Limit, r.Count)-len(picked) {
				picked = append(picked, v.at(i))
			}
		}
		r.UIDs = q.uids(picked)
	})
}

// Has says in Count (0 or 1) whether actor has an edge to subject.
func (g *Graph) Has(ctx context.Context, source int, actor, subject uint64) (Result, error) {
	return g.Count(ctx, Join(And, Given([]uint64{subject}), Of(source, Out, actor)), Limits{})
}

// Cost estimates how many members an evaluation visits.
func (g *Graph) Cost(e *Expr) (int64, error) {
	var cost int64
	_, err := g.answer(context.Background(), e, Limits{}, func(q *query, _ *Result) { cost = q.cost(e) })
	return cost, err
}

func (g *Graph) answer(ctx context.Context, e *Expr, l Limits, do func(*query, *Result)) (Result, error) {
	if _, err := e.check(len(g.cfg.Sources)); err != nil {
		return Result{}, err
	}
	given := sortedGiven(e, nil)
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return Result{}, ErrClosed
	}
	r := Result{Position: g.position, Complete: true}
	q := &query{g: g, leaves: map[*Expr]leaf{}}
	q.resolve(e, given, &r)
	if cost := q.cost(e); l.MaxCost > 0 && cost > l.MaxCost {
		return Result{}, fmt.Errorf("%w: some %d members, %d are allowed", ErrTooCostly, cost, l.MaxCost)
	}
	do(q, &r)
	return r, nil
}

// sortedGiven collects the given UIDs, sorted, of all leaves: outside the lock.
func sortedGiven(e *Expr, into map[*Expr][]uint64) map[*Expr][]uint64 {
	if into == nil {
		into = map[*Expr][]uint64{}
	}
	if e.Op != 0 {
		return sortedGiven(e.Right, sortedGiven(e.Left, into))
	}
	if e.Given != nil {
		uids := slices.Clone(e.Given)
		slices.Sort(uids)
		into[e] = slices.Compact(uids)
	}
	return into
}

// query is one evaluation, in the read lock.
type query struct {
	g       *Graph
	unknown []uint64 // given UIDs without an ordinal, sorted: member largeBit|i
	leaves  map[*Expr]leaf
}

// leaf is a set of the graph, or given members.
type leaf struct {
	set
	list []uint32
}

func (q *query) resolve(e *Expr, given map[*Expr][]uint64, r *Result) {
	for _, uids := range given {
		for _, uid := range uids {
			if _, found := q.g.accounts.find(uid); !found {
				q.unknown = append(q.unknown, uid)
			}
		}
	}
	slices.Sort(q.unknown)
	q.unknown = slices.Compact(q.unknown)
	q.resolveLeaves(e, given, r)
}

func (q *query) resolveLeaves(e *Expr, given map[*Expr][]uint64, r *Result) {
	if e.Op != 0 {
		q.resolveLeaves(e.Left, given, r)
		q.resolveLeaves(e.Right, given, r)
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
		r.Complete = r.Complete && !e.Partial
		return
	}
	x := q.g.indexes[2*e.Set.Source+int(e.Set.Direction)]
	ordinal, found := q.g.accounts.find(e.Set.UID)
	if !found {
		r.Complete = r.Complete && !q.g.lost
		q.leaves[e] = leaf{}
		return
	}
	q.leaves[e] = leaf{set: x.set(ordinal)}
	r.Complete = r.Complete && !x.incomplete.Contains(ordinal)
	r.Static = r.Static || x.static.Contains(ordinal)
}

// member is the ordinal of a UID, or the number of one that the graph does not know. For one that
// is not given either, it is the number of the next.
func (q *query) member(uid uint64) (member uint32, found bool) {
	if n, found := q.g.accounts.find(uid); found {
		return n, true
	}
	i, found := slices.BinarySearch(q.unknown, uid)
	return largeBit | uint32(i), found
}

// place is the lowest member of the page after a UID.
func (q *query) place(after uint64) uint32 {
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

// value is sorted members: a list, or a bitmap that may be that of the graph.
type value struct {
	list   []uint32
	bitmap *roaring.Bitmap
}

func (v value) len() int {
	if v.bitmap != nil {
		return int(v.bitmap.GetCardinality())
	}
	return len(v.list)
}

func (v value) at(i int) uint32 {
	if v.bitmap == nil {
		return v.list[i]
	}
	member, _ := v.bitmap.Select(uint32(i)) // i is below the cardinality
	return member
}

// after returns up to n members from first on.
func (v value) after(first uint32, n int) []uint32 {
	if v.bitmap == nil {
		list := v.list[sort.Search(len(v.list), func(i int) bool { return v.list[i] >= first }):]
		return list[:min(n, len(list))]
	}
	var page []uint32
	it := v.bitmap.Iterator()
	for it.AdvanceIfNeeded(first); it.HasNext() && len(page) < n; {
		page = append(page, it.Next())
	}
	return page
}

// eval evaluates an expression. Short lists are filtered through the other side; bitmaps meet as
// bitmaps.
func (q *query) eval(e *Expr) value {
	switch e.Op {
	case And:
		small, other := q.order(e)
		v := q.eval(small)
		if v.bitmap == nil {
			return value{list: q.filter(v.list, other)}
		}
		if w := q.eval(other); w.bitmap != nil {
			return value{bitmap: roaring.And(v.bitmap, w.bitmap)}
		} else {
			return value{list: intersect(w.list, leaf{set: set{bitmap: v.bitmap}})}
		}
	case AndNot:
		v := q.eval(e.Left)
		if v.bitmap == nil {
			return value{list: without(v.list, q.filter(v.list, e.Right))}
		}
		return value{bitmap: roaring.AndNot(v.bitmap, q.eval(e.Right).asBitmap())}
	case Or:
		v, w := q.eval(e.Left), q.eval(e.Right)
		if v.bitmap == nil && w.bitmap == nil {
			return value{list: union(v.list, w.list)}
		}
		return value{bitmap: roaring.Or(v.asBitmap(), w.asBitmap())}
	}
	l := q.leaves[e]
	if l.bitmap != nil {
		return value{bitmap: l.bitmap}
	}
	return value{list: l.members32()}
}

func (v value) asBitmap() *roaring.Bitmap {
	if v.bitmap != nil {
		return v.bitmap
	}
	return roaring.BitmapOf(v.list...)
}

// count counts; two bitmaps are not joined for it.
func (q *query) count(e *Expr) int {
	if e.Op == 0 {
		return q.leaves[e].members
	}
	if e.Left.Op == 0 && e.Right.Op == 0 {
		left, right := q.leaves[e.Left].bitmap, q.leaves[e.Right].bitmap
		if left != nil && right != nil {
			both := int(left.AndCardinality(right))
			switch e.Op {
			case And:
				return both
			case Or:
				return q.leaves[e.Left].members + q.leaves[e.Right].members - both
			default:
				return q.leaves[e.Left].members - both
			}
		}
	}
	return q.eval(e).len()
}

// filter returns the members of a list that are in an expression.
func (q *query) filter(list []uint32, e *Expr) []uint32 {
	if len(list) == 0 {
		return nil
	}
	switch e.Op {
	case And:
		small, other := q.order(e)
		return q.filter(q.filter(list, small), other)
	case Or:
		return union(q.filter(list, e.Left), q.filter(list, e.Right))
	case AndNot:
		left := q.filter(list, e.Left)
		return without(left, q.filter(left, e.Right))
	default:
		return intersect(list, q.leaves[e])
	}
}
