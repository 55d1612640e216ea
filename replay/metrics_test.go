package replay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
)

// TestMetrics: each metric says what happened to the log, and that alone.
func TestMetrics(t *testing.T) {
	clock := newTestClock()
	reg := prometheus.NewRegistry()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.Registerer, cfg.Retention, cfg.TailBytes = reg, time.Hour, 1<<20
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	for seq := int64(1); seq <= 10; seq++ { // of three events each, ten minutes apart
		clock.advance(10 * time.Minute)
		a.append(a.block(1, seq, seq, format.Place{Seq: seq}, format.Place{Seq: seq, Op: 1}, format.Place{Seq: seq, Op: 2}))
	}
	appended := a.l.Range().Bytes
	extended := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(a.stamp), Extended: true})
	lost := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1})
	var c Chunk
	if err := errors.Join(extended.Next(&c), lost.Next(&c)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.l.Trim(t.Context()), a.l.Trim(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := lost.Next(&c); !errors.Is(err, ErrTrimmed) {
		t.Fatal(err)
	}
	if _, ok := a.l.SourceNumber([]byte(strings.Repeat("s", logstore.MaxSourceBytes+1))); ok {
		t.Error("a source of any length gets a number")
	}
	if _, err := a.l.Seal(Input{Epoch: 1, FirstSeq: 11, LastSeq: 11}); err != nil {
		t.Fatal(err)
	}
	held, cached := a.l.Range(), a.l.blocks.cache.Stats()
	if cached.Hits+cached.Misses == 0 || cached.Bytes == 0 {
		t.Errorf("the cache was not used: %+v", cached)
	}
	want := map[string]float64{
		"sealed_blocks_total": 1, "commit_seconds": 10, "tail_bytes": float64(a.l.snap.Load().tailBytes),
		"cache_bytes": float64(cached.Bytes), "cache_hits_total": float64(cached.Hits), "cache_misses_total": float64(cached.Misses),
		"blocks_total": 10, "bytes_total": float64(appended), "merged_blocks_total": 0,
		"references_dropped_total": 1, "readers_total": 2, "readers_trimmed_total": 1, "variants_built_total": 1,
		"trims_total": 1, "trimmed_blocks_total": 3, "clock_steps_total": 0, "events_total": 30,
		"log_events": 21, "log_blocks": 7, "log_bytes": float64(held.Bytes), "paths": float64(len(a.l.blocks.sources.Known())), "gaps": 0,
		"oldest_seconds": float64(held.Oldest.TimeUS) / 1e6, "newest_seconds": float64(held.Newest.TimeUS) / 1e6,
		"position_seq": 10, "epoch": 1, "trim_paused": 0, "failed": 0,
	}
	if d := cmp.Diff(want, gathered(t, reg, want)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	clock.step(5 * time.Minute)
	if err := a.l.Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = map[string]float64{"clock_steps_total": 1, "trim_paused": 1, "trims_total": 1, "failed": 0}
	if d := cmp.Diff(want, gathered(t, reg, want)); d != "" {
		t.Errorf("after a step of the clock, -want +got:\n%s", d)
	}
	a.l.store.Fail(errors.New("the disk said no"))
	want = map[string]float64{"failed": 1}
	if d := cmp.Diff(want, gathered(t, reg, want)); d != "" {
		t.Errorf("after a failure, -want +got:\n%s", d)
	}
}

// TestV2Dropped: events whose JSON is not as translate makes it are counted where v2's wire is
// built, whether they come from the tail or the store.
func TestV2Dropped(t *testing.T) {
	for _, tail := range []int64{1, 1 << 20} {
		clock, reg := newTestClock(), prometheus.NewRegistry()
		cfg := testConfig(t, vfs.NewMem(), clock)
		cfg.Registerer, cfg.TailBytes = reg, tail
		a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
		a.append(a.block(1, 1, 1, format.Place{Seq: 1}, format.Place{Seq: 1, Op: 1}))
		a.append(a.block(1, 2, 2, format.Place{Seq: 2}))
		r := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0), V2: true})
		for c := (Chunk{}); !c.Live; {
			if err := r.Next(&c); err != nil || c.Bytes > 0 {
				t.Fatalf("%d bytes, %v", c.Bytes, err)
			}
		}
		want := map[string]float64{"v2_dropped_total": 3}
		if d := cmp.Diff(want, gathered(t, reg, want)); d != "" {
			t.Errorf("with a tail of %d bytes, -want +got:\n%s", tail, d)
		}
	}
}

// gathered returns the values of the metrics that are wanted.
func gathered(t *testing.T, reg *prometheus.Registry, want map[string]float64) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), "millrace_replay_")
		if _, ok := want[name]; ok {
			m := f.GetMetric()[0]
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

// TestUnregister: a log that closes takes its own metrics along, once, and none of another log.
func TestUnregister(t *testing.T) {
	reg := prometheus.NewRegistry()
	check := func(what string, want int) int {
		t.Helper()
		families, err := reg.Gather()
		if err != nil || want >= 0 && len(families) != want {
			t.Errorf("%s: %d metrics, want %d, error %v", what, len(families), want, err)
		}
		return len(families)
	}
	open := func() *Log {
		cfg := testConfig(t, vfs.NewMem(), newTestClock())
		cfg.Registerer = reg
		return mustOpen(t, cfg)
	}
	closeLog := func(l *Log) {
		t.Helper()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	first := open()
	have := check("one log", -1)
	if have == 0 {
		t.Fatal("a log registers nothing")
	}
	second := open()
	check("two logs", have)
	closeLog(second)
	check("the second is closed", have)
	closeLog(first)
	check("both are closed", 0)
	third := open()
	_ = first.Close()
	check("the first is closed again", have)
	closeLog(third)
	check("all are closed", 0)
}
