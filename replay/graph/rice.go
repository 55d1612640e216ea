package graph

import (
	"encoding/binary"
	"math/bits"
)

// A list of rising members is stored in Rice's code. A member is written as the gap before it: how
// many ordinals lie between the member before and this one. The gap without its low bits is in
// unary, so many ones and a zero, and the low bits follow. The code begins with the lowest bit of
// its first byte. Zero bytes at its end are left out.

// lowBits returns how many bits of a gap are not in unary: one fewer than the mean gap has.
func lowBits(members []uint32) uint {
	n := uint32(len(members))
	return uint(max(bits.Len32((members[n-1]+1-n)/n), 1) - 1)
}

// appendCode encodes rising members.
func appendCode(dst []byte, members []uint32, low uint) []byte {
	begin := len(dst)
	word, n := uint64(0), uint(0) // the bits that are not in dst yet: fewer than 32
	put := func(value uint64, size uint) {
		word |= value << n
		for n += size; n >= 32; n -= 32 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(word))
			word >>= 32
		}
	}
	next := uint32(0)
	for _, m := range members {
		gap := m - next
		ones := uint(gap >> low)
		for ; ones >= 31; ones -= 31 {
			put(1<<31-1, 31)
		}
		put(1<<ones-1, ones+1)
		put(uint64(gap)&(1<<low-1), low)
		next = m + 1
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(word))
	for len(dst) > begin && dst[len(dst)-1] == 0 {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// cursor says how much of a list was read.
type cursor struct {
	at   uint32 // bits of its code
	read uint32 // members
	next uint32 // the least ordinal that the next member may be
}

// appendBelow appends those members of a list from the cursor on that are below an ordinal.
func (s *set) appendBelow(dst []uint32, c *cursor, below uint32) []uint32 {
	at, read, next := uint(c.at), int(c.read), c.next
	for ; read < s.members; read++ {
		gap, after := gapAt(s.code, at, s.low)
		member := uint64(next) + gap
		if member >= uint64(below) {
			break
		}
		dst = append(dst, uint32(member))
		at, next = after, uint32(member)+1
	}
	*c = cursor{at: uint32(at), read: uint32(read), next: next}
	return dst
}

// lists says whether a list has a member.
func (s *set) lists(member uint32) bool {
	at, next := uint(0), uint32(0)
	for range s.members {
		gap, after := gapAt(s.code, at, s.low)
		if m := next + uint32(gap); m >= member {
			return m == member
		}
		at, next = after, next+uint32(gap)+1
	}
	return false
}

// gapAt decodes the gap at a bit of a code, and returns where the next one is.
func gapAt(code []byte, at, low uint) (gap uint64, after uint) {
	if len(code) < 8 {
		return longGapAt(code, at, low)
	}
	from := min(at/8, uint(len(code)-8))
	word := binary.LittleEndian.Uint64(code[from:]) >> (at - 8*from)
	ones := uint(bits.TrailingZeros64(^word))
	if ones+1+low > 64-7 { // up to seven bits may be missing at its end
		return longGapAt(code, at, low)
	}
	return uint64(ones)<<low | word>>(ones+1)&(1<<low-1), at + ones + 1 + low
}

// longGapAt is gapAt for any gap and code.
func longGapAt(code []byte, at, low uint) (gap uint64, after uint) {
	bit := func(at uint) uint64 {
		if at/8 >= uint(len(code)) {
			return 0
		}
		return uint64(code[at/8]) >> (at % 8) & 1
	}
	for ; bit(at) == 1; at++ {
		gap += 1 << low
	}
	at++
	for i := range low {
		gap |= bit(at+i) << i
	}
	return gap, at + low
}
