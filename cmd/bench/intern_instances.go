package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/intern"
)

// instanceReport is what one instance of benchInstances prints when it is done.
type instanceReport struct {
	Strings   uint64
	Seconds   float64
	P50, P99  float64 // ms a batch
	Committed float64
	Repeated  float64
	Followed  float64
	TakenOver float64
	Sums      []uint64 // of the UIDs of the first batches, in order
}

// benchInstances has one, two and four processes intern the same stream at the same time, each as
// if it were alone.
func benchInstances(ctx context.Context, f *internFlags, out io.Writer) error {
	if f.childPath != "" {
		return runInstance(ctx, f, out)
	}
	fmt.Fprintf(out, "FoundationDB, instances (processes) that intern the same stream of new URIs, batches of %d, %d in flight each, %d workers each, %s, %v.\n\n",
		f.block, f.callers, loadWorkers, paced(f.rate), f.runFor)
	fmt.Fprintln(out, "| instances | URIs/s each (least) | of one alone | transactions | repeated | p50 ms a batch | p99 ms | taken over | same UIDs |")
	fmt.Fprintln(out, "|---:|---:|---:|---:|---:|---:|---:|---:|---|")
	alone := 0.0
	for _, n := range f.instances {
		reports, err := runInstances(ctx, f, n)
		if err != nil {
			return err
		}
		var least, p50, p99, committed, repeated, over float64
		for i, r := range reports {
			rate := float64(r.Strings) / r.Seconds
			if i == 0 || rate < least {
				least = rate
			}
			p50, p99 = max(p50, r.P50), max(p99, r.P99)
			committed, repeated, over = committed+r.Committed, repeated+r.Repeated, over+r.TakenOver
		}
		if alone == 0 {
			alone = least
		}
		fmt.Fprintf(out, "| %d | %.0f | %.0f %% | %.0f | %.2f %% | %.2f | %.2f | %.0f | %s |\n", n, least, 100*least/alone, committed,
			100*repeated/max(committed+repeated, 1), p50, p99, over, sameUIDs(reports))
	}
	fmt.Fprintln(out)
	return nil
}

func paced(rate int) string {
	if rate == 0 {
		return "as fast as it goes"
	}
	return fmt.Sprintf("at %d URIs/s", rate)
}

// sameUIDs says of how many batches, that all have done, the UIDs are the same.
func sameUIDs(reports []instanceReport) string {
	common := len(reports[0].Sums)
	for _, r := range reports {
		common = min(common, len(r.Sums))
	}
	for _, r := range reports[1:] {
		for i := range common {
			if r.Sums[i] != reports[0].Sums[i] {
				return fmt.Sprintf("NO, batch %d differs", i)
			}
		}
	}
	return fmt.Sprintf("yes, %d batches", common)
}

// runInstances runs n processes on a new directory.
func runInstances(ctx context.Context, f *internFlags, n int) ([]instanceReport, error) {
	path := fmt.Sprintf("instances-%d-%d", os.Getpid(), time.Now().UnixNano())
	defer removeFoundation(f, []string{"millrace-bench", path})
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	start := time.Now().Add(4 * time.Second) // all have met by then
	reports, errs := make([]instanceReport, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, self, "intern", "-only", "instances", "-child", path, "-fdb-cluster-file", f.clusterFile,
				"-child-start", strconv.FormatInt(start.UnixNano(), 10), "-run", f.runFor.String(),
				"-block", strconv.Itoa(f.block), "-callers", strconv.Itoa(f.callers), "-rate", strconv.Itoa(f.rate))
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				errs[i] = fmt.Errorf("instance %d: %w: %s", i, err, strings.TrimSpace(stderr.String()))
				return
			}
			errs[i] = json.Unmarshal(stdout.Bytes(), &reports[i])
		})
	}
	wg.Wait()
	return reports, errors.Join(errs...)
}

// runInstance is one of the processes.
func runInstance(ctx context.Context, f *internFlags, out io.Writer) error {
	store, err := openFoundation(ctx, f, []string{"millrace-bench", f.childPath})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	in, err := openInterner(ctx, store, loadWorkers, registry)
	if err != nil {
		return err
	}
	defer in.Close()
	start := time.Unix(0, f.childStart)
	time.Sleep(time.Until(start))
	s := &streamRun{in: in, f: f, source: newTraffic(), start: start}
	report, err := s.run(ctx)
	if err != nil {
		return err
	}
	report.count(registry)
	return json.NewEncoder(out).Encode(report)
}

// streamRun interns a stream in order, several batches in flight, as the pipeline does.
type streamRun struct {
	in     *intern.Interner
	f      *internFlags
	source *traffic
	start  time.Time

	mu        sync.Mutex // held while the next batch is made: all processes make the same
	next      int
	latencies latencies
	sums      sync.Map // batch -> hash of its UIDs
	strings   uint64
}

func (s *streamRun) run(ctx context.Context) (*instanceReport, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range s.f.callers {
		wg.Go(func() {
			b := newBatch(s.f.block)
			for ctx.Err() == nil && time.Since(s.start) < s.f.runFor {
				if err := s.one(ctx, b); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r := &instanceReport{Strings: s.strings, Seconds: time.Since(s.start).Seconds()}
	p50, p99 := s.latencies.take()
	r.P50, r.P99 = float64(p50)/1e6, float64(p99)/1e6
	for n := 0; ; n++ {
		sum, ok := s.sums.Load(n)
		if !ok {
			break
		}
		r.Sums = append(r.Sums, sum.(uint64))
	}
	return r, nil
}

// one interns the next batch.
func (s *streamRun) one(ctx context.Context, b *batch) error {
	s.mu.Lock()
	n := s.next
	s.next++
	s.source.next(b)
	s.mu.Unlock()
	if s.f.rate > 0 {
		time.Sleep(time.Until(s.start.Add(time.Duration(float64(n*s.f.block) / float64(s.f.rate) * float64(time.Second)))))
	}
	begun := time.Now()
	if err := s.in.Resolve(ctx, b.reqs, b.out); err != nil {
		return err
	}
	s.latencies.add(time.Since(begun))
	var d xxhash.Digest
	d.Reset()
	var buf []byte
	for _, r := range b.out {
		buf = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(buf[:0], r.DIDUID), r.URIUID)
		_, _ = d.Write(buf) // never fails
	}
	s.sums.Store(n, d.Sum64())
	s.mu.Lock()
	s.strings += uint64(len(b.reqs))
	s.mu.Unlock()
	return nil
}

// count fills in what the interner's metrics say.
func (r *instanceReport) count(registry *prometheus.Registry) {
	families, err := registry.Gather()
	if err != nil {
		return
	}
	for _, f := range families {
		var sum float64
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
		switch f.GetName() {
		case "millrace_intern_transactions_total":
			r.Committed = sum
		case "millrace_intern_retries_total":
			r.Repeated = sum
		case "millrace_intern_followed_total":
			r.Followed = sum
		case "millrace_intern_taken_over_total":
			r.TakenOver = sum
		}
	}
}
