package filter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// modelEvent is an event as the model knows it.
type modelEvent struct {
	kind       translate.Kind
	did        string
	collection string // "": not a commit
	references []format.Reference
}

var (
	modelCollections = []string{"a.b.c", "a.b.c.d", "a.b.cd", "b.c.d", "c.d.e"}
	modelSources     = &sources{"a.b.c:x", "a.b.c:y", "b.c.d:x", "a.b.c.d:x"}
)

func modelDID(n int) string {
	return []string{"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "did:plc:aaaaaaaaaaaaaaaaaaaaaaab", "did:web:a.example", "did:web:b.example"}[n]
}

// randomEvents returns a block's events. Subject 10n is a DID, 10n+1 an AT URI with it, 5 that of
// a handle.
func randomEvents(rng *rand.Rand) []modelEvent {
	events := make([]modelEvent, 1+rng.IntN(70))
	collections, dids, kinds := 1+rng.IntN(len(modelCollections)), 1+rng.IntN(4), rng.IntN(4)
	for i := range events {
		e := modelEvent{kind: translate.KindCommit, did: modelDID(rng.IntN(dids))}
		if kinds == 0 || rng.IntN(4) < kinds-1 {
			e.kind = []translate.Kind{translate.KindIdentity, translate.KindAccount, translate.KindSync}[rng.IntN(3)]
		} else {
			e.collection = modelCollections[rng.IntN(collections)]
			for n, source := range *modelSources {
				if strings.HasPrefix(source, e.collection+":") && rng.IntN(2) == 0 {
					did := uint64(10 * (1 + rng.IntN(3)))
					e.references = append(e.references, format.Reference{Source: uint32(n + 1),
						Subject: []uint64{did, did + 1, 5}[rng.IntN(3)], Authority: did})
					if r := &e.references[len(e.references)-1]; r.Subject == 5 {
						r.Authority = 0
					}
				}
			}
		}
		events[i] = e
	}
	return events
}

// randomConfig returns a filter's Config that is empty in about half of its parts.
func randomConfig(rng *rand.Rand) (cfg Config) {
	some := func(f func()) {
		for rng.IntN(2) == 0 {
			f()
		}
	}
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	some(func() {
		cfg.Collections = append(cfg.Collections, pick("a.b.c", "b.c.d", "c.d.e", "a.b.c.*", "a.b.*", "a.*", "x.y.z"))
	})
	some(func() { cfg.DIDs = append(cfg.DIDs, modelDID(rng.IntN(4))) })
	some(func() { cfg.Subjects = append(cfg.Subjects, uint64(10*(1+rng.IntN(3))+rng.IntN(2))) })
	some(func() { cfg.SubjectDIDs = append(cfg.SubjectDIDs, uint64(10*(1+rng.IntN(3)))) })
	some(func() { cfg.Sources = append(cfg.Sources, pick(*modelSources...)) })
	some(func() { cfg.Kinds |= 1 << (1 + rng.IntN(4)) })
	if rng.IntN(8) == 0 {
		cfg.Sources = []string{}
	}
	if rng.IntN(8) == 0 {
		cfg.Subjects = []uint64{}
	}
	return cfg
}

// passes is what Config's comment says.
func (e *modelEvent) passes(cfg *Config) bool {
	if !cfg.Kinds.Has(e.kind) || len(cfg.DIDs) > 0 && !slices.Contains(cfg.DIDs, e.did) {
		return false
	}
	return e.kind != translate.KindCommit || e.passesCollections(cfg) && e.passesReferences(cfg)
}

func (e *modelEvent) passesCollections(cfg *Config) bool {
	return len(cfg.Collections) == 0 || slices.ContainsFunc(cfg.Collections, func(c string) bool {
		prefix, ok := strings.CutSuffix(c, "*")
		return c == e.collection || ok && strings.HasPrefix(e.collection, prefix)
	})
}

func (e *modelEvent) passesReferences(cfg *Config) bool {
	anySubject, anySource := cfg.Subjects == nil && cfg.SubjectDIDs == nil, cfg.Sources == nil
	return anySubject && anySource || slices.ContainsFunc(e.references, func(r format.Reference) bool {
		return (anySubject || slices.Contains(cfg.Subjects, r.Subject) || slices.Contains(cfg.SubjectDIDs, r.Authority)) &&
			(anySource || slices.Contains(cfg.Sources, (*modelSources)[r.Source-1]))
	})
}

// index returns a block's index and references, nil if it has none.
func index(t *testing.T, events []modelEvent) (*format.Index, *format.References) {
	t.Helper()
	x := &format.Index{}
	var collections, dids []string
	number := func(names *[]string, name string) uint16 {
		if !slices.Contains(*names, name) {
			*names = append(*names, name)
		}
		return uint16(slices.Index(*names, name))
	}
	var refs format.ReferencesBuilder
	for i, e := range events {
		x.TimeUS, x.Kind, x.Kinds = append(x.TimeUS, int64(i)), append(x.Kind, uint8(e.kind)|1<<4), x.Kinds|format.Kinds(e.kind)
		x.DID = append(x.DID, number(&dids, e.did))
		var c uint16
		if e.collection != "" {
			c = 1 + number(&collections, e.collection)
		}
		x.Collection = append(x.Collection, c)
		if err := refs.Add(e.references, false); err != nil {
			t.Fatal(err)
		}
	}
	x.Collections, x.DIDs = format.NewNameTable(collections...), format.NewNameTable(dids...)
	return x, refs.Finish()
}

// TestMatcher holds what passes of random blocks against the model. A block is passed over only if
// none of its events passes, and is if its tables say so.
func TestMatcher(t *testing.T) {
	var m Matcher
	other := mustNew(t, Config{DIDs: []string{modelDID(0), modelDID(1)}})
	for seed := range uint64(700) {
		rng := rand.New(rand.NewPCG(seed, 0))
		events, cfg := randomEvents(rng), randomConfig(rng)
		f := mustNew(t, cfg)
		x, refs := index(t, events)
		var want, got []int
		for i := range events {
			if events[i].passes(&cfg) {
				want = append(want, i)
			}
		}
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d, %+v: %s", seed, cfg, fmt.Sprintf(format, args...))
		}
		some := func(passes func(e *modelEvent) bool) bool {
			return slices.ContainsFunc(events, func(e modelEvent) bool { return passes(&e) })
		}
		check := func(what string, ok bool, tables bool) bool {
			t.Helper()
			if ok != tables {
				fail("by %s the block has events that pass: %v, not %v", what, ok, tables)
			}
			return ok
		}
		// A block whose only wanted events are of an unwanted kind is found out by Next.
		kinds := some(func(e *modelEvent) bool { return cfg.Kinds.Has(e.kind) })
		others := some(func(e *modelEvent) bool { return e.kind != translate.KindCommit && cfg.Kinds.Has(e.kind) })
		ok := check("kinds and collections", m.Reset(f, &x.SlimIndex), kinds && (len(cfg.Collections) == 0 || others ||
			some(func(e *modelEvent) bool { return e.kind == translate.KindCommit && e.passesCollections(&cfg) })))
		if ok && f.ByDID() {
			wanted := some(func(e *modelEvent) bool { return slices.Contains(cfg.DIDs, e.did) })
			ok = check("DIDs", m.MatchDIDs(x, x.HashDIDs()), wanted)
			if seed%2 == 0 {
				w := f.WantedDIDs(x, other.WantedDIDs(x, nil))
				check("DIDs wanted", m.TakeDIDs(x, w), wanted)
				if f.WantedDIDs(x, w) != w {
					fail("its wanted DIDs are looked up again")
				}
			}
		}
		if ok && f.ByReference() {
			if ok = m.MatchReferences(refs, modelSources); !ok && len(want) > 0 {
				fail("by references no event passes")
			} else if ok && !others && refs == nil {
				fail("events without references pass")
			}
		}
		if ok {
			for i := m.Next(0); i < len(events); i = m.Next(i + 1) {
				got = append(got, i)
			}
			sparse := (len(cfg.DIDs) > 0 || cfg.Subjects != nil || cfg.SubjectDIDs != nil) && len(want) <= len(events)/32
			if m.Sparse() != sparse {
				fail("sparse: %v, with %d of %d", !sparse, len(want), len(events))
			}
		}
		if !slices.Equal(got, want) {
			fail("events %v pass, not %v", got, want)
		}
		all := cfg.Kinds == 0 || format.DefaultKinds&^cfg.Kinds == 0
		any := all && len(cfg.Collections)+len(cfg.DIDs) == 0 && !f.ByReference()
		if f.MatchesAll(format.DefaultKinds) != any || f.Selective() == any || f.Commits() != cfg.Kinds.Has(translate.KindCommit) ||
			f.AllOfDIDs() != (len(cfg.DIDs) > 0 && len(cfg.Collections) == 0 && all) {
			fail("it matches all: %v, is selective: %v, is for commits: %v, for all of some DIDs: %v", f.MatchesAll(format.DefaultKinds), f.Selective(), f.Commits(), f.AllOfDIDs())
		}
		if m.Release(); rng.IntN(2) == 0 {
			m.Forget()
		}
	}
}

