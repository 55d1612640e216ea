package intern

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/intern/internal/share"
)

// metrics of one Interner.
type metrics struct {
	didHits, didNew, didRead prometheus.Counter
	uriHits, uriNew, uriRead prometheus.Counter
	committed                prometheus.Counter
	retries                  *prometheus.CounterVec
	transactionSeconds       prometheus.Histogram
	transactionStrings       prometheus.Histogram
	sequenceContended        prometheus.Counter
	sequenceExhausted        prometheus.Counter
	outages                  prometheus.Counter
	up                       prometheus.Gauge
	share                    *share.Metrics
}

// newMetrics registers with r, or nowhere if r is nil.
func newMetrics(r prometheus.Registerer, waiting *registry) (*metrics, error) {
	own := prometheus.NewRegistry() // so that all register, or none
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("millrace_intern_", own))
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	strings := vec("strings_total", "Strings interned, by kind and by where their UID came from: the cache, the store, or new.", "kind", "source")
	sequences := vec("sequence_changes_total", "Sequences given up by a worker, by reason.", "reason")
	m := &metrics{
		didHits:            strings.WithLabelValues("did", "cache"),
		didNew:             strings.WithLabelValues("did", "new"),
		didRead:            strings.WithLabelValues("did", "store"),
		uriHits:            strings.WithLabelValues("uri", "cache"),
		uriNew:             strings.WithLabelValues("uri", "new"),
		uriRead:            strings.WithLabelValues("uri", "store"),
		committed:          counter("transactions_total", "Transactions committed."),
		retries:            vec("retries_total", "Transactions that had to be begun anew, by reason.", "reason"),
		transactionSeconds: histogram("transaction_seconds", "Time from a transaction's first attempt to its commit.", prometheus.ExponentialBuckets(0.0002, 2, 18)),
		transactionStrings: histogram("transaction_strings", "Strings a transaction interned.", prometheus.ExponentialBuckets(1, 2, 11)),
		sequenceContended:  sequences.WithLabelValues("contended"),
		sequenceExhausted:  sequences.WithLabelValues("exhausted"),
		outages:            counter("outages_total", "Times the UID store became unreachable."),
		share:              share.NewMetrics(own),
		up:                 auto.NewGauge(prometheus.GaugeOpts{Name: "up", Help: "1 while the UID store answers, 0 during an outage."}),
	}
	m.up.Set(1)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "waiting_strings", Help: "Subjects of subscribers' filters that have no UID yet.",
	}, func() float64 { return float64(waiting.strings.Load()) })
	if r == nil {
		return m, nil
	}
	return m, r.Register(own)
}
