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

// A scheme gives UIDs to the strings of a batch in one transaction, which also reads whether they have one and writes both
// directions. alloc sets uids to UIDs that nobody else has once txn commits.
type scheme struct {
	name  string
	batch int // strings a transaction
	alloc func(ctx context.Context, txn kv.Txn, w *schemeWorker, uids []uint64) error
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
	took      uint64 // UIDs taken, used or not; counters give theirs back with the transaction
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

func allocCounter(ctx context.Context, txn kv.Txn, w *schemeWorker, uids []uint64) error {
	first, err := raise(ctx, txn, []byte{'n'}, len(uids))
	for i := range uids {
		uids[i] = first + uint64(i)
	}
	return err
}

func allocRandom(ctx context.Context, txn kv.Txn, w *schemeWorker, uids []uint64) error {
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

func allocSnowflake(_ context.Context, _ kv.Txn, w *schemeWorker, uids []uint64) error {
	for i := range uids {
		uids[i] = w.snowflake.next()
		w.took++
	}
	return nil
}

// snowflake makes UIDs of 41 bits of milliseconds, 10 bits of shard and 12 bits of sequence. It never goes back: while the
// clock is behind what was used, or a millisecond is used up, it goes on in the milliseconds after the last used one.
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

// cell is one scheme with one number of workers on one store.
type cell struct {
	uids      uint64
	wasted    uint64
	conflicts float64 // share of the commits
	seconds   float64
	latencies latencies
	windowed  bool // the scheme leaves holes
}

func benchSchemes(ctx context.Context, f *internFlags, out io.Writer) error {
	for _, name := range strings.Split(f.internStores, ",") {
		switch name {
		case "sim":
			fmt.Fprintf(out, "Simulated store, %v a read, %v a commit, both directions written, strings that are all new, %v a cell.\n\n", f.readDelay, f.commitDelay, f.cell)
		case "fdb":
			fmt.Fprintf(out, "FoundationDB, both directions written, strings that are all new, %v a cell.\n\n", f.cell)
		case "pebble":
			fmt.Fprintf(out, "Pebble, each commit synced, both directions written, strings that are all new, %v a cell.\n\n", f.cell)
		default:
			return fmt.Errorf("-stores %q: not sim, pebble or fdb", name)
		}
		fmt.Fprintln(out, "| scheme | workers | UIDs/s | conflicts | p50 ms | p99 ms | UIDs wasted |")
		fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|")
		for _, s := range schemes() {
			for _, workers := range f.workers {
				if !strings.Contains(s.name, f.schemes) {
					continue
				}
				c, err := schemeOn(ctx, f, name, s, workers)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				p50, p99 := c.latencies.take()
				fmt.Fprintf(out, "| %s | %d | %.0f | %.2f %% | %s | %s | %d |\n", s.name, workers, float64(c.uids)/c.seconds,
					100*c.conflicts, ms(p50), ms(p99), c.wasted)
			}
		}
		fmt.Fprintln(out)
	}
	return nil
}

// schemeOn measures one cell on a new store.
func schemeOn(ctx context.Context, f *internFlags, storeName string, s scheme, workers int) (*cell, error) {
	var store countedStore
	switch storeName {
	case "sim":
		store.Store = simkv.New(simkv.Config{Seed: f.seed, ReadLatency: f.readDelay, CommitLatency: f.commitDelay})
	case "fdb":
		in, remove, err := foundationDirectory(ctx, f, "schemes")
		if err != nil {
			return nil, err
		}
		defer remove()
		store.Store = in
	default:
		dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		p, err := pebblekv.Open(pebblekv.Config{Dir: dir, CacheBytes: int64(f.blockMiB) << 20, MemTableBytes: int64(f.memTableMiB) << 20})
		if err != nil {
			return nil, err
		}
		defer p.Close()
		store.Store = p
	}
	source := newTraffic(f.seed, f.perDID, f.tids == "random")
	c := &cell{}
	var err error
	c.windowed = strings.HasPrefix(s.name, "FoundationDB's")
	if s.alloc == nil {
		err = runInterner(ctx, f, &store, s, workers, source, c)
	} else {
		err = runScheme(ctx, f, &store, s, workers, source, c)
	}
	if err == nil && c.windowed {
		c.wasted, err = windowWaste(ctx, store.Store, c.uids)
	}
	if total := store.committed.Load() + store.conflicts.Load(); total > 0 {
		c.conflicts = float64(store.conflicts.Load()) / float64(total)
	}
	return c, err
}

// runScheme has workers run the scheme's transactions one after the other until the time is up.
func runScheme(ctx context.Context, f *internFlags, store kv.Store, s scheme, workers int, source *traffic, c *cell) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var uids, took atomic.Uint64
	begun := time.Now()
	var wg sync.WaitGroup
	for n := range workers {
		wg.Go(func() {
			w := &schemeWorker{rng: rand.New(rand.NewPCG(f.seed, uint64(n))), snowflake: snowflake{now: time.Now, shard: uint64(n)}}
			b := newBatch(s.batch)
			for time.Since(begun) < f.cell {
				source.next(b)
				start := time.Now()
				if err := kv.Run(ctx, store, func(txn kv.Txn) error { return internPlainly(ctx, txn, s, w, b) }); err != nil {
					cancel(err)
					return
				}
				c.latencies.add(time.Since(start))
				uids.Add(uint64(s.batch))
			}
			took.Add(w.took)
		})
	}
	wg.Wait()
	c.uids, c.seconds = uids.Load(), time.Since(begun).Seconds()
	if took.Load() > 0 {
		c.wasted = took.Load() - c.uids
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// internPlainly is one transaction: the whole string is the key, and the value of the other direction.
func internPlainly(ctx context.Context, txn kv.Txn, s scheme, w *schemeWorker, b *batch) error {
	keys, values := make([][]byte, len(b.reqs)), make([][]byte, len(b.reqs))
	for i := range b.reqs {
		keys[i] = append([]byte{'k'}, uri(&b.reqs[i])...)
	}
	if err := txn.Get(ctx, keys, values); err != nil {
		return err
	}
	uids := make([]uint64, len(keys)) // none of the strings was there before, but the read is part of the work
	if err := s.alloc(ctx, txn, w, uids); err != nil {
		return err
	}
	for i, uid := range uids {
		txn.Set(keys[i], binary.BigEndian.AppendUint64(nil, uid))
		txn.Set(binary.BigEndian.AppendUint64([]byte{'u'}, uid), keys[i][1:])
	}
	return nil
}

// runInterner measures the Interner itself, with as many batches in flight as workers.
func runInterner(ctx context.Context, f *internFlags, store kv.Store, s scheme, workers int, source *traffic, c *cell) error {
	in, err := intern.Open(ctx, intern.Config{Store: store, Alone: true, Workers: workers, Seed: f.seed, CacheBytes: int64(f.cacheMiB) << 20})
	if err != nil {
		return err
	}
	defer in.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var uris atomic.Uint64
	begun := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			b := newBatch(s.batch)
			for time.Since(begun) < f.cell {
				source.next(b)
				start := time.Now()
				if err := in.Resolve(ctx, b.reqs, b.out); err != nil {
					cancel(err)
					return
				}
				c.latencies.add(time.Since(start))
				uris.Add(uint64(s.batch))
			}
		})
	}
	wg.Wait()
	c.uids, c.seconds = uris.Load(), time.Since(begun).Seconds()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_ = in.Close()
	report, err := intern.Verify(ctx, store, nil)
	if err == nil && !report.Sound() {
		err = fmt.Errorf("store is not sound: %v", report.Examples)
	}
	if err == nil {
		c.wasted = report.Given - report.DIDs - report.URIs
	}
	return err
}