// TestBlocks holds the blocks that a filter wants of random spans against the model: they are those
// that have wanted collections and kinds, and nothing else.
func TestBlocks(t *testing.T) {
	for seed := range uint64(700) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := randomConfig(rng)
		f := mustNew(t, cfg)
		s := &format.Span{Collections: format.NewNameTable(modelCollections...), Present: make([]format.BlockSet, len(modelCollections)), Copied: rng.IntN(2) == 0}
		var given, want format.BlockSet
		copied := s.Copied && len(cfg.DIDs) == 0 && (!f.Commits() || len(cfg.Collections) > 0 || f.ByReference())
		wantOthers := false
		for n := range 12 {
			found := rng.IntN(3) > 0 // by its subjects
			if found {
				given.Add(n)
			}
			for _, e := range randomEvents(rng)[:1] {
				switch e.kind {
				case translate.KindIdentity:
					s.IdentityIn.Add(n)
				case translate.KindAccount:
					s.AccountIn.Add(n)
				case translate.KindSync:
					s.SyncIn.Add(n)
				default:
					s.Present[slices.Index(modelCollections, e.collection)].Add(n)
				}
				inSources := cfg.Sources == nil || slices.ContainsFunc(cfg.Sources, func(s string) bool { return strings.HasPrefix(s, e.collection+":") })
				switch {
				case e.kind == translate.KindCommit:
					if found && f.Commits() && e.passesCollections(&cfg) && inSources {
						want.Add(n)
					}
				case f.Commits() && len(cfg.Collections) == 0 && !f.ByReference():
					if found {
						want.Add(n)
					}
				case !cfg.Kinds.Has(e.kind):
				case copied && e.kind != translate.KindSync:
					wantOthers = true
				default:
					want.Add(n)
				}
			}
		}
		blocks, others := f.Blocks(s, given)
		if f.Commits() && len(cfg.Collections) == 0 && cfg.Sources == nil {
			want.Union(&given) // any of them may have commits
		}
		if blocks != want || others != wantOthers {
			t.Fatalf("seed %d, %+v: blocks %b and others %v, not %b and %v", seed, cfg, blocks[0], others, want[0], wantOthers)
		}
	}
}

