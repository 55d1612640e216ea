package share

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of a Group.
type Metrics struct {
	Instances prometheus.Gauge
	Followed  prometheus.Counter
	TakenOver prometheus.Counter
}

// NewMetrics registers them with r, if that is not nil. It panics if a name is taken. Without a
// Group they stay 0.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &Metrics{
		Instances: auto.NewGauge(prometheus.GaugeOpts{Name: "millrace_intern_peers", Help: "Other instances that share the UID store and live."}),
		Followed:  counter("millrace_intern_followed_total", "Strings read from what other instances wrote."),
		TakenOver: counter("millrace_intern_taken_over_total",
			"Strings that another instance leads and that were interned here, since its result did not come in time."),
	}
}
