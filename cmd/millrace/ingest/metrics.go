package ingest

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/translate"
	"millrace/translate/verify"
)

// metrics are the daemon's own: what came of frames, and where time goes between the relay's
// socket and the disk.
type metrics struct {
	frames      [translate.NumFrameKinds]prometheus.Counter
	events      [translate.NumEventKinds]prometheus.Counter
	drops       [translate.NumReasons]prometheus.Counter
	filtered    prometheus.Counter
	excess      prometheus.Counter
	panics      prometheus.Counter
	blocked     prometheus.Counter
	verified    [verify.NumReasons]prometheus.Counter
	blockEvents prometheus.Histogram
	age         prometheus.Histogram
	groupBlocks prometheus.Histogram
	stages      [numStages]*stageMetrics
}

func newMetrics(reg prometheus.Registerer, p *Pipeline) *metrics {
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("millrace_", reg))
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		filtered:    counter("translate_filtered_total", "Ops left out because of --collections."),
		excess:      counter("translate_excess_references_total", "References left out because their record, frame or path is beyond a limit."),
		panics:      counter("translate_panics_total", "Frames dropped because translating them hit a bug."),
		blocked:     counter("pipeline_blocked_seconds_total", "Time that reading the relay waited for the log or the UID store."),
		blockEvents: histogram("pipeline_block_events", "Events in a block.", prometheus.ExponentialBuckets(1, 2, 14)),
		age:         histogram("pipeline_lag_seconds", "Time from a block's first frame read to the block durable and published.", prometheus.ExponentialBuckets(500e-6, 2, 16)),
		groupBlocks: histogram("pipeline_commit_blocks", "Blocks that were committed by one sync.", prometheus.LinearBuckets(1, 1, maxGroup)),
	}
	frames := vec("translate_frames_total", "Frames translated, by kind.", "kind")
	events := vec("translate_events_total", "Events that came of frames, by operation or kind.", "kind")
	drops := vec("translate_dropped_total", "Frames and ops that were dropped, by reason.", "reason")
	verified := vec("verify_frames_total", "Commits and syncs that were verified, by reason why they failed; valid: they did not.", "reason")
	for i := range m.verified {
		m.verified[i] = verified.WithLabelValues(verify.Reason(i).String())
	}
	for i := range m.frames {
		m.frames[i] = frames.WithLabelValues(translate.FrameKind(i).String())
	}
	for i := range m.events {
		m.events[i] = events.WithLabelValues(translate.EventKind(i).String())
	}
	for i := range m.drops {
		m.drops[i] = drops.WithLabelValues(translate.Reason(i).String())
	}
	stages := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "pipeline_stage_seconds", Help: "Time that one block (commit: one group of blocks) spent being worked on, by stage.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
	}, []string{"stage"})
	waits := vec("pipeline_wait_seconds_total", "Time that blocks waited for a stage to take them, by stage. The stage that most is waited for is the limit.", "stage")
	waiting := auto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pipeline_queue_blocks", Help: "Blocks that wait for a stage to take them, by stage.",
	}, []string{"stage"})
	for s := range m.stages {
		label := stage(s).String()
		m.stages[s] = &stageMetrics{seconds: stages.WithLabelValues(label), wait: waits.WithLabelValues(label), waiting: waiting.WithLabelValues(label)}
	}
	addGauges(auto, p)
	return m
}

// addGauges adds what is read from the pipeline when it is asked for.
func addGauges(auto promauto.Factory, p *Pipeline) {
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pipeline_blocks_in_flight", Help: "Blocks between the relay's socket and the disk, of " + strconv.Itoa(jobsInFlight) + " at most.",
	}, func() float64 { return float64(p.inFlight()) })
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "relay_lag_seconds", Help: "How old frames were when they came, by their own time: median of the newest blocks of the last minute.",
	}, func() float64 { return p.RelayLag().Seconds() })
	auto.NewCounterFunc(prometheus.CounterOpts{
		Name: "verify_left_out_events_total", Help: "Events that --verify=drop left out.",
	}, func() float64 { return float64(p.LeftOut()) })
}

// translated adds what one batch counted.
func (m *metrics) translated(b *translate.Batch) {
	add := func(c prometheus.Counter, n uint64) {
		if n > 0 {
			c.Add(float64(n))
		}
	}
	for i, n := range b.Counts.Frames {
		add(m.frames[i], n)
	}
	for i, n := range b.Counts.Events {
		add(m.events[i], n)
	}
	for i, n := range b.Counts.Drops {
		add(m.drops[i], n)
	}
	add(m.filtered, b.Counts.Filtered)
	add(m.excess, b.Counts.ExcessReferences)
}
