package graph

import "fmt"

// Op joins two expressions.
type Op uint8

// The operators of an expression; the zero Op is that of a leaf.
const (
	And Op = iota + 1
	Or
	AndNot // the members of the first that are not in the second
)

// maxSets is how many sets an expression may have.
const maxSets = 8

// Set names a set of a graph: the accounts at the other end of UID's edges.
type Set struct {
	Source    int
	Direction Direction
	UID       uint64
}

// Expr is an expression over sets. A leaf has Set, or Given if that is not nil.
type Expr struct {
	Op          Op
	Left, Right *Expr // of an operator
	Set         Set
	Given       []uint64 // the caller's UIDs, in any order
}

// Of is the leaf of a set.
func Of(source int, direction Direction, uid uint64) *Expr {
	return &Expr{Set: Set{Source: source, Direction: direction, UID: uid}}
}

// Given is the leaf of UIDs that the caller has, in place of a set of the graph.
func Given(uids []uint64) *Expr {
	if uids == nil {
		uids = []uint64{}
	}
	return &Expr{Given: uids}
}

// Join puts an operator between expressions, from left to right.
func Join(op Op, first *Expr, rest ...*Expr) *Expr {
	for _, e := range rest {
		first = &Expr{Op: op, Left: first, Right: e}
	}
	return first
}

// mayHaveUnknown says whether an expression may have members that the graph does not know.
func (e *Expr) mayHaveUnknown() bool {
	switch e.Op {
	case And:
		return e.Left.mayHaveUnknown() && e.Right.mayHaveUnknown()
	case Or:
		return e.Left.mayHaveUnknown() || e.Right.mayHaveUnknown()
	case AndNot:
		return e.Left.mayHaveUnknown()
	default:
		return e.Given != nil
	}
}

// check counts the sets of an expression.
func (e *Expr) check(sources int) (sets int, err error) {
	switch {
	case e == nil:
		return 0, fmt.Errorf("%w: an operator lacks an operand", errInvalid)
	case e.Op > AndNot:
		return 0, fmt.Errorf("%w: unknown operator %d", errInvalid, e.Op)
	case e.Op == 0 && e.Given == nil && (e.Set.Source < 0 || e.Set.Source >= sources || e.Set.Direction > In):
		return 0, fmt.Errorf("%w: unknown source %d or direction %d", errInvalid, e.Set.Source, e.Set.Direction)
	case e.Op == 0:
		return 1, nil
	}
	left, err := e.Left.check(sources)
	if err != nil {
		return 0, err
	}
	right, err := e.Right.check(sources)
	if err == nil && left+right > maxSets {
		err = fmt.Errorf("%w: more than %d sets", errInvalid, maxSets)
	}
	return left + right, err
}
