package references

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/postings"
)

// maxSweepRows is how many rows a step of the sweep looks at; Apply waits for it.
const maxSweepRows = 4096

// minSweepRange is how many rows that follow each other go by one range deletion.
const minSweepRange = 32

// flushInterval is how often Run flushes. So after a crash the log is read again from at most that
// long ago.
const flushInterval = time.Minute

// Run sweeps what deleted, purged and imported accounts have left, builds links, and flushes now
// and then. It ends when ctx does; that is no error. What is swept reads as absent before.
func (s *Store) Run(ctx context.Context) error {
	for flushed := time.Now(); ctx.Err() == nil; {
		more, err := s.sweep()
		if err == nil && !more {
			more, err = s.buildLinks()
		}
		if err == nil && time.Since(flushed) >= flushInterval {
			_, err = s.Flush()
			flushed = time.Now()
		}
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if s.cfg.hooks.idle != nil {
			s.cfg.hooks.idle()
		}
		select {
		case <-time.After(time.Until(flushed.Add(flushInterval))):
		case <-s.sweeps:
		case <-s.Failed():
			return s.Err()
		case <-ctx.Done():
		}
	}
	return nil
}

// sweep removes the rows of one step. more says that there may be another.
func (s *Store) sweep() (more bool, err error) {
	if s.cfg.ReadOnly {
		return false, fmt.Errorf("sweep references: %w", errReadOnly)
	}
	s.commits.mu.Lock() // no row comes between looking and deleting
	defer s.commits.mu.Unlock()
	key, from, err := s.first(rangeSweep) // where its sweep goes on
	if err == nil && key != nil {
		err = s.db.Update(false, func(batch *pebble.Batch) error { return s.sweepFrom(batch, key, from) })
	}
	if err != nil {
		return false, s.fail("sweep references", err)
	}
	return key != nil, nil
}

// sweepFrom adds a step to batch: that of the account of a key of rangeSweep, whose sweep goes on
// at from.
func (s *Store) sweepFrom(batch *pebble.Batch, key, from []byte) error {
	account, err := s.codec.parseAccountKey(key)
	if err != nil {
		return damaged(key, err)
	}
	state, _, err := s.firstState(account)
	if err != nil {
		return err
	}
	next, swept, err := s.stageSweep(batch, account, from, state.floor)
	if err == nil && next == nil {
		err = batch.Delete(key, nil)
	} else if err == nil {
		err = batch.Set(key, next, nil)
	}
	if s.cfg.hooks.sweeping != nil {
		s.cfg.hooks.sweeping()
	}
	s.metrics.swept.Add(float64(swept))
	return err
}

// stageSweep adds to batch the deletion of those of the account's next rows that are below the
// floor. next is the key that the sweep goes on at; nil: it is done.
func (s *Store) stageSweep(batch *pebble.Batch, account uint64, from []byte, floor uint64) (next []byte, swept int, err error) {
	lower := s.codec.accountKey(rangeRecord, account)
	upper := postings.PrefixEnd(lower)
	if bytes.Compare(from, lower) > 0 {
		lower = from
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	run := sweepRun{batch: batch}
	links, edges := s.commits.links.Load(), s.commits.edges[:0]
	rows := 0
	for ok := it.First(); ok; ok = it.Next() {
		if rows++; rows > s.cfg.hooks.sweepRows {
			next = bytes.Clone(it.Key())
			break
		}
		arrival, _, err := rowArrival(it.Value())
		if err != nil {
			return nil, 0, damaged(it.Key(), err)
		}
		if arrival < floor {
			run.keys = append(run.keys, bytes.Clone(it.Key()))
			swept++
			if links.built(it.Key()) {
				if edges, err = s.appendEdges(edges, it.Key(), it.Value(), true); err != nil {
					return nil, 0, err
				}
			}
		} else if err := run.end(); err != nil {
			return nil, 0, err
		}
	}
	if err := it.Error(); err != nil {
		return nil, 0, err
	}
	s.commits.edges = edges
	return next, swept, errors.Join(run.end(), s.stageEdges(batch, edges))
}

// sweepRun is rows that follow each other, all below the floor.
type sweepRun struct {
	batch *pebble.Batch
	keys  [][]byte
}

// end deletes them.
func (r *sweepRun) end() error {
	keys := r.keys
	r.keys = r.keys[:0]
	if len(keys) >= minSweepRange {
		return r.batch.DeleteRange(keys[0], append(keys[len(keys)-1], 0), nil)
	}
	for _, key := range keys {
		if err := r.batch.Delete(key, nil); err != nil {
			return err
		}
	}
	return nil
}
