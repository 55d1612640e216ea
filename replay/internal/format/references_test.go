package format

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/translate"
)

// testUID is UID n of a store with 2^14 sequences.
func testUID(sequence, n uint64) uint64 { return sequence<<50 | n }

// randomReferences makes the references of an event, most often one, of subjects that come again.
func randomReferences(rng *rand.Rand) (refs []Reference, repeated bool) {
	n := 0
	switch rng.IntN(8) {
	case 0:
	case 1:
		n = rng.IntN(10)
	default:
		n = 1
	}
	for range n {
		author := testUID(uint64(rng.IntN(9)), uint64(1+rng.IntN(50)))
		ref := Reference{Source: uint32(1 + rng.IntN(12)), Subject: author, Authority: author, Had: rng.IntN(4) == 0}
		switch rng.IntN(6) {
		case 0:
		case 1:
			ref.Authority = 0 // that of a handle
		default:
			ref.Subject = testUID(uint64(100+rng.IntN(300)), 1+rng.Uint64N(1<<rng.IntN(35)))
		}
		refs = append(refs, ref)
	}
	return refs, rng.IntN(30) == 0
}

// eventReferences returns what r says of event i.
func eventReferences(r *References, i int) (refs []Reference) {
	for _, e := range r.Entries(i) {
		refs = append(refs, r.At(e))
	}
	return refs
}

// TestReferencesRoundTrip: what a block was sealed with is what is decoded of it, also after blocks
// were joined. A block without references has no part of them and its index does not grow.
func TestReferencesRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 3))
	for n := 1; n < 3000; n = n*3/2 + 1 {
		var events []testEvent
		for i := range n {
			e := randomEvent(rng, Place{1, int64(i + 1), 0}, int64(1782907200000000+i))
			e.refs, e.repeated = randomReferences(rng)
			events = append(events, e)
		}
		b := sealEvents(t, events, 1, int64(n))
		if b.References == nil {
			continue
		}
		prefix := []byte("prefix")
		enc := AppendReferences(prefix, b.References)
		if want := b.Values.References; string(enc[len(prefix):]) != string(want[:len(want)-TrailerBytes]) {
			t.Fatalf("seed %d: the value is not the encoding", seed)
		}
		if most := maxReferencesLen(b.References); len(b.Values.References) > most {
			t.Fatalf("seed %d: %d bytes, more than the %d that it takes at most", seed, len(b.Values.References), most)
		}
		got, err := DecodeReferences(enc[len(prefix):], n)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range enc {
			enc[i] = 0xaa // DecodeReferences keeps nothing of it
		}
		for _, r := range []*References{b.References, got} {
			if len(r.ends) != n {
				t.Fatalf("seed %d: %d events of %d", seed, len(r.ends), n)
			}
			for i, e := range events {
				if refs := eventReferences(r, i); !slices.Equal(refs, e.refs) || r.Repeated(i) != e.repeated {
					t.Fatalf("seed %d: event %d of %d: %v, repeated %t; want %v, %t", seed, i, n, refs, r.Repeated(i), e.refs, e.repeated)
				}
			}
		}
		without := slices.Clone(events)
		for i := range without {
			without[i].refs, without[i].repeated = nil, false
		}
		w := sealEvents(t, without, 1, int64(n))
		if w.References != nil || w.Values.References != nil || len(w.Values.Index) != len(b.Values.Index) || len(w.Values.SlimIndex) != len(b.Values.SlimIndex) {
			t.Fatalf("seed %d: a block without references has %d bytes of them, and an index of %d, not %d", seed,
				len(w.Values.References), len(w.Values.Index), len(b.Values.Index))
		}
	}
}

// TestReferencesOfOneSequence: UIDs that share their first bits keep them.
func TestReferencesOfOneSequence(t *testing.T) {
	for _, sequence := range []uint64{0, 3, 1<<14 - 1} {
		var b ReferencesBuilder
		for n := range uint64(100) {
			subject := testUID(sequence, n+1)
			if err := b.Add([]Reference{{Source: 1, Subject: subject, Authority: subject}}, false); err != nil {
				t.Fatal(err)
			}
		}
		r, err := DecodeReferences(AppendReferences(nil, b.Finish()), 100)
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint64(100) {
			want := testUID(sequence, n+1)
			if got := eventReferences(r, int(n)); len(got) != 1 || got[0].Subject != want || got[0].Authority != want {
				t.Fatalf("event %d refers to %+v, want %#x", n, got, want)
			}
		}
		if _, err := DecodeReferences(AppendReferences(nil, r), 99); err == nil {
			t.Error("the references of another number of events are taken")
		}
	}
}

