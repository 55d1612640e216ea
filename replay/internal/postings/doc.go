// Package postings is the format of links in the reference store: keys, values, and the merge
// operator. It is pure, but for Pebble's interface of merge operators.
package postings
