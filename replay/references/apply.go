package references

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Apply commits a batch that was hydrated, with the position that it reaches. Batches are applied
// in the order in which they were hydrated, each after the log has committed its events. Until
// Flush a crash may take it back. Errors are the failure of the store, or say that the order is
// wrong.
func (s *Store) Apply(b *Batch) error {
	p := b.pending
	if p == nil {
		return errors.New("apply references: the batch was not hydrated")
	}
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	if p.number != s.commits.applied+1 {
		return fmt.Errorf("apply references: batch %d of Hydrate comes after batch %d", p.number, s.commits.applied)
	}
	begun := time.Now()
	observer := s.commits.observer
	err := s.db.Update(false, func(batch *pebble.Batch) error {
		err := s.stage(batch, p)
		if err == nil && observer != nil {
			err = observer.collect(s, p)
		}
		return err
	})
	if err != nil {
		return s.fail("apply references", err)
	}
	b.pending = nil
	s.commits.applied++
	s.commits.state.Store(&p.state)
	s.commits.moved()
	s.mu.Lock()
	s.overlay.applied = append(s.overlay.applied, p)
	s.mu.Unlock()
	signal(s.room)
	if p.sweeps {
		signal(s.sweeps)
	}
	if observer != nil {
		observer.observe(&observer.batch)
	}
	s.metrics.applySeconds.Observe(time.Since(begun).Seconds())
	return nil
}

// stage adds p's rows to the batch of the database, each range in the order of its keys. The
// memtable then finds the place of a key next to that of the key before.
func (s *Store) stage(batch *pebble.Batch, p *pending) (err error) {
	slices.SortStableFunc(p.records, func(a, b recordWrite) int { return a.id.compare(b.id) })
	slices.SortFunc(p.accounts, func(a, b accountWrite) int { return cmp.Compare(a.account, b.account) })
	var key, value []byte
	for i := range p.records {
		w := &p.records[i]
		key = s.codec.appendRecordKey(key[:0], w.id)
		if w.value == nil {
			err = batch.Delete(key, nil)
		} else {
			err = batch.Set(key, w.value, nil)
		}
		if err != nil {
			return err
		}
	}
	for i := range p.accounts {
		w := &p.accounts[i]
		value = appendAccount(value[:0], &w.state)
		err := batch.Set(s.codec.accountKey(rangeAccount, w.account), value, nil)
		if err == nil && w.swept {
			err = batch.Set(s.codec.accountKey(rangeSweep, w.account), nil, nil)
		}
		if err == nil && w.purged {
			s.commits.purges.Store(true)
			err = batch.Set(s.codec.accountKey(rangePurged, w.account), appendBig(nil, w.state.purged, 8), nil)
		}
		if err != nil {
			return err
		}
	}
	if err := s.stageLinks(batch, p); err != nil {
		return err
	}
	if p.state.syncs != s.commits.state.Load().syncs {
		if err := batch.Set(metaKey(metaSyncs), appendSyncs(nil, &p.state.syncs), nil); err != nil {
			return err
		}
	}
	return batch.Set(metaKey(metaState), appendState(value[:0], &p.state), nil)
}

// Begin begins a new generation at a position: the table and what is known of the accounts is
// dropped, but for what was purged. Arrival numbers go on. No batch may be between Hydrate and
// Apply.
func (s *Store) Begin(basis string, from Position) error {
	if s.cfg.ReadOnly {
		return fmt.Errorf("begin a generation: %w", errReadOnly)
	}
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	if s.commits.applied != s.hydration.hydrated {
		return fmt.Errorf("begin a generation: %d batches are hydrated and not applied", s.hydration.hydrated-s.commits.applied)
	}
	g := Generation{Number: s.Generation().Number + 1, Basis: basis, From: from}
	next := state{position: from, arrival: s.commits.state.Load().arrival}
	links := &linkState{on: s.commits.links.Load().on} // complete: the table has no rows
	err := s.updateDurably(func(batch *pebble.Batch) error {
		err := batch.Set(metaKey(metaGeneration), appendGeneration(nil, &g), nil)
		for _, r := range []keyRange{rangeAccount, rangeSweep, rangeRecord} {
			err = errors.Join(err, batch.DeleteRange(r.start(), r.end(), nil))
		}
		return errors.Join(err, dropLinks(batch), setLinks(batch, links), batch.Delete(metaKey(metaSyncs), nil), batch.Set(metaKey(metaState), appendState(nil, &next), nil))
	})
	if err != nil {
		return s.fail("begin a generation", err)
	}
	s.mu.Lock()
	s.overlay.makeRoom(0, 0) // all leave
	s.mu.Unlock()
	s.hydration.accounts = newAccountCache(s.cfg.AccountBytes)
	s.hydration.reached = next
	s.commits.state.Store(&next)
	s.commits.flushed.Store(&next)
	s.commits.moved()
	s.commits.generation.Store(&g)
	s.commits.links.Store(links)
	s.commits.observer = nil
	return nil
}

// Rebase says that the rows depend on another basis from now on, and are right: the generation goes
// on.
func (s *Store) Rebase(basis string) error {
	if s.cfg.ReadOnly {
		return fmt.Errorf("change the basis: %w", errReadOnly)
	}
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	g := s.Generation()
	if g.Number == 0 {
		return errors.New("change the basis: no generation was begun")
	}
	g.Basis = basis
	err := s.updateDurably(func(batch *pebble.Batch) error {
		return batch.Set(metaKey(metaGeneration), appendGeneration(nil, &g), nil)
	})
	if err != nil {
		return s.fail("change the basis", err)
	}
	s.commits.generation.Store(&g)
	return nil
}

// Wait returns when Position is at or after at. Errors: the cause of ctx's end, and the failure of
// the store.
func (s *Store) Wait(ctx context.Context, at Position) error {
	for {
		moved := *s.commits.move.Load() // read before Position, so that no move is missed
		if !s.Position().Before(at) {
			return s.Err()
		}
		select {
		case <-moved:
		case <-s.Failed():
			return s.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// moved wakes all calls of Wait.
func (c *commits) moved() {
	if last := c.move.Swap(new(make(chan struct{}))); last != nil {
		close(*last)
	}
}

// signal wakes the goroutine that waits for c, or the next that does.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
