package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv"
)

// The limits keep a batch far below Pebble's memtable and a transaction within what other stores take too.
const (
	maxBytes = 4 << 20
	maxKey   = 8 << 10
	maxValue = 64 << 10
)

// Store is an open store. Safe for concurrent use.
type Store struct {
	db      *pebble.DB
	tracker *tracker
	failing *failing

	mu       sync.Mutex
	closed   bool
	inFlight sync.WaitGroup // transactions begun and not closed
}

var _ kv.Store = (*Store)(nil)

// Open opens the store in cfg.Dir, creating it if there is none. Only one process can have it open.
func Open(cfg Config) (*Store, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("pebblekv config: %w", err)
	}
	f := &failing{log: cfg.Logger}
	options := cfg.options()
	options.EventListener = &pebble.EventListener{BackgroundError: f.note}
	db, err := pebble.Open(cfg.Dir, options)
	if err != nil {
		return nil, fmt.Errorf("open UID store in %s: %w", cfg.Dir, err)
	}
	return &Store{db: db, tracker: newTracker(), failing: f}, nil
}

// Limits implements kv.Store.
func (s *Store) Limits() kv.Limits { return kv.Limits{Bytes: maxBytes, Key: maxKey, Value: maxValue} }

// Begin implements kv.Store.
func (s *Store) Begin(ctx context.Context) (kv.Txn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, kv.ErrClosed
	}
	s.inFlight.Add(1)
	return &txn{store: s, began: s.tracker.begin()}, nil
}

// Metrics returns Pebble's own measurements.
func (s *Store) Metrics() *pebble.Metrics { return s.db.Metrics() }

// Compact rewrites the whole store, which brings all of it to its final size. It takes as long as
// reading and writing everything once.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.db.Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if err := s.db.Compact(ctx, []byte{0}, []byte{0xff}, true); err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	return nil
}

// Close waits for the transactions to be closed, flushes and closes. Safe twice.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.inFlight.Wait()
	return errors.Join(s.flush(), s.db.Close())
}

// flushLook is how often a flush that takes its time is looked after.
const flushLook = 50 * time.Millisecond

// flush spares the next start the replay of the log. On a failing disk Pebble would try for ever, so that it is
// left alone: the log has all.
func (s *Store) flush() error {
	if s.failing.is() {
		return nil
	}
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	look := time.NewTicker(flushLook)
	defer look.Stop()
	for !s.failing.is() {
		select {
		case <-flushed:
			return nil
		case <-look.C:
		}
	}
	return nil
}