// TestReferencesLimits: what cannot be stored is refused, before anything of it is kept.
func TestReferencesLimits(t *testing.T) {
	one := Reference{Source: 1, Subject: 1}
	many := slices.Repeat([]Reference{one}, MaxEventReferences)
	for name, refs := range map[string][]Reference{
		"no path": {{Subject: 1}}, "a path that no log has": {{Source: MaxSources + 1, Subject: 1}}, "no subject": {{Source: 1}}, "too many": append(many, one),
	} {
		var b ReferencesBuilder
		if b.Add(refs, false) == nil {
			t.Errorf("%s is taken", name)
		}
	}
	var b ReferencesBuilder
	for i := range MaxBlockReferences / MaxEventReferences {
		if err := b.Add(many, false); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if err := b.Add(nil, true); err != nil {
		t.Error(err)
	}
	if b.Add([]Reference{one}, false) == nil {
		t.Error("one too many for a block is taken")
	}
}

// likes makes the references of n events as they come: of likes of posts, most of the last hours,
// with some follows and replies. UIDs are of one store that has had 2^34, of so many sequences.
func likes(rng *rand.Rand, n, sequences int) (events [][]Reference) {
	popular := make([]Reference, 400)
	for i := range popular {
		popular[i] = Reference{Subject: testUID(rng.Uint64N(uint64(sequences)), rng.Uint64N(1<<34/uint64(sequences))),
			Authority: testUID(rng.Uint64N(uint64(sequences)), rng.Uint64N(1<<34/uint64(sequences)))}
	}
	for range n {
		ref := popular[min(int(rng.ExpFloat64()*60), len(popular)-1)]
		if rng.IntN(4) > 0 { // most are of something else
			ref = Reference{Subject: testUID(rng.Uint64N(uint64(sequences)), rng.Uint64N(1<<34/uint64(sequences))), Authority: ref.Authority}
			if rng.IntN(3) > 0 {
				ref.Authority = testUID(rng.Uint64N(uint64(sequences)), rng.Uint64N(1<<34/uint64(sequences)))
			}
		}
		ref.Source = 1
		refs := []Reference{ref}
		switch rng.IntN(20) {
		case 0, 1: // a follow
			ref.Source, ref.Subject = 2, ref.Authority
			refs = []Reference{ref}
		case 2, 3, 4: // a reply
			ref.Source = 3
			refs = append(refs, ref)
			refs[0].Source = 4
		}
		events = append(events, refs)
	}
	return events
}

// TestReferencesSize: references take at most 20 bytes an event of real shape: those of the block,
// and what spans have of them.
func TestReferencesSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, sequences := range []int{16, 1 << 14} {
		all := likes(rng, maxSpanEvents, sequences)
		o := NewSpanBuilder(1, testKey)
		blocks, refs, subjects := 0, 0, 0
		for n := 0; n*1024 < len(all); n++ {
			var b ReferencesBuilder
			for _, refs := range all[n*1024 : min(len(all), n*1024+1024)] {
				if err := b.Add(refs, false); err != nil {
					t.Fatal(err)
				}
			}
			r := b.Finish()
			blocks += len(AppendReferences(nil, r)) + TrailerBytes + timeKeyBytes
			refs += r.Len()
			subjects += len(r.Subjects)
			for f := range r.Fingerprints(testKey) {
				o.subjects = append(o.subjects, f&^0xff|uint64(n))
			}
		}
		spans := 0
		for i, pairs := range shardsOf(o.subjects) {
			spans += len(appendDIDShard(nil, i, pairs)) + TrailerBytes + timeKeyBytes + 1
		}
		n := float64(len(all))
		t.Logf("%d sequences: %.2f references, %.2f subjects, %.1f bytes an event in blocks, %.1f in spans", sequences,
			float64(refs)/n, float64(subjects)/n, float64(blocks)/n, float64(spans)/n)
		if size := float64(blocks+spans) / n; size > 20 {
			t.Errorf("%d sequences: %.1f bytes an event", sequences, size)
		}
	}
}

