package pebblekv

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv"
	"millrace/intern/kv/pebbleguard"
)

type txn struct {
	store   *Store
	began   uint64                // every version up to it is in the view
	horizon uint64                // nothing beyond this version is in the view
	iter    *pebbleguard.Iterator // the view; nil before the first read
	batch   *pebble.Batch         // nil before the first write
	reads   []uint64              // hashes of the keys read by Get
	writes  []uint64              // hashes of the keys written
	size    int                   // counts against maxBytes
	err     error                 // first write over a limit
	buffer  []byte                // what Get returned lies here; never moved, see keep
	done    bool                  // committed or closed
	closed  bool
}

func (t *txn) view() error {
	if t.iter != nil {
		return nil
	}
	iter, err := t.store.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("open view: %w", err)
	}
	t.iter = iter
	t.horizon = t.store.tracker.horizon()
	return nil
}

// Get implements kv.Txn. Every key is a seek of the one iterator, guarded by Bloom filters;
// ascending keys make a seek start where the last one ended.
func (t *txn) Get(ctx context.Context, keys, values [][]byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := t.view(); err != nil {
		return err
	}
	for i, key := range keys {
		t.size += len(key)
		t.reads = append(t.reads, hashKey(key))
		values[i] = nil
		if t.iter.SeekPrefixGE(key) && bytes.Equal(t.iter.Key(), key) {
			value, err := t.iter.ValueAndErr()
			if err != nil {
				return fmt.Errorf("read value: %w", err)
			}
			values[i] = t.keep(value)
		} else if err := t.iter.Error(); err != nil {
			return fmt.Errorf("read key: %w", err)
		}
	}
	return nil
}

// Last implements kv.Txn.
func (t *txn) Last(ctx context.Context, ranges []kv.Range, fn func(i int, p kv.Pair) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := t.view(); err != nil {
		return err
	}
	for i, r := range ranges {
		if t.iter.SeekLT(r.End) && bytes.Compare(t.iter.Key(), r.Begin) >= 0 {
			value, err := t.iter.ValueAndErr()
			if err != nil {
				return fmt.Errorf("read value: %w", err)
			}
			if err := fn(i, kv.Pair{Key: t.iter.Key(), Value: value}); err != nil {
				return err
			}
		} else if err := t.iter.Error(); err != nil {
			return fmt.Errorf("read last key: %w", err)
		}
	}
	return nil
}

// Scan implements kv.Txn.
func (t *txn) Scan(ctx context.Context, r kv.Range, fn func(kv.Pair) (bool, error)) error {
	if err := t.view(); err != nil {
		return err
	}
	for ok := t.iter.SeekGE(r.Begin); ok; ok = t.iter.Next() {
		if bytes.Compare(t.iter.Key(), r.End) >= 0 {
			return nil
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		value, err := t.iter.ValueAndErr()
		if err != nil {
			return fmt.Errorf("read value: %w", err)
		}
		more, err := fn(kv.Pair{Key: t.iter.Key(), Value: value})
		if err != nil || !more {
			return err
		}
	}
	if err := t.iter.Error(); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	return nil
}

// Set implements kv.Txn.
func (t *txn) Set(key, value []byte) {
	if len(key) > maxKey || len(value) > maxValue {
		t.tooLarge("key of %d bytes, value of %d", len(key), len(value))
		return
	}
	t.write(key, len(value))
	if err := t.batch.Set(key, value, nil); err != nil && t.err == nil {
		t.err = err
	}
}

// Clear implements kv.Txn.
func (t *txn) Clear(key []byte) {
	t.write(key, 0)
	if err := t.batch.Delete(key, nil); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *txn) write(key []byte, valueLen int) {
	if t.batch == nil {
		t.batch = t.store.db.Pebble().NewBatch()
	}
	t.writes = append(t.writes, hashKey(key))
	t.size += len(key) + valueLen
}

func (t *txn) tooLarge(format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf("%w: "+format, append([]any{kv.ErrTooLarge}, args...)...)
	}
}

// Commit implements kv.Txn.
func (t *txn) Commit(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if t.done {
		return fmt.Errorf("transaction is over")
	}
	t.done = true
	if t.size > maxBytes {
		t.tooLarge("%d bytes", t.size)
	}
	if t.err != nil {
		return t.err
	}
	if t.batch == nil {
		return t.store.tracker.wait(t.horizon)
	}
	if t.store.mark == nil {
		return fmt.Errorf("commit: %w", kv.ErrReadOnly)
	}
	version, mark, err := t.apply()
	if err == nil {
		err = t.sync(version, mark)
	}
	if err != nil && !errors.Is(err, kv.ErrConflict) {
		t.store.tracker.fail(err)
	}
	return err
}

// apply writes the batch, which readers then see, unless it conflicts. It returns its version, and
// the mark that is due with it.
func (t *txn) apply() (version uint64, mark []byte, err error) {
	s := t.store
	s.applying.Lock()
	defer s.applying.Unlock()
	version, ok, err := s.tracker.admit(t.began, t.reads, t.writes)
	if err != nil {
		return 0, nil, err
	}
	if !ok {
		return 0, nil, kv.ErrConflict
	}
	mark, err = s.mark.stage(t.batch)
	if err == nil {
		err = s.db.Guard(func() error { return s.db.Pebble().ApplyNoSyncWait(t.batch, pebble.Sync) })
	}
	if err != nil {
		return 0, nil, s.db.FailOn("commit", err)
	}
	s.tracker.shown(version)
	return version, mark, nil
}

// sync waits until the batch is durable.
func (t *txn) sync(version uint64, mark []byte) error {
	db := t.store.db
	err := db.Guard(t.batch.SyncWait)
	if err == nil && mark != nil {
		err = db.Mark().Write(mark)
	}
	if err == nil {
		t.store.tracker.synced(version)
	}
	return db.FailOn("commit", err)
}

// Close implements kv.Txn.
func (t *txn) Close() {
	if t.closed {
		return
	}
	t.closed, t.done = true, true
	if t.store.db.Err() == nil { // else what Pebble holds may never be let go
		if t.iter != nil {
			_ = t.iter.Close() // its errors were returned by the reads
		}
		if t.batch != nil {
			t.store.db.CloseBatch(t.batch)
		}
	}
	t.store.tracker.end(t.began)
	t.store.inFlight.Done()
}

// keep copies b to where it stays until Close. It never returns nil.
func (t *txn) keep(b []byte) []byte {
	if t.buffer == nil || cap(t.buffer)-len(t.buffer) < len(b) {
		// what was returned before keeps the full buffer alive
		t.buffer = make([]byte, 0, max(4<<10, len(b)))
	}
	at := len(t.buffer)
	t.buffer = append(t.buffer, b...)
	return t.buffer[at:len(t.buffer):len(t.buffer)]
}
