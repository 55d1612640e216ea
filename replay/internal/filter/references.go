package filter

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
func newReferenceFilter(cfg *Config) (*referenceFilter, error) {
	f := &referenceFilter{anySubject: cfg.Subjects == nil && cfg.SubjectDIDs == nil, anySource: cfg.Sources == nil}
	switch n := len(cfg.Subjects) + len(cfg.SubjectDIDs) + cfg.MoreSubjects + cfg.MoreSubjectDIDs; {
	case f.anySubject && f.anySource:
		return nil, nil
	case n > maxSubjects:
		return nil, fmt.Errorf("filter: %d subjects, at most %d are taken", n, maxSubjects)
	case len(cfg.Sources) > maxSources:
		return nil, fmt.Errorf("filter: %d sources, at most %d are taken", len(cfg.Sources), maxSources)
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

// AddSubject adds to Config.Subjects, for which it had room. A reader goes by it for all
// events that are appended after the call. It is safe for concurrent use.
func (f *Filter) AddSubject(uid uint64) bool { return f.references.subjects.Add(uid) }

// AddSubjectDID is AddSubject for Config.SubjectDIDs.
func (f *Filter) AddSubjectDID(uid uint64) bool { return f.references.authorities.Add(uid) }

// subject says whether a subject is wanted.
func (f *referenceFilter) subject(s format.Subject) bool {
	return f.anySubject || f.subjects.Has(s.UID) || f.authorities.Has(s.UID) || s.Authority != 0 && f.authorities.Has(s.Authority)
}

// SubjectFingerprints returns the fingerprints of wanted subjects and authorities, in ascending
// order. They take 8 bytes a subject and 16 a DID for as long as the filter lives. A subject that
// is added while they are made is missing; it is so new that no span has it.
func (f *Filter) SubjectFingerprints(k format.FingerprintKey) []uint64 {
	w := f.references
	members := w.subjects.Len() + w.authorities.Len()
	if p := w.fingerprints.Load(); p != nil && p.key == k && p.members == members {
		return p.of
	}
	of := make([]uint64, 0, members+w.authorities.Len())
	for u := range w.subjects.All() {
		of = append(of, k.FingerprintSubject(u))
	}
	for u := range w.authorities.All() {
		of = append(of, k.FingerprintSubject(u), k.FingerprintAuthority(u))
	}
	slices.Sort(of)
	w.fingerprints.Store(&filterFingerprints{k, of, members})
	return of
}

// Sources has the number of each source. Sources are added, never removed.
type Sources interface {
	Len() int
	Find(source string) (number uint32, ok bool)
}

// sourceNumbers are the numbers of a filter's sources in ascending order, when a log had so many
// sources.
type sourceNumbers struct {
	sources Sources
	len     int
	of      []uint32
}

// numbersFor returns the numbers of the sources that have one, in ascending order. Those of a block
// that was appended before the call have theirs.
func (f *referenceFilter) numbersFor(t Sources) []uint32 {
	n := t.Len()
	if p := f.numbers.Load(); p != nil && p.sources == t && (p.len == n || len(p.of) == len(f.sources)) {
		return p.of
	}
	of := make([]uint32, 0, len(f.sources))
	for _, source := range f.sources {
		if number, ok := t.Find(source); ok {
			of = append(of, number)
		}
	}
	slices.Sort(of)
	f.numbers.Store(&sourceNumbers{t, n, of})
	return of
}
