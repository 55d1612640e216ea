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
	auto := promauto.With(reg)
	frames := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_translate_frames_total", Help: "Frames translated, by kind.",
	}, []string{"kind"})
	events := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_translate_events_total", Help: "Events that came of frames, by operation or kind.",
	}, []string{"kind"})
	drops := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_translate_dropped_total", Help: "Frames and ops that were dropped, by reason.",
	}, []string{"reason"})
	stages := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "millrace_pipeline_stage_seconds", Help: "Time that one block (commit: one group of blocks) spent being worked on, by stage.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
	}, []string{"stage"})
	m := &metrics{
		filtered: auto.NewCounter(prometheus.CounterOpts{
			Name: "millrace_translate_filtered_total", Help: "Ops left out because of --collections.",
		}),
		excess: auto.NewCounter(prometheus.CounterOpts{
			Name: "millrace_translate_excess_references_total", Help: "References left out because their record, frame or path is beyond a limit.",
		}),
		panics: auto.NewCounter(prometheus.CounterOpts{
			Name: "millrace_translate_panics_total", Help: "Frames dropped because translating them hit a bug.",
		}),
		blocked: auto.NewCounter(prometheus.CounterOpts{
			Name: "millrace_pipeline_blocked_seconds_total", Help: "Time that reading the relay waited for the log or the UID store.",
		}),
		blockEvents: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_pipeline_block_events", Help: "Events in a block.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 14),
		}),
		age: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_pipeline_lag_seconds", Help: "Time from a block's first frame read to the block durable and published.",
			Buckets: prometheus.ExponentialBuckets(500e-6, 2, 16),
		}),
		groupBlocks: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_pipeline_commit_blocks", Help: "Blocks that were committed by one sync.",
			Buckets: prometheus.LinearBuckets(1, 1, maxGroup),
		}),
	}
	verified := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_verify_frames_total", Help: "Commits and syncs that were verified, by reason why they failed; valid: they did not.",
	}, []string{"reason"})
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
	waits := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_pipeline_wait_seconds_total", Help: "Time that blocks waited for a stage to take them, by stage. The stage that most is waited for is the limit.",
	}, []string{"stage"})
	waiting := auto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "millrace_pipeline_queue_blocks", Help: "Blocks that wait for a stage to take them, by stage.",
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
		Name: "millrace_pipeline_blocks_in_flight", Help: "Blocks between the relay's socket and the disk, of " + strconv.Itoa(jobsInFlight) + " at most.",
	}, func() float64 { return float64(p.inFlight()) })
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "millrace_relay_lag_seconds", Help: "How old frames were when they came, by their own time: median of the newest blocks of the last minute.",
	}, func() float64 { return p.RelayLag().Seconds() })
	auto.NewCounterFunc(prometheus.CounterOpts{
		Name: "millrace_verify_left_out_events_total", Help: "Events that --verify=drop left out.",
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
