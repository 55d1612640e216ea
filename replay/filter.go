package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"millrace/replay/internal/didset"
	"millrace/replay/internal/format"
	"millrace/replay/internal/uidset"
	"millrace/translate"
)

// KindSet is a set of event kinds. The zero KindSet stands for all of them.
type KindSet = format.KindSet

// SyncKind is the kind of #sync events, of which the log has none: a filter of it alone passes
// nothing.
const SyncKind KindSet = 1 << (translate.KindAccount + 1)

// Kinds returns the set of ks.
func Kinds(ks ...translate.Kind) KindSet { return format.Kinds(ks...) }

// FilterConfig says which events pass. The zero value passes all.
type FilterConfig struct {
	// Collections are exact NSIDs, or prefixes if they end in '*' (which is taken off): "a.b.*"
	// passes "a.b.c" and "a.b.c.d". Identity and account events pass any of them. Empty: all.
	Collections []string
	DIDs        []string // filter every kind of event; empty: all
	// A commit passes if one of its references, be it one that the record had, has a subject of
	// these and a source of Sources. Identity and account events pass any of them.
	Subjects []uint64 // UIDs of DIDs and AT URIs
	// UIDs of DIDs: these, and all AT URIs of theirs. As one with Subjects; both nil: any subject,
	// else an empty list has none.
	SubjectDIDs []uint64
	// how many of each AddSubject and AddSubjectDID may add
	MoreSubjects, MoreSubjectDIDs int

	Sources []string // as SourceNumber has them; nil: any source; empty: none
	Kinds   KindSet
	// MaxPayloadBytes leaves out larger events, measured as they would be sent (compressed,
	// extended), without the websocket header; 0: no limit. On v2's wire they are measured
	// uncompressed.
	MaxPayloadBytes int
}

// Limits of a FilterConfig. Callers that face clients set their own, lower ones.
const (
	maxFilterCollections = 10_000
	maxFilterDIDs        = 1_000_000
	maxFilterSubjects    = 1_000_000
	maxFilterSources     = 10_000
)

// What a filter and its parts take, in bytes, at most.
const (
	filterBytes      = 512
	fingerprintBytes = 8
	collectionBytes  = 96 // an entry of a map, beside its string
	sourceBytes      = 24 // a string's header, and a number
)

// Bytes returns how much memory NewFilter's result takes, about and at most, beside what is garbage
// once it is made.
func (c *FilterConfig) Bytes() int64 {
	n := int64(filterBytes)
	for _, s := range c.Collections {
		n += int64(len(s) + collectionBytes)
	}
	for _, d := range c.DIDs {
		n += int64(didset.Memory(d) + fingerprintBytes)
	}
	subjects, dids := len(c.Subjects)+c.MoreSubjects, len(c.SubjectDIDs)+c.MoreSubjectDIDs
	n += int64(subjects*(uidset.Memory+fingerprintBytes) + dids*(uidset.Memory+2*fingerprintBytes))
	for _, s := range c.Sources {
		n += int64(len(s) + collectionBytes + sourceBytes)
	}
	return n + n/16 // allocations are rounded up
}

// Filter is a compiled FilterConfig. It is immutable, but for subjects that are added, and may be
// shared by any number of readers.
type Filter struct {
	kinds      KindSet
	maxPayload int // 0: no limit

	anyCollection bool
	exact         map[string]struct{}
	prefixes      []string // none is the prefix of another

	dids *didset.Set // nil: any DID

	references *referenceFilter // nil: whatever an event refers to

	id uint64 // random, not 0

	// fingerprints of the DIDs, made for the log that asks first; another log makes its own.
	fingerprints atomic.Pointer[filterFingerprints]
}

// limit is the largest payload that passes; 0: any.
func (f *Filter) limit() int {
	if f == nil {
		return 0
	}
	return f.maxPayload
}

type filterFingerprints struct {
	key     format.FingerprintKey
	of      []uint64
	members int // what they are of: so many subjects
}

// fingerprintsFor returns the fingerprints of the filter's DIDs, in ascending order. They take 8
// bytes a DID for as long as the filter lives.
func (f *Filter) fingerprintsFor(k format.FingerprintKey) []uint64 {
	if p := f.fingerprints.Load(); p != nil && p.key == k {
		return p.of
	}
	of := make([]uint64, 0, f.dids.Len())
	for d := range f.dids.All() {
		of = append(of, k.Fingerprint(d))
	}
	slices.Sort(of)
	f.fingerprints.Store(&filterFingerprints{key: k, of: of})
	return of
}

