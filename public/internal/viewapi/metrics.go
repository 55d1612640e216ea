package viewapi

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of an API. No label ever holds an identifier.
type metrics struct {
	seconds *prometheus.HistogramVec // by endpoint
	errors  *prometheus.CounterVec   // by name of the error
}

func newMetrics(kind string, r prometheus.Registerer) metrics {
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("millrace_public_"+kind+"_", r))
	return metrics{
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "seconds",
			Help:    "From a request for " + kind + " until its answer was written, by endpoint; waiting for a position included.",
			Buckets: []float64{.0001, .0003, .001, .002, .005, .01, .03, .1, .3, 1, 3, 10},
		}, []string{"endpoint"}),
		errors: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "errors_total",
			Help: "Requests for " + kind + " that were answered with an error, by its name.",
		}, []string{"error"}),
	}
}
