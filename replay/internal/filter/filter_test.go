package filter

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// TestFilterBytes holds Config.Bytes against what the heap says.
func TestFilterBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	plc := func() string {
		id := make([]byte, 24)
		for i := range id {
			id[i] = 'a' + byte(rng.IntN(26))
		}
		return "did:plc:" + string(id)
	}
	web := func() string { return fmt.Sprintf("did:web:%x.example.org", rng.Uint64()) }
	for name, did := range map[string]func() string{"did:plc": plc, "did:web": web} {
		const filters, each = 20, 10_000
		var cfg Config
		for range each {
			cfg.DIDs = append(cfg.DIDs, did())
		}
		kept := make([]*Filter, filters)
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		for i := range kept {
			f, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			f.Fingerprints(format.FingerprintKey{})
			kept[i] = f
		}
		took := (heap() - before) / filters
		runtime.KeepAlive(kept)
		if said := cfg.Bytes(); took > said || took < said/2 {
			t.Errorf("%d %s take %d bytes, Bytes says %d", each, name, took, said)
		}
		t.Logf("%s: %.1f bytes each", name, float64(took)/each)
	}
}

// TestFingerprintsOfTwoLogs: a filter that two logs use has the fingerprints of the one that asks.
func TestFingerprintsOfTwoLogs(t *testing.T) {
	f := mustNew(t, Config{DIDs: []string{"did:plc:a", "did:plc:b"}, Subjects: []uint64{1}, SubjectDIDs: []uint64{2}})
	for _, n := range []byte{1, 2, 1} {
		k, err := format.DecodeFingerprintKey(bytes.Repeat([]byte{n}, format.FingerprintKeyBytes))
		if err != nil {
			t.Fatal(err)
		}
		dids := []uint64{k.Fingerprint("did:plc:a"), k.Fingerprint("did:plc:b")}
		subjects := []uint64{k.FingerprintSubject(1), k.FingerprintSubject(2), k.FingerprintAuthority(2)}
		slices.Sort(dids)
		slices.Sort(subjects)
		if got := f.Fingerprints(k); !slices.Equal(got, dids) {
			t.Errorf("key %d: fingerprints of DIDs %x, not %x", n, got, dids)
		}
		if got := f.SubjectFingerprints(k); !slices.Equal(got, subjects) {
			t.Errorf("key %d: fingerprints of subjects %x, not %x", n, got, subjects)
		}
	}
}

func TestNew(t *testing.T) {
	for _, cfg := range []Config{
		{Kinds: 1}, {Kinds: 1 << 5}, {Kinds: 1<<5 | format.AllKinds}, {MaxPayloadBytes: -1},
		{Collections: make([]string, maxCollections+1)}, {DIDs: make([]string, maxDIDs+1)},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("a filter of kinds %b, %d collections, %d DIDs, %d bytes is taken", cfg.Kinds, len(cfg.Collections), len(cfg.DIDs), cfg.MaxPayloadBytes)
		}
	}
	for _, cfg := range []Config{
		{}, {Collections: []string{"a.b.c", "*"}}, {Kinds: format.Kinds(translate.KindAccount, translate.KindCommit, translate.KindIdentity)},
	} {
		f, err := New(cfg)
		if err != nil || !f.MatchesAll(format.DefaultKinds) || f.MatchesAll(format.AllKinds) || !f.IsDefault() {
			t.Errorf("%+v does not pass all but #sync events, %v", cfg, err)
		}
	}
	for _, cfg := range []Config{
		{Kinds: format.AllKinds}, {Kinds: format.CopiedKinds}, {DIDs: []string{"did:plc:a"}}, {MaxPayloadBytes: 1}, {Collections: []string{"a.b.c"}}, {Sources: []string{}},
	} {
		f := mustNew(t, cfg)
		if all := cfg.Kinds == format.AllKinds; f.IsDefault() || f.MatchesAll(format.AllKinds) != all || f.MatchesAll(format.DefaultKinds) != all {
			t.Errorf("%+v passes all", cfg)
		}
	}
	f, err := New(Config{Collections: []string{"a.b.*", "a.*", "a.b.c.*", "c*"}})
	if err != nil || len(f.prefixes) != 2 {
		t.Errorf("prefixes %q, %v", f.prefixes, err)
	}
}

