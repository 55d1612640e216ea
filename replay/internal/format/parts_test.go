package format

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
)

// TestBlockSet compares sets with maps.
func TestBlockSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	draw := func() (s BlockSet, members map[int]bool) {
		members = make(map[int]bool)
		for range rng.IntN(6) {
			i := []int{0, 63, 64, MaxSpanBlocks - 1, rng.IntN(MaxSpanBlocks)}[rng.IntN(5)]
			s.Add(i)
			members[i] = true
		}
		return s, members
	}
	for range 500 {
		a, inA := draw()
		b, inB := draw()
		union, both := a, a
		union.Union(&b)
		both.Intersect(&b)
		count, from := 0, rng.IntN(MaxSpanBlocks+1)
		next := MaxSpanBlocks
		for i := MaxSpanBlocks - 1; i >= 0; i-- {
			if a.Has(i) != inA[i] || union.Has(i) != (inA[i] || inB[i]) || both.Has(i) != (inA[i] && inB[i]) {
				t.Fatalf("block %d of %v and %v", i, inA, inB)
			}
			if inA[i] && i >= from {
				count, next = count+1, i
			}
		}
		if a.Empty() != (len(inA) == 0) || a.Next(from) != next || a.Count(from, MaxSpanBlocks+1) != count || a.Count(from, next) != 0 {
			t.Fatalf("from %d on %v has %d, next %d", from, inA, a.Count(from, MaxSpanBlocks), a.Next(from))
		}
	}
	for _, n := range []int{0, 1, 64, MaxSpanBlocks} {
		if s := FirstBlocks(n); s.Count(0, MaxSpanBlocks) != n || n < MaxSpanBlocks && s.Has(n) {
			t.Errorf("the first %d blocks are %v", n, s)
		}
	}
}

// TestReplaceStored: which dictionary is stored, and which blocks others may have compressed.
func TestReplaceStored(t *testing.T) {
	one, two := Use{ID: 1, SinceUS: 100, FromUS: 5, ThroughUS: 3}, Use{ID: 2, SinceUS: 200, FromUS: 9}
	for _, tc := range []struct {
		name string
		uses []Use
		id   uint32
		at   int64
		want []Use
	}{
		{"the first", nil, 1, 7, []Use{{ID: 1, SinceUS: 300, FromUS: 7}}},
		{"the same", []Use{one, two}, 2, 20, []Use{one, two}},
		{"a new one", []Use{two}, 3, 20, []Use{{ID: 2, SinceUS: 200, FromUS: 9, ThroughUS: 20}, {ID: 3, SinceUS: 300, FromUS: 20}}},
		{"a new one, without blocks between", []Use{two}, 3, 9, []Use{two, {ID: 3, SinceUS: 300, FromUS: 9}}},
		{"an old one", []Use{one, two}, 1, 20, []Use{{ID: 2, SinceUS: 200, FromUS: 9, ThroughUS: 20}, {ID: 1, SinceUS: 100, FromUS: 20, ThroughUS: 3}}},
	} {
		if diff := cmp.Diff(tc.want, ReplaceStored(slices.Clone(tc.uses), tc.id, 300, tc.at)); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.name, diff)
		}
	}
	uses := []Use{{ID: 1, ThroughUS: 3}, {ID: 2, ThroughUS: 8}, {ID: 3}}
	for floor, want := range map[int64][]Use{2: uses, 3: uses[1:], 7: uses[1:], 8: uses[2:], 1 << 40: uses[2:]} {
		if diff := cmp.Diff(want, NeededUses(uses, floor)); diff != "" {
			t.Errorf("after %d: -want +got\n%s", floor, diff)
		}
	}
	if NeededUses(nil, 1) != nil {
		t.Error("of no dictionary one is needed")
	}
}

