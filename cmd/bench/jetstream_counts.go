package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// jetstreamCounts are the metrics that Jetstream v1 looks up by their labels for each frame and
// each operation. They are not read: only their cost is measured. They are safe for
// concurrent use.
type jetstreamCounts struct {
	relay             string
	frames, ops       *prometheus.CounterVec
	seq               *prometheus.GaugeVec
	made, begun, late *prometheus.GaugeVec
	seconds           *prometheus.HistogramVec
}

func newJetstreamCounts(relay string) *jetstreamCounts {
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name}, append(labels, "relay"))
	}
	gauge := func(name string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name}, []string{"relay"})
	}
	return &jetstreamCounts{
		relay: relay, frames: counter("frames", "kind"), ops: counter("ops", "action", "collection"),
		seq: gauge("seq"), made: gauge("made"), begun: gauge("begun"), late: gauge("late"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "seconds", Buckets: prometheus.ExponentialBuckets(1e-4, 2, 18)}, []string{"relay"}),
	}
}

// frame counts a frame that was made and begun to be read at these moments.
func (c *jetstreamCounts) frame(kind string, seq int64, made, begun time.Time) {
	c.frames.WithLabelValues(kind, c.relay).Inc()
	c.seq.WithLabelValues(c.relay).Set(float64(seq))
	c.made.WithLabelValues(c.relay).Set(float64(made.UnixNano()))
	c.begun.WithLabelValues(c.relay).Set(float64(begun.UnixNano()))
	c.late.WithLabelValues(c.relay).Set(begun.Sub(made).Seconds())
	if kind == "commit" {
		c.seconds.WithLabelValues(c.relay).Observe(time.Since(begun).Seconds())
	}
}