// TestSourceNumbers: a filter knows the number of a source that gets it only after the filter was
// made, and that of another log.
func TestSourceNumbers(t *testing.T) {
	f := mustNew(t, Config{Sources: []string{"d.e.f:x", "a.b.c:x", "d.e.f:x"}}).references
	if got := fmt.Sprint(slices.Sorted(maps.Keys(f.collections))); got != "[a.b.c d.e.f]" {
		t.Errorf("collections %s", got)
	}
	table := &sources{}
	for i, source := range []string{"a.b.c:x", "a.b.c:y", "d.e.f:x", "d.e.f:y"} {
		*table = append(*table, source)
		want := [][]uint32{{1}, {1}, {1, 3}, {1, 3}}[i]
		if got := f.numbersFor(table); !slices.Equal(got, want) {
			t.Errorf("with %s the numbers are %v, want %v", source, got, want)
		}
	}
	if got := f.numbersFor(&sources{}); len(got) != 0 {
		t.Errorf("of an empty log the numbers are %v", got)
	}
}

// TestReferenceFilterRefuses: what no reference has, and what is too much, is refused.
func TestReferenceFilterRefuses(t *testing.T) {
	for name, cfg := range map[string]Config{
		"subject 0": {Subjects: []uint64{1, 0}}, "DID 0": {SubjectDIDs: []uint64{0}},
		"too many subjects": {Subjects: make([]uint64, maxSubjects), MoreSubjectDIDs: 1},
		"too many sources":  {Sources: make([]string, maxSources+1)},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	most := mustNew(t, Config{Subjects: slices.Repeat([]uint64{1}, maxSubjects), Sources: make([]string, maxSources), Collections: make([]string, maxCollections)})
	if r := most.references; r.subjects.Len() != 1 || len(r.sources) != 1 {
		t.Errorf("%d subjects and %d sources", r.subjects.Len(), len(r.sources))
	}
}

// sources have numbers from 1 on.
type sources []string

func (s *sources) Len() int { return len(*s) }

func (s *sources) Find(source string) (uint32, bool) {
	i := slices.Index(*s, source)
	return uint32(i + 1), i >= 0
}

func mustNew(t *testing.T, cfg Config) *Filter {
	t.Helper()
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestParts: each part of a Config counts, with its string, and a Filter has a number of its own.
func TestParts(t *testing.T) {
	none := (&Config{}).Bytes()
	for name, tc := range map[string]struct {
		cfg  Config
		want int
	}{
		"collection":  {Config{Collections: []string{"a.b.c"}}, 5 + collectionBytes},
		"source":      {Config{Sources: []string{"a.b.c:x"}}, 7 + collectionBytes + sourceBytes},
		"subject":     {Config{Subjects: []uint64{1}, MoreSubjects: 1}, 2 * fingerprintBytes},
		"subject DID": {Config{SubjectDIDs: []uint64{1}, MoreSubjectDIDs: 1}, 4 * fingerprintBytes},
	} {
		if got := tc.cfg.Bytes() - none; got < int64(tc.want) {
			t.Errorf("a %s takes %d bytes, not %d", name, got, tc.want)
		}
	}
	f, other := mustNew(t, Config{MaxPayloadBytes: 7}), mustNew(t, Config{})
	if f.ID() == 0 || f.ID() == other.ID() || f.Limit() != 7 || (*Filter)(nil).Limit() != 0 {
		t.Errorf("IDs %d and %d, limits %d and %d", f.ID(), other.ID(), f.Limit(), (*Filter)(nil).Limit())
	}
}
