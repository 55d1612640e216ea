package ingest

import (
	"context"
	"runtime/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stage is a part of the pipeline in which a block is worked on.
type stage uint8

const (
	stageTranslate stage = iota
	stageIntern
	stageHydrate
	stageSeal
	stageCommit
	numStages
)

// String is the stage's label in metrics and profiles.
func (s stage) String() string {
	return [numStages]string{"translate", "intern", "hydrate", "seal", "commit"}[s]
}

// stageMetrics are those of one stage. Safe for concurrent use, as far as each block is in one
// stage.
type stageMetrics struct {
	seconds prometheus.Observer // of work on a block
	wait    prometheus.Counter  // seconds that blocks waited for it
	waiting prometheus.Gauge    // blocks that wait now
}

// queued notes that j waits for the stage from now on.
func (m *stageMetrics) queued(j *job) {
	j.queued = time.Now()
	m.waiting.Inc()
}

// started notes that the stage takes j, and returns when that was.
func (m *stageMetrics) started(j *job) time.Time {
	now := time.Now()
	m.wait.Add(now.Sub(j.queued).Seconds())
	m.waiting.Dec()
	return now
}

// done notes that the work that began at start is done.
func (m *stageMetrics) done(start time.Time) { m.seconds.Observe(time.Since(start).Seconds()) }

// profileAs labels what this goroutine does from now on. CPU profiles show stages by it: go tool
// pprof -tagfocus stage=seal.
func profileAs(ctx context.Context, s stage) {
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("stage", s.String())))
}
