package graph

import (
	"encoding/binary"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

const (
	headBytes  = 3                              // class, members
	largeFrom  = 4096                           // members from which a set is a bitmap
	smallBelow = 2048                           // members below which a bitmap is a slot again
	maxPlace   = headBytes + largeFrom*5 + unit // bytes
	largeBit   = 1 << 31
	padding    = 0x80 // after the deltas: no delta ends with it
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
	deltas     []byte          // used again
}

func newIndex(a *slab) *index {
	return &index{slab: a, incomplete: roaring.New()}
}

// set is one set of an index, valid while the lock is held.
type set struct {
	members int
	deltas  []byte
	bitmap  *roaring.Bitmap // instead of deltas
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
	for slot[len(slot)-1] == padding {
		slot = slot[:len(slot)-1]
	}
	return set{members: int(binary.LittleEndian.Uint16(slot[1:])), deltas: slot[headBytes:]}
}

// appendTo appends the members of a set to dst.
func (s set) appendTo(dst []uint32) []uint32 {
	if s.bitmap != nil {
		for it := s.bitmap.Iterator(); it.HasNext(); {
			dst = append(dst, it.Next())
		}
		return dst
	}
	dst, _, _ = appendBelow(dst, s.deltas, 0, largeBit)
	return dst
}

// appendBelow appends the members below an ordinal that deltas stand for, of which the first is
// that to the member before. It returns the deltas of the others, and the last member appended.
func appendBelow(dst []uint32, b []byte, before, below uint32) (members []uint32, rest []byte, last uint32) {
	for len(b) > 0 {
		delta, n := uint32(b[0]), 1
		switch { // most deltas have up to three bytes
		case delta < 0x80:
		case len(b) > 1 && b[1] < 0x80:
			delta, n = delta&0x7f|uint32(b[1])<<7, 2
		case len(b) > 2 && b[2] < 0x80:
			delta, n = delta&0x7f|uint32(b[1]&0x7f)<<7|uint32(b[2])<<14, 3
		default:
			delta, n = uvarint(b)
		}
		if before+delta >= below {
			break
		}
		before += delta
		dst = append(dst, before)
		b = b[n:]
	}
	return dst, b, before
}

func (s set) contains(member uint32) bool {
	if s.bitmap != nil {
		return s.filter.mayHave(member) && s.bitmap.Contains(member)
	}
	_, _, found := s.find(member)
	return found
}

// find returns where the first member that is not below the given one begins, and the member
// before it.
func (s set) find(member uint32) (at int, before uint32, found bool) {
	for at < len(s.deltas) {
		delta, n := uvarint(s.deltas[at:])
		if before+delta >= member {
			return at, before, before+delta == member
		}
		before += delta
		at += n
	}
	return at, before, false
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
	at, before, _ := s.find(member)
	var changed [10]byte
	n := binary.PutUvarint(changed[:], uint64(member-before))
	rest := s.deltas[at:]
	if len(rest) > 0 {
		delta, old := uvarint(rest)
		n += binary.PutUvarint(changed[n:], uint64(before+delta-member))
		rest = rest[old:]
	}
	x.splice(ordinal, s.members+1, s.deltas[:at], changed[:n], rest)
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
	x.deltas = appendDeltas(x.deltas[:0], members)
	x.splice(ordinal, len(members), x.deltas, nil, nil)
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

// remove takes a member out of the set that has it. It needs no room.
func (x *index) remove(ordinal, member uint32) {
	s := x.set(ordinal)
	if s.bitmap != nil {
		s.bitmap.Remove(member)
		x.largeBytes -= 2
		if s.members-1 < smallBelow && x.slab.ready(1) {
			left := appendDeltas(nil, s.bitmap.ToArray())
			x.dropLarge(ordinal)
			x.splice(ordinal, s.members-1, left, nil, nil)
		}
		return
	}
	at, before, _ := s.find(member)
	_, n := uvarint(s.deltas[at:])
	rest := s.deltas[at+n:]
	var changed [5]byte
	m := 0
	if len(rest) > 0 {
		delta, next := uvarint(rest)
		m = binary.PutUvarint(changed[:], uint64(member+delta-before))
		rest = rest[next:]
	}
	x.splice(ordinal, s.members-1, s.deltas[:at], changed[:m], rest)
}

// splice makes a set of three runs of deltas; they may be those of the set itself.
func (x *index) splice(ordinal uint32, members int, first, changed, rest []byte) {
	old := x.refs[ordinal]
	used := len(first) + len(changed) + len(rest)
	if members == 0 {
		x.drop(ordinal)
		return
	}
	class, ref := x.slab.class(headBytes+used), old
	if old == 0 || x.moves(int(x.slab.at(old)[0]), class) {
		ref = x.slab.take(class)
	} else {
		class = int(x.slab.at(old)[0])
	}
	slot := x.slab.at(ref)[:x.slab.sizes[class]]
	deltas := slot[headBytes:]
	copy(deltas[len(first)+len(changed):], rest) // first, as the other copies may overwrite rest
	copy(deltas[len(first):], changed)
	copy(deltas, first)
	for i := used; i < len(deltas); i++ {
		deltas[i] = padding
	}
	if ref != old {
		x.drop(ordinal)
	}
	slot[0] = byte(class)
	binary.LittleEndian.PutUint16(slot[1:], uint16(members))
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

// appendDeltas encodes sorted members.
func appendDeltas(dst []byte, members []uint32) []byte {
	before := uint32(0)
	for _, m := range members {
		dst = binary.AppendUvarint(dst, uint64(m-before))
		before = m
	}
	return dst
}

// uvarint reads a delta; n is 0 if b does not begin with one, which never happens in a slot.
func uvarint(b []byte) (value uint32, n int) {
	if b[0] < 0x80 {
		return uint32(b[0]), 1
	}
	return longUvarint(b)
}

func longUvarint(b []byte) (value uint32, n int) {
	for i, c := range b[:min(len(b), 5)] {
		value |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return value, i + 1
		}
	}
	return 0, 0
}
