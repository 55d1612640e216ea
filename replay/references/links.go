package references

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/postings"
)

// Links says whether the store has links, which package links answers from.
type Links uint8

// The values of Config.Links.
const (
	LinksAsStored Links = iota // on or off, as when the store was last open
	LinksOn                    // kept; Run builds them from the table if they were off
	LinksOff                   // deleted, and no longer kept
)

// Bounds of links.
const (
	maxChunkLinks = 1024 // of a chunk, as a rule; a set with more is large
	maxBuildRows  = 4096 // of a step of the build; Apply waits for it
	checkLinks    = 128  // of so many additions one looks how large its chunk is
)

// linkState says how far links are built. Each step of the build commits it.
type linkState struct {
	on bool
	// next is the key of the first row that is not built; nil: there is none. Apply leaves out what
	// is at or after it: the build comes there later.
	next []byte
}

// built says whether the links of a row are kept.
func (l *linkState) built(key []byte) bool {
	return l.on && (l.next == nil || bytes.Compare(key, l.next) < 0)
}

func decodeLinkState(b []byte) linkState {
	l := linkState{on: true}
	if len(b) > 0 {
		l.next = b
	}
	return l
}

// loadLinks reads whether there are links, and switches them on or off as Config says. Those of an
// older format are built again: by this store, or if it is only read, by the next.
func (s *Store) loadLinks(older bool) error {
	value, on, err := s.db.Value(metaKey(metaLinks))
	if err != nil {
		return err
	}
	l := linkState{on: on}
	if on && older {
		l.next = rangeRecord.start()
	} else if on {
		l = decodeLinkState(value)
	}
	s.commits.links.Store(&l)
	if s.cfg.ReadOnly {
		return nil
	}
	if on {
		err = s.loadHeads()
	}
	if err == nil && s.cfg.Links != LinksAsStored {
		err = s.SetLinks(s.cfg.Links == LinksOn)
	}
	return err
}

// SetLinks switches links on or off, as Config.Links does. No batch may be between Hydrate and
// Apply, and Run may not have begun.
func (s *Store) SetLinks(on bool) error {
	if s.commits.links.Load().on == on {
		return nil
	}
	l := linkState{on: on}
	if on {
		l.next = rangeRecord.start()
	}
	err := s.updateDurably(func(batch *pebble.Batch) error { return errors.Join(dropLinks(batch), setLinks(batch, &l)) })
	if err != nil {
		return fmt.Errorf("switch links: %w", err)
	}
	s.commits.links.Store(&l)
	if s.commits.heads = nil; on {
		return s.loadHeads()
	}
	return nil
}

// dropLinks deletes all links.
func dropLinks(batch *pebble.Batch) error {
	start, end := postings.Bounds()
	return batch.DeleteRange(start, end, nil)
}

func setLinks(batch *pebble.Batch, l *linkState) error {
	if !l.on {
		return batch.Delete(metaKey(metaLinks), nil)
	}
	return batch.Set(metaKey(metaLinks), l.next, nil)
}

// edge is a link that comes or goes.
type edge struct {
	set             postings.Set
	arrival         uint64
	account, record uint64
	removed         bool
	toAccount       bool // the subject is a DID
}

// appendEdges appends the edges of a row; of none, if value is nil. commits.mu is held.
func (s *Store) appendEdges(dst []edge, key, value []byte, removed bool) ([]edge, error) {
	if value == nil {
		return dst, nil
	}
	row := &s.commits.row
	if err := s.codec.decodeRow(row, key, value); err != nil {
		return dst, damaged(key, err)
	}
	for _, r := range row.References {
		dst = append(dst, edge{postings.Set{Subject: r.Subject, Path: r.Path}, row.Arrival, row.Account, row.Record, removed, r.Subject == r.Authority})
	}
	return dst, nil
}

