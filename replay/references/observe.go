package references

import (
	"fmt"
	"slices"
)

// EdgeChange is a reference from a record to an account that comes or goes.
type EdgeChange struct {
	Path    uint32 // number of the source
	Account uint64 // UID of the DID of the record
	Record  uint64
	Subject uint64 // UID of a DID
	Removed bool
}

// Observed is what one Apply has changed of the edges of some sources: first those of forgotten
// accounts go, then come Edges, those of a record in their order.
type Observed struct {
	Position  Position // reached with it
	Forgotten []uint64 // accounts whose records are all gone
	Edges     []EdgeChange
}

// observer follows the edges of some sources.
type observer struct {
	paths   []uint32
	observe func(*Observed)
	batch   Observed // used again
	edges   []edge   // used again
}

// Observe calls observe with what each Apply from now on changes of the edges between accounts of
// some sources. The rows that it returns are those before; they must be closed. Rows below a floor
// are gone when the floor is raised, so sweeps are not observed. observe is called in the lock of
// the commits, must not call the store, and keeps nothing. Begin ends it, and so does another call.
func (s *Store) Observe(paths []uint32, observe func(*Observed)) (*Rows, error) {
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	rows, err := s.openRowsLocked(rangeRecord.start(), rangeRecord.end())
	if err != nil {
		return nil, fmt.Errorf("observe references: %w", err)
	}
	s.commits.observer = &observer{paths: slices.Clone(paths), observe: observe}
	return rows, nil
}

// collect notes what p changes, but for edges of rows below a floor that it raises. commits.mu is
// held.
func (o *observer) collect(s *Store, p *pending) error {
	o.batch = Observed{p.state.position, o.batch.Forgotten[:0], o.batch.Edges[:0]}
	floors := make(map[uint64]uint64)
	for i := range p.accounts {
		if w := &p.accounts[i]; w.swept {
			floors[w.account] = w.state.floor
			o.batch.Forgotten = append(o.batch.Forgotten, w.account)
		}
	}
	for i := range p.records {
		w := &p.records[i]
		old := w.old
		if w.below { // gone since the floor was raised
			old = nil
		}
		key, edges := s.codec.recordKey(w.id), o.edges[:0]
		var err error
		if edges, err = s.appendEdges(edges, key, old, true); err == nil {
			edges, err = s.appendEdges(edges, key, w.value, false)
		}
		if err != nil {
			return err
		}
		for _, e := range edges {
			if e.toAccount && e.arrival >= floors[e.account] && slices.Contains(o.paths, e.set.Path) {
				o.batch.Edges = append(o.batch.Edges, EdgeChange{e.set.Path, e.account, e.record, e.set.Subject, e.removed})
			}
		}
		o.edges = edges
	}
	return nil
}
