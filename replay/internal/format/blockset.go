package format

import "math/bits"

// BlockSet is a set of blocks of one span, by their number in it.
type BlockSet [MaxSpanBlocks / 64]uint64

// Add makes block i a member.
func (s *BlockSet) Add(i int) { s[i/64] |= 1 << (i % 64) }

// Has reports whether block i is a member.
func (s *BlockSet) Has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// Empty reports whether there is no member.
func (s *BlockSet) Empty() bool { return *s == BlockSet{} }

// Union adds the members of o.
func (s *BlockSet) Union(o *BlockSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

// Intersect removes what is not in o.
func (s *BlockSet) Intersect(o *BlockSet) {
	for i := range s {
		s[i] &= o[i]
	}
}

// Next returns the first member from i on, or MaxSpanBlocks.
func (s *BlockSet) Next(i int) int {
	if i >= MaxSpanBlocks {
		return MaxSpanBlocks
	}
	word := s[i/64] >> (i % 64)
	if word != 0 {
		return i + bits.TrailingZeros64(word)
	}
	for w := i/64 + 1; w < len(s); w++ {
		if s[w] != 0 {
			return 64*w + bits.TrailingZeros64(s[w])
		}
	}
	return MaxSpanBlocks
}

// Count returns how many members there are from i on and before end.
func (s *BlockSet) Count(i, end int) (n int) {
	for i = s.Next(i); i < min(end, MaxSpanBlocks); i = s.Next(i + 1) {
		n++
	}
	return n
}

// FirstBlocks is the set of the first n blocks.
func FirstBlocks(n int) (s BlockSet) {
	for i := range n {
		s.Add(i)
	}
	return s
}

// appendBlockSet appends the first n bytes of the set, block 0 in the lowest bit of the first.
func appendBlockSet(dst []byte, s *BlockSet, n int) []byte {
	for i := range n {
		dst = append(dst, byte(s[i/8]>>(8*(i%8))))
	}
	return dst
}

func (d *decoder) blockSet(n int) (s BlockSet) {
	for i, b := range d.take(n) {
		s[i/8] |= uint64(b) << (8 * (i % 8))
	}
	return s
}
