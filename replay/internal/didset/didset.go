// Package didset has an immutable set of DIDs that takes little memory. It is pure.
package didset

import (
	"iter"
	"math/bits"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Set is an immutable set of DIDs, safe for concurrent use. A did:plc, which nearly all are, takes
// 17 bytes. They are the 120 bits of its identifier, a tag, and its part of a table that says where
// the DIDs of a bucket begin.
//
//	starts  [0][3][3][7]…          bucket b's slots are starts[b] to starts[b+1]
//	slots   [tag|15 bytes]…        tag: the lowest byte of the DID's hash
type Set struct {
	starts []uint32
	slots  [][slotBytes]byte
	other  map[string]struct{} // what is no did:plc of the usual form
}

const (
	slotBytes      = 16
	slotsPerBucket = 4 // on average
	plcPrefix      = "did:plc:"
	plcChars       = 24 // of 5 bits each
)

// New makes a set of the DIDs, of which some may be the same.
func New(dids []string) *Set {
	s := &Set{other: make(map[string]struct{})}
	plc := 0
	for _, d := range dids {
		var slot [slotBytes]byte
		if packPLC(&slot, d) {
			plc++
		} else {
			s.other[strings.Clone(d)] = struct{}{}
		}
	}
	s.starts = make([]uint32, plc/slotsPerBucket+2)
	s.slots = make([][slotBytes]byte, plc)
	// A counting sort: count each bucket, sum up, and fill each bucket from its end.
	each := func(f func(bucket int, slot [slotBytes]byte)) {
		for _, d := range dids {
			var slot [slotBytes]byte
			if packPLC(&slot, d) {
				h := xxhash.Sum64String(d)
				slot[0] = byte(h)
				f(s.bucket(h), slot)
			}
		}
	}
	each(func(b int, _ [slotBytes]byte) { s.starts[b]++ })
	for b := 1; b < len(s.starts); b++ {
		s.starts[b] += s.starts[b-1]
	}
	each(func(b int, slot [slotBytes]byte) {
		s.starts[b]--
		s.slots[s.starts[b]] = slot
	})
	return s
}

// bucket returns the bucket of a hash; the last entry of starts belongs to no bucket.
func (s *Set) bucket(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(len(s.starts)-1))
	return int(hi)
}

// Has says whether did, whose xxhash64 is hash, is in the set.
func (s *Set) Has(hash uint64, did string) bool {
	b := s.bucket(hash)
	tag := byte(hash)
	var slot [slotBytes]byte
	packed := false
	for i := s.starts[b]; i < s.starts[b+1]; i++ {
		if s.slots[i][0] != tag {
			continue
		}
		if !packed {
			if !packPLC(&slot, did) {
				break
			}
			slot[0], packed = tag, true
		}
		if s.slots[i] == slot {
			return true
		}
	}
	_, ok := s.other[did]
	return ok
}

// All yields the DIDs. One that New was given twice may come twice.
func (s *Set) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range s.slots {
			if !yield(unpackPLC(&s.slots[i])) {
				return
			}
		}
		for d := range s.other {
			if !yield(d) {
				return
			}
		}
	}
}

// Len is how many DIDs All yields.
func (s *Set) Len() int { return len(s.slots) + len(s.other) }

// packPLC puts the identifier of a did:plc into the slot, from its second byte on. It returns false
// if the DID has another form.
func packPLC(slot *[slotBytes]byte, did string) bool {
	if len(did) != len(plcPrefix)+plcChars || did[:len(plcPrefix)] != plcPrefix {
		return false
	}
	id := did[len(plcPrefix):]
	for i := range 3 { // 8 characters are 5 bytes
		var v uint64
		for j := range 8 {
			c := id[8*i+j]
			switch {
			case c >= 'a' && c <= 'z':
				c -= 'a'
			case c >= '2' && c <= '7':
				c -= '2' - 26
			default:
				return false
			}
			v = v<<5 | uint64(c)
		}
		for j := range 5 {
			slot[1+5*i+j] = byte(v >> (32 - 8*j))
		}
	}
	return true
}

// unpackPLC is the inverse of packPLC.
func unpackPLC(slot *[slotBytes]byte) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	did := append(make([]byte, 0, len(plcPrefix)+plcChars), plcPrefix...)
	for i := range 3 {
		var v uint64
		for j := range 5 {
			v = v<<8 | uint64(slot[1+5*i+j])
		}
		for j := range 8 {
			did = append(did, alphabet[v>>(35-5*j)&31])
		}
	}
	return string(did)
}

// What the members take, in bytes, at most.
const (
	plcBytes   = slotBytes + 4/slotsPerBucket
	otherBytes = 96 // an entry of a map, beside its string
)

// Memory returns about how many bytes a DID takes in a set, at most.
func Memory(did string) int {
	var slot [slotBytes]byte
	if packPLC(&slot, did) {
		return plcBytes
	}
	return len(did) + otherBytes
}
