package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	if s.failing.is() {
		return s.db.Close() // a flush would be tried for ever; the log has all
	}
	// A flush now spares the next start the replay of the log. If it fails, the log still has all.
	return errors.Join(s.db.Flush(), s.db.Close())
}
