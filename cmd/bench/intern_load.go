package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"

	"millrace/intern"
	"millrace/intern/kv/pebblekv"
)

// loadWorkers is how many transactions of an Interner are in flight.
const loadWorkers = 4

// loader has several callers resolve batches of new strings, one after the other each.
type loader struct {
	source  *traffic
	block   int // strings a batch
	callers int
	resolve func(ctx context.Context, w *caller, b *batch) error
	took    lags // durations of batches
}

// caller is one of a loader's callers.
type caller struct {
	rng       *rand.Rand
	snowflake snowflake
}

// newLoader returns one whose batches in resolves.
func newLoader(in *intern.Interner, block, callers int) *loader {
	return &loader{source: newTraffic(), block: block, callers: callers,
		resolve: func(ctx context.Context, _ *caller, b *batch) error { return in.Resolve(ctx, b.reqs, b.out) }}
}

// run resolves batches while more says so, and returns how many strings a second that were. done is
// called after each, from any caller; nil: nothing is.
func (l *loader) run(ctx context.Context, more func() bool, done func(b *batch)) (perSecond float64, err error) {
	g, ctx := errgroup.WithContext(ctx)
	var resolved atomic.Int64
	begun := time.Now()
	for n := range l.callers {
		g.Go(func() error {
			w := &caller{rand.New(rand.NewPCG(trafficSeed, uint64(n))), snowflake{now: time.Now, shard: uint64(n)}}
			for b := newBatch(l.block); more() && ctx.Err() == nil; {
				l.source.next(b)
				start := time.Now()
				if err := l.resolve(ctx, w, b); err != nil {
					return err
				}
				l.took.add(time.Since(start))
				resolved.Add(int64(l.block))
				if done != nil {
					done(b)
				}
			}
			return context.Cause(ctx)
		})
	}
	err = g.Wait()
	return float64(resolved.Load()) / time.Since(begun).Seconds(), err
}

// batches returns a function that is true for its first n calls, one a batch.
func batches(n int) func() bool {
	var begun atomic.Int64
	return func() bool { return begun.Add(1) <= int64(n) }
}

// lasting returns a function that is true until d has passed.
func lasting(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().Before(end) }
}

// benchLoad interns new URIs of mostly known DIDs, durably. It prints the rate and, for the
// embedded store, the bytes on disk. The disk use of a FoundationDB cluster is in fdbcli status.
func (f *internFlags) benchLoad(ctx context.Context) error {
	name := cmp.Or(f.store, "pebble")
	store, remove, err := newInternStore(ctx, f, name)
	if err != nil {
		return err
	}
	embedded, _ := store.(*pebblekv.Store)
	if embedded != nil || !f.keep {
		defer remove()
	}
	in, _, err := openInterner(ctx, store, loadWorkers, true)
	if err != nil {
		return err
	}
	defer in.Close()
	fmt.Fprintf(f.out, "Store %s, new URIs, %d URIs a DID, batches of %d, %d in flight, %d workers; %d CPUs.\n\n", name, urisPerDID, f.block,
		f.callers, loadWorkers, runtime.NumCPU())
	heads := []string{"URIs", "URIs/s since the row before", "p50 ms a batch", "p99 ms"}
	if embedded != nil {
		heads = append(heads, "bytes a URI as it lies", "compacted", "write amplification", "peak heap MiB")
	}
	t := newTable(f.out, heads...)
	l, done := newLoader(in, f.block, f.callers), 0
	for _, n := range f.uris {
		if n <= done {
			return fmt.Errorf("the numbers of -uris must ascend")
		}
		l.took = lags{}
		rate, err := l.run(ctx, batches((n-done+f.block-1)/f.block), nil)
		if err != nil {
			return err
		}
		cells := []any{n, fmt.Sprintf("%.0f", rate), l.took.p50(), l.took.p99()}
		if embedded != nil {
			before := embedded.Metrics()
			if err := embedded.Compact(ctx); err != nil {
				return err
			}
			var mem runtime.MemStats
			runtime.ReadMemStats(&mem)
			_, written := tableBytes(before)
			tables, _ := tableBytes(embedded.Metrics())
			cells = append(cells, fmt.Sprintf("%.1f", float64(before.DiskSpaceUsage())/float64(n)), fmt.Sprintf("%.1f", float64(tables)/float64(n)),
				fmt.Sprintf("%.2f", float64(written+int64(before.WAL.BytesWritten))/float64(before.WAL.BytesIn)), mem.Sys>>20)
		}
		t.row(cells...)
		done = n
	}
	return t.end()
}

// tableBytes is the size of all tables of a Pebble store, and what was written to tables.
func tableBytes(m *pebble.Metrics) (size, written int64) {
	for _, l := range m.Levels {
		size += l.TablesSize
		written += int64(l.TableBytesFlushed + l.TableBytesCompacted)
	}
	return size, written
}
