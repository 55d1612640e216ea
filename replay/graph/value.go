package graph

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

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
		at, _ := slices.BinarySearch(v.list, first)
		return v.list[at:min(at+n, len(v.list))]
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
		switch {
		case v.bitmap == nil && w.bitmap == nil:
			return value{list: union(v.list, w.list)}
		case v.len() == 0:
			return w
		case w.len() == 0:
			return v
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

// count returns the number of members of e. Where e has two bitmap operands, it counts without
// building the bitmap of the result.
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
