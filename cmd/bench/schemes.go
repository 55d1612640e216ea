package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/intern"
	"millrace/intern/kv"
	"millrace/intern/kv/pebblekv"
	"millrace/intern/kv/simkv"
)

// benchSchemes prints a table for each store: every scheme of giving UIDs, with every number of
// workers.
func benchSchemes(ctx context.Context, f *internFlags, out io.Writer) error {
	for _, store := range strings.Split(f.internStores, ",") {
		if store != "sim" && store != "fdb" && store != "pebble" {
			return fmt.Errorf("-stores %q: not sim, pebble or fdb", store)
		}
		fmt.Fprintf(out, "Store %s, both directions written, strings that are all new, %v a cell", store, f.cell)
		if store == "sim" {
			fmt.Fprintf(out, ", %v a read, %v a commit", f.readDelay, f.commitDelay)
		}
		fmt.Fprint(out, ".\n\n| scheme | workers | UIDs/s | conflicts | p50 ms | p99 ms |\n|---|---:|---:|---:|---:|---:|\n")
		for _, s := range schemes() {
			if !strings.Contains(s.name, f.schemes) {
				continue
			}
			for _, workers := range f.workers {
				c, err := measureScheme(ctx, f, store, s, workers)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				p50, p99 := c.latencies.take()
				fmt.Fprintf(out, "| %s | %d | %.0f | %.2f %% | %s | %s |\n", s.name, workers, c.perSecond, 100*c.conflicts, ms(p50), ms(p99))
			}
		}
		fmt.Fprintln(out)
	}
	return nil
}

// cell is one scheme with one number of workers on one store.
type cell struct {
	perSecond float64 // UIDs
	conflicts float64 // share of the commits
	latencies latencies
}

