package format

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace/translate"
)

// TestIndexRefuses: each value that users of an index rely on is refused just beyond its bound, and
// taken at it, in the index and in the slim index.
func TestIndexRefuses(t *testing.T) {
	const names = "not in the table"
	for _, tc := range []struct {
		name string
		edit func(x *Index)
		want string // part of the error; "": it is taken
	}{
		{"sound", func(*Index) {}, ""},
		{"equal stamps", func(x *Index) { x.TimeUS[2] = x.TimeUS[1] }, "event 2: its time_us is not above the last"},
		{"stamp 0", func(x *Index) { x.TimeUS[0] = 0 }, "event 0: its time_us"},
		{"next stamp", func(x *Index) { x.TimeUS[2] = x.TimeUS[1] + 1 }, ""},
		{"collection beyond the table", func(x *Index) { x.Collection[1] = uint16(x.Collections.Len() + 1) }, names},
		{"last collection", func(x *Index) { x.Collection[1] = uint16(x.Collections.Len()) }, ""},
		{"plain frame of 1 byte", func(x *Index) { x.PlainEnd[1] = x.PlainEnd[0] + 1 }, "event 1: its plain frame ends at"},
		{"plain frame of 2 bytes", func(x *Index) { x.PlainEnd[1] = x.PlainEnd[0] + 2 }, ""},
		{"first plain frame of 1 byte", func(x *Index) { x.PlainEnd[0] = 1 }, "event 0: its plain frame"},
		{"plain part too large", func(x *Index) { x.PlainEnd[3] = MaxBlockBytes + 1 }, "event 3: its plain frame"},
		{"largest plain part", func(x *Index) { x.PlainEnd[3] = MaxBlockBytes }, ""},
		{"zstd frame of 1 byte", func(x *Index) { x.ZstdEnd[1] = x.ZstdEnd[0] + 1 }, "event 1: its compressed frame ends at"},
		{"zstd frame of 2 bytes", func(x *Index) { x.ZstdEnd[1] = x.ZstdEnd[0] + 2 }, ""},
		{"zstd part too large", func(x *Index) { x.ZstdEnd[3] = MaxBlockBytes + 1 }, "event 3: its compressed frame"},
		{"largest zstd part", func(x *Index) { x.ZstdEnd[3] = MaxBlockBytes }, ""},
		{"DID beyond the table", func(x *Index) { x.DID[1] = uint16(x.DIDs.Len()) }, "event 1: DID 2 is " + names},
		{"names that descend", func(x *Index) { x.Collections = NameTable{text: "abc", ends: []uint32{3, 2}} }, "table 1 does not ascend"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x, err := DecodeIndex(AppendIndex(nil, goldenBlock(t).Index))
			if err != nil {
				t.Fatal(err)
			}
			tc.edit(x)
			_, full := DecodeIndex(AppendIndex(nil, x))
			_, slim := DecodeSlimIndex(AppendSlimIndex(nil, &x.SlimIndex))
			for name, err := range map[string]error{"index": full, "slim index": slim} {
				if name == "slim index" && strings.Contains(tc.want, "DID") {
					continue
				}
				if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("%s: error %v, want %q", name, err, tc.want)
				}
			}
		})
	}
	x := goldenBlock(t).Index
	for name, enc := range map[string][]byte{"index": AppendIndex(nil, x), "slim index": AppendSlimIndex(nil, &x.SlimIndex)} {
		decode := func(b []byte) error {
			if name == "index" {
				_, err := DecodeIndex(b)
				return err
			}
			_, err := DecodeSlimIndex(b)
			return err
		}
		for n := range enc {
			if decode(enc[:n]) == nil {
				t.Errorf("%s: %d bytes of %d are taken", name, n, len(enc))
			}
		}
		none := bytes.Clone(enc)
		clear(none[:4])
		for what, b := range map[string][]byte{"a byte follows": append(bytes.Clone(enc), 0), "no events": none} {
			if decode(b) == nil {
				t.Errorf("%s: %s: it is taken", name, what)
			}
		}
	}
}

