package graph

import (
	"math/bits"

	"github.com/RoaringBitmap/roaring/v2"
)

// filter says of most accounts without a look at a bitmap that they are not in it. Each member has
// set the bit at its ordinal, modulo the number of bits. It has 4 to 8 bits a member when it is
// made, and 3 when it is made anew. An empty filter knows nothing.
type filter []uint64

func newFilter(bitmap *roaring.Bitmap) filter {
	f := make(filter, 1<<bits.Len64(bitmap.GetCardinality()/16))
	for it := bitmap.Iterator(); it.HasNext(); {
		f.add(it.Next())
	}
	return f
}

func (f filter) word(member uint32) int { return int(member/64) & (len(f) - 1) }

func (f filter) add(member uint32) { f[f.word(member)] |= 1 << (member % 64) }

func (f filter) mayHave(member uint32) bool {
	return len(f) == 0 || f[f.word(member)]>>(member%64)&1 != 0
}

// full says whether a filter of so many members excludes too little.
func (f filter) full(members int) bool { return 3*members > 64*len(f) }

func (f filter) bytes() int64 { return 8 * int64(len(f)) }
