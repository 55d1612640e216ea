package references

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// benchRows is how many rows the table of BenchmarkLookup has, unless MILLRACE_BENCH_ROWS says.
const benchRows = 1_000_000

// benchRecord returns row i of the benchmark's table: the records of an account are far apart, as
// those of the network are.
func benchRecord(i int) recordID {
	account := uint64(i) * 2654435761 % 500_000
	return recordID{account%(1<<14)<<50 | account>>14 + 1, uint64(i)%(1<<14)<<50 | 1<<40 | uint64(i)>>14}
}

// fillTable creates rows from row from up to row to, or creates them again.
func fillTable(ctx context.Context, s *Store, from, to int) error {
	const size = 4096
	for i := from; i < to; {
		seq := s.Position().Seq
		batch := &Batch{}
		for ; len(batch.Changes) < size && i < to; i++ {
			seq++
			id := benchRecord(i)
			c := like(id.account, id.record, uint64(seq), uint64(i*7919%(1<<14))<<50|uint64(i))
			c.Seq = seq
			batch.Changes = append(batch.Changes, c)
		}
		batch.Position = Position{Epoch: 1, Seq: seq}
		if err := s.Hydrate(ctx, batch); err != nil {
			return err
		}
		if err := s.Apply(batch); err != nil {
			return err
		}
	}
	return nil
}

// forgetPages drops the files of a directory from the page cache.
func forgetPages(b *testing.B, dir string) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := file.Sync(); err == nil { // only clean pages can be dropped
			_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		_ = file.Close()
	}
}

// BenchmarkLookup looks up random rows as a delete does: warm, from the disk, and while the whole
// table is compacted.
func BenchmarkLookup(b *testing.B) {
	n := benchRows
	if text := os.Getenv("MILLRACE_BENCH_ROWS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	cfg := Config{Dir: b.TempDir()}
	s := openBench(b, cfg)
	if err := fillTable(b.Context(), s, 0, n); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var took []time.Duration
	lookUp := func() {
		key := s.hydration.codec.recordKey(benchRecord(rng.IntN(n)))
		begun := time.Now()
		value, err := s.lookUp(key)
		if took = append(took, time.Since(begun)); err != nil || value == nil {
			b.Fatalf("a row is not there: %v", err)
		}
	}
	report := func(b *testing.B) {
		slices.Sort(took)
		for name, share := range map[string]float64{"p50-µs": 0.5, "p99-µs": 0.99} {
			b.ReportMetric(float64(took[int(share*float64(len(took)))].Nanoseconds())/1000, name)
		}
		b.ReportMetric(s.diskBytes()/float64(n), "B/row")
		took = took[:0]
	}
	b.Run("warm", func(b *testing.B) {
		for b.Loop() {
			lookUp()
		}
		report(b)
	})
	b.Run("compacting", func(b *testing.B) {
		ctx, stop := context.WithCancel(b.Context())
		var compactions errgroup.Group
		compactions.Go(func() error {
			for ctx.Err() == nil {
				if err := fillTable(ctx, s, 0, n/100); err != nil { // else there is nothing to compact
					return err
				}
				if err := s.db.Pebble().Compact(ctx, []byte{0}, []byte{0xff}, true); err != nil {
					return err
				}
			}
			return nil
		})
		for b.Loop() {
			lookUp()
		}
		stop()
		if err := compactions.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
		report(b)
	})
	b.Run("cold", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if i%1000 == 0 {
				b.StopTimer()
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				forgetPages(b, cfg.Dir)
				s = openBench(b, cfg)
				b.StartTimer()
			}
			lookUp()
		}
		report(b)
	})
}

func openBench(b *testing.B, cfg Config) *Store {
	cfg.FS = vfs.Default
	return openTest(b, cfg)
}