// TestIndexSearch: the searches of an index find what a walk over its events finds.
func TestIndexSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	x := &SlimIndex{Epoch: 2}
	place := Place{Epoch: 2, Seq: 10}
	for i := range 60 {
		if place.Op++; rng.IntN(3) > 0 {
			place.Seq, place.Op = place.Seq+1+rng.Int64N(3), uint32(rng.IntN(3))
		}
		x.TimeUS, x.Seq, x.Op = append(x.TimeUS, int64(100+3*i)), append(x.Seq, place.Seq), append(x.Op, place.Op)
		x.Kind = append(x.Kind, uint8(translate.KindIdentity)|uint8(translate.OpUpdate)<<4)
	}
	if x.FirstPoint() != (Point{100, x.PlaceAt(0)}) || x.LastPoint() != (Point{100 + 3*59, place}) || x.Key() != 100+3*59 || x.Events() != 60 {
		t.Errorf("points %v and %v, key %d", x.FirstPoint(), x.LastPoint(), x.Key())
	}
	if x.KindAt(5) != translate.KindIdentity || x.OperationAt(5) != translate.OpUpdate {
		t.Errorf("kind %v, operation %v", x.KindAt(5), x.OperationAt(5))
	}
	for us := int64(95); us < 290; us++ {
		want := slices.IndexFunc(x.TimeUS, func(v int64) bool { return v >= us })
		if want < 0 {
			want = x.Events()
		}
		if got := x.FirstAt(us); got != want {
			t.Errorf("stamped %d or later: %d, want %d", us, got, want)
		}
	}
	for seq := int64(8); seq < place.Seq+2; seq++ {
		for op := range uint32(6) {
			p := Place{2, seq, op}
			want := 0
			for want < x.Events() && (x.Seq[want] < seq || x.Seq[want] == seq && x.Op[want] <= op) {
				want++
			}
			if got := x.FirstAfter(p); got != want {
				t.Errorf("after %v: %d, want %d", p, got, want)
			}
		}
	}
}

// TestStreams: tags and seqs of v2's wire are those of an epoch, and rise over epochs.
func TestStreams(t *testing.T) {
	var s Streams
	var err error
	type epoch struct {
		number uint32
		relay  string
		last   int64 // of the epoch before
		base   int64
	}
	epochs := []epoch{{1, "a.example", 0, 0}, {2, "a.example", 7, 8 << 10}, {5, "b.example", 0, 9 << 10}, {6, "b.example", 1 << 60, MaxV2Seq}, {7, "b.example", 3, MaxV2Seq}}
	for _, e := range epochs {
		before := slices.Clone(s)
		added, addErr := s.Add(e.relay, e.number, e.last)
		if addErr != nil || !slices.Equal(s, before) {
			t.Fatal(addErr, s)
		}
		s = added
	}
	for i, e := range epochs {
		tag := StreamTag(e.relay, e.number)
		if got, ok := s.Epoch(tag); s[i].Relay != e.relay || s.Tag(e.number) != tag || !ok || got != e.number || s.SeqBase(e.number) != e.base {
			t.Errorf("epoch %d: tag %v, base %d, %v", e.number, s.Tag(e.number), s.SeqBase(e.number), ok)
		}
	}
	if _, ok := s.Epoch(StreamTag("c.example", 1)); ok || s.Tag(3) != 0 || s.SeqBase(3) != 0 {
		t.Error("an epoch that there is not has a tag")
	}
	if _, err = s.Add("A.example", 2, 0); err == nil || !strings.Contains(err.Error(), "--new-epoch") {
		t.Errorf("one tag twice: %v", err)
	}
	var last int64 = -1
	for _, p := range []Place{{1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 7, 1023}, {2, 0, 0}, {2, 0, 5}, {5, 0, 0}, {5, 3, 0}} {
		seq := s.V2Seq(p)
		if want := s.SeqBase(p.Epoch) + 1024*p.Seq + int64(p.Op); seq != want || seq <= last || !s.HasV2Seq(p) {
			t.Errorf("%v has seq %d after %d, want %d", p, seq, last, want)
		}
		if before := s.PlaceBefore(seq); !before.Before(p) && before != (Place{Epoch: p.Epoch}) || s.V2Seq(p) > 0 && p.Seq > 0 && p.Op == 0 && before != (Place{p.Epoch, p.Seq - 1, math.MaxUint32}) ||
			p.Op > 0 && before != (Place{p.Epoch, p.Seq, p.Op - 1}) {
			t.Errorf("before %v is %v", p, before)
		}
		last = seq
	}
	most := (MaxV2Seq - s.SeqBase(5)) >> 10
	if !s.HasV2Seq(Place{5, most, 0}) || s.HasV2Seq(Place{5, most + 1, 0}) || s.HasV2Seq(Place{6, 1, 0}) {
		t.Error("the last place with a seq is another")
	}
	many := make(Streams, maxEpochs)
	for i := range many {
		many[i] = Stream{Epoch: uint32(i), Tag: 1<<25 + translate.Stream(i)}
	}
	if added, err := many.Add("a.example", 1<<20, 0); err != nil || len(added) != maxEpochs || added[0] != many[1] || added[maxEpochs-1].Epoch != 1<<20 {
		t.Errorf("%d streams, %v", len(added), err)
	}
}