// stageLinks adds to batch how the rows of p change links. commits.mu is held.
func (s *Store) stageLinks(batch *pebble.Batch, p *pending) error {
	links := s.commits.links.Load()
	if !links.on {
		return nil
	}
	edges := s.commits.edges[:0]
	var key []byte
	for i := range p.records {
		w := &p.records[i]
		if key = s.codec.appendRecordKey(key[:0], w.id); !links.built(key) {
			continue
		}
		old := w.old
		if w.below { // it may have been swept meanwhile
			var err error
			if old, err = s.lookUp(key); err != nil {
				return err
			}
		}
		var err error
		if edges, err = s.appendEdges(edges, key, old, true); err == nil {
			edges, err = s.appendEdges(edges, key, w.value, false)
		}
		if err != nil {
			return err
		}
	}
	s.commits.edges = edges
	if links.next == nil {
		s.commits.recent.add(time.Now(), edges)
	}
	return s.stageEdges(batch, edges)
}

// stageEdges adds edges to batch, those of a set together and in their order.
func (s *Store) stageEdges(batch *pebble.Batch, edges []edge) (err error) {
	slices.SortStableFunc(edges, func(a, b edge) int { return a.set.Compare(b.set) })
	// A record counts once for a set.
	edges = slices.CompactFunc(edges, func(a, b edge) bool {
		return a.set == b.set && a.arrival == b.arrival && a.removed == b.removed
	})
	w := linkWriter{store: s, batch: batch}
	defer func() { err = errors.Join(err, closeIter(w.starts)) }()
	for len(edges) > 0 {
		n := 1
		for n < len(edges) && edges[n].set == edges[0].set {
			n++
		}
		if err := w.write(edges[0].set, edges[:n]); err != nil {
			return fmt.Errorf("write the links to subject %x from source %d: %w", edges[0].set.Subject, edges[0].set.Path, err)
		}
		edges = edges[n:]
	}
	return nil
}

// LinksProgress says whether the store has links, and what fraction of the table they are built
// from. It is 1 only if they are complete.
func (s *Store) LinksProgress() (on bool, built float64, err error) {
	l := s.commits.links.Load()
	if !l.on || l.next == nil {
		return l.on, 1, nil
	}
	built, err = s.fractionBefore(l.next)
	return true, 0.99 * built, err
}

// FractionBefore estimates what fraction of the table has the rows of accounts before one.
func (s *Store) FractionBefore(account uint64) (fraction float64, err error) {
	return s.fractionBefore(s.codec.accountKey(rangeRecord, account))
}

func (s *Store) fractionBefore(key []byte) (fraction float64, err error) {
	if err := s.use(); err != nil {
		return 0, err
	}
	defer s.using.RUnlock()
	var done, all uint64
	err = s.db.Guard(func() (err error) {
		if done, err = s.db.Pebble().EstimateDiskUsage(rangeRecord.start(), key); err == nil {
			all, err = s.db.Pebble().EstimateDiskUsage(rangeRecord.start(), rangeRecord.end())
		}
		return err
	})
	return float64(done) / float64(max(done, all, 1)), err
}

// buildLinks builds the links of the next rows. more says that there are more rows.
func (s *Store) buildLinks() (more bool, err error) {
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	l := s.commits.links.Load()
	if !l.on || l.next == nil {
		return false, nil
	}
	state := &linkState{on: true}
	err = s.db.Update(false, func(batch *pebble.Batch) error {
		next, edges, err := s.nextEdges(l.next)
		state.next = next
		return errors.Join(err, s.stageEdges(batch, edges), setLinks(batch, state))
	})
	if err != nil {
		return false, s.fail("build links", err)
	}
	s.commits.links.Store(state)
	if state.next == nil {
		s.cfg.Logger.Info("links are complete")
	}
	return state.next != nil, nil
}

// nextEdges returns the edges of some rows from a key on, and the key after them; nil: there is
// none.
func (s *Store) nextEdges(from []byte) (next []byte, edges []edge, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: rangeRecord.end()})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	edges = s.commits.edges[:0]
	rows := 0
	for ok := it.First(); ok; ok = it.Next() {
		if rows++; rows > s.cfg.hooks.buildRows {
			next = bytes.Clone(it.Key())
			break
		}
		if edges, err = s.appendEdges(edges, it.Key(), it.Value(), false); err != nil {
			return nil, nil, err
		}
	}
	s.commits.edges = edges
	return next, edges, it.Error()
}
