package format

import (
	"cmp"

	"millrace/translate"
)

// KindSet is a set of event kinds. The zero KindSet stands for DefaultKinds.
type KindSet uint8

// Kinds returns the set of ks.
func Kinds(ks ...translate.Kind) KindSet {
	var s KindSet
	for _, k := range ks {
		s |= 1 << k
	}
	return s
}

// Has says whether k is in the set.
func (s KindSet) Has(k translate.Kind) bool { return cmp.Or(s, DefaultKinds)&(1<<k) != 0 }

const (
	// CopiedKinds are those of which spans have copies.
	CopiedKinds KindSet = 1<<translate.KindIdentity | 1<<translate.KindAccount
	// NonCommitKinds are the kinds that pass every collection filter.
	NonCommitKinds = CopiedKinds | 1<<translate.KindSync
	// DefaultKinds are those that pass if none are named: all but #sync events.
	DefaultKinds = CopiedKinds | 1<<translate.KindCommit
	// AllKinds are all there are.
	AllKinds = DefaultKinds | NonCommitKinds
)