// TestPlaceOrder: places are in the order of epoch, seq and op; totals add and subtract each count.
func TestPlaceOrder(t *testing.T) {
	var all []Place
	for epoch := range uint32(3) {
		for seq := range int64(3) {
			for op := range uint32(3) {
				all = append(all, Place{epoch, seq, op})
			}
		}
	}
	for i, p := range all {
		for k, q := range all {
			if p.Before(q) != (i < k) {
				t.Errorf("%v before %v: %v", p, q, p.Before(q))
			}
		}
	}
	a, b := Totals{100, 20, 3}, Totals{7, 5, 1}
	if a.Plus(b) != (Totals{107, 25, 4}) || a.Minus(b) != (Totals{93, 15, 2}) {
		t.Errorf("%v and %v", a.Plus(b), a.Minus(b))
	}
	for s, has := range map[KindSet][4]bool{
		0: {true, true, true, false}, Kinds(translate.KindCommit): {true, false, false, false}, NonCommitKinds: {false, true, true, true}, Kinds(translate.KindCommit, translate.KindAccount): {true, false, true, false},
		AllKinds: {true, true, true, true}, CopiedKinds: {false, true, true, false},
	} {
		if got := [4]bool{s.Has(translate.KindCommit), s.Has(translate.KindIdentity), s.Has(translate.KindAccount), s.Has(translate.KindSync)}; got != has {
			t.Errorf("set %b has %v, want %v", s, got, has)
		}
	}
	names := "meta dictionary source gap seq span index plain zstd span_dids copies_index copies_plain copies_zstd slim_index references span_subjects"
	var got []string
	for _, r := range Ranges() {
		got = append(got, r.String())
		if !bytes.Equal(r.Start(), []byte{byte(r)}) || !bytes.Equal(r.End(), []byte{byte(r) + 1}) {
			t.Errorf("%v is from %x to %x", r, r.Start(), r.End())
		}
	}
	if strings.Join(got, " ") != names || Range(0x77).String() != "range 0x77" {
		t.Errorf("ranges %v", got)
	}
	for number, ok := range map[uint32]bool{0: false, 1: true, MaxSources: true, MaxSources + 1: false} {
		if got, is := ParseSourceKey(SourceKey(number)); is != ok || got != number {
			t.Errorf("source %d becomes %d, %v", number, got, is)
		}
	}
	if _, ok := ParseSourceKey(append(SourceKey(1), 0)); ok {
		t.Error("a longer key is one of a source")
	}
}

// TestNameTable: names keep their numbers over all growth, and a table built at once is the same.
func TestNameTable(t *testing.T) {
	var b nameTableBuilder
	for round := range 2 {
		b.reset()
		var names []string
		for i := range 500 {
			names = append(names, fmt.Sprintf("%d.%d", i*round, i))
			for k := range i + 1 {
				if got := b.numberString(names[k]); int(got) != k {
					t.Fatalf("name %d of %d has number %d", k, i+1, got)
				}
			}
		}
		built, at := b.table(), NewNameTable(names...)
		if built.Len() != len(names) || built.text != at.text || !slices.Equal(built.ends, at.ends) || built.At(499) != names[499] || built.At(0) != names[0] {
			t.Errorf("%d names, the last %q", built.Len(), built.At(built.Len()-1))
		}
	}
}

