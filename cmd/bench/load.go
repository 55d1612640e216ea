package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern"
	"millrace/intern/kv/pebblekv"
)

// benchLoad interns new URIs of mostly known DIDs on the embedded store, durably, and shows what it
// costs.
func benchLoad(ctx context.Context, f *internFlags, out io.Writer) error {
	if f.store == "fdb" {
		return loadFoundation(ctx, f, out)
	}
	dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store, err := pebblekv.Open(pebblekv.Config{Dir: dir, CacheBytes: int64(f.blockMiB) << 20, MemTableBytes: int64(f.memTableMiB) << 20})
	if err != nil {
		return err
	}
	defer store.Close()
	in, err := intern.Open(ctx, intern.Config{Store: store, Workers: f.loadWorkers, CacheBytes: int64(f.cacheMiB) << 20})
	if err != nil {
		return err
	}
	defer in.Close()
	fmt.Fprintf(out, "Embedded store, new URIs, %d URIs a DID, batches of %d, %d in flight, %d workers; "+
		"caches: %d MiB UIDs, %d MiB blocks, memtables of %d MiB; %d CPUs.\n\n", f.perDID, f.block, f.callers, f.loadWorkers,
		f.cacheMiB, f.blockMiB, f.memTableMiB, runtime.NumCPU())
	fmt.Fprintln(out, "| URIs | URIs/s since the row before | p50 ms a batch | p99 ms | bytes a URI as it lies | compacted | write amplification | peak heap MiB |")
	fmt.Fprintln(out, "|---:|---:|---:|---:|---:|---:|---:|---:|")
	l := &loader{in: in, traffic: newTraffic(f.seed, f.perDID), block: f.block, callers: f.callers, rate: f.rate}
	done := 0
	for _, n := range f.uris {
		if n <= done {
			return fmt.Errorf("-uris does not ascend")
		}
		begun := time.Now()
		if err := l.run(ctx, n-done); err != nil {
			return err
		}
		seconds := time.Since(begun).Seconds()
		p50, p99 := l.latencies.take()
		before := store.Metrics()
		compactStart := time.Now()
		if err := store.Compact(ctx); err != nil {
			return err
		}
		after := store.Metrics()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		fmt.Fprintf(out, "| %d | %.0f | %s | %s | %.1f | %.1f | %.2f | %d |\n", n, float64(n-done)/seconds, ms(p50), ms(p99),
			float64(before.DiskSpaceUsage())/float64(n), float64(tableBytes(after))/float64(n), writeAmplification(before), mem.Sys>>20)
		fmt.Fprintf(os.Stderr, "compacting at %d URIs took %.1f s\n%s\n", n, time.Since(compactStart).Seconds(), after)
		done = n
	}
	fmt.Fprintln(out)
	return nil
}

// tableBytes is the size of all tables.
func tableBytes(m *pebble.Metrics) (size int64) {
	for _, l := range m.Levels {
		size += l.TablesSize
	}
	return size
}

// writeAmplification is what was written to disk, log included, by what was given to the store.
func writeAmplification(m *pebble.Metrics) float64 {
	written := m.WAL.BytesWritten
	for _, l := range m.Levels {
		written += l.TableBytesFlushed + l.TableBytesCompacted
	}
	return float64(written) / float64(m.WAL.BytesIn)
}

// loader interns records from several goroutines.
type loader struct {
	in        *intern.Interner
	traffic   *traffic
	block     int
	callers   int
	rate      int // URIs a second; 0: no limit
	latencies latencies
}

// run interns n new URIs.
func (l *loader) run(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left atomic.Int64
	left.Store(int64(n))
	begun := time.Now()
	var wg sync.WaitGroup
	for range l.callers {
		wg.Go(func() {
			b := newBatch(l.block)
			for ctx.Err() == nil {
				rest := left.Add(-int64(l.block))
				if rest <= -int64(l.block) {
					return
				}
				if l.rate > 0 {
					due := begun.Add(time.Duration(float64(int64(n)-rest) / float64(l.rate) * float64(time.Second)))
					time.Sleep(time.Until(due))
				}
				l.traffic.next(b)
				start := time.Now()
				if err := l.in.Resolve(ctx, b.reqs, b.out); err != nil {
					cancel(err)
					return
				}
				l.latencies.add(time.Since(start))
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
