package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern"
	"millrace/intern/kv/pebblekv"
)

// loadWorkers is how many transactions are in flight.
const loadWorkers = 4

// benchLoad interns new URIs of mostly known DIDs, durably, and shows what it costs: of the
// embedded store also on disk. What a FoundationDB cluster takes it reports itself (fdbcli status).
func benchLoad(ctx context.Context, f *internFlags, out io.Writer) error {
	name := cmp.Or(f.store, "pebble")
	store, remove, err := newInternStore(ctx, f, name, "load")
	if err != nil {
		return err
	}
	embedded, _ := store.(*pebblekv.Store)
	if embedded != nil || !f.keep {
		defer remove()
	}
	in, err := openInterner(ctx, store, loadWorkers, nil)
	if err != nil {
		return err
	}
	defer in.Close()
	fmt.Fprintf(out, "Store %s, new URIs, %d URIs a DID, batches of %d, %d in flight, %d workers; %d CPUs.\n\n", name, urisPerDID, f.block,
		f.callers, loadWorkers, runtime.NumCPU())
	header, rule := "| URIs | URIs/s since the row before | p50 ms a batch | p99 ms |", "|---:|---:|---:|---:|"
	if embedded != nil {
		header, rule = header+" bytes a URI as it lies | compacted | write amplification | peak heap MiB |", rule+"---:|---:|---:|---:|"
	}
	fmt.Fprintf(out, "%s\n%s\n", header, rule)
	l := &loader{in: in, traffic: newTraffic(), block: f.block, callers: f.callers, rate: f.rate}
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
		fmt.Fprintf(out, "| %d | %.0f | %s | %s |", n, float64(n-done)/seconds, ms(p50), ms(p99))
		if embedded != nil {
			if err := printStore(ctx, out, embedded, n); err != nil {
				return err
			}
		}
		fmt.Fprintln(out)
		done = n
	}
	fmt.Fprintln(out)
	return nil
}

// printStore compacts a store with n URIs and prints the rest of its row.
func printStore(ctx context.Context, out io.Writer, store *pebblekv.Store, n int) error {
	before := store.Metrics()
	if err := store.Compact(ctx); err != nil {
		return err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	fmt.Fprintf(out, " %.1f | %.1f | %.2f | %d |", float64(before.DiskSpaceUsage())/float64(n), float64(tableBytes(store.Metrics()))/float64(n),
		writeAmplification(before), mem.Sys>>20)
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
