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
func newInternStore(ctx context.Context, f *internFlags, store, name string) (_ kv.Store, remove func(), err error) {
	switch store {
	case "sim":
		return simkv.New(simkv.Config{Seed: trafficSeed, ReadLatency: simRead, CommitLatency: simCommit}), func() {}, nil
	case "fdb":
		return foundationDirectory(ctx, f, name)
	}
	dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
	if err != nil {
		return nil, nil, err
	}
	p, err := openEmbedded(dir)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, func() { _ = p.Close(); _ = os.RemoveAll(dir) }, nil
}

func openEmbedded(dir string) (*pebblekv.Store, error) {
	return pebblekv.Open(pebblekv.Config{Dir: dir, CacheBytes: 64 << 20, MemTableBytes: 32 << 20})
}

// openInterner opens an Interner with so many workers. With a registry it shares the store with
// others, without one it is alone.
func openInterner(ctx context.Context, store kv.Store, workers int, registry *prometheus.Registry) (*intern.Interner, error) {
	cfg := intern.Config{Store: store, Workers: workers, CacheBytes: 16 << 20, Alone: registry == nil}
	if registry != nil {
		cfg.Registerer = registry
	}
	return intern.Open(ctx, cfg)
}
