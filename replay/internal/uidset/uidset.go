// Package uidset has an immutable set of UIDs that takes little memory. It is pure, but for the
// seed of its hashes.
package uidset

import (
	"iter"
	"math/bits"
	"math/rand/v2"
)

// Set is an immutable set of UIDs, safe for concurrent use: an open hash table, two thirds full at
// most. Its seed is random, so that nobody can choose UIDs that collide.
type Set struct {
	seed, factor uint64
	slots        []uint64 // 0: free
	n            int
}

// New makes a set of the UIDs, of which some may be the same, and none is 0.
func New(uids []uint64) *Set {
	s := &Set{seed: rand.Uint64(), factor: rand.Uint64() | 1, slots: make([]uint64, len(uids)+len(uids)/2+1)}
	for _, u := range uids {
		at := s.start(u)
		for s.slots[at] != 0 && s.slots[at] != u {
			at = s.next(at)
		}
		if s.slots[at] == 0 {
			s.slots[at] = u
			s.n++
		}
	}
	return s
}

// start returns the slot where the search for a UID starts.
func (s *Set) start(uid uint64) int {
	hi, lo := bits.Mul64(uid^s.seed, s.factor)
	hi, _ = bits.Mul64((hi^lo)*s.factor, uint64(len(s.slots)))
	return int(hi)
}

func (s *Set) next(at int) int {
	if at++; at == len(s.slots) {
		return 0
	}
	return at
}

// Has says whether uid, which is not 0, is in the set.
func (s *Set) Has(uid uint64) bool {
	for at := s.start(uid); s.slots[at] != 0; at = s.next(at) {
		if s.slots[at] == uid {
			return true
		}
	}
	return false
}

// Len returns the number of UIDs.
func (s *Set) Len() int { return s.n }

// All yields the UIDs.
func (s *Set) All() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, u := range s.slots {
			if u != 0 && !yield(u) {
				return
			}
		}
	}
}

// Memory is how many bytes a UID takes in a set.
const Memory = 12
