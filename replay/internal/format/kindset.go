package format

import "millrace/translate"

// KindSet is a set of event kinds. The zero KindSet stands for all of them.
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
func (s KindSet) Has(k translate.Kind) bool { return s == 0 || s&(1<<k) != 0 }

// NonCommitKinds are the kinds that pass every collection filter.
const NonCommitKinds KindSet = 1<<translate.KindIdentity | 1<<translate.KindAccount
