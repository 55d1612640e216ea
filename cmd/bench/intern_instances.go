package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"millrace/intern"
	"millrace/intern/kv"
)

// instance is one of several Interners on a store.
type instance struct {
	in       *intern.Interner
	registry *prometheus.Registry
	l        *loader
	rate     float64
	sums     sync.Map // number of a batch -> hash of its UIDs
}

// sameUIDs reports whether the batches that all instances have done have the same UIDs, and how
// many they are.
func sameUIDs(all []instance) string {
	for n := 0; ; n++ {
		first, ok := all[0].sums.Load(n)
		for i := range all {
			sum, has := all[i].sums.Load(n)
			if !has || !ok {
				return fmt.Sprintf("yes, %d batches", n)
			}
			if sum != first {
				return fmt.Sprintf("NO, batch %d differs", n)
			}
		}
	}
}

// benchInstances has Interners that share one store resolve the same stream at the same time, each
// as if it were alone.
func (f *internFlags) benchInstances(ctx context.Context) error {
	name := cmp.Or(f.store, "fdb")
	fmt.Fprintf(f.out, "Store %s, Interners that resolve the same stream of new URIs, batches of %d, %d in flight each, %d workers each, %v.\n\n",
		name, f.block, f.callers, loadWorkers, f.runFor)
	t := newTable(f.out, "instances", "URIs/s each (least)", "of one alone", "transactions", "repeated", "p50 ms a batch", "p99 ms", "taken over", "same UIDs")
	var alone float64
	for _, n := range f.instances {
		store, remove, err := newInternStore(ctx, f, name)
		if err != nil {
			return err
		}
		all, err := runInstances(ctx, f, store, n)
		remove()
		if err != nil {
			return err
		}
		least, committed, retried, over, slowest := all[0].rate, 0.0, 0.0, 0.0, &all[0].l.took
		for i := range all {
			one := &all[i]
			least = min(least, one.rate)
			committed, retried = committed+internCount(one.registry, "transactions"), retried+internCount(one.registry, "retries")
			over += internCount(one.registry, "taken_over")
			if one.l.took.quantile(0.99) > slowest.quantile(0.99) {
				slowest = &one.l.took
			}
		}
		alone = cmp.Or(alone, least)
		t.row(n, fmt.Sprintf("%.0f", least), fmt.Sprintf("%.0f %%", 100*least/alone), committed,
			fmt.Sprintf("%.2f %%", 100*retried/max(committed+retried, 1)), slowest.p50(), slowest.p99(), over, sameUIDs(all))
	}
	return t.end()
}

// runInstances runs n Interners on a store and closes them.
func runInstances(ctx context.Context, f *internFlags, store kv.Store, n int) ([]instance, error) {
	all := make([]instance, n)
	for i := range all {
		one := &all[i]
		var err error
		if one.in, one.registry, err = openInterner(ctx, store, loadWorkers, false); err != nil {
			return nil, err
		}
		defer one.in.Close()
		one.l = newLoader(one.in, f.block, f.callers)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range all {
		one := &all[i]
		g.Go(func() (err error) {
			one.rate, err = one.l.run(ctx, lasting(f.runFor), func(b *batch) { one.sums.Store(b.number, hashUIDs(b)) })
			return err
		})
	}
	return all, g.Wait()
}

// hashUIDs returns a hash of a batch's UIDs.
func hashUIDs(b *batch) uint64 {
	var buf []byte
	for _, r := range b.out {
		buf = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(buf, r.DIDUID), r.URIUID)
	}
	return xxhash.Sum64(buf)
}
