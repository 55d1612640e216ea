// Package uidset has a set of UIDs that takes little memory. It is pure, but for the seed of its
// hashes.
package uidset

import (
	"iter"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// Set is a set of UIDs that may grow, safe for concurrent use: an open hash table, two thirds full
// at most. Its seed is random, so that nobody can choose UIDs that collide.
type Set struct {
	seed, factor uint64

	mu    sync.Mutex      // serialises Add
	slots []atomic.Uint64 // 0: free; written under mu
	n     atomic.Int64    // written under mu
	room  int64           // the most UIDs
}

// New makes a set of the UIDs, of which some may be the same, and none is 0. It has room for as
// many more.
func New(uids []uint64, more int) *Set {
	room := len(uids) + more
	s := &Set{seed: rand.Uint64(), factor: rand.Uint64() | 1, slots: make([]atomic.Uint64, room+room/2+1), room: int64(room)}
	for _, u := range uids {
		s.Add(u)
	}
	return s
}

// Add adds a UID, which is not 0. It returns false if there is no room for it.
func (s *Set) Add(uid uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.start(uid)
	for {
		switch u := s.slots[at].Load(); {
		case u == uid:
			return true
		case u == 0 && s.n.Load() == s.room:
			return false
		case u == 0:
			s.slots[at].Store(uid)
			s.n.Add(1)
			return true
		}
		at = s.next(at)
	}
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
	for at := s.start(uid); ; at = s.next(at) {
		switch s.slots[at].Load() {
		case uid:
			return true
		case 0:
			return false
		}
	}
}

// Len returns the number of UIDs.
func (s *Set) Len() int { return int(s.n.Load()) }

// All yields the UIDs.
func (s *Set) All() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i := range s.slots {
			if u := s.slots[i].Load(); u != 0 && !yield(u) {
				return
			}
		}
	}
}

// Memory is how many bytes a UID, or the room for one, takes in a set.
const Memory = 12
