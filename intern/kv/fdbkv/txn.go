//go:build fdb

package fdbkv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"millrace/intern/kv"
)

type txn struct {
	store  *Store
	tr     fdb.Transaction
	key    []byte // scratch; the client library copies what it is given
	reads  []fdb.FutureByteSlice
	size   int   // counts against maxBytes
	err    error // first write over a limit
	wrote  bool
	done   bool // commit was called
	closed bool
}

// in returns the key with the directory's prefix, valid until the next call.
func (t *txn) in(key []byte) fdb.Key {
	t.key = append(append(t.key[:0], t.store.prefix...), key...)
	return t.key
}

// watch cancels the transaction when ctx ends, until stop is called.
func (t *txn) watch(ctx context.Context) (stop func() bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if t.closed {
		return nil, errors.New("transaction is over")
	}
	return context.AfterFunc(ctx, t.tr.Cancel), nil
}

// Get implements kv.Txn. All reads are under way before the first is waited for.
func (t *txn) Get(ctx context.Context, keys, values [][]byte) error {
	stop, err := t.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	defer func() { clear(t.reads) }()
	t.reads = t.reads[:0]
	for _, key := range keys {
		t.size += len(key)
		t.reads = append(t.reads, t.tr.Get(t.in(key)))
	}
	for i, read := range t.reads {
		value, err := read.Get()
		if err != nil {
			return fmt.Errorf("read: %w", translate(ctx, err, false))
		}
		values[i] = value
	}
	return nil
}

func (t *txn) keyRange(r kv.Range) fdb.KeyRange {
	begin := append([]byte(nil), t.in(r.Begin)...)
	end := append([]byte(nil), t.in(r.End)...)
	return fdb.KeyRange{Begin: fdb.Key(begin), End: fdb.Key(end)}
}

// Last implements kv.Txn.
func (t *txn) Last(ctx context.Context, ranges []kv.Range, fn func(i int, p kv.Pair) error) error {
	stop, err := t.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	snapshot := t.tr.Snapshot()
	results := make([]fdb.RangeResult, len(ranges))
	for i, r := range ranges {
		results[i] = snapshot.GetRange(t.keyRange(r), fdb.RangeOptions{Limit: 1, Mode: fdb.StreamingModeExact, Reverse: true})
	}
	for i := range results {
		found, err := results[i].GetSliceWithError()
		if err != nil {
			return fmt.Errorf("read last key: %w", translate(ctx, err, false))
		}
		if len(found) > 0 {
			if err := fn(i, t.pair(found[0])); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *txn) pair(p fdb.KeyValue) kv.Pair {
	value := p.Value
	if value == nil {
		value = []byte{}
	}
	return kv.Pair{Key: p.Key[len(t.store.prefix):], Value: value}
}

// Scan implements kv.Txn.
func (t *txn) Scan(ctx context.Context, r kv.Range, fn func(kv.Pair) (bool, error)) error {
	stop, err := t.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	it := t.tr.Snapshot().GetRange(t.keyRange(r), fdb.RangeOptions{Mode: fdb.StreamingModeWantAll}).Iterator()
	for it.Advance() {
		found, err := it.Get()
		if err != nil {
			return fmt.Errorf("scan: %w", translate(ctx, err, false))
		}
		more, err := fn(t.pair(found))
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// Set implements kv.Txn.
func (t *txn) Set(key, value []byte) {
	if len(key) > maxKey || len(value) > maxValue {
		t.tooLarge("key of %d bytes, value of %d", len(key), len(value))
		return
	}
	t.wrote = true
	t.size += len(key) + len(value)
	if t.size <= maxBytes { // what is over the limit is never sent
		t.tr.Set(t.in(key), value)
	}
}

// Clear implements kv.Txn.
func (t *txn) Clear(key []byte) {
	t.wrote = true
	t.size += len(key)
	t.tr.Clear(t.in(key))
}

// Add adds n to a little-endian number of 8 bytes without reading it, and so without a conflict
// between two Adds. It is no part of kv.Txn; the comparison of allocators (cmd/bench) uses it.
func (t *txn) Add(key []byte, n uint64) {
	t.wrote = true
	t.size += len(key) + 8
	t.tr.Add(t.in(key), binary.LittleEndian.AppendUint64(nil, n))
}

func (t *txn) tooLarge(format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf("%w: "+format, append([]any{kv.ErrTooLarge}, args...)...)
	}
}

// Commit implements kv.Txn. What a transaction reads from FoundationDB is durable already, so one
// without writes has nothing to send.
func (t *txn) Commit(ctx context.Context) error {
	if t.done {
		return errors.New("transaction is over")
	}
	if t.size > maxBytes {
		t.tooLarge("%d bytes", t.size)
	}
	if t.err != nil {
		return t.err
	}
	stop, err := t.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	t.done = true
	if !t.wrote {
		return nil
	}
	if err := t.tr.Commit().Get(); err != nil {
		return fmt.Errorf("commit: %w", translate(ctx, err, true))
	}
	return nil
}

// Close implements kv.Txn.
func (t *txn) Close() {
	if t.closed {
		return
	}
	t.closed = true
	if !t.done {
		t.tr.Cancel()
	}
}
