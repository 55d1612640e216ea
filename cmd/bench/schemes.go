package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/intern"
	"millrace/intern/kv"
)

// benchSchemes prints a table for each store: every scheme of giving UIDs, with every number of
// workers.
func benchSchemes(ctx context.Context, f *internFlags, out io.Writer) error {
	stores := []string{"sim", "pebble"}
	if f.store != "" {
		stores = []string{f.store}
	}
	for _, store := range stores {
		fmt.Fprintf(out, "Store %s, both directions written, strings that are all new, %v a cell.\n\n", store, f.cell)
		fmt.Fprint(out, "| scheme | workers | UIDs/s | conflicts | p50 ms | p99 ms |\n|---|---:|---:|---:|---:|---:|\n")
		for _, s := range schemes() {
			for _, workers := range f.workers {
				if err := s.measure(ctx, f, store, workers, out); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
		}
		fmt.Fprintln(out)
	}
	return nil
}

// measure has workers intern batches, one after the other each, until the time is up, and prints
// the row.
func (s scheme) measure(ctx context.Context, f *internFlags, storeName string, workers int, out io.Writer) error {
	inner, remove, err := newInternStore(ctx, f, storeName, "schemes")
	if err != nil {
		return err
	}
	defer remove()
	store := &countedStore{Store: inner}
	var in *intern.Interner
	if s.alloc == nil {
		if in, err = openInterner(ctx, store, workers, nil); err != nil {
			return err
		}
		defer in.Close()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	source := newTraffic()
	var taken latencies
	var uids atomic.Uint64
	begun := time.Now()
	var wg sync.WaitGroup
	for n := range workers {
		w := &schemeWorker{rand.New(rand.NewPCG(trafficSeed, uint64(n))), snowflake{now: time.Now, shard: uint64(n)}}
		wg.Go(func() {
			b := newBatch(s.batch)
			for time.Since(begun) < f.cell {
				source.next(b)
				start := time.Now()
				var err error
				if in != nil {
					err = in.Resolve(ctx, b.reqs, b.out)
				} else {
					err = s.intern(ctx, store, w, b)
				}
				if err != nil {
					cancel(err)
					return
				}
				taken.add(time.Since(start))
				uids.Add(uint64(s.batch))
			}
		})
	}
	wg.Wait()
	perSecond := float64(uids.Load()) / time.Since(begun).Seconds()
	conflicts, committed := float64(store.conflicts.Load()), float64(store.committed.Load())
	p50, p99 := taken.take()
	fmt.Fprintf(out, "| %s | %d | %.0f | %.2f %% | %s | %s |\n", s.name, workers, perSecond, 100*conflicts/max(conflicts+committed, 1), ms(p50), ms(p99))
	return context.Cause(ctx)
}

// intern interns a batch in one transaction: the whole string is the key, and the value of the
// other direction.
func (s scheme) intern(ctx context.Context, store kv.Store, w *schemeWorker, b *batch) error {
	keys, values := make([][]byte, len(b.reqs)), make([][]byte, len(b.reqs))
	for i := range b.reqs {
		keys[i] = append([]byte{'k'}, uri(&b.reqs[i])...)
	}
	return kv.Run(ctx, store, func(txn kv.Txn) error {
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

// countedStore counts commits.
type countedStore struct {
	kv.Store
	committed, conflicts atomic.Uint64
}

func (s *countedStore) Begin(ctx context.Context) (kv.Txn, error) {
	txn, err := s.Store.Begin(ctx)
	return &countedTxn{Txn: txn, store: s}, err
}

type countedTxn struct {
	kv.Txn
	store *countedStore
}

func (t *countedTxn) Commit(ctx context.Context) error {
	err := t.Txn.Commit(ctx)
	switch {
	case err == nil:
		t.store.committed.Add(1)
	case errors.Is(err, kv.ErrConflict):
		t.store.conflicts.Add(1)
	}
	return err
}
