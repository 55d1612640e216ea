package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/intern"
	"millrace/intern/kv"
	"millrace/intern/kv/pebblekv"
	"millrace/intern/kv/simkv"
)

// The simulated store takes as long as a server in the next rack.
const (
	simRead   = 500 * time.Microsecond
	simCommit = 1500 * time.Microsecond
)

// newInternStore makes an empty store: sim, pebble or fdb. remove closes and deletes it.
func newInternStore(ctx context.Context, f *internFlags, name string) (_ kv.Store, remove func(), err error) {
	switch name {
	case "sim":
		return simkv.New(simkv.Config{Seed: trafficSeed, ReadLatency: simRead, CommitLatency: simCommit}), func() {}, nil
	case "fdb":
		return foundationDirectory(ctx, f)
	}
	dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
	if err != nil {
		return nil, nil, err
	}
	p, err := pebblekv.Open(pebblekv.Config{Dir: dir, CacheBytes: 64 << 20, MemTableBytes: 32 << 20})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, func() { _ = p.Close(); _ = os.RemoveAll(dir) }, nil
}

// openInterner opens an Interner with so many workers, and a registry that has its metrics.
func openInterner(ctx context.Context, store kv.Store, workers int, alone bool) (*intern.Interner, *prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	in, err := intern.Open(ctx, intern.Config{Store: store, Workers: workers, CacheBytes: 16 << 20, Alone: alone, Registerer: registry})
	return in, registry, err
}

// internCount returns the sum of an Interner's counter millrace_intern_NAME_total.
func internCount(registry *prometheus.Registry, name string) (sum float64) {
	families, _ := registry.Gather() // what there is
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "millrace_intern_"+name+"_total" {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
