package setexpr

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
	Names                 // how many names there are
)

// Set is a set with a name.
type Set struct {
	Name     Name
	Argument string // valid DID, or AT URI of a record with a DID as its authority
}

// Expr is an expression, or an operand of one.
type Expr struct {
	Op         Op
	Subtracted bool   // only of operands of And
	Set        Set    // only of a Leaf
	Operands   []Expr // none of a Leaf, else at least two
}
