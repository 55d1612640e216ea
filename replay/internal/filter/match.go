package filter

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"millrace/replay/internal/format"
)

// Matcher is a filter applied to one block: each distinct collection and DID is looked up once, and
// an event costs three array reads. Its memory is used again for the next block.
type Matcher struct {
	f           *Filter
	idx         *format.SlimIndex
	did         []uint16 // the DID column
	collections []bool   // by the collection column; nil: all pass
	dids        []bool   // by the DID column; nil: all pass

	byKind      bool               // some events are of kinds that do not pass
	byReference bool               // commits pass only if a reference is wanted
	refs        *format.References // of the block; nil: none is wanted

	collectionMem, didMem []bool
	sourceMem, subjectMem []bool // whether they are wanted: by the tables of refs
}

// Reset applies f to x, DIDs and references apart. It returns false if the tables show that no
// event of the block passes.
func (m *Matcher) Reset(f *Filter, x *format.SlimIndex) bool {
	m.f, m.idx, m.did, m.collections, m.dids = f, x, nil, nil, nil
	m.byReference, m.refs = false, nil
	m.byKind = x.Kinds&^f.kinds != 0
	if f.kinds&x.Kinds == 0 {
		return false
	}
	return f.anyCollection || m.matchCollections()
}

// Release lets go of the block.
func (m *Matcher) Release() { m.idx, m.did, m.refs = nil, nil, nil }

// Forget lets go of filter and block, and keeps the memory.
func (m *Matcher) Forget() {
	*m = Matcher{collectionMem: m.collectionMem, didMem: m.didMem, sourceMem: m.sourceMem, subjectMem: m.subjectMem}
}

func (m *Matcher) matchCollections() bool {
	x := m.idx
	m.collectionMem = m.collectionMem[:0]
	any := m.f.nonCommits(x.Kinds)
	m.collectionMem = append(m.collectionMem, true) // 0: events of other kinds
	for i := range x.Collections.Len() {
		ok := m.f.collection(x.Collections.At(i))
		any = any || ok
		m.collectionMem = append(m.collectionMem, ok)
	}
	m.collections = m.collectionMem
	return any
}

// MatchDIDs goes on after Reset, for a filter that wants certain DIDs. x is the block's full index,
// hashes are those of its DIDs. It returns false if the tables show that no event of the block
// passes.
func (m *Matcher) MatchDIDs(x *format.Index, hashes []uint64) bool {
	m.didMem = m.didMem[:0]
	any := false
	for i, h := range hashes {
		ok := m.f.dids.Has(h, x.DIDs.At(i))
		any = any || ok
		m.didMem = append(m.didMem, ok)
	}
	m.dids, m.did = m.didMem, x.DID
	return any
}

// WantedDIDs says which of a block's DIDs a filter wants. It is immutable.
type WantedDIDs struct {
	filter uint64 // its id
	dids   []bool // by the block's table of DIDs
	any    bool
}

// WantedDIDs returns which DIDs of x, a block's full index, f wants: known, if that is f's. known
// may be nil.
func (f *Filter) WantedDIDs(x *format.Index, known *WantedDIDs) *WantedDIDs {
	if known != nil && known.filter == f.id {
		return known
	}
	w := &WantedDIDs{filter: f.id, dids: make([]bool, x.DIDs.Len())}
	for i := range w.dids {
		did := x.DIDs.At(i)
		w.dids[i] = f.dids.Has(xxhash.Sum64String(did), did)
		w.any = w.any || w.dids[i]
	}
	return w
}

// TakeDIDs is MatchDIDs with what WantedDIDs returned for x.
func (m *Matcher) TakeDIDs(x *format.Index, w *WantedDIDs) bool {
	m.dids, m.did = w.dids, x.DID
	return w.any
}

// Next returns the first event from i on that passes, sizes apart; the block's number of events if
// there is none.
func (m *Matcher) Next(i int) int {
	x := m.idx
	n := x.Events()
	for ; i < n; i++ {
		if m.dids != nil && !m.dids[m.did[i]] {
			continue
		}
		if m.collections != nil && !m.collections[x.Collection[i]] {
			continue
		}
		if m.byKind && m.f.kinds&(1<<x.KindAt(i)) == 0 {
			continue
		}
		if m.byReference && !m.matchesReferences(i) {
			continue
		}
		return i
	}
	return n
}

// sparseEvents: few of a block's events are at most one in so many.
const sparseEvents = 32

// Sparse says whether the block has few events that pass, sizes apart, which may lie anywhere in
// it.
func (m *Matcher) Sparse() bool {
	if !m.f.Scattered() {
		return false
	}
	n := m.idx.Events()
	few := n / sparseEvents
	for i := m.Next(0); i < n; i = m.Next(i + 1) {
		if few--; few < 0 {
			return false
		}
	}
	return true
}

// MatchReferences goes on after Reset, for a filter that wants references: refs are the block's,
// nil if it has none, with numbers of sources. It returns false if the tables show that no event of
// the block passes.
func (m *Matcher) MatchReferences(refs *format.References, sources Sources) bool {
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

// matchesReferences says whether event i has a reference that is wanted, or is of a kind that has
// none.
func (m *Matcher) matchesReferences(i int) bool {
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