// TestSpanSubjects: each subject and each authority is found, in all blocks it is in. Hardly any
// other is, nor one in the place of the other.
func TestSpanSubjects(t *testing.T) {
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 6))
	o := NewSpanBuilder(1, testKey)
	in := make(map[uint64]BlockSet) // by fingerprint
	add := func(fingerprint uint64, block int) {
		set := in[fingerprint]
		set.Add(block)
		in[fingerprint] = set
	}
	seq := int64(0)
	for n := range 40 {
		var events []testEvent
		for _, refs := range likes(rng, 100, 16) {
			seq++
			e := randomEvent(rng, Place{1, seq, 0}, 1782907200000000+seq)
			if e.kind == translate.KindCommit && n%7 > 0 {
				e.refs = refs
				for _, ref := range refs {
					add(testKey.FingerprintSubject(ref.Subject), n)
					if ref.Authority != ref.Subject {
						add(testKey.FingerprintAuthority(ref.Authority), n)
					}
				}
			}
			events = append(events, e)
		}
		b := sealEvents(t, events, seq-99, seq)
		if n > 0 && !o.Fits(b.BlockEvents, 1, 1<<40, 0) {
			t.Fatal("a block does not fit")
		}
		o.Add(b.BlockEvents, b.Values.Bytes())
	}
	shards := make(map[int]DIDShard)
	for _, v := range o.Finish() {
		if Range(v.Key[0]) != RangeSpanSubjects {
			continue
		}
		shard := int(v.Key[len(v.Key)-1])
		b, err := OpenTrailer(v.Value, RangeSpanSubjects, o.Key())
		if err != nil {
			t.Fatal(err)
		}
		if shards[shard], err = OpenDIDShard(b, shard); err != nil {
			t.Fatal(err)
		}
	}
	find := func(fingerprint uint64) (set BlockSet, ok bool) {
		v := shards[ShardOf(fingerprint)]
		e := v.Find(fingerprint)
		if e < 0 {
			return set, false
		}
		if err := v.AddTo(&set, e); err != nil {
			t.Fatal(err)
		}
		return set, true
	}
	more := 0
	for fingerprint, want := range in {
		got, ok := find(fingerprint)
		if both := want; !ok || func() bool { both.Intersect(&got); return both != want }() {
			t.Fatalf("%x is in %v, not %v", fingerprint, got, want)
		}
		more += got.Count(0, MaxSpanBlocks) - want.Count(0, MaxSpanBlocks)
	}
	for range 20_000 {
		if _, ok := find(testKey.FingerprintSubject(rng.Uint64())); ok {
			more++
		}
	}
	if more > 20 {
		t.Errorf("%d blocks too many", more)
	}
}

// TestGoldenReferences pins what blocks with references are on disk. See TestGolden.
func TestGoldenReferences(t *testing.T) {
	b := goldenReferences(t)
	us := b.Index.Key()
	var out strings.Builder
	for _, v := range []struct {
		name       string
		key, value []byte
	}{
		{"index", TimeKey(RangeIndex, us), b.Values.Index}, {"slim_index", TimeKey(RangeSlimIndex, us), b.Values.SlimIndex},
		{"references", TimeKey(RangeReferences, us), b.Values.References},
	} {
		fmt.Fprintf(&out, "%s\nkey %s\n%s\n", v.name, hex.EncodeToString(v.key), hex.Dump(v.value))
	}
	span := NewSpanBuilder(1, FingerprintKey{1, 2})
	span.Add(b.BlockEvents, b.Values.Bytes())
	empty := len(appendDIDShard(nil, 0, nil)) + TrailerBytes
	for _, v := range span.Finish() {
		if r := Range(v.Key[0]); r == RangeSpan || r == RangeSpanSubjects && len(v.Value) > empty {
			fmt.Fprintf(&out, "%s\nkey %s\n%s\n", r.String(), hex.EncodeToString(v.Key), hex.Dump(v.Value))
		}
	}
	compareGolden(t, "references.golden", out.String())
}

