package identity

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the directory's counters. What the directory knows is read from it when asked for.
type metrics struct {
	// unregister takes the metrics away, so that a later directory can have them. Safe twice.
	unregister func()

	lookups      [NumStates]prometheus.Counter
	fetches      [numOutcomes]prometheus.Counter
	dropped      prometheus.Counter
	purged       prometheus.Counter
	fetchSeconds prometheus.Histogram
}

// newMetrics makes the metrics of d and registers them with reg, if it is not nil. If a name is
// taken already, none is registered.
func newMetrics(reg prometheus.Registerer, d *Directory) *metrics {
	m := &metrics{unregister: func() {}}
	own := prometheus.NewRegistry() // so that all register, or none
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("millrace_identity_", own))
	lookups := auto.NewCounterVec(prometheus.CounterOpts{Name: "lookups_total", Help: "Look-ups of keys, by what was known."}, []string{"state"})
	for state := range m.lookups {
		m.lookups[state] = lookups.WithLabelValues(stateNames[state])
	}
	fetches := auto.NewCounterVec(prometheus.CounterOpts{Name: "fetches_total", Help: "Fetches of keys, by how they ended."}, []string{"outcome"})
	for outcome, name := range [numOutcomes]string{found: "found", absent: "absent", failed: "failed", outdated: "outdated"} {
		m.fetches[outcome] = fetches.WithLabelValues(name)
	}
	m.dropped = auto.NewCounter(prometheus.CounterOpts{Name: "dropped_total", Help: "Fetches that a full queue did not take."})
	m.purged = auto.NewCounter(prometheus.CounterOpts{Name: "purged_total", Help: "Keys dropped for an identity event."})
	m.fetchSeconds = auto.NewHistogram(prometheus.HistogramOpts{
		Name: "fetch_seconds", Help: "Duration of fetches.", Buckets: prometheus.ExponentialBuckets(1e-3, 2, 14)})
	add := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	locked := func(value func() int) func() float64 {
		return func() float64 {
			d.mu.Lock()
			defer d.mu.Unlock()
			return float64(value())
		}
	}
	add("queue", "Accounts that are being fetched or wait for it.", locked(func() int { return len(d.jobs) }))
	add("entries", "Accounts in the cache on disk, at most.", locked(func() int { return d.cache.store.count + d.cache.store.older }))
	add("directory_failing", "1 while the PLC directory fails, or its export cannot be read.", func() float64 { return number(d.fetcher.paused()) })
	add("failed", "1 after a write of the cache failed, or it was found damaged.", func() float64 { return number(d.Err() != nil) })
	if reg != nil && reg.Register(own) == nil {
		m.unregister = sync.OnceFunc(func() { reg.Unregister(own) })
	}
	return m
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