// TestAddedSubjects: subjects that are added pass like those of the Config, as long as there is
// room, and have fingerprints.
func TestAddedSubjects(t *testing.T) {
	f := mustNew(t, Config{Subjects: []uint64{}, MoreSubjects: 1, MoreSubjectDIDs: 1})
	wanted := func() (got []bool) {
		for _, s := range []format.Subject{{UID: 20, Authority: 20}, {UID: 21, Authority: 20}, {UID: 30, Authority: 30}, {UID: 31, Authority: 30}, {UID: 5}} {
			got = append(got, f.references.subject(s))
		}
		return got
	}
	var k format.FingerprintKey
	for step, want := range [][]bool{{false, false, false, false, false}, {true, false, false, false, false}, {true, false, true, true, false}} {
		if got := wanted(); !slices.Equal(got, want) {
			t.Errorf("step %d: %v, not %v", step, got, want)
		}
		if got := len(f.SubjectFingerprints(k)); got != []int{0, 1, 3}[step] {
			t.Errorf("step %d: %d fingerprints", step, got)
		}
		if step == 0 && !f.AddSubject(20) || step == 1 && !f.AddSubjectDID(30) {
			t.Errorf("step %d: there is no room", step)
		}
	}
	if p := f.SubjectFingerprints(k); &p[0] != &f.SubjectFingerprints(k)[0] {
		t.Error("fingerprints are made again")
	}
	d := mustNew(t, Config{DIDs: []string{modelDID(0)}})
	if p := d.Fingerprints(k); &p[0] != &d.Fingerprints(k)[0] {
		t.Error("fingerprints of DIDs are made again")
	}
}

// TestReleased: a Matcher keeps no block, and after Forget no filter.
func TestReleased(t *testing.T) {
	x, refs := index(t, []modelEvent{{kind: translate.KindCommit, did: modelDID(0), collection: "a.b.c", references: []format.Reference{{Source: 1, Subject: 10, Authority: 10}}}})
	var m Matcher
	m.Reset(mustNew(t, Config{Subjects: []uint64{10}, DIDs: []string{modelDID(0)}, Collections: []string{"a.b.c"}}), &x.SlimIndex)
	if !m.MatchDIDs(x, []uint64{xxhash.Sum64String(modelDID(0))}) || !m.MatchReferences(refs, modelSources) || m.Next(0) != 0 {
		t.Fatal("the event does not pass")
	}
	if m.Release(); m.idx != nil || m.did != nil || m.refs != nil {
		t.Error("the block is kept")
	}
	if m.Forget(); m.f != nil || m.dids != nil || m.collections != nil || m.collectionMem == nil || m.didMem == nil || m.sourceMem == nil || m.subjectMem == nil {
		t.Errorf("kept are %+v", m)
	}
}