// compareGolden compares what is encoded with a file in testdata.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// goldenReferences is a block with all that references may be.
func goldenReferences(t testing.TB) SealedBlock {
	t.Helper()
	const alice, bob = 3<<50 | 17, 5<<50 | 90_000
	post := uint64(3<<50 | 4_000_000_000)
	var events []testEvent
	for i, e := range []testEvent{
		{operation: translate.OpCreate, refs: []Reference{{1, post, alice, false}}},
		{operation: translate.OpCreate, refs: []Reference{{2, bob, bob, false}}},
		{operation: translate.OpUpdate, refs: []Reference{{1, post, alice, false}, {700, post + 1, alice, false}, {3, 9 << 50, 0, true}}},
		{operation: translate.OpDelete, refs: []Reference{{1, post, alice, true}}, repeated: true},
		{operation: translate.OpDelete},
	} {
		e.Place, e.timeUS = Place{1, int64(i + 1), 0}, 1782907200000000+int64(i)
		e.kind, e.collection, e.did, e.payload = translate.KindCommit, "app.bsky.feed.like", "did:web:example.com", `{}`
		events = append(events, e)
	}
	return sealEvents(t, events, 1, 5)
}

// FuzzDecodeReferences: no bytes make the decoder panic, and what it takes is encoded to what it
// takes.
func FuzzDecodeReferences(f *testing.F) {
	b := goldenReferences(f).Values.References
	f.Add(b[:len(b)-TrailerBytes], 5)
	f.Add(b[:40], 5)
	var r ReferencesBuilder
	for _, refs := range likes(rand.New(rand.NewPCG(1, 1)), 600, 1<<14) {
		if err := r.Add(refs, false); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(AppendReferences(nil, r.Finish()), 600)
	f.Fuzz(func(t *testing.T, b []byte, events int) {
		r, err := DecodeReferences(b, events)
		if err != nil {
			return
		}
		for i := range r.ends {
			_, _ = eventReferences(r, i), r.Repeated(i)
		}
		enc := AppendReferences(nil, r)
		if len(enc)+TrailerBytes > maxReferencesLen(r) {
			t.Fatalf("%d bytes, more than %d", len(enc), maxReferencesLen(r))
		}
		again, err := DecodeReferences(enc, events)
		if err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
		if diff := cmp.Diff(r, again, cmp.AllowUnexported(References{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

// BenchmarkReferences makes and encodes, and decodes, the references of a block of events of real
// shape.
func BenchmarkReferences(b *testing.B) {
	const n = 1024
	events := likes(rand.New(rand.NewPCG(1, 1)), n, 16)
	var builder ReferencesBuilder
	build := func() *References {
		builder.reset()
		for _, refs := range events {
			if err := builder.Add(refs, false); err != nil {
				b.Fatal(err)
			}
		}
		return builder.Finish()
	}
	value := AppendReferences(nil, build())
	perEvent := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/event")
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		var dst []byte
		for b.Loop() {
			dst = AppendReferences(dst[:0], build())
		}
		perEvent(b)
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeReferences(value, n); err != nil {
				b.Fatal(err)
			}
		}
		perEvent(b)
	})
	b.Run("fingerprint", func(b *testing.B) {
		r := build()
		for b.Loop() {
			for range r.Fingerprints(testKey) {
			}
		}
		perEvent(b)
	})
}

// TestSubjectBeforeTheFirst: an event cannot refer to a subject before the first one.
func TestSubjectBeforeTheFirst(t *testing.T) {
	var b []byte
	for _, n := range []uint32{1, 1, 1, 0, 0} { // events, references, sources, subjects, authorities
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	b = appendColumn(b, columnSources, false, []uint32{1})
	b = appendPacked(appendPacked(b, nil), nil)
	b = append(b, 1<<1, 0, 0) // one reference: of source 0 to the subject named last
	if _, err := DecodeReferences(b, 1); err == nil || !strings.Contains(err.Error(), "refers to the subject 0 places before the last, of 0 so far") {
		t.Errorf("it ends with %v", err)
	}
}