// TestMemory: what a part is counted with is at least what its columns take, and not much more.
func TestMemory(t *testing.T) {
	const events = 1000
	slim := SlimIndex{TimeUS: make([]int64, events), Seq: make([]int64, events), Op: make([]uint32, events), Kind: make([]uint8, events),
		Collection: make([]uint16, events), PlainEnd: make([]uint32, events), ZstdEnd: make([]uint32, events), Collections: NewNameTable("a.b.c", "a.b.d")}
	few := int64(8*2+4*3+1+2)*events + int64(len("a.b.ca.b.d")+2*4)
	check := func(what string, got, least int64) {
		t.Helper()
		if got < least || got > least+1024 {
			t.Errorf("%s: %d bytes, of columns of %d", what, got, least)
		}
	}
	check("a slim index", slim.Memory(), few)
	x := Index{SlimIndex: slim, DID: make([]uint16, events), DIDs: NewNameTable("did:web:a", "did:web:b")}
	few += 2*events + int64(len("did:web:adid:web:b")+2*4+2*8)
	check("an index", x.Memory(), few)
	x.DIDUID = make([]uint64, events)
	check("with UIDs of DIDs", x.Memory(), few+8*events)
	x.URIUID = make([]uint64, events)
	check("with UIDs of records", x.Memory(), few+16*events)
	x.Unverified = make([]uint8, events)
	check("with reasons", x.Memory(), few+17*events)
	if got := x.HashDIDs(); !slices.Equal(got, []uint64{xxhash.Sum64String("did:web:a"), xxhash.Sum64String("did:web:b")}) {
		t.Errorf("hashes %x", got)
	}
	r := References{Sources: make([]uint32, 100), Subjects: make([]Subject, 2000)}
	check("references", r.Memory(), 4*100+16*2000)
	s := Span{Keys: make([]int64, 200), Collections: NewNameTable("a.b.c", "a.b.d")}
	if got := s.Memory(); got < 200*32+2*MaxSpanBlocks/8 || got > 200*32+2*MaxSpanBlocks/8+1024 {
		t.Errorf("a span: %d bytes", got)
	}
}

// TestRawPages: frames that are not packed are one page, of no substream.
func TestRawPages(t *testing.T) {
	frames := []byte("frames")
	p := RawPages(frames)
	if p.Size() != 6 || !p.Raw() || !bytes.Equal(p.FirstValue(), frames) || p.NumSubstreams() != 0 || p.SubstreamOf(3) != 0 || !p.HasSubstream(0) || p.HasSubstream(1) {
		t.Errorf("%+v", p)
	}
	packed := Pages{heads: []byte{}, substreams: 2, of: []byte{0, 1}}
	if packed.Raw() || packed.NumSubstreams() != 2 || packed.SubstreamOf(0) != 0 || packed.SubstreamOf(1) != 1 || packed.HasSubstream(1) {
		t.Errorf("%+v", packed)
	}
}

// TestFreedValues: values that were given back hold nothing, and tests see what still uses them.
func TestFreedValues(t *testing.T) {
	for _, scribble := range []bool{false, true} {
		buffer := make([]byte, 4, 8)
		v := &BlockValues{Index: buffer, Zstd: buffer[:1], SlimIndex: buffer[:2], References: buffer[:3], Plain: [][]byte{buffer, buffer[:1]}, buffer: buffer}
		if v.Bytes() != 4+1+2+3+4+1 || v.Memory() != 8 {
			t.Errorf("%d bytes in %d", v.Bytes(), v.Memory())
		}
		if v.Free(scribble); v.Index != nil || v.Zstd != nil || v.Plain != nil || v.Bytes() != 0 {
			t.Errorf("%+v", v)
		}
		if want := map[bool]byte{true: 0xdb}[scribble]; !bytes.Equal(buffer[:8], bytes.Repeat([]byte{want}, 8)) {
			t.Errorf("scribbled %t: %x", scribble, buffer[:8])
		}
	}
	large := &BlockValues{buffer: make([]byte, maxKeptValues+1)}
	if large.Free(true); large.buffer[0] != 0 {
		t.Error("a buffer that is too large for the pool is kept")
	}
}