// measureScheme has workers intern batches, one after the other each, until the time is up.
func measureScheme(ctx context.Context, f *internFlags, storeName string, s scheme, workers int) (*cell, error) {
	inner, remove, err := newSchemeStore(ctx, f, storeName)
	if err != nil {
		return nil, err
	}
	defer remove()
	store := &countedStore{Store: inner}
	resolve := s.resolver(store, f.seed)
	if s.alloc == nil {
		in, err := intern.Open(ctx, intern.Config{Store: store, Alone: true, Workers: workers, Seed: f.seed, CacheBytes: int64(f.cacheMiB) << 20})
		if err != nil {
			return nil, err
		}
		defer in.Close()
		resolve = func(ctx context.Context, _ int, b *batch) error { return in.Resolve(ctx, b.reqs, b.out) }
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, source := &cell{}, newTraffic(f.seed, f.perDID)
	var uids atomic.Uint64
	begun := time.Now()
	var wg sync.WaitGroup
	for n := range workers {
		wg.Go(func() {
			b := newBatch(s.batch)
			for time.Since(begun) < f.cell {
				source.next(b)
				start := time.Now()
				if err := resolve(ctx, n, b); err != nil {
					cancel(err)
					return
				}
				c.latencies.add(time.Since(start))
				uids.Add(uint64(s.batch))
			}
		})
	}
	wg.Wait()
	c.perSecond = float64(uids.Load()) / time.Since(begun).Seconds()
	if total := store.committed.Load() + store.conflicts.Load(); total > 0 {
		c.conflicts = float64(store.conflicts.Load()) / float64(total)
	}
	return c, context.Cause(ctx)
}

func newSchemeStore(ctx context.Context, f *internFlags, name string) (store kv.Store, remove func(), err error) {
	switch name {
	case "sim":
		return simkv.New(simkv.Config{Seed: f.seed, ReadLatency: f.readDelay, CommitLatency: f.commitDelay}), func() {}, nil
	case "fdb":
		return foundationDirectory(ctx, f, "schemes")
	}
	dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
	if err != nil {
		return nil, nil, err
	}
	p, err := pebblekv.Open(pebblekv.Config{Dir: dir, CacheBytes: int64(f.blockMiB) << 20, MemTableBytes: int64(f.memTableMiB) << 20})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, func() { _ = p.Close(); _ = os.RemoveAll(dir) }, nil
}

// A scheme gives UIDs to the strings of a batch in one transaction, which also reads whether they
// have one and writes both directions. alloc sets uids to UIDs that no other string has once txn
// commits; nil: the Interner's own.
type scheme struct {
	name  string
	batch int // strings a transaction
	alloc func(ctx context.Context, txn *countedTxn, w *schemeWorker, uids []uint64) error
}

func schemes() []scheme {
	return []scheme{
		{"one counter, string by string", 1, allocCounter},
		{"one counter, batches of 500", 500, allocCounter},
		{"random sequence per string", 1, allocRandom},
		{"FoundationDB's allocator, string by string", 1, allocWindow},
		{"Snowflake, string by string", 1, allocSnowflake},
		{"Snowflake, batches of 500", 500, allocSnowflake},
		{"batched sequences (millrace)", 500, nil},
	}
}

// schemeWorker is one worker of a scheme.
type schemeWorker struct {
	rng       *rand.Rand
	snowflake snowflake
}

// resolver returns what interns a batch for worker n: the whole string is the key, and the value of
// the other direction.
func (s scheme) resolver(store *countedStore, seed uint64) func(ctx context.Context, n int, b *batch) error {
	var workers sync.Map
	return func(ctx context.Context, n int, b *batch) error {
		v, _ := workers.LoadOrStore(n, &schemeWorker{rand.New(rand.NewPCG(seed, uint64(n))), snowflake{now: time.Now, shard: uint64(n)}})
		keys, values := make([][]byte, len(b.reqs)), make([][]byte, len(b.reqs))
		for i := range b.reqs {
			keys[i] = append([]byte{'k'}, uri(&b.reqs[i])...)
		}
		return kv.Run(ctx, store, func(txn kv.Txn) error {
			if err := txn.Get(ctx, keys, values); err != nil {
				return err
			}
			// the strings are new, but the read is part of the work
			uids := make([]uint64, len(keys))
			if err := s.alloc(ctx, txn.(*countedTxn), v.(*schemeWorker), uids); err != nil {
				return err
			}
			for i, uid := range uids {
				txn.Set(keys[i], binary.BigEndian.AppendUint64(nil, uid))
				txn.Set(binary.BigEndian.AppendUint64([]byte{'u'}, uid), keys[i][1:])
			}
			return nil
		})
	}
}

// raise takes n UIDs from the counter under key.
func raise(ctx context.Context, txn kv.Txn, key []byte, n int) (first uint64, err error) {
	value := make([][]byte, 1)
	if err := txn.Get(ctx, [][]byte{key}, value); err != nil {
		return 0, err
	}
	var last uint64
	if value[0] != nil {
		last = binary.BigEndian.Uint64(value[0])
	}
	txn.Set(key, binary.BigEndian.AppendUint64(nil, last+uint64(n)))
	return last + 1, nil
}

func allocCounter(ctx context.Context, txn *countedTxn, _ *schemeWorker, uids []uint64) error {
	first, err := raise(ctx, txn, []byte{'n'}, len(uids))
	for i := range uids {
		uids[i] = first + uint64(i)
	}
	return err
}

func allocRandom(ctx context.Context, txn *countedTxn, w *schemeWorker, uids []uint64) error {
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

func allocSnowflake(_ context.Context, _ *countedTxn, w *schemeWorker, uids []uint64) error {
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

// countedStore counts commits with writes.
type countedStore struct {
	kv.Store
	committed, conflicts atomic.Uint64
}

func (s *countedStore) Begin(ctx context.Context) (kv.Txn, error) {
	txn, err := s.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &countedTxn{Txn: txn, store: s}, nil
}

type countedTxn struct {
	kv.Txn
	store *countedStore
	wrote bool
}

func (t *countedTxn) Set(key, value []byte) { t.wrote = true; t.Txn.Set(key, value) }

func (t *countedTxn) Commit(ctx context.Context) error {
	err := t.Txn.Commit(ctx)
	if err == nil && t.wrote {
		t.store.committed.Add(1)
	} else if errors.Is(err, kv.ErrConflict) {
		t.store.conflicts.Add(1)
	}
	return err
}
