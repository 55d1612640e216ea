package replay

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// testSources is how many sources most of the tests' references have. In what the tests know of
// events, references have sources by numbers of the tests', and not those that a log gave them.
const testSources = 6

// testString is what a UID of the tests stands for. Some are lost.
func testString(uid uint64) string {
	switch {
	case uid%11 == 5:
		return ""
	case uid>>50 == 9:
		return fmt.Sprintf("at://did:web:%d.example/a.b.c/%d", uid%7, uid)
	}
	return fmt.Sprintf("did:web:%d.example", uid)
}

// testStrings is Config.Strings.
func testStrings(uids []uint64, strings []string) error {
	for i, uid := range uids {
		strings[i] = testString(uid)
	}
	return nil
}

// referencesJSON returns the members of an event that its references are, by encoding/json.
func referencesJSON(e *testEvent) string {
	type reference struct {
		Source  string `json:"source"`
		Subject string `json:"subject,omitempty"`
		UID     uint64 `json:"uid,string"`
	}
	var members struct {
		Has      []reference `json:"references,omitempty"`
		Repeated bool        `json:"repeated,omitempty"`
		Had      []reference `json:"deleted_references,omitempty"`
	}
	members.Repeated = e.repeated
	for _, r := range e.refs {
		ref := reference{testSource(e.collection, r.Source), testString(r.Subject), r.Subject}
		kept := slices.ContainsFunc(e.refs, func(o Reference) bool { return !o.Had && o.Source == r.Source && o.Subject == r.Subject })
		switch {
		case !r.Had && !e.repeated:
			members.Has = append(members.Has, ref)
		case !r.Had:
		case !kept:
			members.Had = append(members.Had, ref)
		}
	}
	b, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	if len(b) == len("{}") {
		return ""
	}
	return "," + string(b[1:len(b)-1])
}

// testSource is the source that a path of the tests stands for.
func testSource(collection string, path uint32) string {
	return fmt.Sprintf("%s:path.%d[<\"é\u2028>]", collection, path)
}

// numbered returns the references of an event of a collection with the log's numbers of sources.
func numbered(t testing.TB, l *Log, collection string, refs []Reference) []Reference {
	t.Helper()
	refs = slices.Clone(refs)
	for i := range refs {
		number, ok := l.SourceNumber([]byte(testSource(collection, refs[i].Source)))
		if !ok {
			t.Fatalf("path %d gets no number", refs[i].Source)
		}
		refs[i].Source = number
	}
	return refs
}

// unnumbered is the inverse of numbered.
func (w *world) unnumbered(refs []Reference) []Reference {
	w.t.Helper()
	for i := range refs {
		source, ok := w.log.SourceOf(refs[i].Source)
		if !ok {
			w.t.Fatalf("the log does not know path %d", refs[i].Source)
		}
		_, path, _ := strings.Cut(source, ":")
		if n, err := fmt.Sscanf(path, "path.%d", &refs[i].Source); n != 1 {
			w.t.Fatalf("path %d has source %q: %v", refs[i].Source, source, err)
		}
	}
	return refs
}

// testSubject is a subject of the tests' references: a DID if n is even, else a record of that DID.
func testSubject(n int) format.Subject {
	did := uint64(n%7)<<50 | uint64(1+n/2)
	if n%2 == 0 {
		return format.Subject{UID: did, Authority: did}
	}
	return format.Subject{UID: uint64(9)<<50 | uint64(1000+n), Authority: did}
}

// testSubjects is how many subjects the tests' references have.
const testSubjects = 60

