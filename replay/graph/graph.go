package graph

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"millrace/replay/references"
)

// Errors that callers branch on.
var (
	ErrClosed    = errors.New("graph: closed")
	ErrTooCostly = errors.New("graph: the expression costs too much")
	ErrRenewed   = errors.New("graph: the page before is of another build of the graph: begin again at the first page")

	errInvalid = errors.New("graph: invalid expression")
	errFull    = errors.New("graph: no memory left")
)

// Direction says which set of an account is meant.
type Direction uint8

const (
	// Out is the subjects of the account's edges: whom it follows.
	Out Direction = iota
	// In is the actors of the edges to the account: its followers.
	In
)

// Config says what a graph holds.
type Config struct {
	Sources []string // kinds of edges; a Change names one by its number; 1 to 64
	Memory  int64    // bytes for all that is held; default 4 GiB
	StoreID string   // of the reference store; a snapshot of another one is refused
	// Generation is that of the reference store; a snapshot of another one is refused.
	Generation uint64
}

func (c Config) withDefaults() Config {
	c.Memory = cmp.Or(c.Memory, 4<<30)
	return c
}

func (c Config) validate() error {
	switch {
	case len(c.Sources) == 0 || len(c.Sources) > 64:
		return fmt.Errorf("graph: field Sources: %d sources, not 1 to 64", len(c.Sources))
	case c.Memory < 2*chunkBytes:
		return fmt.Errorf("graph: field Memory: %d is less than %d", c.Memory, 2*chunkBytes)
	}
	return nil
}

// Edge is what a record says: Actor follows Subject. All three are UIDs; Record is 0 for an edge
// that was imported without its record.
type Edge struct{ Actor, Subject, Record uint64 }

// Change adds the record of an edge, or removes it. Static edges are not removed.
type Change struct {
	Source int // number in Config.Sources
	Edge
	Remove bool
	// All, with Remove, means all records of the actor, of all sources. Source, Subject and Record
	// have no meaning then.
	All bool
}

// pair is an edge in ordinals.
type pair struct{ source, actor, subject uint32 }

// Graph holds edges in memory. Its methods may be called at any time, by any goroutine; Build and
// Apply by one at a time.
type Graph struct {
	cfg Config

	saving sync.Mutex // one Save at a time; above mu

	mu       sync.RWMutex
	closed   bool
	position references.Position
	build    uint64 // which numbering of accounts it is
	accounts ordinals
	slab     *slab
	indexes  []*index          // Out and In of each table
	edges    int64             // of all tables; those of two records count once
	more     map[pair][]uint64 // second and later records
	lost     bool              // an account got no ordinal: sets of unknown accounts are incomplete
	walk     *walk             // of a Save under way
	reserve  int64             // bytes that a Filler needs to make the In sets
}

// New returns an empty graph.
func New(cfg Config) (*Graph, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	g := &Graph{cfg: cfg, build: newBuild(), slab: newSlab(), more: map[pair][]uint64{}}
	for range 2 * g.tables() {
		g.indexes = append(g.indexes, newIndex(g.slab))
	}
	return g, nil
}

// tables is how many tables of edges there are: one for the records of each source, and after all
// these one for the static edges of each.
func (g *Graph) tables() int { return 2 * len(g.cfg.Sources) }

// tableOf returns the table of an edge that is added.
func (g *Graph) tableOf(c *Change) int {
	if c.Record == 0 {
		return len(g.cfg.Sources) + c.Source
	}
	return c.Source
}

func newBuild() uint64 { return 1 + rand.Uint64N(1<<32) }

// Renew gives the graph a new build number, so that cursors of before a crash are refused. Accounts
// that come again after it may get other ordinals.
func (g *Graph) Renew() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.build = newBuild()
}

// Close gives back the memory outside the Go heap.
func (g *Graph) Close() error {
	g.saving.Lock()
	defer g.saving.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.slab.close()
	g.accounts, g.indexes, g.more = ordinals{}, nil, nil
	return nil
}

// Position is what the answers count up to.
func (g *Graph) Position() references.Position {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.position
}

// Build makes changes that have no position of their own: rows of a table, or an import.
func (g *Graph) Build(changes []Change) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changeLocked(changes)
}

// Apply makes the changes up to a position of the log. If the graph is there or further already,
// it does nothing. On an error it has changed nothing.
func (g *Graph) Apply(at references.Position, changes []Change) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.position.Before(at) {
		return nil
	}
	if err := g.changeLocked(changes); err != nil {
		return err
	}
	g.position = at
	return nil
}

func (g *Graph) checkLocked(changes []Change) error {
	if g.closed {
		return ErrClosed
	}
	for _, c := range changes {
		if c.Source < 0 || c.Source >= len(g.cfg.Sources) {
			return fmt.Errorf("graph: a change has source %d, but there are %d sources", c.Source, len(g.cfg.Sources))
		}
	}
	return nil
}

func (g *Graph) changeLocked(changes []Change) error {
	if err := g.checkLocked(changes); err != nil {
		return err
	}
	for _, c := range changes {
		switch {
		case c.Remove && c.All:
			g.removeAllLocked(c.Actor)
		case c.Remove:
			g.removeLocked(c)
		default:
			g.addLocked(c)
		}
	}
	return nil
}

