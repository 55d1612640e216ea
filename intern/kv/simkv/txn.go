package simkv

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/RaduBerinde/btreemap"

	"millrace/intern/kv"
)

type write struct {
	key   string
	value []byte // nil: clear
}

type txn struct {
	store  *Store
	rows   *btreemap.BTreeMap[string, row] // as they were at Begin
	at     uint64                          // version of the last commit in rows
	crash  uint64
	begun  time.Time
	reads  []string
	writes []write
	size   int
	err    error
	done   bool // committed or closed
}

// read begins a read: it takes its time and fails if the store does.
func (t *txn) read(ctx context.Context) error {
	s := t.store
	if err := s.pause(ctx, s.cfg.ReadLatency); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.down || t.crash != s.crash || s.dice.roll(s.faults.Unavailable):
		return kv.ErrUnavailable
	case t.expired():
		return kv.ErrTooOld
	}
	return nil
}

func (t *txn) expired() bool {
	limit := t.store.cfg.Limits.Duration
	return limit > 0 && time.Since(t.begun) > limit
}

// Get implements kv.Txn. The values are the store's own, which never change.
func (t *txn) Get(ctx context.Context, keys, values [][]byte) error {
	if err := t.read(ctx); err != nil {
		return err
	}
	for i, key := range keys {
		t.size += len(key)
		k := string(key)
		_, r, _ := t.rows.Get(k)
		values[i] = r.value
		t.reads = append(t.reads, k)
	}
	return nil
}

// Last implements kv.Txn.
func (t *txn) Last(ctx context.Context, ranges []kv.Range, fn func(i int, p kv.Pair) error) error {
	if err := t.read(ctx); err != nil {
		return err
	}
	for i, r := range ranges {
		for key, row := range t.rows.Descend(btreemap.LT(string(r.End)), btreemap.GE(string(r.Begin))) {
			if row.value == nil {
				continue
			}
			p := kv.Pair{Key: []byte(key), Value: bytes.Clone(row.value)}
			if err := fn(i, p); err != nil {
				return err
			}
			clear(p.Key) // as it is valid during the call only
			clear(p.Value)
			break
		}
	}
	return nil
}

// scanBatch is how many keys a scan reads at once.
const scanBatch = 256

// Scan implements kv.Txn.
func (t *txn) Scan(ctx context.Context, r kv.Range, fn func(kv.Pair) (bool, error)) error {
	if err := t.read(ctx); err != nil {
		return err
	}
	n := 0
	for key, row := range t.rows.Ascend(btreemap.GE(string(r.Begin)), btreemap.LT(string(r.End))) {
		if row.value == nil {
			continue
		}
		if more, err := fn(kv.Pair{Key: []byte(key), Value: row.value}); err != nil || !more {
			return err
		}
		if n++; n%scanBatch == 0 {
			if err := t.read(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Set implements kv.Txn.
func (t *txn) Set(key, value []byte) {
	t.write(key, append(make([]byte, 0, len(value)), value...))
}

// Clear implements kv.Txn.
func (t *txn) Clear(key []byte) { t.write(key, nil) }

func (t *txn) write(key, value []byte) {
	l := t.store.cfg.Limits
	t.size += len(key) + len(value)
	if len(key) > l.Key || len(value) > l.Value {
		t.err = fmt.Errorf("%w: key of %d bytes, value of %d", kv.ErrTooLarge, len(key), len(value))
	}
	t.writes = append(t.writes, write{string(key), value})
}

// Commit implements kv.Txn.
func (t *txn) Commit(ctx context.Context) error {
	if t.done {
		return fmt.Errorf("transaction is over")
	}
	t.done = true
	s := t.store
	if t.size > s.cfg.Limits.Bytes {
		t.err = fmt.Errorf("%w: %d bytes", kv.ErrTooLarge, t.size)
	}
	if t.err != nil {
		return t.err
	}
	if len(t.writes) == 0 { // as in FoundationDB, nothing is sent
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stats.ReadOnly++
		return nil
	}
	if err := s.pause(ctx, s.cfg.CommitLatency); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := t.faultLocked(); err != nil {
		s.stats.Injected++
		return err
	}
	if !s.applyLocked(t.at, t.reads, t.writes) {
		s.stats.Conflicts++
		return kv.ErrConflict
	}
	s.stats.Committed++
	return nil
}

// faultLocked returns the error of a commit that goes wrong, having applied it or not.
func (t *txn) faultLocked() error {
	s := t.store
	f := &s.faults
	switch {
	case s.down:
		return kv.ErrUnknownOutcome
	case t.crash != s.crash:
		if s.dice.roll(0.5) {
			s.applyLocked(t.at, t.reads, t.writes)
		}
		return kv.ErrUnknownOutcome
	case t.expired() || s.dice.roll(f.TooOld):
		return kv.ErrTooOld
	case s.dice.roll(f.Conflict):
		return kv.ErrConflict
	case s.dice.roll(f.UnknownLost):
		return kv.ErrUnknownOutcome
	case s.dice.roll(f.UnknownApplied):
		if !s.applyLocked(t.at, t.reads, t.writes) {
			return kv.ErrConflict
		}
		return kv.ErrUnknownOutcome
	case s.dice.roll(f.UnknownLate):
		t.lateLocked()
		return kv.ErrUnknownOutcome
	}
	return nil
}

// lateLocked applies the commit some time after its transaction is over, unless it conflicts by
// then.
func (t *txn) lateLocked() {
	s := t.store
	at, reads, writes := t.at, t.reads, t.writes
	s.late.Add(1)
	time.AfterFunc(s.dice.upTo(s.faults.LateBy), func() {
		defer s.late.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.applyLocked(at, reads, writes)
	})
}

// Close implements kv.Txn.
func (t *txn) Close() { t.done = true }
