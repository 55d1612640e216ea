// Package filter says which events of a block pass a filter, and which blocks of a span may have
// some. It does no I/O.
package filter

import (
	"cmp"
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

// Config says which events pass. The zero value passes all but #sync events.
type Config struct {
	// Collections are exact NSIDs, or prefixes if they end in '*' (which is taken off): "a.b.*"
	// passes "a.b.c" and "a.b.c.d". Events of other kinds pass any of them. Empty: all.
	Collections []string
	DIDs        []string // filter every kind of event; empty: all
	// A commit passes if one of its references has a subject of Subjects or SubjectDIDs, and a
	// source of Sources. References that the record had before the event count too. Events of
	// other kinds pass any of the three.
	Subjects []uint64 // UIDs of DIDs and AT URIs
	// UIDs of DIDs. Each stands for the DID itself and all AT URIs with it as authority. If this
	// and Subjects are nil, any subject passes. If they are empty and not both nil, none does until
	// one is added.
	SubjectDIDs []uint64
	// how many subjects AddSubject may add, and how many DIDs AddSubjectDID may
	MoreSubjects, MoreSubjectDIDs int

	Sources []string       // as SourceNumber has them; nil: any source; empty: none
	Kinds   format.KindSet // 0: all but #sync events
	// MaxPayloadBytes leaves out larger events, measured as they would be sent (compressed,
	// extended), without the websocket header; 0: no limit. On v2's wire they are measured
	// uncompressed.
	MaxPayloadBytes int
}

// Limits of a Config. Callers that face clients set their own, lower ones.
const (
	maxCollections = 10_000
	maxDIDs        = 1_000_000
	maxSubjects    = 1_000_000
	maxSources     = 10_000
)

// What a filter and its parts take, in bytes, at most.
const (
	filterBytes      = 512
	fingerprintBytes = 8
	collectionBytes  = 96 // an entry of a map, beside its string
	sourceBytes      = 24 // a string's header, and a number
)

// Bytes returns how much memory New's result takes, about and at most, beside what is garbage
// once it is made.
func (c *Config) Bytes() int64 {
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

// Filter is a compiled Config. It is immutable, but for subjects that are added, and may be
// shared by any number of readers.
type Filter struct {
	kinds      format.KindSet // not 0
	maxPayload int            // 0: no limit

	anyCollection bool
	exact         map[string]struct{}
	prefixes      []string // none is the prefix of another

	dids *didset.Set // nil: any DID

	references *referenceFilter // nil: events pass whatever they refer to

	id uint64 // random, not 0

	// fingerprints of the DIDs, made for the log that asks first; another log makes its own.
	fingerprints atomic.Pointer[filterFingerprints]
}

// ID is random, and not 0.
func (f *Filter) ID() uint64 { return f.id }

// ByDID says whether f wants certain DIDs.
func (f *Filter) ByDID() bool { return f.dids != nil }

// AllOfDIDs says whether f wants all events of certain DIDs, if it is not for references.
func (f *Filter) AllOfDIDs() bool { return f.dids != nil && f.anyCollection && f.usualKinds() }

// usualKinds says whether all usual kinds pass, and maybe #sync events.
func (f *Filter) usualKinds() bool { return format.DefaultKinds&^f.kinds == 0 }

// ByReference says whether f wants certain sources or subjects.
func (f *Filter) ByReference() bool { return f.references != nil }

// BySubject says whether f wants certain subjects.
func (f *Filter) BySubject() bool { return f.references != nil && !f.references.anySubject }

// Commits says whether commits pass.
func (f *Filter) Commits() bool { return f.kinds.Has(translate.KindCommit) }

// Scattered says whether what f passes may lie anywhere in a block, and not in the substreams of
// few collections. f may be nil.
func (f *Filter) Scattered() bool { return f != nil && (f.ByDID() || f.BySubject()) }

// Selective says whether spans can narrow down f, which may be nil.
func (f *Filter) Selective() bool {
	return f != nil && (!f.anyCollection || f.dids != nil || !f.usualKinds() || f.references != nil)
}

// Limit is the largest payload that passes; 0: any. f may be nil.
func (f *Filter) Limit() int {
	if f == nil {
		return 0
	}
	return f.maxPayload
}

// filterFingerprints are those that a log has asked for.
type filterFingerprints struct {
	key     format.FingerprintKey
	of      []uint64
	members int // what they are of: so many subjects
}

// Fingerprints returns the fingerprints of the filter's DIDs, in ascending order. They take 8
// bytes a DID for as long as the filter lives.
func (f *Filter) Fingerprints(k format.FingerprintKey) []uint64 {
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

// New compiles cfg; it keeps nothing of it but the strings of collections and sources. See
// Config.Bytes for what it takes.
func New(cfg Config) (*Filter, error) {
	switch {
	case cfg.Kinds&^format.AllKinds != 0:
		return nil, fmt.Errorf("filter: unknown kinds in set %#b", cfg.Kinds)
	case cfg.MaxPayloadBytes < 0:
		return nil, fmt.Errorf("filter: MaxPayloadBytes is %d", cfg.MaxPayloadBytes)
	case len(cfg.Collections) > maxCollections:
		return nil, fmt.Errorf("filter: %d collections, at most %d are taken", len(cfg.Collections), maxCollections)
	case len(cfg.DIDs) > maxDIDs:
		return nil, fmt.Errorf("filter: %d DIDs, at most %d are taken", len(cfg.DIDs), maxDIDs)
	}
	f := &Filter{
		kinds: cmp.Or(cfg.Kinds, format.DefaultKinds), maxPayload: cfg.MaxPayloadBytes, anyCollection: len(cfg.Collections) == 0,
		id: rand.Uint64() | 1<<63,
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

// Default returns a filter that passes all but #sync events.
func Default() *Filter {
	f, _ := New(Config{}) // which is valid
	return f
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

// MatchesAll says whether no event of these kinds is left out. f may be nil.
func (f *Filter) MatchesAll(kinds format.KindSet) bool {
	return f == nil || kinds&^f.kinds == 0 && f.maxPayload == 0 && f.anyCollection && f.dids == nil && f.references == nil
}

// IsDefault says whether all pass but #sync events. f may be nil.
func (f *Filter) IsDefault() bool {
	return f == nil || f.kinds == format.DefaultKinds && f.MatchesAll(format.DefaultKinds)
}

func (f *Filter) collection(name string) bool {
	_, ok := f.exact[name]
	return ok || slices.ContainsFunc(f.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// nonCommits says whether a block with events of these kinds has some that f passes, as far as they
// tell, whatever their collections and references.
func (f *Filter) nonCommits(kinds format.KindSet) bool {
	return f.kinds&kinds&format.NonCommitKinds != 0
}

// Blocks returns where to look in a span for events that f passes, DIDs apart. Commits with wanted
// subjects are in the given blocks. others says that identity and account events that are not in
// blocks are wanted, from the span's copies of them.
func (f *Filter) Blocks(s *format.Span, commits format.BlockSet) (blocks format.BlockSet, others bool) {
	if f.Commits() {
		var of map[string]struct{}
		if f.references != nil {
			of = f.references.collections
		}
		if f.anyCollection && of == nil {
			blocks = commits
		} else {
			for i := range s.Collections.Len() {
				if _, ok := of[s.Collections.At(i)]; (ok || of == nil) && (f.anyCollection || f.collection(s.Collections.At(i))) {
					blocks.Union(&s.Present[i])
				}
			}
			blocks.Intersect(&commits)
		}
		if f.anyCollection && f.references == nil {
			return blocks, false // they have the other events, too
		}
	}
	var wanted format.BlockSet
	if f.kinds.Has(translate.KindIdentity) {
		wanted.Union(&s.IdentityIn)
	}
	if f.kinds.Has(translate.KindAccount) {
		wanted.Union(&s.AccountIn)
	}
	if f.kinds.Has(translate.KindSync) {
		blocks.Union(&s.SyncIn)
	}
	if s.Copied && f.dids == nil {
		return blocks, !wanted.Empty()
	}
	blocks.Union(&wanted)
	return blocks, false
}
