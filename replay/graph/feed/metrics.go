package feed

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	// unregister takes the metrics away, so that a feed made later can have them. Safe twice.
	unregister func()

	builds    prometheus.Counter
	snapshots *prometheus.CounterVec // by result
}

// newMetrics makes the metrics of f and registers them with reg, if it is not nil. If a name is
// taken already, none is registered.
func newMetrics(reg prometheus.Registerer, f *Feed) metrics {
	own := prometheus.NewRegistry() // so that all register, or none
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("millrace_graph_", own))
	gauge := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("accounts", "Accounts that have or had edges.", func() float64 { return float64(f.graph.Stats().Accounts) })
	gauge("edges", "Edges; one that two records state counts once.", func() float64 { return float64(f.graph.Stats().Edges) })
	gauge("bytes", "Memory that the graph takes.", func() float64 { return float64(f.graph.Stats().Bytes) })
	gauge("incomplete_sets", "Sets that miss edges for want of memory; those of all unknown accounts are one.", func() float64 { return float64(f.graph.Stats().Incomplete) })
	gauge("complete", "1 when the graph answers, 0 while it is built.", func() float64 {
		if f.ready.Load() == nil {
			return 0
		}
		return 1
	})
	gauge("position_seq", "The relay's seq that the graph has reached.", func() float64 { return float64(f.graph.Position().Seq) })
	gauge("queued_changes", "Changes that the graph has not taken yet.", func() float64 { return float64(f.queue.len()) })
	m := metrics{
		unregister: func() {},
		builds:     auto.NewCounter(prometheus.CounterOpts{Name: "builds_total", Help: "Builds from the record table."}),
		snapshots:  auto.NewCounterVec(prometheus.CounterOpts{Name: "snapshots_total", Help: "Snapshots by what became of them."}, []string{"result"}),
	}
	if reg != nil && reg.Register(own) == nil {
		m.unregister = sync.OnceFunc(func() { reg.Unregister(own) })
	}
	return m
}
