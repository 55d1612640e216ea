package simkv

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/RaduBerinde/btreemap"

	"millrace/intern/kv"
)

// Config describes a simulated store.
type Config struct {
	Seed          uint64        // of the faults
	ReadLatency   time.Duration // of Begin and of each Get, Last and Scan
	CommitLatency time.Duration
	Limits        kv.Limits // Bytes 0: FoundationDB's, with Spread
	Shared        bool      // sets Limits.Shared: Interners on the store look for each other
}

// foundation returns FoundationDB's limits, its 10 MB and 5 s.
func foundation() kv.Limits {
	return kv.Limits{Bytes: 10_000_000, Key: 10_000, Value: 100_000, Duration: 5 * time.Second, Spread: true}
}

// Stats count commits by what came of them.
type Stats struct {
	Committed uint64 // applied and reported so
	Conflicts uint64 // real ones
	Injected  uint64 // failed by a fault, whatever it reported
	ReadOnly  uint64 // commits without writes
}

// Store is a simulated store. Safe for concurrent use.
type Store struct {
	cfg  Config
	dice *dice
	late sync.WaitGroup // commits applied after their caller got an unknown outcome

	mu     sync.RWMutex
	faults Faults
	down   bool
	crash  uint64 // counts crashes; a transaction of an earlier one is dead
	rows   *btreemap.BTreeMap[string, row]
	last   uint64 // version of the last commit
	stats  Stats
}

// row is what a key has.
type row struct {
	value []byte // nil: cleared
	at    uint64 // version of the commit that wrote it
}

var _ kv.Store = (*Store)(nil)

// degree is of the B-tree of the rows. A small one copies little after a clone.
const degree = 16

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.Limits.Bytes == 0 {
		cfg.Limits = foundation()
	}
	cfg.Limits.Shared = cfg.Limits.Shared || cfg.Shared
	d := &dice{rng: rand.New(rand.NewPCG(cfg.Seed, 0x5eed))}
	return &Store{cfg: cfg, dice: d, rows: btreemap.New[string, row](degree, strings.Compare)}
}

// Limits implements kv.Store.
func (s *Store) Limits() kv.Limits { return s.cfg.Limits }

// SetFaults replaces what goes wrong from now on.
func (s *Store) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// SetDown begins or ends an outage: while it lasts Begin and reads fail with kv.ErrUnavailable, and
// commits of writes with kv.ErrUnknownOutcome though they are not applied.
func (s *Store) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// Crash ends every transaction begun so far: its reads fail with kv.ErrUnavailable, its commit of
// writes has an unknown outcome, applied as often as not.
func (s *Store) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crash++
}

// Settle waits for the commits that are applied late.
func (s *Store) Settle() { s.late.Wait() }

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stats
}

// Begin implements kv.Store.
func (s *Store) Begin(ctx context.Context) (kv.Txn, error) {
	if err := s.pause(ctx, s.cfg.ReadLatency); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.dice.roll(s.faults.Unavailable) {
		return nil, kv.ErrUnavailable
	}
	return &txn{store: s, rows: s.rows.Clone(), at: s.last, crash: s.crash, begun: time.Now()}, nil
}

// pause takes the latency of a call and sometimes more.
func (s *Store) pause(ctx context.Context, latency time.Duration) error {
	s.mu.RLock()
	faults := s.faults
	s.mu.RUnlock()
	if s.dice.roll(faults.Delay) {
		latency += s.dice.upTo(faults.DelayBy)
	}
	if latency > 0 {
		return kv.Sleep(ctx, latency)
	}
	return context.Cause(ctx)
}

// applyLocked checks for conflicts and applies the writes.
func (s *Store) applyLocked(at uint64, reads []string, writes []write) bool {
	for _, key := range reads {
		if _, r, ok := s.rows.Get(key); ok && r.at > at {
			return false
		}
	}
	s.last++
	for _, w := range writes {
		s.rows.ReplaceOrInsert(w.key, row{w.value, s.last})
	}
	return true
}