// TestReferencesRefuse: encoded references in which a number is beyond its bound, or not used, or
// that end early, are refused.
func TestReferencesRefuse(t *testing.T) {
	var b ReferencesBuilder
	for i := range uint64(6) {
		refs := []Reference{{Source: 1 + uint32(i%2), Subject: testUID(i, 10), Authority: testUID(i%2, 7)}, {Source: 1, Subject: testUID(9, 9), Authority: testUID(9, 9), Had: true}, {Source: 2, Subject: testUID(8, i+1)}}
		if err := b.Add(refs, i == 3); err != nil {
			t.Fatal(err)
		}
	}
	sound := b.Finish()
	enc := AppendReferences(nil, sound)
	for n := range enc {
		if _, err := DecodeReferences(enc[:n], 6); err == nil {
			t.Errorf("%d bytes of %d are taken", n, len(enc))
		}
	}
	if _, err := DecodeReferences(append(bytes.Clone(enc), 0), 6); err == nil {
		t.Error("a byte follows, and it is taken")
	}
	refused := 0
	for at := range enc {
		for _, flip := range []byte{1, 2, 4, 0x80, 0xff} {
			changed := bytes.Clone(enc)
			changed[at] ^= flip
			r, err := DecodeReferences(changed, 6)
			if err != nil {
				refused++
				continue
			}
			for i := range 6 { // what is taken can be used
				for _, e := range r.Entries(i) {
					if ref := r.At(e); ref.Source == 0 || ref.Subject == 0 {
						t.Errorf("byte %d ^ %#x: event %d has %+v", at, flip, i, ref)
					}
				}
			}
		}
	}
	if refused < 2*len(enc) {
		t.Errorf("%d of %d changes are refused", refused, 5*len(enc))
	}
	for name, edit := range map[string]func(r *References){
		"source 0":            func(r *References) { r.Sources[0] = 0 },
		"subject without UID": func(r *References) { r.Subjects[0].UID = 0 },
		"unused subject":      func(r *References) { r.Subjects = append(r.Subjects, Subject{5, 5}) },
		"unknown source":      func(r *References) { r.entries[1].Source = uint16(len(r.Sources)) },
	} {
		r, err := DecodeReferences(enc, 6)
		if err != nil {
			t.Fatal(err)
		}
		edit(r)
		if _, err := DecodeReferences(AppendReferences(nil, r), 6); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	var none *References
	if none.Len() != 0 || none.NumSubjects() != 0 || none.Entries(3) != nil || none.Repeated(3) || none.Memory() != 0 || maxReferencesLen(none) != 0 {
		t.Error("no references are some")
	}
}

// TestReferencesJSON: an event's members name what its record has and what it no longer has, with
// strings where they are known. One that came again has neither.
func TestReferencesJSON(t *testing.T) {
	var b ReferencesBuilder
	for i, refs := range [][]Reference{
		{{Source: 3, Subject: 5, Authority: 5}, {Source: 4, Subject: 6}},
		{{Source: 3, Subject: 5, Authority: 5, Had: true}, {Source: 3, Subject: 5, Authority: 5}, {Source: 4, Subject: 6, Had: true}},
		nil,
		{{Source: 4, Subject: 6}},
	} {
		if err := b.Add(refs, i == 3); err != nil {
			t.Fatal(err)
		}
	}
	r := NewFrameReferences(b.Finish(), func(number uint32) string { return fmt.Sprintf("c:%q%d", "", number) })
	r.Strings[0] = "did:web:x"
	for i, want := range []string{
		`,"references":[{"source":"c:\"\"3","subject":"did:web:x","uid":"5"},{"source":"c:\"\"4","uid":"6"}]`,
		`,"references":[{"source":"c:\"\"3","subject":"did:web:x","uid":"5"}],"deleted_references":[{"source":"c:\"\"4","uid":"6"}]`,
		``,
		`,"repeated":true`,
	} {
		event := referencesOfEvent{r, i}
		if got := string(event.appendDeleted(event.appendCurrent([]byte("{")))); got != "{"+want {
			t.Errorf("event %d: %s\nwant %s", i, got, want)
		}
	}
}
