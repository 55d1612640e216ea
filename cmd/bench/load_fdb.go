package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"millrace/intern"
)

// loadFoundation is benchLoad on FoundationDB. What the cluster takes on its disks it reports
// itself (fdbcli status).
func loadFoundation(ctx context.Context, f *internFlags, out io.Writer) error {
	store, remove, err := foundationDirectory(ctx, f, "load")
	if err != nil {
		return err
	}
	if !f.keep {
		defer remove()
	}
	in, err := intern.Open(ctx, intern.Config{Store: store, Alone: true, Workers: f.loadWorkers, BatchStrings: max(f.block, 512), CacheBytes: int64(f.cacheMiB) << 20})
	if err != nil {
		return err
	}
	defer in.Close()
	fmt.Fprintf(out, "FoundationDB, new URIs, %d URIs a DID, batches of %d, %d in flight, %d workers.\n\n", f.perDID, f.block,
		f.callers, f.loadWorkers)
	fmt.Fprintln(out, "| URIs | URIs/s since the row before | p50 ms a batch | p99 ms |")
	fmt.Fprintln(out, "|---:|---:|---:|---:|")
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
		p50, p99 := l.latencies.take()
		fmt.Fprintf(out, "| %d | %.0f | %s | %s |\n", n, float64(n-done)/time.Since(begun).Seconds(), ms(p50), ms(p99))
		done = n
	}
	fmt.Fprintln(out)
	return nil
}
