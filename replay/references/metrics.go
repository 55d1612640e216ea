package references

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the store's counters. What the store knows is read from it when asked for.
type metrics struct {
	// unregister takes the metrics away, so that a store opened later can have them. Safe twice.
	unregister func()

	changes       [Purge + 1]prometheus.Counter // by operation
	repeated      prometheus.Counter
	found         prometheus.Counter
	unknown       prometheus.Counter
	swept         prometheus.Counter
	waitSeconds   prometheus.Counter
	lookupSeconds prometheus.Histogram
	applySeconds  prometheus.Histogram
}

// newMetrics makes the metrics of s and registers them with reg, if it is not nil. If a name is
// taken already, none is registered.
func newMetrics(reg prometheus.Registerer, s *Store) *metrics {
	m := &metrics{unregister: func() {}}
	own := prometheus.NewRegistry() // so that all register, or none
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("millrace_references_", own))
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	changes := auto.NewCounterVec(prometheus.CounterOpts{Name: "changes_total", Help: "Changes hydrated, by operation."}, []string{"operation"})
	for operation := Create; operation <= Purge; operation++ {
		m.changes[operation] = changes.WithLabelValues(operation.String())
	}
	had := auto.NewCounterVec(prometheus.CounterOpts{Name: "had_total", Help: "Deletes and updates by whether their record was known."}, []string{"record"})
	m.found, m.unknown = had.WithLabelValues("found"), had.WithLabelValues("unknown")
	m.repeated = counter("repeated_total", "Changes that came again and changed nothing.")
	m.swept = counter("swept_rows_total", "Rows of deleted accounts that were swept.")
	m.waitSeconds = counter("overlay_wait_seconds_total", "Time for which a full overlay has slowed ingest.")
	histogram := func(name, help string, least float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(least, 2, 16)})
	}
	m.lookupSeconds = histogram("lookup_seconds", "Duration of a look-up of a row or an account in the database.", 2e-6)
	m.applySeconds = histogram("apply_seconds", "Duration of commits.", 20e-6)
	gauge := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("position_seq", "The relay's seq that the store has reached.", func() float64 { return float64(s.Position().Seq) })
	gauge("arrival", "The last arrival number: creates, updates, imports and purges so far.", func() float64 { return float64(s.commits.state.Load().arrival) })
	gauge("generation", "The current generation; 0 before the first.", func() float64 { return float64(s.Generation().Number) })
	gauge("inexact_accounts", "Accounts that a #sync frame changed, not imported, deleted or purged since.", func() float64 { return float64(s.commits.state.Load().syncs.accounts) })
	gauge("overlay_bytes", "Memory charged for the changes hydrated last, applied or not.", func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.overlay.bytes)
	})
	gauge("disk_bytes", "Bytes that the store takes on disk.", s.diskBytes)
	gauge("failed", "1 after a write or sync failed, or the store was found damaged.", func() float64 {
		if s.Err() != nil {
			return 1
		}
		return 0
	})
	if reg != nil && reg.Register(own) == nil {
		m.unregister = sync.OnceFunc(func() { reg.Unregister(own) })
	}
	return m
}

// diskBytes asks Pebble, which may never answer once the store has failed.
func (s *Store) diskBytes() float64 {
	if s.use() != nil {
		return 0
	}
	defer s.using.RUnlock()
	usage := make(chan uint64, 1)
	if s.db.Guard(func() error { usage <- s.db.Pebble().Metrics().DiskSpaceUsage(); return nil }) != nil {
		return 0
	}
	return float64(<-usage)
}

// hydrated counts a change that Hydrate has filled in.
func (m *metrics) hydrated(c *Change, found bool) {
	m.changes[c.Operation].Inc()
	switch {
	case c.Repeated:
		m.repeated.Inc()
	case c.Operation != Update && c.Operation != Delete:
	case found:
		m.found.Inc()
	default:
		m.unknown.Inc()
	}
}
