package replay

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/replay/internal/counts"
)

// metrics are the log's counters. Whatever the snapshot knows is read from it when asked for.
type metrics struct {
	// unregister takes the metrics away, so that a log opened later can have them. Safe twice.
	unregister func()

	sealed         prometheus.Counter
	blocks         prometheus.Counter
	bytes          prometheus.Counter
	mergedBlocks   prometheus.Counter
	sourcesRefused prometheus.Counter
	syncSeconds    prometheus.Histogram
	readers        prometheus.Counter
	readersTrimmed prometheus.Counter
	variants       prometheus.Counter
	v2Dropped      prometheus.Counter
	trims          prometheus.Counter
	trimmedBlocks  prometheus.Counter
	clockSteps     prometheus.Counter
	trimPaused     atomic.Bool
	counts         *counts.Counter
}

// newMetrics makes the metrics of l and registers them with reg, if it is not nil. If a name is
// taken already (by another log in the same process), none is registered.
func newMetrics(reg prometheus.Registerer, l *Log) *metrics {
	m := &metrics{unregister: func() {}, counts: counts.New(l.cfg.Now(), l.cfg.Monotonic())}
	own := prometheus.NewRegistry() // so that all register, or none
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("millrace_replay_", own))
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m.sealed = counter("sealed_blocks_total", "Blocks sealed.")
	m.blocks = counter("blocks_total", "Blocks with events appended, before small ones were merged.")
	m.bytes = counter("bytes_total", "Bytes of blocks appended, before small ones were merged.")
	m.mergedBlocks = counter("merged_blocks_total", "Small blocks that were merged into larger ones.")
	m.sourcesRefused = counter("references_dropped_total", "References dropped because their source is too long, or the log has as many sources as it may.")
	m.readers = counter("readers_total", "Readers made.")
	m.readersTrimmed = counter("readers_trimmed_total", "Readers whose place in the log was trimmed.")
	m.variants = counter("variants_built_total", "Variants of newest blocks built because they are not stored.")
	m.v2Dropped = counter("v2_dropped_total", "Events left out where v2's wire was built, because a bug gave them other JSON.")
	m.trims = counter("trims_total", "Trims that dropped something.")
	m.trimmedBlocks = counter("trimmed_blocks_total", "Blocks dropped by retention.")
	m.clockSteps = counter("clock_steps_total", "Steps of the wall clock by more than a minute.")
	m.syncSeconds = auto.NewHistogram(prometheus.HistogramOpts{
		Name: "commit_seconds", Help: "Duration of synced commits.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16)})
	m.registerState(auto, l)
	if reg != nil && reg.Register(own) == nil {
		m.unregister = sync.OnceFunc(func() { reg.Unregister(own) })
	}
	return m
}

// registerState registers what is read from the log when it is asked for.
func (m *metrics) registerState(auto promauto.Factory, l *Log) {
	gauge := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	counter := func(name, help string, value func() float64) {
		auto.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
	}
	of := func(value func(s *snapshot) int64) func() float64 {
		return func() float64 { return float64(value(l.snap.Load())) }
	}
	counter("events_total", "Events appended since the log was made.", of(func(s *snapshot) int64 { return s.Total.Events }))
	gauge("log_events", "Events in the log.", of(func(s *snapshot) int64 { return s.held().Events }))
	gauge("log_blocks", "Blocks in the log.", of(func(s *snapshot) int64 { return s.held().Blocks }))
	gauge("log_bytes", "Bytes in the log, before the store compresses them.", of(func(s *snapshot) int64 { return s.held().Bytes }))
	gauge("tail_bytes", "Memory that the newest blocks take.", of(func(s *snapshot) int64 { return s.tailBytes }))
	gauge("gaps", "Gaps in the log.", of(func(s *snapshot) int64 { return int64(len(s.gaps)) }))
	gauge("oldest_seconds", "time_us of the oldest event, in seconds; 0 if there is none.",
		func() float64 { return float64(l.snap.Load().Oldest.TimeUS) / 1e6 })
	gauge("newest_seconds", "time_us of the newest event, in seconds; 0 if there is none.",
		func() float64 { return float64(l.snap.Load().Newest.TimeUS) / 1e6 })
	gauge("position_seq", "The relay's seq that is committed.", of(func(s *snapshot) int64 { return s.Seq }))
	gauge("epoch", "The epoch of the relay's numbering.", of(func(s *snapshot) int64 { return int64(s.Epoch) }))
	gauge("paths", "Sources of references that have a number.", func() float64 { return float64(l.blocks.sources.Len()) })
	gauge("cache_bytes", "Memory that cached parts and variants take.", func() float64 { return float64(l.blocks.cache.Stats().Bytes) })
	counter("cache_hits_total", "Parts and variants found in the cache.", func() float64 { return float64(l.blocks.cache.Stats().Hits) })
	counter("cache_misses_total", "Parts loaded and variants built for the cache.",
		func() float64 { return float64(l.blocks.cache.Stats().Misses) })
	gauge("trim_paused", "1 while trimming by age is paused because the clock is not trusted, or stamps are ahead of it.",
		func() float64 { return oneIf(m.trimPaused.Load()) })
	gauge("failed", "1 after a write or sync failed, or the log was found corrupt.",
		func() float64 { return oneIf(l.store.Err() != nil) })
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

const (
	// CountStep is how long one entry of a Count's Recent is.
	CountStep = counts.Step
	// CountSteps is how many entries Recent has at most: five minutes.
	CountSteps = counts.Steps
)

// Counts says which events were appended since the log was opened.
type Counts = counts.Counts

// Count is a number of events.
type Count = counts.Count

// CollectionCount is how many commits a collection had. If there were very many collections, the
// rare ones are moved to Other from time to time, and begin again at 0.
type CollectionCount = counts.CollectionCount

// Counts returns what was appended until now. It copies some hundred kilobytes at most, once per
// call.
func (l *Log) Counts() Counts {
	c := l.metrics.counts.Read(l.cfg.Monotonic())
	c.Until = l.cfg.Now()
	return c
}
