package graph

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

const (
	// fillEdge and fillAccount are the bytes that the In sets take for an edge and an account, at
	// most. Meanwhile a fillFraction-th of the memory is used to make them.
	fillEdge, fillAccount, fillFraction = 5, 24, 8
	wordBytes, cursorBytes              = 4, 12
	inversions                          = 2 // one that collects edges, one whose lists become sets
)

// Filler gives a graph the edges of a table. It is fast with an empty graph and if those of an
// actor come together. Until End only the Filler may use the graph, but for its Stats.
type Filler struct {
	g      *Graph
	before int64    // edges that were there
	run    []Change // of one actor, not in the graph yet
	single bool     // all In sets are there: edges are added one by one

	keys []uint64 // used again
	new  []uint32 // used again
}

// Fill begins to fill the graph.
func (g *Graph) Fill() *Filler {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &Filler{g: g, before: g.edges}
}

// Add adds edges; of a Change it reads Source and Edge. What it is given may be changed afterwards.
func (f *Filler) Add(changes []Change) error {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if err := f.g.checkLocked(changes); err != nil {
		return err
	}
	for _, c := range changes {
		if len(f.run) > 0 && f.run[0].Actor != c.Actor {
			if err := f.flushLocked(); err != nil {
				return err
			}
		}
		f.run = append(f.run, c)
	}
	return nil
}

// End makes the In sets. The graph may be used from then on.
func (f *Filler) End() error {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if f.g.closed {
		return ErrClosed
	}
	return errors.Join(f.flushLocked(), f.invertLocked())
}

// invertLocked makes the In sets that are not there, once.
func (f *Filler) invertLocked() error {
	f.g.reserve = 0
	if f.single {
		return nil
	}
	f.single = true
	for table := range f.g.tables() {
		if f.g.isInverted(table) || len(f.g.indexes[2*table].refs) == 0 {
			continue
		}
		if err := f.g.countAndInvertLocked(table); err != nil {
			return err
		}
	}
	return nil
}

// isInverted says whether a table has In sets.
func (g *Graph) isInverted(table int) bool { return len(g.indexes[2*table+1].refs) > 0 }

// countAndInvertLocked makes the In sets of a table from its Out sets.
func (g *Graph) countAndInvertLocked(table int) error {
	out := g.indexes[2*table]
	counts := newGroupCounts(len(g.accounts.uids))
	var list []uint32
	for actor := range out.refs {
		s := out.set(uint32(actor))
		list = s.appendTo(list[:0])
		for _, subject := range list {
			counts[subject>>groupBits]++
		}
	}
	return g.invertLocked(table, counts)
}

// flushLocked puts the run into the Out sets of its actor. Without room for the In sets, or with In
// sets there, it goes on edge by edge.
func (f *Filler) flushLocked() error {
	run, tables := f.run, 0
	f.run = f.run[:0]
	if len(run) == 0 {
		return nil
	}
	if !f.single {
		if tables = f.putLocked(run); tables == f.g.tables() {
			return nil
		}
	}
	if err := f.invertLocked(); err != nil {
		return err
	}
	for i := range run {
		if f.g.tableOf(&run[i]) >= tables {
			f.g.addLocked(run[i])
		}
	}
	return nil
}

// putLocked puts edges of one actor into its Out sets, table by table. It stops at the first table
// that has In sets already, or for which there is no room. It returns how many tables are done.
func (f *Filler) putLocked(run []Change) (tables int) {
	g := f.g
	g.reserve = g.cfg.Memory/fillFraction + fillEdge*(g.edges-f.before+int64(len(run))) +
		fillAccount*int64(len(g.accounts.uids)+2*len(run))*int64(len(g.cfg.Sources))
	actor, _, ok := g.pairLocked(run[0].Edge)
	if !ok || !g.roomLocked(int64(len(run))*fillEdge) {
		return 0
	}
	for table := range g.tables() {
		f.keys = f.keys[:0]
		for i := range run {
			if g.tableOf(&run[i]) != table {
				continue
			}
			_, subject, ok := g.pairLocked(run[i].Edge)
			if !ok {
				return table
			}
			f.keys = append(f.keys, uint64(subject)<<32|uint64(i))
		}
		if len(f.keys) == 0 {
			continue
		}
		out := g.indexes[2*table]
		if g.isInverted(table) || !g.roomLocked(wordBytes*int64(out.growth(actor))+int64(len(f.keys))*fillEdge) {
			return table
		}
		f.putTableLocked(table, actor, run)
	}
	return g.tables()
}

// putTableLocked puts those edges of a run into a set whose subjects and numbers are in keys.
func (f *Filler) putTableLocked(table int, actor uint32, run []Change) {
	g, out := f.g, f.g.indexes[2*table]
	slices.Sort(f.keys)
	old := out.set(actor)
	f.new = f.new[:0]
	for _, key := range f.keys {
		subject, record := uint32(key>>32), run[uint32(key)].Record
		if n := len(f.new); n > 0 && f.new[n-1] == subject || old.members > 0 && old.contains(subject) {
			if record != 0 {
				p := pair{uint32(table), actor, subject}
				g.more[p] = append(g.more[p], record)
			}
			continue
		}
		f.new = append(f.new, subject)
	}
	if len(f.new) > 0 {
		g.edges += int64(len(f.new))
		out.put(actor, union(members(old), f.new))
	}
}

// newGroupCounts returns counts of the edges to each group of subjects.
func newGroupCounts(accounts int) []uint32 { return make([]uint32, accounts>>groupBits+1) }

// invertLocked makes the In sets of a table from its Out sets. A pass sorts as many edges by
// subject as a part of the memory holds: into buckets of subjects, then within each bucket. Both
// steps stay in the processor's cache. While the lists of one pass become sets, the edges of the
// next go into buckets.
func (g *Graph) invertLocked(table int, counts []uint32) error {
	out, in := g.indexes[2*table].frozen(), g.indexes[2*table+1]
	accounts := len(g.accounts.uids)
	if !g.roomLocked((wordBytes + cursorBytes) * int64(accounts)) {
		return errFull
	}
	in.refs = make([]uint32, accounts)
	passes, most := passesOf(counts, int(g.cfg.Memory/fillFraction)/inversions/(2*wordBytes))
	c, err := newCollector(out)
	if err != nil {
		return err
	}
	defer c.drop()
	free, full := make(chan *inversion, inversions), make(chan *inversion)
	for range inversions {
		v, err := newInversion(most)
		if err != nil {
			return err
		}
		defer v.drop()
		free <- v
	}
	tasks, ctx := errgroup.WithContext(context.Background())
	tasks.Go(func() error {
		defer close(full)
		for _, p := range passes {
			var v *inversion
			select {
			case v = <-free:
			case <-ctx.Done():
				return nil
			}
			if err := v.begin(p); err != nil {
				return err
			}
			c.collect(v)
			select {
			case full <- v:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	tasks.Go(func() error {
		for v := range full {
			if err := g.putLists(in, v); err != nil {
				return err
			}
			free <- v
		}
		return nil
	})
	return tasks.Wait()
}

// putLists makes sets of the lists of a pass.
func (g *Graph) putLists(in *index, v *inversion) error {
	for n := range v.buckets {
		v.sortBucket(n)
		begin := uint32(0)
		for i, end := range v.ends {
			if end == begin {
				continue
			}
			list := v.lists[begin:end]
			if !g.fitsLocked(len(list) >= largeFrom) {
				return errFull
			}
			in.put(v.subject+uint32(i), list)
			begin = end
		}
	}
	return nil
}
