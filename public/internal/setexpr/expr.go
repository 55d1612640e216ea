package setexpr

import "millrace/replay/graph"

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

// Set is a set that an expression names.
type Set struct {
	Name     Name
	Argument string      // valid DID, or AT URI of a record with a DID as its authority
	Leaf     *graph.Expr // the set's place in the expression, for the caller to fill
}

// NewSet returns a set with an empty leaf.
func NewSet(name Name, argument string) Set { return Set{name, argument, new(graph.Expr)} }
