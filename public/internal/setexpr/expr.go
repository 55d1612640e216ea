package setexpr

import "strings"

// Op says how the operands of an Expr become one set.
type Op uint8

const (
	// Leaf is a set with a name. It has no operands.
	Leaf Op = iota
	// And is the members that all operands have, without those of subtracted operands. The first
	// operand is not subtracted.
	And
	// Or is the members that any operand has. None is subtracted.
	Or
)

// Name says which set of its argument a Set is.
type Name uint8

// The names, and what their sets hold.
const (
	Follows   Name = iota // accounts that a DID follows
	Followers             // accounts that follow a DID
	Blocks                // accounts that a DID blocks
	BlockedBy             // accounts that block a DID
	Members               // accounts on the list of an AT URI
	Likers                // accounts that like the record of an AT URI
	Reposters             // accounts that repost the record of an AT URI
	Liked                 // records that a DID likes
)

// Set is a set with a name.
type Set struct {
	Name     Name
	Argument string // valid DID, or AT URI of a record with a DID as its authority
}

func (s Set) String() string { return s.Name.String() + ":" + s.Argument }

// Expr is an expression, or an operand of one.
type Expr struct {
	Op         Op
	Subtracted bool   // only of operands of And
	Set        Set    // only of a Leaf
	Operands   []Expr // none of a Leaf, else at least two
}

// Records reports whether the set is of records. If not, it is of accounts.
func (e *Expr) Records() bool {
	for e.Op != Leaf {
		e = &e.Operands[0]
	}
	return names()[e.Set.Name].records
}

// String returns the canonical text.
func (e *Expr) String() string {
	var b strings.Builder
	e.write(&b)
	return b.String()
}

func (e *Expr) write(b *strings.Builder) {
	if e.Op == Leaf {
		b.WriteString(e.Set.String())
		return
	}
	for i := range e.Operands {
		operand := &e.Operands[i]
		switch {
		case i == 0:
		case e.Op == Or:
			b.WriteString(" or ")
		case operand.Subtracted:
			b.WriteString(" and not ")
		default:
			b.WriteString(" and ")
		}
		if e.Op == And && operand.Op != Leaf {
			b.WriteByte('(')
			operand.write(b)
			b.WriteByte(')')
		} else {
			operand.write(b)
		}
	}
}
