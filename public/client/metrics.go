package client

import "github.com/prometheus/client_golang/prometheus"

// metrics is what clients count. Several clients of one process need registerers of their own
// (prometheus.WrapRegistererWith).
type metrics struct {
	connects    prometheus.Counter
	failures    prometheus.Counter
	disconnects prometheus.Counter
	events      prometheus.Counter
	bytes       prometheus.Counter
	duplicates  prometheus.Counter
	fetches     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "client", Name: name, Help: help})
		if reg != nil {
			reg.MustRegister(c)
		}
		return c
	}
	return metrics{
		connects:    counter("connects_total", "Connections that were made."),
		failures:    counter("connect_failures_total", "Attempts to connect that failed or were refused."),
		disconnects: counter("disconnects_total", "Connections that ended."),
		events:      counter("events_total", "Events given out."),
		bytes:       counter("bytes_total", "Bytes of messages, as they came over the wire."),
		duplicates:  counter("duplicates_total", "Events that came again after a break and were dropped."),
		fetches:     counter("dictionary_fetches_total", "Dictionaries asked of the server."),
	}
}