// randomReferences makes the references of an op, a few most often, or none.
func randomReferences(rng *rand.Rand, op translate.Operation) (refs []Reference, repeated bool) {
	if rng.IntN(3) == 0 {
		return nil, rng.IntN(40) == 0
	}
	for range 1 + rng.IntN(3)*rng.IntN(3) {
		s := testSubject(rng.IntN(testSubjects))
		path := uint32(1 + rng.IntN(testSources))
		if rng.IntN(30) == 0 {
			path = uint32(100 + rng.IntN(1000)) // one that the log hardly has had
		}
		refs = append(refs, Reference{Source: path, Subject: s.UID, Authority: s.Authority,
			Had: op == translate.OpDelete || op == translate.OpUpdate && rng.IntN(2) == 0})
	}
	return refs, rng.IntN(40) == 0
}

// referenceFilter draws what a filter wants of references.
func (w *world) referenceFilter(cfg *FilterConfig) {
	for range w.rng.IntN(4) {
		cfg.Subjects = append(cfg.Subjects, testSubject(w.rng.IntN(testSubjects+5)).UID)
	}
	for range w.rng.IntN(3) {
		cfg.SubjectDIDs = append(cfg.SubjectDIDs, testSubject(w.rng.IntN(testSubjects+5)).Authority)
	}
	if w.rng.IntN(20) == 0 {
		cfg.Subjects = []uint64{} // none yet
	}
	for range w.rng.IntN(4) {
		cfg.Sources = append(cfg.Sources, testSource(testCollections[w.rng.IntN(len(testCollections))], 1+uint32(w.rng.IntN(testSources+1))))
	}
	if w.rng.IntN(20) == 0 {
		cfg.Sources = []string{}
	}
}

// matchesReferences is what a filter wants of references, as the specification has it.
func (w *world) matchesReferences(cfg FilterConfig, e *testEvent) bool {
	anySubject, anySource := cfg.Subjects == nil && cfg.SubjectDIDs == nil, cfg.Sources == nil
	if anySubject && anySource || e.kind != translate.KindCommit {
		return true
	}
	for _, ref := range e.refs {
		subject := anySubject || slices.Contains(cfg.Subjects, ref.Subject) || slices.Contains(cfg.SubjectDIDs, ref.Subject) ||
			slices.Contains(cfg.SubjectDIDs, ref.Authority)
		if subject && (anySource || slices.Contains(cfg.Sources, testSource(e.collection, ref.Source))) {
			return true
		}
	}
	return false
}

// shapedReferences are those of event i of its block. A create has that of its record, a delete
// that which the record had, an update both.
func shapedReferences(i int, op translate.Operation) []Reference {
	a, b := testSubject(i), testSubject(i+1)
	has := Reference{Source: uint32(1 + i%testSources), Subject: a.UID, Authority: a.Authority}
	had := Reference{Source: has.Source, Subject: b.UID, Authority: b.Authority, Had: true}
	switch op {
	case translate.OpCreate:
		return []Reference{has}
	case translate.OpDelete:
		return []Reference{had}
	}
	return []Reference{has, had}
}

// eventReferences returns what r says of event i.
func eventReferences(r *format.References, i int) (refs []Reference) {
	for _, e := range r.Entries(i) {
		refs = append(refs, r.At(e))
	}
	return refs
}

