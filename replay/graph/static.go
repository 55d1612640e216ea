package graph

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
)

// LoadStatic opens a file of static edges as a graph that has no others yet. A file of another UID
// store than that of the name, and damage, are errors; os.ErrNotExist is one of them.
func LoadStatic(name, uidStore string, cfg Config) (*Graph, error) {
	cfg = cfg.withDefaults()
	g, err := New(Config{Sources: cfg.Sources, Memory: cfg.Memory, StoreID: uidStore})
	if err != nil {
		return nil, err
	}
	if err := newLoader(g).load(name); err != nil {
		g.Close()
		return nil, fmt.Errorf("graph: load the static edges of %s: %w", name, err)
	}
	g.cfg, g.build = cfg, newBuild()
	return g, nil
}

// Edges are the edges of an actor, or its static edges, of one source. All numbers but Source are
// UIDs.
type Edges struct {
	Source   int // in Header.Sources
	Static   bool
	Actor    uint64
	Subjects []uint64
}

// Each reads a snapshot, or a file of static edges, and passes on its edges, those of an actor
// together. They are good until do returns. Memory is needed for the accounts only.
func Each(name string, do func(e *Edges) error) error {
	h, err := Peek(name)
	if err != nil {
		return err
	}
	g, err := New(Config{Sources: h.Sources, Memory: math.MaxInt64, StoreID: h.StoreID, Generation: h.Generation})
	if err != nil {
		return err
	}
	defer g.Close()
	l := newLoader(g)
	l.each = do
	if err := l.load(name); err != nil {
		return fmt.Errorf("graph: read the edges of %s: %w", name, err)
	}
	return nil
}

// pass passes on an Out set.
func (l *loader) pass(ordinal uint32, s set) error {
	sources, uids := len(l.header.Sources), l.g.accounts.uids
	e := &l.edges
	*e = Edges{Source: l.table() % sources, Static: l.table() >= sources, Actor: uids[ordinal], Subjects: e.Subjects[:0]}
	for _, member := range members(s) {
		e.Subjects = append(e.Subjects, uids[member])
	}
	return l.each(e)
}

// ErrStaticMemory means that static edges need more than Config.Memory.
var ErrStaticMemory = errors.New("graph: the static edges do not fit into the memory")

// Static collects static edges for a file that graphs begin with. It belongs to one goroutine.
type Static struct {
	g       *Graph
	filler  *Filler
	changes []Change // used again
}

// OpenStatic begins with the edges of a file, if there is one. StoreID is that of the UID store.
func OpenStatic(name string, cfg Config) (s *Static, err error) {
	g, err := New(cfg)
	if err != nil {
		return nil, err
	}
	s = &Static{g: g, filler: g.Fill()}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	h, err := Peek(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return s, nil
	case err != nil:
		return nil, err
	case h.StoreID != cfg.StoreID || !slices.Equal(h.Sources, cfg.Sources):
		return nil, fmt.Errorf("graph: %s is of UID store %q and has the sources %q, not %q and %q", name, h.StoreID, h.Sources, cfg.StoreID, cfg.Sources)
	}
	var edges []Edge
	return s, Each(name, func(e *Edges) error {
		edges = edges[:0]
		for _, subject := range e.Subjects {
			edges = append(edges, Edge{Actor: e.Actor, Subject: subject})
		}
		return s.Add(e.Source, edges)
	})
}

// fewOfActor: edges are sorted if runs of one actor's have fewer than this on average.
const fewOfActor = 8

// Add adds edges, which it sorts by actor unless most of an actor come together; Record has no
// meaning. Many at once are fast.
func (s *Static) Add(source int, edges []Edge) error {
	runs := 0
	for i := range edges {
		if i == 0 || edges[i].Actor != edges[i-1].Actor {
			runs++
		}
	}
	if runs*fewOfActor > len(edges) {
		slices.SortFunc(edges, func(a, b Edge) int { return cmp.Compare(a.Actor, b.Actor) })
	}
	s.changes = s.changes[:0]
	for _, e := range edges {
		s.changes = append(s.changes, Change{Source: source, Edge: Edge{Actor: e.Actor, Subject: e.Subject}})
	}
	if err := s.filler.Add(s.changes); err != nil {
		return err
	}
	return s.full()
}

// full is an error if the edges do not fit: the filler has gone over to the graph's own way then.
func (s *Static) full() error {
	if s.filler.single {
		return fmt.Errorf("%w of %d bytes", ErrStaticMemory, s.g.cfg.Memory)
	}
	return nil
}

// Save writes the file, and returns how many edges it has. Nothing is added later.
func (s *Static) Save(ctx context.Context, name string) (edges int64, err error) {
	s.g.mu.Lock()
	err = s.filler.flushLocked()
	s.g.mu.Unlock()
	if err = errors.Join(err, s.full()); err == nil {
		err = s.g.Save(ctx, name)
	}
	return s.g.Stats().Edges, err
}

// Close gives back the memory.
func (s *Static) Close() error { return s.g.Close() }
