package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"millrace/intern"
	"millrace/intern/kv"
)

// A scheme gives UIDs to the strings of a batch in one transaction, which also reads whether they
// have one and writes both directions. alloc sets uids to UIDs that no other string has once txn
// commits; nil: the Interner's own.
type scheme struct {
	name  string
	batch int // strings a transaction
	alloc func(ctx context.Context, txn kv.Txn, w *caller, uids []uint64) error
	store string // the only one that it works on; "": all
}

func schemes() []scheme {
	return []scheme{
		{"one counter, batches of 500", 500, allocCounter, ""},
		{"random sequence per string", 1, allocRandom, ""},
		{"FoundationDB's allocator, string by string", 1, allocWindow, "fdb"},
		{"Snowflake, batches of 500", 500, allocSnowflake, ""},
		{"batched sequences (millrace)", 500, nil, ""},
	}
}

// benchSchemes prints a table for each store: every scheme of giving UIDs, with every number of
// workers.
func (f *internFlags) benchSchemes(ctx context.Context) error {
	stores := []string{"sim", "pebble"}
	if f.store != "" {
		stores = []string{f.store}
	}
	for _, store := range stores {
		fmt.Fprintf(f.out, "Store %s, both directions written, strings that are all new, %v a cell.\n\n", store, f.cell)
		t := newTable(f.out, "scheme", "workers", "UIDs/s", "conflicts", "p50 ms", "p99 ms")
		for _, s := range schemes() {
			if s.store != "" && s.store != store {
				continue
			}
			for _, workers := range f.workers {
				if err := s.measure(ctx, f, store, workers, t); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
		}
		if err := t.end(); err != nil {
			return err
		}
	}
	return nil
}

// measure has workers intern batches until the time is up, and prints the row.
func (s scheme) measure(ctx context.Context, f *internFlags, storeName string, workers int, t *table) error {
	store, remove, err := newInternStore(ctx, f, storeName)
	if err != nil {
		return err
	}
	defer remove()
	var attempts, committed atomic.Int64
	l := &loader{source: newTraffic(), block: s.batch, callers: workers, resolve: func(ctx context.Context, w *caller, b *batch) error {
		defer committed.Add(1)
		return s.intern(ctx, store, w, b, &attempts)
	}}
	conflicts := func() float64 { return float64(attempts.Load() - committed.Load()) }
	if s.alloc == nil {
		in, registry, err := openInterner(ctx, store, workers, true)
		if err != nil {
			return err
		}
		defer in.Close()
		l.resolve = newLoader(in, s.batch, workers).resolve
		conflicts = func() float64 {
			committed.Store(int64(internCount(registry, "transactions")))
			return internCount(registry, "retries")
		}
	}
	rate, err := l.run(ctx, lasting(f.cell), nil)
	if err != nil {
		return err
	}
	n := conflicts()
	t.row(s.name, workers, fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.2f %%", 100*n/max(n+float64(committed.Load()), 1)), l.took.p50(), l.took.p99())
	return nil
}

// intern interns a batch in one transaction. It writes two keys a string: string to UID, and UID to
// string.
func (s scheme) intern(ctx context.Context, store kv.Store, w *caller, b *batch, attempts *atomic.Int64) error {
	keys, values := make([][]byte, len(b.reqs)), make([][]byte, len(b.reqs))
	for i := range b.reqs {
		keys[i] = append([]byte{'k'}, uri(&b.reqs[i])...)
	}
	return kv.Run(ctx, store, func(txn kv.Txn) error {
		attempts.Add(1)
		// the strings are new, but the read is part of the work
		if err := txn.Get(ctx, keys, values); err != nil {
			return err
		}
		uids := make([]uint64, len(keys))
		if err := s.alloc(ctx, txn, w, uids); err != nil {
			return err
		}
		for i, uid := range uids {
			txn.Set(keys[i], binary.BigEndian.AppendUint64(nil, uid))
			txn.Set(binary.BigEndian.AppendUint64([]byte{'u'}, uid), keys[i][1:])
		}
		return nil
	})
}

// raise takes n UIDs from the counter under key.
func raise(ctx context.Context, txn kv.Txn, key []byte, n int) (first uint64, err error) {
	value, err := kv.GetOne(ctx, txn, key)
	if err != nil {
		return 0, err
	}
	var last uint64
	if value != nil {
		last = binary.BigEndian.Uint64(value)
	}
	txn.Set(key, binary.BigEndian.AppendUint64(nil, last+uint64(n)))
	return last + 1, nil
}

func allocCounter(ctx context.Context, txn kv.Txn, _ *caller, uids []uint64) error {
	first, err := raise(ctx, txn, []byte{'n'}, len(uids))
	for i := range uids {
		uids[i] = first + uint64(i)
	}
	return err
}

func allocRandom(ctx context.Context, txn kv.Txn, w *caller, uids []uint64) error {
	for i := range uids {
		sequence := w.rng.Uint64N(1 << intern.DefaultPrefixBits)
		n, err := raise(ctx, txn, binary.BigEndian.AppendUint16([]byte{'s'}, uint16(sequence)), 1)
		if err != nil {
			return err
		}
		uids[i] = sequence<<(64-intern.DefaultPrefixBits) | n
	}
	return nil
}

func allocSnowflake(_ context.Context, _ kv.Txn, w *caller, uids []uint64) error {
	for i := range uids {
		uids[i] = w.snowflake.next()
	}
	return nil
}

// snowflake makes UIDs of 41 bits of milliseconds, 10 bits of shard and 12 bits of sequence. It
// never goes back: while the clock is behind, or a millisecond is used up, it uses the milliseconds
// after the last used one.
type snowflake struct {
	now   func() time.Time
	shard uint64
	milli uint64
	seq   uint64
}

func (s *snowflake) next() uint64 {
	if milli := uint64(s.now().UnixMilli()); milli > s.milli {
		s.milli, s.seq = milli, 0
	} else if s.seq++; s.seq == 1<<12 {
		s.milli, s.seq = s.milli+1, 0
	}
	return s.milli&(1<<41-1)<<22 | s.shard&(1<<10-1)<<12 | s.seq
}
