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
	auto := promauto.With(own)
	strings := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_intern_strings_total",
		Help: "Strings interned, by kind and by where their UID came from: the cache, the store, or new.",
	}, []string{"kind", "source"})
	sequences := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_intern_sequence_changes_total",
		Help: "Sequences given up by a worker, by reason.",
	}, []string{"reason"})
	m := &metrics{
		didHits: strings.WithLabelValues("did", "cache"),
		didNew:  strings.WithLabelValues("did", "new"),
		didRead: strings.WithLabelValues("did", "store"),
		uriHits: strings.WithLabelValues("uri", "cache"),
		uriNew:  strings.WithLabelValues("uri", "new"),
		uriRead: strings.WithLabelValues("uri", "store"),
		committed: auto.NewCounter(prometheus.CounterOpts{
			Name: "millrace_intern_transactions_total",
			Help: "Transactions committed.",
		}),
		retries: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_intern_retries_total",
			Help: "Transactions that had to be begun anew, by reason.",
		}, []string{"reason"}),
		transactionSeconds: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "millrace_intern_transaction_seconds",
			Help:    "Time from a transaction's first attempt to its commit.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2, 18),
		}),
		transactionStrings: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "millrace_intern_transaction_strings",
			Help:    "Strings a transaction interned.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		sequenceContended: sequences.WithLabelValues("contended"),
		sequenceExhausted: sequences.WithLabelValues("exhausted"),
		outages: auto.NewCounter(prometheus.CounterOpts{
			Name: "millrace_intern_outages_total",
			Help: "Times the UID store became unreachable.",
		}),
		share: share.NewMetrics(own),
		up: auto.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_intern_up",
			Help: "1 while the UID store answers, 0 during an outage.",
		}),
	}
	m.up.Set(1)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "millrace_intern_waiting_strings",
		Help: "Subjects of subscribers' filters that have no UID yet.",
	}, func() float64 { return float64(waiting.strings.Load()) })
	if r == nil {
		return m, nil
	}
	return m, r.Register(own)
}