// NewFilter compiles cfg; it keeps nothing of it but the strings of collections and sources. See
// FilterConfig.Bytes for what it takes.
func NewFilter(cfg FilterConfig) (*Filter, error) {
	const all = 1<<translate.KindCommit | 1<<translate.KindIdentity | 1<<translate.KindAccount
	switch {
	case cfg.Kinds&^(all|SyncKind) != 0:
		return nil, fmt.Errorf("filter: unknown kinds in set %#b", cfg.Kinds)
	case cfg.MaxPayloadBytes < 0:
		return nil, fmt.Errorf("filter: MaxPayloadBytes is %d", cfg.MaxPayloadBytes)
	case len(cfg.Collections) > maxFilterCollections:
		return nil, fmt.Errorf("filter: %d collections, at most %d are taken", len(cfg.Collections), maxFilterCollections)
	case len(cfg.DIDs) > maxFilterDIDs:
		return nil, fmt.Errorf("filter: %d DIDs, at most %d are taken", len(cfg.DIDs), maxFilterDIDs)
	}
	f := &Filter{
		kinds: cfg.Kinds, maxPayload: cfg.MaxPayloadBytes, anyCollection: len(cfg.Collections) == 0,
		id: rand.Uint64() | 1<<63,
	}
	if f.kinds&all == all {
		f.kinds = 0
	}
	f.exact = make(map[string]struct{}, len(cfg.Collections))
	for _, c := range cfg.Collections {
		if p, ok := strings.CutSuffix(c, "*"); ok {
			f.addPrefix(p)
		} else {
			f.exact[c] = struct{}{}
		}
	}
	if len(cfg.DIDs) > 0 {
		f.dids = didset.New(cfg.DIDs)
	}
	var err error
	f.references, err = newReferenceFilter(&cfg)
	return f, err
}

// addPrefix adds p unless a shorter prefix covers it, and drops those that p covers.
func (f *Filter) addPrefix(p string) {
	kept := f.prefixes[:0]
	for _, q := range f.prefixes {
		if strings.HasPrefix(p, q) {
			return
		}
		if !strings.HasPrefix(q, p) {
			kept = append(kept, q)
		}
	}
	f.prefixes = append(kept, p)
	if p == "" {
		f.anyCollection = true
	}
}

// passesAll says whether no event is left out.
func (f *Filter) passesAll() bool {
	return f == nil || f.kinds == 0 && f.maxPayload == 0 && f.anyCollection && f.dids == nil && f.references == nil
}

func (f *Filter) collection(name string) bool {
	if _, ok := f.exact[name]; ok {
		return true
	}
	for _, p := range f.prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// matcher is a filter applied to one block: each distinct collection and DID is looked up once, and
// an event costs three array reads. Its memory is used again for the next block.
type matcher struct {
	f           *Filter
	idx         *blockIndex
	did         []uint16 // the DID column
	collections []bool   // by the collection column; nil: all pass
	dids        []bool   // by the DID column; nil: all pass

	byReference bool               // commits pass only if a reference is wanted
	refs        *format.References // of the block; nil: none is wanted

	collectionMem, didMem []bool
	sourceMem, subjectMem []bool // whether they are wanted: by the tables of refs
}

// reset applies f to x, references apart. It returns false if no event of the block passes, as far
// as the tables tell.
func (m *matcher) reset(f *Filter, x *blockIndex) bool {
	m.f, m.idx, m.did, m.collections, m.dids = f, x, nil, nil, nil
	m.byReference, m.refs = false, nil
	if f.kinds != 0 && f.kinds&x.Kinds == 0 {
		return false
	}
	if !f.anyCollection && !m.matchCollections() {
		return false
	}
	return f.dids == nil || m.matchDIDs()
}

// release lets go of the block.
func (m *matcher) release() { m.idx, m.did, m.refs = nil, nil, nil }

func (m *matcher) matchCollections() bool {
	x := m.idx
	m.collectionMem = m.collectionMem[:0]
	any := m.f.nonCommits(x.Kinds)
	m.collectionMem = append(m.collectionMem, true) // 0: identity and account events
	for i := range x.Collections.Len() {
		ok := m.f.collection(x.Collections.At(i))
		any = any || ok
		m.collectionMem = append(m.collectionMem, ok)
	}
	m.collections = m.collectionMem
	return any
}

func (m *matcher) matchDIDs() bool {
	x := m.idx
	m.didMem = m.didMem[:0]
	any := false
	for i, h := range x.hashes() {
		ok := m.f.dids.Has(h, x.full.DIDs.At(i))
		any = any || ok
		m.didMem = append(m.didMem, ok)
	}
	m.dids, m.did = m.didMem, x.full.DID
	return any
}

// next returns the first event from i on that passes, sizes apart; the block's number of events if
// there is none.
func (m *matcher) next(i int) int {
	x := m.idx
	n := x.Events()
	for ; i < n; i++ {
		if m.dids != nil && !m.dids[m.did[i]] {
			continue
		}
		if m.collections != nil && !m.collections[x.Collection[i]] {
			continue
		}
		if m.f.kinds != 0 && m.f.kinds&(1<<x.KindAt(i)) == 0 {
			continue
		}
		if m.byReference && !m.passesReferences(i) {
			continue
		}
		return i
	}
	return n
}