// references returns the references of a block in the store; nil: it has none.
func (w *world) references(x *blockIndex) *format.References {
	w.t.Helper()
	if !x.HasReferences {
		return nil
	}
	sealed, ok, err := w.log.store.Value(format.TimeKey(format.RangeReferences, x.Key()))
	if err != nil || !ok {
		w.t.Fatalf("block %d lacks its references: %v", x.Key(), err)
	}
	b, err := format.OpenTrailer(sealed, format.RangeReferences, x.Key())
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := format.DecodeReferences(b, x.Events())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// references changes the references of block n.
func (e *editor) references(n int, change func(refs [][]Reference)) {
	idx := e.get(format.TimeKey(format.RangeIndex, e.keys[n]))
	x, err := format.DecodeIndex(idx[:len(idx)-format.TrailerBytes])
	if err != nil {
		e.t.Fatal(err)
	}
	e.resealed(format.RangeReferences, n, func(b []byte) []byte {
		r, err := format.DecodeReferences(b, x.Events())
		if err != nil {
			e.t.Fatal(err)
		}
		refs := make([][]Reference, x.Events())
		for i := range refs {
			refs[i] = eventReferences(r, i)
		}
		change(refs)
		var out format.ReferencesBuilder
		for i := range refs {
			if err := out.Add(refs[i], r.Repeated(i)); err != nil {
				e.t.Fatal(err)
			}
		}
		return format.AppendReferences(nil, out.Finish())
	})
}

// referencesDamages are of references, and of what says that there are some.
func referencesDamages() []logDamage {
	remove := func(n int) func(e *editor) {
		return func(e *editor) { e.remove(format.TimeKey(format.RangeReferences, e.keys[n])) }
	}
	return []logDamage{
		{"flipped references", func(e *editor) { e.raw(format.RangeReferences, 2, flip(30)) }, "references", 2, -1, "checksum", true},
		{"missing references", remove(1), "references", 1, -1, "the index says true", true},
		{"references of a block that has none", func(e *editor) { e.index(1, func(x *format.Index) { x.HasReferences = false }) },
			"references", 1, -1, "the index says false", true},
		{"cut references", func(e *editor) {
			e.resealed(format.RangeReferences, 2, func(b []byte) []byte { return b[:len(b)-1] })
		}, "references", 2, -1, "cut short", false},
		{"references of another block", func(e *editor) {
			other := e.get(format.TimeKey(format.RangeReferences, e.keys[3]))
			e.resealed(format.RangeReferences, 2, func([]byte) []byte { return other[:len(other)-format.TrailerBytes] })
		}, "references", 2, -1, "it is of 15 events, not 14", false},
		{"references of an identity event", func(e *editor) {
			e.references(2, func(refs [][]Reference) { refs[4], refs[3] = refs[3], refs[4] })
		}, "references", 2, 4, "an event of kind identity", false},
		{"a delete that has some", func(e *editor) {
			e.references(2, func(refs [][]Reference) { refs[2][0].Had = false })
		}, "references", 2, 2, "a delete that has", false},
		{"a source too many", func(e *editor) {
			e.resealed(format.RangeReferences, 2, func(b []byte) []byte {
				at := 20 + 4 + int(b[8])
				b[8]++ // the number of sources
				return append(b[:at:at], append([]byte{0}, b[at:]...)...)
			})
		}, "references", 2, -1, "encoding its references gives other bytes", false},
		{"missing subjects", func(e *editor) {
			e.remove(format.ShardKey(format.RangeSpanSubjects, e.keys[lastSpanned], 7))
		}, "span_subjects", lastSpanned, -1, "missing", true},
		{"changed fingerprint", func(e *editor) {
			e.shardsOf(format.RangeSpanSubjects, lastSpanned, func(n, lows, counts int, b []byte) []byte { b[lows] ^= 1; return b })
		}, "span_subjects", lastSpanned, -1, "is not in it", true},
		{"list has a block too many", func(e *editor) {
			e.shardsOf(format.RangeSpanSubjects, lastSpanned, func(n, lows, counts int, b []byte) []byte {
				b[counts+n-1]++ // the last entry has one more
				return append(b, 77)
			})
		}, "span_subjects", lastSpanned, -1, "its lists name", true},
		{"span that says it has no subjects", func(e *editor) { e.span(func(s *format.Span) { s.HasSubjects = false }) },
			"span", lastSpanned, -1, "whether its events have references", false},
		{"a source of another collection", func(e *editor) {
			e.set(format.SourceKey(2), format.AppendTrailer([]byte("a.b.c:x"), format.RangeSource, 2))
		}, "references", 0, 1, "an event of", false},
		{"a source of a collection with a longer name", func(e *editor) {
			source, err := format.OpenTrailer(e.get(format.SourceKey(2)), format.RangeSource, 2)
			if err != nil {
				e.t.Fatal(err)
			}
			longer := bytes.Replace(source, []byte(":"), []byte("x:"), 1)
			e.set(format.SourceKey(2), format.AppendTrailer(longer, format.RangeSource, 2))
		}, "references", 0, 1, "an event of", false},
		{"missing source", func(e *editor) { e.remove(format.SourceKey(2)) }, "source", -1, -1, "missing", true},
		{"missing last source", func(e *editor) { e.remove(format.SourceKey(4)) }, "references", -1, -1, "it has source 4; the log has 3", false},
		{"flipped source", func(e *editor) { e.set(format.SourceKey(2), flip(3)(e.get(format.SourceKey(2)))) }, "source", -1, -1, "checksum", true},
		{"a path's source twice", func(e *editor) {
			e.set(format.SourceKey(2), format.AppendTrailer([]byte(testSource(testCollections[0], 1)), format.RangeSource, 2))
		}, "source", -1, -1, "has number 1, too", false},
	}
}

// TestVerifyReferences: what is wrong with references is found, and where.
func TestVerifyReferences(t *testing.T) {
	for _, d := range referencesDamages() {
		t.Run(d.name, func(t *testing.T) {
			fs, keys := verifyLog(t)
			tamper(t, fs, func(db *pebble.DB) { d.do(&editor{t, db, keys}) })
			findDamage(t, mustVerify(t, fs), &d, keys)
		})
	}
}

// versionOf returns the version in the log's store.
func versionOf(t *testing.T, l *Log) uint32 {
	t.Helper()
	v, ok, err := l.store.Value(format.MetaKey(format.MetaFormat))
	if err != nil || !ok {
		t.Fatalf("no version: %v", err)
	}
	return binary.BigEndian.Uint32(v)
}

// TestVersion: a log is one that an older program can open until it has references, and not from
// then on.
func TestVersion(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	l := mustOpen(t, cfg)
	event := func(i int64, refs ...Reference) testBlock {
		e := shapedEvent(format.Place{Epoch: 1, Seq: i, Op: 0}, testStart.UnixMicro()+i, 0)
		e.refs = refs
		return testBlock{epoch: 1, firstSeq: i, lastSeq: i, events: []testEvent{e}}
	}
	if err := l.Append(event(1).seal(t, l)); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	l = mustOpen(t, cfg)
	if got := versionOf(t, l); got != 7 {
		t.Errorf("without references the log is of version %d", got)
	}
	if err := l.Append(event(2, Reference{Source: 1, Subject: 1}).seal(t, l), event(3).seal(t, l)); err != nil {
		t.Fatal(err)
	}
	if got := versionOf(t, l); got != 8 {
		t.Errorf("with references the log is of version %d", got)
	}
	_ = l.Close()
	l = mustOpen(t, cfg)
	if err := l.Append(event(4).seal(t, l)); err != nil {
		t.Fatal(err)
	}
	if got := versionOf(t, l); got != 8 {
		t.Errorf("later the log is of version %d", got)
	}
	if err := l.TrimTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	it, err := l.store.NewIter(&pebble.IterOptions{LowerBound: format.RangeReferences.Start(), UpperBound: format.RangeReferences.End()})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	if it.First() {
		t.Errorf("after a trim of all, %x is left", it.Key())
	}
}

// TestSealReferences: what does not fit the batch's events is refused.
func TestSealReferences(t *testing.T) {
	for name, r := range map[string]EventReferences{
		"too few": {Ends: []uint32{0}}, "too many marks": {Ends: []uint32{0, 0}, Repeated: make([]bool, 3)},
		"beyond the list": {Ends: []uint32{0, 1}}, "backwards": {List: make([]Reference, 2), Ends: []uint32{2, 1}},
	} {
		if r.check(2) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	r := EventReferences{List: []Reference{{Source: 1, Subject: 1}, {Source: 2, Subject: 2}}, Ends: []uint32{0, 2}, Repeated: []bool{true, false}}
	if err := r.check(2); err != nil {
		t.Error(err)
	}
	if refs, repeated := r.of(0); len(refs) != 0 || !repeated {
		t.Errorf("the first has %v, %t", refs, repeated)
	}
	if refs, repeated := r.of(1); len(refs) != 2 || repeated {
		t.Errorf("the second has %v, %t", refs, repeated)
	}
}

// TestSubjectsLive: readers that want certain subjects or sources get, of what is appended, what a
// look at all of it finds. So do those that come late, and read some of it from the disk.
func TestSubjectsLive(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	w := newWorld(t, seed)
	type live struct {
		r    *Reader
		cfg  ReaderConfig
		fcfg FilterConfig
		last int64 // stamp up to which it has read
	}
	var readers []*live
	for range 120 {
		if len(readers) < 30 {
			var fcfg FilterConfig
			w.referenceFilter(&fcfg)
			if w.rng.IntN(2) == 0 {
				fcfg.Kinds = Kinds(translate.KindCommit)
			}
			cfg := ReaderConfig{Cursor: Cursor{}, Filter: must(NewFilter(fcfg)), MaxChunkBytes: 1 << 16}
			readers = append(readers, &live{mustRead(t, w.log, cfg), cfg, fcfg, w.m.timeUS})
		}
		w.append()
		w.adoptBlocks()
		for _, l := range readers {
			if w.rng.IntN(5) > 0 {
				continue
			}
			var items []item
			for _, it := range w.m.items() {
				if it.gap != nil && it.gap.TimeUS > l.last || it.event != nil && it.event.timeUS > l.last {
					items = append(items, it)
				}
			}
			if diff := cmp.Diff(w.render(items, l.cfg, l.fcfg), w.drain(l.r, l.cfg), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d: filter %+v: -want +got\n%s", seed, l.fcfg, diff)
			}
			l.last = w.m.timeUS
		}
	}
}

// TestFilterGrows: a reader at the end of the log goes by a subject that was added to its filter
// for all that is appended later. So it does if it only looks whether there is something.
func TestFilterGrows(t *testing.T) {
	l := mustOpen(t, testConfig(t, vfs.NewMem(), newTestClock()))
	s := testSubject(3)
	f := must(NewFilter(FilterConfig{Subjects: []uint64{}, MoreSubjects: 1, MoreSubjectDIDs: 1, Kinds: Kinds(translate.KindCommit)}))
	r := mustRead(t, l, ReaderConfig{Filter: f})
	var c Chunk
	seq := int64(0)
	next := func(refs ...Reference) (events int) {
		t.Helper()
		seq++
		e := shapedEvent(format.Place{Epoch: 1, Seq: seq}, testStart.UnixMicro()+seq, 0)
		e.refs = refs
		if err := l.Append(testBlock{epoch: 1, firstSeq: seq, lastSeq: seq, events: []testEvent{e}}.seal(t, l)); err != nil {
			t.Fatal(err)
		}
		_, pending := r.Pending(&PendingScratch{})
		if err := r.Next(&c); err != nil || !c.Live || pending != (c.Events > 0) {
			t.Fatalf("pending %t, %d events, live %t: %v", pending, c.Events, c.Live, err)
		}
		return c.Events
	}
	other := Reference{Source: 1, Subject: 77, Authority: s.Authority}
	for i, add := range []func(uint64) bool{nil, f.AddSubject, f.AddSubjectDID} {
		if add != nil && !add([]uint64{0, s.UID, s.Authority}[i]) {
			t.Fatal("no room")
		}
		got := []int{next(Reference{Source: 1, Subject: s.UID, Authority: s.Authority}), next(other)}
		if want := [][]int{{0, 0}, {1, 0}, {1, 1}}[i]; !slices.Equal(got, want) {
			t.Errorf("with %d added: %v events, want %v", i, got, want)
		}
	}
	if f.AddSubject(5) {
		t.Error("there is room for a second subject")
	}
}
