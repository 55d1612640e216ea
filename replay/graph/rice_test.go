package graph

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
)

// TestCode: the bits of a list, written by hand.
func TestCode(t *testing.T) {
	for _, tc := range []struct {
		members []uint32
		low     uint
		want    []byte
	}{
		{[]uint32{0}, 0, nil},                                  // 0
		{[]uint32{0, 1, 2}, 0, nil},                            // 0 0 0
		{[]uint32{3, 4, 9}, 1, []byte{0b0110_0101}},            // 10 1, 0 0, 110 0
		{[]uint32{37}, 0, []byte{255, 255, 255, 255, 31}},      // 37 ones, 0
		{[]uint32{1<<31 - 1}, 30, []byte{0xfd, 255, 255, 255}}, // 10, 30 ones
	} {
		if got := appendCode([]byte{0}, tc.members, tc.low); !bytes.Equal(got, append([]byte{0}, tc.want...)) {
			t.Errorf("%d, %d low bits: %b, want 0 and %b", tc.members, tc.low, got, tc.want)
		}
	}
	if low := lowBits([]uint32{3, 4, 9}); low != 1 {
		t.Errorf("%d low bits, want 1", low)
	}
}

// randomList returns up to n members, some in runs and some far apart.
func randomList(r *rand.Rand, n int) []uint32 {
	members, next := []uint32{}, uint64(0)
	bits := r.IntN(32)
	for range 1 + r.IntN(n) {
		gap := r.Uint64() >> (64 - bits)
		if r.IntN(50) == 0 {
			gap = r.Uint64() >> (64 - r.IntN(32))
		}
		if next+gap >= largeBit {
			break
		}
		members, next = append(members, uint32(next+gap)), next+gap+1
	}
	if len(members) == 0 || r.IntN(4) == 0 && next < largeBit {
		members = append(members, largeBit-1)
	}
	return members
}

// TestLists: lists of all kinds are read as they were written, whole or in steps, also from a slot
// that is longer. A list of fewer members than a bitmap has fits a slot.
func TestLists(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range 3000 {
		members := randomList(r, []int{3, 100, largeFrom - 2}[n%3])
		s := set{members: len(members), low: lowBits(members)}
		s.code = appendCode(nil, members, s.low)
		if size := headBytes + len(s.code); size > maxPlace {
			t.Fatalf("%d members take %d bytes", len(members), size)
		}
		s.code = append(s.code, make([]byte, r.IntN(9))...)
		if got := s.appendTo(nil); !slices.Equal(got, members) {
			t.Fatalf("%d low bits: got %d, want %d", s.low, got, members)
		}
		var got []uint32
		var at cursor
		for len(got) < len(members) {
			i, _ := slices.BinarySearch(members, uint32(r.IntN(largeBit)))
			i = max(i, len(got)+1)
			below := members[i-1] + uint32(r.IntN(2)) // the last of them is left, or not
			if got = append(got, s.appendBelow(nil, &at, below)...); !slices.Equal(got, members[:len(got)]) {
				t.Fatalf("in steps: got %d, want %d", got, members)
			}
			if want, _ := slices.BinarySearch(members, below); len(got) != want {
				t.Fatalf("%d members below %d, want %d", len(got), below, want)
			}
		}
		if more := s.appendBelow(nil, &at, largeBit); len(more) > 0 {
			t.Fatalf("%d follow the last of %d members", more, len(members))
		}
		for _, m := range []uint32{0, members[0], members[r.IntN(len(members))] + 1, members[len(members)-1], uint32(r.IntN(largeBit))} {
			if _, want := slices.BinarySearch(members, m); s.lists(m) != want {
				t.Fatalf("that %d is among %d members is said to be %v", m, len(members), !want)
			}
		}
	}
}

// TestSlotUsedAgain: what a slot held before is no part of the list that comes into it.
func TestSlotUsedAgain(t *testing.T) {
	x, _ := fullSlab(t)
	for _, want := range [][]uint32{{largeBit - 1}, {0}, {5, 7}, nil, {1}} {
		x.put(3, want)
		if s := x.set(3); !slices.Equal(s.appendTo(nil), want) {
			t.Errorf("got %d, want %d", s.appendTo(nil), want)
		}
	}
}

// fullSlab returns an index whose slab has one chunk, and a function that fills it.
func fullSlab(t *testing.T) (x *index, fill func()) {
	t.Helper()
	a := newSlab()
	if err := a.grow(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	return newIndex(a), func() { a.next = a.end }
}

// TestRemoveWithoutRoom: a list whose code grows by a byte when it loses a member keeps the others,
// also if the slab is full.
func TestRemoveWithoutRoom(t *testing.T) {
	x, fill := fullSlab(t)
	var want []uint32
	for m := uint32(5); m < 34; m++ {
		want = append(want, m)
	}
	x.put(3, want)
	size := len(x.slab.slot(x.refs[3]))
	fill()
	x.remove(3, 32)
	want = slices.Delete(want, 27, 28)
	if used := headBytes + len(appendCode(nil, want, lowBits(want))); used != size+1 {
		t.Fatalf("the list takes %d bytes, in place of a slot of %d: the test holds nothing", used, size)
	}
	s := x.set(3)
	if got := members(s); !slices.Equal(got, want) || s.bitmap == nil {
		t.Errorf("got %d, want %d, in a bitmap", got, want)
	}
	x.remove(3, 7) // there is still no room
	want = slices.Delete(want, 2, 3)
	if err := x.slab.grow(); err != nil {
		t.Fatal(err)
	}
	x.remove(3, 33) // there is
	if s := x.set(3); !slices.Equal(members(s), want[:len(want)-1]) || s.bitmap != nil || x.largeBytes < 0 {
		t.Errorf("got %d, %d bytes of bitmaps; want %d", members(s), x.largeBytes, want)
	}
}

// TestSlotKeptWithoutRoom: a list that gets shorter keeps the whole of its slot while the slab is
// full.
func TestSlotKeptWithoutRoom(t *testing.T) {
	x, fill := fullSlab(t)
	x.put(3, []uint32{1, 1 << 20, 2 << 20, 3 << 20})
	ref, size := x.refs[3], len(x.slab.slot(x.refs[3]))
	fill()
	for n := range uint32(3) {
		x.remove(3, (n+1)<<20)
	}
	s := x.set(3)
	if x.refs[3] != ref || len(x.slab.slot(ref)) != size || !slices.Equal(members(s), []uint32{1}) {
		t.Errorf("%d in a slot of %d bytes, of %d before", members(s), len(x.slab.slot(ref)), size)
	}
}

// TestLoadMemoryOfBitmaps: bitmaps count before In sets are made of them.
func TestLoadMemoryOfBitmaps(t *testing.T) {
	g, err := New(Config{Sources: testSources, Memory: 2 * chunkBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	l := newLoader(g)
	l.header.Tables = []int{0}
	g.indexes[0].refs = make([]uint32, 1000)
	b := roaring.New()
	for m := range uint32(2 * largeFrom) {
		b.Add(8 * m)
	}
	for n := range uint32(1000) {
		if err = l.put(n, set{members: 2 * largeFrom, bitmap: b}); err != nil {
			break
		}
	}
	if bytes := g.bytesLocked(); err == nil || bytes > g.cfg.Memory+1<<15 {
		t.Errorf("%d bytes of %d: %v", bytes, g.cfg.Memory, err)
	}
}
