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
// subject and a wanted source. It is immutable, but for subjects that are added.
type referenceFilter struct {
	anySubject  bool
	subjects    *uidset.Set // wanted as they are
	authorities *uidset.Set // wanted with all that is theirs

	anySource   bool
	sources     []string            // in ascending order
	collections map[string]struct{} // that the sources are of; nil: any

	// made for the log that asks first; another log makes its own
	fingerprints atomic.Pointer[filterFingerprints]
	numbers      atomic.Pointer[sourceNumbers]
}

// newReferenceFilter compiles what cfg says of references; nil: it wants none.
func newReferenceFilter(cfg *FilterConfig) (*referenceFilter, error) {
	f := &referenceFilter{anySubject: cfg.Subjects == nil && cfg.SubjectDIDs == nil, anySource: cfg.Sources == nil}
	switch n := len(cfg.Subjects) + len(cfg.SubjectDIDs) + cfg.MoreSubjects + cfg.MoreSubjectDIDs; {
	case f.anySubject && f.anySource:
		return nil, nil
	case n > maxFilterSubjects:
		return nil, fmt.Errorf("filter: %d subjects, at most %d are taken", n, maxFilterSubjects)
	case len(cfg.Sources) > maxFilterSources:
		return nil, fmt.Errorf("filter: %d sources, at most %d are taken", len(cfg.Sources), maxFilterSources)
	case slices.Contains(cfg.Subjects, 0) || slices.Contains(cfg.SubjectDIDs, 0):
		return nil, fmt.Errorf("filter: 0 is no subject")
	}
	f.subjects, f.authorities = uidset.New(cfg.Subjects, cfg.MoreSubjects), uidset.New(cfg.SubjectDIDs, cfg.MoreSubjectDIDs)
	if f.anySource {
		return f, nil
	}
	f.sources, f.collections = slices.Compact(slices.Sorted(slices.Values(cfg.Sources))), make(map[string]struct{})
	for _, source := range f.sources {
		collection, _, _ := strings.Cut(source, ":")
		f.collections[collection] = struct{}{}
	}
	return f, nil
}

// AddSubject adds to FilterConfig.Subjects, for which it had room. A reader goes by it for all
// events that are appended after the call. It is safe for concurrent use.
func (f *Filter) AddSubject(uid uint64) bool { return f.references.subjects.Add(uid) }

// AddSubjectDID is AddSubject for FilterConfig.SubjectDIDs.
func (f *Filter) AddSubjectDID(uid uint64) bool { return f.references.authorities.Add(uid) }

// bySubject says whether f wants certain subjects.
func (f *referenceFilter) bySubject() bool { return f != nil && !f.anySubject }

// subject says whether a subject is wanted.
func (f *referenceFilter) subject(s format.Subject) bool {
	return f.anySubject || f.subjects.Has(s.UID) || f.authorities.Has(s.UID) || s.Authority != 0 && f.authorities.Has(s.Authority)
}

// fingerprintsFor returns the fingerprints of wanted subjects and authorities, in ascending order.
// They take 8 bytes a subject and 16 a DID for as long as the filter lives. A subject that is added
// meanwhile is in no span that there is.
func (f *referenceFilter) fingerprintsFor(k format.FingerprintKey) []uint64 {
	members := f.subjects.Len() + f.authorities.Len()
	if p := f.fingerprints.Load(); p != nil && p.key == k && p.members == members {
		return p.of
	}
	of := make([]uint64, 0, members+f.authorities.Len())
	for u := range f.subjects.All() {
		of = append(of, k.FingerprintSubject(u))
	}
	for u := range f.authorities.All() {
		of = append(of, k.FingerprintSubject(u), k.FingerprintAuthority(u))
	}
	slices.Sort(of)
	f.fingerprints.Store(&filterFingerprints{k, of, members})
	return of
}

// sourceNumbers are the numbers of a filter's sources in ascending order, when a log had so many
// sources.
type sourceNumbers struct {
	sources *sourceTable
	len     int
	of      []uint32
}

// numbersFor returns the numbers of the sources that have one, in ascending order. Those of a block
// that was appended before the call have theirs.
func (f *referenceFilter) numbersFor(t *sourceTable) []uint32 {
	n := t.len()
	if p := f.numbers.Load(); p != nil && p.sources == t && (p.len == n || len(p.of) == len(f.sources)) {
		return p.of
	}
	of := make([]uint32, 0, len(f.sources))
	for _, source := range f.sources {
		if number, ok := t.find(source); ok {
			of = append(of, number)
		}
	}
	slices.Sort(of)
	f.numbers.Store(&sourceNumbers{t, n, of})
	return of
}

// matchReferences goes on after reset, for a filter that wants references: refs are the block's,
// nil if it has none, with numbers of sources. It returns false if no event of the block passes, as
// far as the tables tell.
func (m *matcher) matchReferences(refs *format.References, sources *sourceTable) bool {
	f := m.f.references
	m.refs, m.byReference = refs, true
	m.sourceMem, m.subjectMem = m.sourceMem[:0], m.subjectMem[:0]
	source, subject := false, false
	if refs != nil {
		var wanted []uint32
		if !f.anySource {
			wanted = f.numbersFor(sources)
		}
		for _, number := range refs.Sources {
			_, ok := slices.BinarySearch(wanted, number)
			ok = ok || f.anySource
			source = source || ok
			m.sourceMem = append(m.sourceMem, ok)
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
		if m.sourceMem[e.Source] && m.subjectMem[e.Subject] {
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
func (bs *blockStore) match(m *matcher, f *Filter, cand candidate) (some bool, err error) {
	if !m.reset(f, cand.idx) {
		return false, nil
	}
	if f.references == nil {
		return true, nil
	}
	refs, err := bs.referencesIn(cand)
	if err != nil {
		return false, err
	}
	return m.matchReferences(refs, bs.sources), nil
}

// referencesIn returns the references of a block; nil if it has none.
func (bs *blockStore) referencesIn(cand candidate) (*format.References, error) {
	switch {
	case cand.blk != nil:
		return cand.blk.refs, nil
	case cand.idx.HasReferences:
		return bs.referencesOf(cand.idx)
	}
	return nil, nil
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
