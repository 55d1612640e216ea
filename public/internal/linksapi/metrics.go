package linksapi

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of the package. No label ever holds an identifier.
type metrics struct {
	seconds *prometheus.HistogramVec // by endpoint
	errors  *prometheus.CounterVec   // by name of the error
}

func newMetrics(r prometheus.Registerer) metrics {
	const namespace, subsystem = "millrace", "public"
	auto := promauto.With(r)
	return metrics{
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "links_seconds",
			Help:    "From a request for links until its answer was written, by endpoint; waiting for a position included.",
			Buckets: []float64{.0001, .0003, .001, .002, .005, .01, .03, .1, .3, 1, 3, 10},
		}, []string{"endpoint"}),
		errors: auto.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "links_errors_total",
			Help: "Requests for links that were answered with an error, by its name.",
		}, []string{"error"}),
	}
}