func (g *Graph) addLocked(c Change) {
	table := g.tableOf(&c)
	out, in := g.indexes[2*table], g.indexes[2*table+1]
	actor, subject, ok := g.pairLocked(c.Edge)
	known := ok && out.contains(actor, subject)
	if known && c.Record != 0 {
		p := pair{uint32(c.Source), actor, subject}
		g.more[p] = append(g.more[p], c.Record)
	}
	if known {
		return
	}
	if !ok || !g.roomLocked(4*int64(out.growth(actor)+in.growth(subject))) {
		g.lost = g.lost || !ok
		if a, found := g.accounts.find(c.Actor); found {
			out.incomplete.Add(a)
		}
		if s, found := g.accounts.find(c.Subject); found {
			in.incomplete.Add(s)
		}
		return
	}
	g.keepLocked(table, actor)
	out.add(actor, subject)
	in.add(subject, actor)
	g.edges++
}

func (g *Graph) removeLocked(c Change) {
	out, in := g.indexes[2*c.Source], g.indexes[2*c.Source+1]
	actor, found := g.accounts.find(c.Actor)
	subject, also := g.accounts.find(c.Subject)
	if !found || !also || !out.contains(actor, subject) {
		return // lost for want of memory, or removed with its account
	}
	p := pair{uint32(c.Source), actor, subject}
	if records := g.more[p]; len(records) > 0 {
		at := max(0, slices.Index(records, c.Record)) // else records[0] takes its part
		if records = slices.Delete(records, at, at+1); len(records) == 0 {
			delete(g.more, p)
		} else {
			g.more[p] = records
		}
		return
	}
	g.keepLocked(c.Source, actor)
	out.remove(actor, subject)
	in.remove(subject, actor)
	g.edges--
}

// removeAllLocked removes the edges of an actor, with all their records. Static edges stay.
func (g *Graph) removeAllLocked(actor uint64) {
	a, found := g.accounts.find(actor)
	if !found {
		return
	}
	for source := range g.cfg.Sources {
		for _, subject := range members(g.indexes[2*source].set(a)) {
			delete(g.more, pair{uint32(source), a, subject})
			g.removeLocked(Change{Source: source, Edge: Edge{Actor: actor, Subject: g.accounts.uids[subject]}})
		}
	}
}

// pairLocked returns the ordinals of an edge's accounts, which it gives out if there is room.
func (g *Graph) pairLocked(e Edge) (actor, subject uint32, ok bool) {
	find := func(uid uint64) uint32 {
		n, found := g.accounts.find(uid)
		if !found && g.accountRoomLocked() {
			n, found = g.accounts.add(uid), true
			if g.lost { // its sets may miss edges
				for _, x := range g.indexes[:2*len(g.cfg.Sources)] {
					x.incomplete.Add(n)
				}
			}
		}
		ok = ok && found
		return n
	}
	ok = true
	actor, subject = find(e.Actor), find(e.Subject)
	return actor, subject, ok
}

// accountRoomLocked says whether one more account fits, with what its table grows by.
func (g *Graph) accountRoomLocked() bool {
	need := int64(64)
	if g.accounts.full() {
		need += 8 * int64(len(g.accounts.table))
	}
	if len(g.accounts.uids) == cap(g.accounts.uids) {
		need += 8 * int64(cap(g.accounts.uids)) // more than append takes
	}
	return len(g.accounts.uids) < 1<<31-1 && g.bytesLocked()+need <= g.cfg.Memory
}

// roomLocked says whether an edge fits that takes so many bytes beside the slab.
func (g *Graph) roomLocked(bytes int64) bool {
	return g.slabReadyLocked() && g.bytesLocked()+bytes <= g.cfg.Memory
}

// fitsLocked is roomLocked for a set in the slab, or for a bitmap, if it was true before and only
// sets came since.
func (g *Graph) fitsLocked(bitmap bool) bool {
	return !bitmap && g.slab.ready(2) || g.roomLocked(0)
}

// slabReadyLocked sees to room for two slots.
func (g *Graph) slabReadyLocked() bool {
	return g.slab.ready(2) || g.bytesLocked()+chunkBytes <= g.cfg.Memory && g.slab.grow() == nil
}

// bytesLocked is the memory in use.
func (g *Graph) bytesLocked() int64 {
	return int64(len(g.slab.chunks))*chunkBytes + g.heapLocked() + g.reserve
}

// heapLocked is the part of it on the Go heap.
func (g *Graph) heapLocked() int64 {
	n := int64(len(g.more)) * 96
	n += int64(cap(g.accounts.uids))*8 + int64(len(g.accounts.table))*4
	if g.walk != nil {
		n += g.walk.bytes.Load()
	}
	for _, x := range g.indexes {
		n += int64(cap(x.refs))*4 + max(0, x.largeBytes)
	}
	return n
}

// Stats is what a graph holds.
type Stats struct {
	Accounts   int
	Edges      int64 // those of two records count once, those that are static too count twice
	Bytes      int64 // of memory
	HeapBytes  int64 // of them on the Go heap
	Incomplete int   // sets that miss edges for want of memory; those of all unknown accounts are one
}

// Stats returns what the graph holds now.
func (g *Graph) Stats() Stats {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return Stats{}
	}
	s := Stats{Accounts: len(g.accounts.uids), Edges: g.edges, Bytes: g.bytesLocked(), HeapBytes: g.heapLocked()}
	for _, x := range g.indexes {
		s.Incomplete += int(x.incomplete.GetCardinality())
	}
	if g.lost {
		s.Incomplete++
	}
	return s
}
