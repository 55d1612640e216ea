package graph

import (
	"encoding/binary"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

const (
	headBytes  = 4                       // class, low bits, members
	largeFrom  = 4096                    // members from which a set is a bitmap
	smallBelow = 2048                    // members below which a bitmap is a slot again
	maxPlace   = headBytes + largeFrom*3 // bytes; a gap takes at most 22 bits in a long list
	largeBit   = 1 << 31
)

// index is the sets of one table and direction.
type index struct {
	slab       *slab
	refs       []uint32 // by ordinal
	large      []*roaring.Bitmap
	filters    []filter // of large
	freeLarge  []uint32
	largeBytes int64           // of the bitmaps and their filters, estimated
	incomplete *roaring.Bitmap // ordinals whose sets miss edges for want of memory
	members    []uint32        // used again
	code       []byte          // used again
}

func newIndex(a *slab) *index {
	return &index{slab: a, incomplete: roaring.New()}
}

// set is one set of an index, valid while the lock is held.
type set struct {
	members int
	low     uint            // low bits of a gap in the code
	code    []byte          // see rice.go
	bitmap  *roaring.Bitmap // instead of a code
	filter  filter          // of bitmap
}

func (x *index) set(ordinal uint32) set {
	if int(ordinal) >= len(x.refs) || x.refs[ordinal] == 0 {
		return set{}
	}
	ref := x.refs[ordinal]
	if ref&largeBit != 0 {
		bitmap := x.large[ref&^largeBit]
		return set{members: int(bitmap.GetCardinality()), bitmap: bitmap, filter: x.filters[ref&^largeBit]}
	}
	slot := x.slab.slot(ref)
	return set{members: int(binary.LittleEndian.Uint16(slot[2:])), low: uint(slot[1]), code: slot[headBytes:]}
}

// contains says whether a set has a member.
func (x *index) contains(ordinal, member uint32) bool {
	s := x.set(ordinal)
	return s.contains(member)
}

// appendTo appends the members of a set to dst.
func (s *set) appendTo(dst []uint32) []uint32 {
	if s.bitmap != nil {
		for it := s.bitmap.Iterator(); it.HasNext(); {
			dst = append(dst, it.Next())
		}
		return dst
	}
	return s.appendBelow(dst, &cursor{}, largeBit)
}

func (s *set) contains(member uint32) bool {
	if s.bitmap != nil {
		return s.filter.mayHave(member) && s.bitmap.Contains(member)
	}
	return s.lists(member)
}

// add puts a member that is not in the set into it. The slab is ready.
func (x *index) add(ordinal, member uint32) {
	x.extend(ordinal)
	s := x.set(ordinal)
	if s.bitmap != nil {
		s.bitmap.Add(member)
		s.filter.add(member)
		x.largeBytes += 2
		if s.filter.full(s.members) {
			wider := newFilter(s.bitmap)
			x.filters[x.refs[ordinal]&^largeBit] = wider
			x.largeBytes += wider.bytes() - s.filter.bytes()
		}
		return
	}
	if s.members+1 >= largeFrom {
		bitmap := roaring.BitmapOf(s.appendTo(nil)...)
		bitmap.Add(member)
		x.setLarge(ordinal, bitmap)
		return
	}
	list := s.appendTo(x.members[:0])
	at, _ := slices.BinarySearch(list, member)
	x.members = slices.Insert(list, at, member)
	x.place(ordinal, x.members)
}

// extend makes refs long enough for an ordinal.
func (x *index) extend(ordinal uint32) {
	if n := x.growth(ordinal); n > 0 {
		x.refs = append(make([]uint32, 0, cap(x.refs)+n), x.refs...)
	}
	x.refs = x.refs[:max(len(x.refs), int(ordinal)+1)]
}

// put makes a set of sorted members, in place of the one that is there. The slab is ready.
func (x *index) put(ordinal uint32, members []uint32) {
	x.extend(ordinal)
	if x.refs[ordinal]&largeBit != 0 {
		x.dropLarge(ordinal)
	}
	if len(members) >= largeFrom {
		x.setLarge(ordinal, roaring.BitmapOf(members...))
		return
	}
	x.place(ordinal, members)
}

// frozen is the index for goroutines that read while one changes other sets.
func (x *index) frozen() *index {
	return &index{slab: &slab{chunks: slices.Clone(x.slab.chunks), sizes: x.slab.sizes}, refs: x.refs, large: x.large, filters: x.filters}
}

// growth is how many references are allocated before an ordinal has one.
func (x *index) growth(ordinal uint32) int {
	if int(ordinal) < cap(x.refs) {
		return 0
	}
	return max(int(ordinal)+1-cap(x.refs), cap(x.refs)/8, 1024)
}

// remove takes a member out of the set that has it. It needs no room in the slab.
func (x *index) remove(ordinal, member uint32) {
	s := x.set(ordinal)
	if s.bitmap != nil {
		s.bitmap.Remove(member)
		x.largeBytes -= 2
		if s.members-1 < smallBelow && x.slab.ready(1) {
			left := s.bitmap.ToArray()
			x.dropLarge(ordinal)
			x.place(ordinal, left)
		}
		return
	}
	list := s.appendTo(x.members[:0])
	at, _ := slices.BinarySearch(list, member)
	x.members = slices.Delete(list, at, at+1)
	x.place(ordinal, x.members)
}

// place makes members the set of an ordinal that has no bitmap; they are fewer than largeFrom. A
// list that lost a member can have a longer code: if there is no room, it becomes a bitmap.
func (x *index) place(ordinal uint32, members []uint32) {
	if len(members) == 0 {
		x.drop(ordinal)
		return
	}
	low := lowBits(members)
	x.code = appendCode(x.code[:0], members, low)
	if old := x.refs[ordinal]; old != 0 && len(x.code) > len(x.slab.slot(old))-headBytes && !x.slab.ready(1) {
		x.setLarge(ordinal, roaring.BitmapOf(members...))
		return
	}
	x.placeCode(ordinal, set{members: len(members), low: low, code: x.code})
}

// placeCode makes a set of an encoded list.
func (x *index) placeCode(ordinal uint32, s set) {
	old := x.refs[ordinal]
	class, ref := x.slab.class(headBytes+len(s.code)), old
	if old == 0 || x.moves(int(x.slab.at(old)[0]), class) {
		ref = x.slab.take(class)
	} else {
		class = int(x.slab.at(old)[0])
	}
	slot := x.slab.at(ref)[:x.slab.sizes[class]]
	clear(slot[headBytes+copy(slot[headBytes:], s.code):])
	if ref != old {
		x.drop(ordinal)
	}
	slot[0], slot[1] = byte(class), byte(s.low)
	binary.LittleEndian.PutUint16(slot[2:], uint16(s.members))
	x.refs[ordinal] = ref
}

// moves says whether a set leaves its slot; without room it keeps one that is too large.
func (x *index) moves(from, to int) bool { return to > from || to < from && x.slab.ready(1) }

// drop makes a set that is no bitmap empty.
func (x *index) drop(ordinal uint32) {
	if ref := x.refs[ordinal]; ref != 0 {
		x.slab.give(ref, int(x.slab.at(ref)[0]))
		x.refs[ordinal] = 0
	}
}

func (x *index) setLarge(ordinal uint32, bitmap *roaring.Bitmap) {
	x.drop(ordinal)
	bitmap = bitmap.Clone() // without room to grow
	filter := newFilter(bitmap)
	x.largeBytes += int64(bitmap.GetSizeInBytes()) + filter.bytes()
	at := uint32(len(x.large))
	if n := len(x.freeLarge); n > 0 {
		at, x.freeLarge = x.freeLarge[n-1], x.freeLarge[:n-1]
		x.large[at], x.filters[at] = bitmap, filter
	} else {
		x.large, x.filters = append(x.large, bitmap), append(x.filters, filter)
	}
	x.refs[ordinal] = at | largeBit
}

func (x *index) dropLarge(ordinal uint32) {
	at := x.refs[ordinal] &^ largeBit
	x.largeBytes -= int64(x.large[at].GetSizeInBytes()) + x.filters[at].bytes()
	x.large[at], x.filters[at] = nil, nil
	x.freeLarge = append(x.freeLarge, at)
	x.refs[ordinal] = 0
}
