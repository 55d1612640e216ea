// Package setexpr parses expressions of sets of the social graph, such as
//
//	follows:did:plc:a and followers:did:plc:b and not (blocks:did:plc:a or blockedBy:did:plc:a)
//
// The grammar, in which words are lower case and white space separates:
//
//	expr    = term { "or" term }
//	term    = operand { "and" [ "not" ] operand }
//	operand = name ":" argument | "(" expr ")"
//
// "and" binds closer than "or". There is no "not" but after "and", as the complement of a set is
// no set that can be listed. A name says what its set is of: accounts or records. An expression
// is of one of the two.
//
// The package is pure: it does not look up what is named. The caller fills the leaves.
package setexpr
