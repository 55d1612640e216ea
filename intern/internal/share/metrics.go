package share

import "github.com/prometheus/client_golang/prometheus"

// Metrics of a Group.
type Metrics struct {
	Instances prometheus.Gauge
	Followed  prometheus.Counter
	TakenOver prometheus.Counter
}

// NewMetrics registers them with r, if that is not nil. Without a Group they stay 0.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		Instances: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_intern_peers",
			Help: "Other instances that share the UID store and live.",
		}),
		Followed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_intern_followed_total",
			Help: "Strings read from what other instances wrote.",
		}),
		TakenOver: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_intern_taken_over_total",
			Help: "Strings that another instance leads and that were interned here, since its result did not come in time.",
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.Instances, m.Followed, m.TakenOver} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
