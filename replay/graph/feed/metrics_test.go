package feed

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume/relaysim/testmetrics"
	"millrace/replay/graph"
)

// metricsOf returns the values of all metrics.
func metricsOf(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	return testmetrics.Values(t, reg, "millrace_graph_")
}

// counts returns how many accounts and edges a graph of the model has.
func (m model) counts() (accounts, edges float64) {
	seen := map[uint64]bool{}
	for source := range 2 {
		for actor := range m {
			for _, subject := range m.set(graph.Set{Source: source, Direction: graph.Out, UID: actor}) {
				seen[actor], seen[subject] = true, true
				edges++
			}
		}
	}
	return float64(len(seen)), edges
}

// TestMetrics compares the metrics and the progress with the model while a graph is built, follows,
// and is saved.
func TestMetrics(t *testing.T) {
	w := newWorld(t, 8)
	for range 40 {
		w.hydrate()
		w.apply()
	}
	before := w.alive.clone()
	reg := prometheus.NewRegistry()
	w.reopen(func(c *Config) { c.Registerer = reg })
	for range 3 {
		w.hydrate()
		w.apply()
	}
	queued := float64(w.feed.queue.len())
	want := map[string]float64{"accounts": 0, "edges": 0, "bytes": float64(w.feed.graph.Stats().Bytes), "incomplete_sets": 0,
		"complete": 0, "position_seq": 0, "queued_changes": queued, "builds_total": 0}
	compareMetrics := func(when string) {
		t.Helper()
		if d := cmp.Diff(want, metricsOf(t, reg)); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
	}
	compareMetrics("before the build")
	if queued == 0 {
		t.Fatal("nothing is queued")
	}
	references := int64(0)
	for _, records := range before {
		for _, refs := range records {
			for _, r := range refs {
				if r.Path != otherPath && r.Subject == r.Authority {
					references++
				}
			}
		}
	}
	if err := w.feed.buildRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	fraction, err := w.store.FractionBefore(w.feed.progress.account.Load())
	if p := w.feed.Progress(); err != nil || p != (graph.Progress{Done: 0.99 * fraction, Edges: references}) {
		t.Errorf("progress %+v, want %d edges, %v", p, references, err)
	}
	want["builds_total"] = 1
	want["accounts"], want["edges"] = before.counts()
	want["bytes"] = float64(w.feed.graph.Stats().Bytes)
	compareMetrics("before it is complete")
	w.reopen(w.with) // a graph is built once
	w.hydrate()
	w.apply()
	w.check()
	_, want["edges"] = w.alive.counts()
	// accounts that have lost their edges count, too
	s := w.feed.graph.Stats()
	want["accounts"], want["bytes"] = float64(s.Accounts), float64(s.Bytes)
	want["complete"], want["position_seq"], want["queued_changes"], want["builds_total"] = 1, float64(w.at.Seq), 0, 1
	if p := w.feed.Progress(); p != (graph.Progress{Complete: true, Done: 1}) {
		t.Errorf("progress %+v", p)
	}
	compareMetrics("after the build")
	w.feed.save(t.Context())
	w.feed.save(t.Context()) // of the same position
	want["snapshots_total saved"] = 1
	compareMetrics("saved")
	w.at.Seq++
	w.log = append(w.log, step{after: w.alive})
	w.log[len(w.log)-1].batch.Position = w.at
	w.hydrateStep(len(w.log) - 1)
	w.apply()
	w.check()
	w.feed.cfg.File = filepath.Join(w.file, "no directory")
	w.feed.save(t.Context())
	want["snapshots_total failed"], want["position_seq"] = 1, float64(w.at.Seq)
	compareMetrics("not saved")
	if w.feed.saved == w.at {
		t.Error("a position counts as saved that is not")
	}
	second, err := New(t.Context(), w.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(second.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	compareMetrics("after a second feed")
	if err := w.feed.Close(); err != nil {
		t.Error(err)
	}
	if got := metricsOf(t, reg); len(got) > 0 {
		t.Errorf("after Close: %v", got)
	}
	if _, err := os.Stat(w.file); err != nil {
		t.Error(err)
	}
}
