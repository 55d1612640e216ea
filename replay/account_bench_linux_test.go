package replay

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/translate"
)

// BenchmarkAboutAccount replays all ten commits about one account: warm, and with a log just opened
// whose files are not in the page cache. The log has 600,000 events, unless MILLRACE_BENCH_EVENTS
// says.
//
//	MILLRACE_BENCH_EVENTS=10000000 go test -timeout 0 -run - -bench AboutAccount \
//		-benchtime 100x ./replay
func BenchmarkAboutAccount(b *testing.B) {
	n := 600_000
	if text := os.Getenv("MILLRACE_BENCH_EVENTS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	l := spannedLog(b, n)
	cfg := l.cfg
	cfg.Monotonic = nil // the clock that runs: slow look-ups are made at once
	reopen := func() {
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
		l = mustOpen(b, cfg)
	}
	f := must(NewFilter(FilterConfig{SubjectDIDs: []uint64{benchSubject + 1}, Kinds: Kinds(translate.KindCommit)}))
	var took []time.Duration
	replay := func() {
		begun, events := time.Now(), 0
		r := mustRead(b, l, ReaderConfig{Filter: f, Cursor: TimeCursor(0)})
		defer r.Close()
		for c := (Chunk{}); !c.Live; {
			if err := r.Next(&c); err != nil {
				b.Fatal(err)
			}
			events += c.Events
		}
		if took = append(took, time.Since(begun)); events != 10 {
			b.Fatalf("%d events are about the account, not 10", events)
		}
	}
	report := func(b *testing.B) {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "worst-ms")
		took = took[:0]
	}
	reopen()
	b.Run("warm", func(b *testing.B) {
		for b.Loop() {
			replay()
		}
		report(b)
	})
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			reopen()
			forgetPages(b, cfg.Dir)
			b.StartTimer()
			replay()
		}
		report(b)
	})
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
