package pebblekv

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv"
	"millrace/intern/kv/pebbleguard"
)

// The limits keep a batch far below Pebble's memtable and a transaction within what other stores
// take too.
const (
	maxBytes = 4 << 20
	maxKey   = 8 << 10
	maxValue = 64 << 10
)

// Store is an open store. Safe for concurrent use.
type Store struct {
	db      *pebbleguard.DB
	tracker *tracker
	mark    *marker // nil if read only

	applying sync.Mutex // held while a commit is admitted and becomes visible

	mu       sync.Mutex
	closed   bool
	inFlight sync.WaitGroup // transactions begun and not closed, and checkpoints
}

var _ kv.Store = (*Store)(nil)

// advice is what to do when the store is damaged.
const advice = "restore the UID store from a copy, then run millrace intern skip-ahead, so that no UID is given twice"

// Open opens the store in cfg.Dir, creating it if there is none. Only one process can have it open.
// Errors are pebbleguard.Open's.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	db, err := pebbleguard.Open(pebbleguard.Config{
		Dir:       cfg.Dir,
		FS:        cfg.FS,
		Store:     "UID store",
		Advice:    advice,
		Options:   cfg.options(),
		ReadOnly:  cfg.ReadOnly,
		KeepGoing: cfg.KeepGoing,
		AnyMark:   cfg.AcceptLoss,
		CheckMark: checkMark,
		Logger:    cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open UID store in %s: %w", cfg.Dir, err)
	}
	s := &Store{db: db, tracker: newTracker()}
	if db.Mark() != nil {
		if s.mark, err = newMarker(db, cfg.AcceptLoss); err != nil {
			return nil, fmt.Errorf("open UID store in %s: %w", cfg.Dir, cmp.Or(err, db.Close()))
		}
	}
	return s, nil
}

// Damage returns, with Config.KeepGoing, what Open found wrong.
func (s *Store) Damage() []error { return s.db.Damage }

// Failed is closed when a write or a sync failed, or damage was found. Err says why; the process
// should stop.
func (s *Store) Failed() <-chan struct{} { return s.db.Failed() }

// Err returns the failure, nil while there is none.
func (s *Store) Err() error { return s.db.Err() }

// RaiseMark ends what Config.AcceptLoss began: the store counts as whole again. UIDs must have been
// skipped.
func (s *Store) RaiseMark() error { return s.mark.raise() }

// Limits implements kv.Store.
func (s *Store) Limits() kv.Limits { return kv.Limits{Bytes: maxBytes, Key: maxKey, Value: maxValue} }

// Begin implements kv.Store.
func (s *Store) Begin(ctx context.Context) (kv.Txn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	return &txn{store: s, began: s.tracker.begin()}, nil
}

// enter makes Close wait for what begins now, until inFlight.Done.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return kv.ErrClosed
	}
	s.inFlight.Add(1)
	return nil
}

// Metrics returns Pebble's own measurements.
func (s *Store) Metrics() *pebble.Metrics { return s.db.Pebble().Metrics() }

// Compact rewrites the whole store, which brings all of it to its final size. It takes as long as
// reading and writing everything once.
func (s *Store) Compact(ctx context.Context) error {
	err := s.db.Guard(func() error { return s.db.Pebble().Compact(ctx, []byte{0}, []byte{0xff}, true) })
	if err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	return nil
}

// Checkpoint makes a copy of the store in dir, which must not exist; Open takes it. It has
// everything that was committed before the call, and perhaps some transactions that are committed
// during it, each whole. Transactions go on meanwhile. Tables are linked where dir is on the
// store's file system, so that it takes a moment, and copied else. Until it is done no file of the
// store is deleted. Errors: kv.ErrClosed and those of the disk, after which there is no dir.
func (s *Store) Checkpoint(dir string) error {
	err := s.enter()
	if err == nil {
		defer s.inFlight.Done()
		err = s.db.Checkpoint(dir)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Close waits for the transactions to be closed, flushes and closes. Safe twice. After a failure it
// returns that and leaves the files as they are: the next start recovers what was committed.
func (s *Store) Close() (err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	// Guard waits until the store has failed, at most: transactions may then never end.
	_ = s.db.Guard(func() error { s.inFlight.Wait(); return nil })
	if s.mark != nil {
		err = s.db.Guard(s.db.Pebble().Flush) // spares the next start the replay of the log
	}
	return cmp.Or(err, s.db.Close())
}
