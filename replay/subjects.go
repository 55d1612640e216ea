package replay

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"millrace/replay/internal/format"
	"millrace/replay/internal/uidset"
)

// referenceFilter is what a Filter wants of an event's references: that one of them has a wanted
// subject and a wanted source. It is immutable.
type referenceFilter struct {
	anySubject  bool
	subjects    *uidset.Set // wanted as they are
	authorities *uidset.Set // wanted with all that is theirs

	anySource bool
	sources   []uint32 // numbers of paths, in ascending order

	// made for the log that asks first; another log makes its own
	fingerprints atomic.Pointer[filterFingerprints]
	collections  atomic.Pointer[sourceCollections]
}

// newReferenceFilter compiles what cfg says of references; nil: it wants none.
func newReferenceFilter(cfg *FilterConfig) (*referenceFilter, error) {
	f := &referenceFilter{anySubject: cfg.Subjects == nil && cfg.SubjectDIDs == nil, anySource: cfg.Sources == nil}
	switch n := len(cfg.Subjects) + len(cfg.SubjectDIDs); {
	case f.anySubject && f.anySource:
		return nil, nil
	case n > maxFilterSubjects:
		return nil, fmt.Errorf("filter: %d subjects, at most %d are taken", n, maxFilterSubjects)
	case len(cfg.Sources) > maxFilterSources:
		return nil, fmt.Errorf("filter: %d sources, at most %d are taken", len(cfg.Sources), maxFilterSources)
	case slices.Contains(cfg.Subjects, 0) || slices.Contains(cfg.SubjectDIDs, 0) || slices.Contains(cfg.Sources, 0):
		return nil, fmt.Errorf("filter: 0 is no subject or source")
	}
	f.subjects, f.authorities = uidset.New(cfg.Subjects), uidset.New(cfg.SubjectDIDs)
	f.sources = slices.Clone(cfg.Sources)
	slices.Sort(f.sources)
	return f, nil
}

// bySubject says whether f wants certain subjects.
func (f *referenceFilter) bySubject() bool { return f != nil && !f.anySubject }

// subject says whether a subject is wanted.
func (f *referenceFilter) subject(s format.Subject) bool {
	return f.anySubject || f.subjects.Has(s.UID) || f.authorities.Has(s.UID) || s.Authority != 0 && f.authorities.Has(s.Authority)
}

// source says whether a path is wanted.
func (f *referenceFilter) source(number uint32) bool {
	if f.anySource {
		return true
	}
	_, ok := slices.BinarySearch(f.sources, number)
	return ok
}

// fingerprintsFor returns the fingerprints of wanted subjects and authorities, in ascending order.
// They take 8 bytes a subject and 16 a DID for as long as the filter lives.
func (f *referenceFilter) fingerprintsFor(k format.FingerprintKey) []uint64 {
	if p := f.fingerprints.Load(); p != nil && p.key == k {
		return p.of
	}
	of := make([]uint64, 0, f.subjects.Len()+2*f.authorities.Len())
	for u := range f.subjects.All() {
		of = append(of, k.FingerprintSubject(u))
	}
	for u := range f.authorities.All() {
		of = append(of, k.FingerprintSubject(u), k.FingerprintAuthority(u))
	}
	slices.Sort(of)
	f.fingerprints.Store(&filterFingerprints{k, of})
	return of
}

// sourceCollections are the collections that the sources of a filter are of.
type sourceCollections struct {
	paths *pathTable
	of    map[string]struct{}
}

// collectionsFor returns the collections whose events may have wanted sources; nil: any.
func (f *referenceFilter) collectionsFor(t *pathTable) map[string]struct{} {
	if f == nil || f.anySource {
		return nil
	}
	if p := f.collections.Load(); p != nil && p.paths == t {
		return p.of
	}
	of := make(map[string]struct{}, len(f.sources))
	known := true
	for _, number := range f.sources {
		source, ok := t.source(number)
		collection, _, _ := strings.Cut(source, ":")
		if known = known && ok; ok {
			of[collection] = struct{}{}
		}
	}
	if known { // else there may be more later
		f.collections.Store(&sourceCollections{t, of})
	}
	return of
}

// matchReferences goes on after reset, for a filter that wants references: refs are the block's,
// nil if it has none. It returns false if no event of the block passes, as far as the tables tell.
func (m *matcher) matchReferences(refs *format.References) bool {
	f := m.f.references
	m.refs, m.byReference = refs, true
	m.pathMem, m.subjectMem = m.pathMem[:0], m.subjectMem[:0]
	source, subject := false, false
	if refs != nil {
		for _, number := range refs.Paths {
			ok := f.source(number)
			source = source || ok
			m.pathMem = append(m.pathMem, ok)
		}
		for _, s := range refs.Subjects {
			if !source {
				break
			}
			ok := f.subject(s)
			subject = subject || ok
			m.subjectMem = append(m.subjectMem, ok)
		}
	}
	if !source || !subject {
		m.refs = nil // then no reference is wanted
	}
	return m.refs != nil || m.f.nonCommits(m.idx.Kinds)
}

// passesReferences says whether event i has a reference that is wanted, or is of a kind that has
// none.
func (m *matcher) passesReferences(i int) bool {
	if m.idx.Collection[i] == 0 {
		return true
	}
	for _, e := range m.refs.Entries(i) {
		if m.pathMem[e.Path] && m.subjectMem[e.Subject] {
			return true
		}
	}
	return false
}

// nonCommits says whether a block with events of these kinds has some that f passes, as far as they
// tell, whatever their collections and references.
func (f *Filter) nonCommits(kinds KindSet) bool {
	return kinds&format.NonCommitKinds != 0 && (f.kinds == 0 || f.kinds&kinds&format.NonCommitKinds != 0)
}

// match makes m the matcher of f for a block. It returns false if no event of the block passes, as
// far as the tables tell.
func (bs *blockStore) match(m *matcher, f *Filter, src source) (some bool, err error) {
	if !m.reset(f, src.idx) {
		return false, nil
	}
	if f.references == nil {
		return true, nil
	}
	var refs *format.References
	switch {
	case src.blk != nil:
		refs = src.blk.refs
	case src.idx.HasReferences:
		if refs, err = bs.referencesOf(src.idx); err != nil {
			return false, err
		}
	}
	return m.matchReferences(refs), nil
}

// referencesOf returns the references of a block on disk that has some.
func (bs *blockStore) referencesOf(x *blockIndex) (*format.References, error) {
	key := x.Key()
	e, mine := bs.cache.find(cacheKey{block: key, part: format.RangeReferences})
	if !mine {
		return e.refs, e.err
	}
	var bytes int64
	defer func() { bs.cache.fill(e, bytes) }()
	e.err = bs.view(format.RangeReferences, key, func(b []byte) (err error) {
		e.refs, err = format.DecodeReferences(b, x.Events())
		return err
	})
	if e.err == nil {
		bytes = e.refs.Memory()
	}
	return e.refs, e.err
}
