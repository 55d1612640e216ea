package ingest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume/relaysim/testwait"
	"millrace/translate"
)

// TestMetrics: frames, events and what was dropped are counted once, by what they are. So they are
// where a frame is translated a second time because it comes to much JSON. Without UIDs no block
// waits for them.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Collections: []string{"a.b.*"}, Registerer: reg}
	cfg.hooks.blockBytes = 64 << 10
	other := frameOf(t, 6, "#unknown", nothing{})
	large := deletesFrame(t, 4, 1023)
	large.Data = bytes.Replace(large.Data, []byte("a.b.c/x"), []byte("a.b.c x"), 1)
	frames := send(identityFrame(t, 1), identityFrame(t, 2), syncFrame(t, 3, "did:web:one.example.com", 5), large, deletesFrame(t, 5, 3), other)
	if err := runPipelineWith(t, cfg, frames); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"millrace_translate_frames_total commit": 2, "millrace_translate_frames_total identity": 2,
		"millrace_translate_frames_total sync": 1, "millrace_translate_frames_total unknown": 1,
		"millrace_translate_dropped_total invalid_path": 1, "millrace_translate_dropped_total unknown_kind": 1,
		"millrace_translate_events_total delete": 1025, "millrace_translate_events_total identity": 2, "millrace_translate_events_total sync": 1,
	}
	got := make(map[string]float64)
	for name, n := range gather(t, reg) {
		if name == "millrace_pipeline_wait_seconds_total intern" && n > 0 {
			t.Errorf("blocks waited %v s for UIDs, which they do not get", n)
		}
		if n > 0 && strings.HasPrefix(name, "millrace_translate") {
			got[name] = n
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestCounts: each of a batch's counts has its own metric.
func TestCounts(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Registerer: reg})
	var c translate.Counts
	next := uint64(0)
	want := map[string]float64{}
	count := func(to *uint64, name string) {
		next++
		*to, want["millrace_translate_"+name] = next, float64(2*next)
	}
	for i := range c.Frames {
		count(&c.Frames[i], "frames_total "+translate.FrameKind(i).String())
	}
	for i := range c.Events {
		count(&c.Events[i], "events_total "+translate.EventKind(i).String())
	}
	for i := range c.Drops {
		count(&c.Drops[i], "dropped_total "+translate.Reason(i).String())
	}
	count(&c.Filtered, "filtered_total")
	count(&c.ExcessReferences, "excess_references_total")
	for range 2 {
		p.metrics.translated(&translate.Batch{Counts: c})
	}
	p.metrics.panics.Inc()
	want["millrace_translate_panics_total"] = 1
	got := gather(t, reg)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "millrace_translate_") })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// gather returns the values of all metrics. Of a histogram these are the sum and the count.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				got[name+" sum"], got[name+" count"] = h.GetSampleSum(), float64(h.GetSampleCount())
				continue
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

// TestPipelineMetrics compares the metrics of blocks, of which each needs 10 ms to get UIDs, while
// each sync needs a second. Other work takes no time in a bubble.
func TestPipelineMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frames = 2 * jobsInFlight
		reg := prometheus.NewRegistry()
		log := &fakeLog{appendTime: time.Second}
		cfg := Config{Log: log, InFlightBytes: 8 << 20, Registerer: reg, References: brokenReferences{}, hooks: testHooks{blockBytes: 1}}
		cfg.NewResolver = func() Resolver { return delayedResolver{} }
		sent := time.Now().Add(-10 * time.Second)
		blocked, age := time.Duration(0), time.Duration(0)
		err := runPipelineWith(t, cfg, func(ctx context.Context, p *Pipeline) error {
			for seq := int64(1); seq <= frames; seq++ {
				f := frameOf(t, seq, "#identity", &comatproto.SyncSubscribeRepos_Identity{
					Did: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Seq: seq, Time: sent.Format(time.RFC3339),
				})
				begun := time.Now()
				if err := p.Handle(ctx, f); err != nil {
					return err
				}
				blocked += time.Since(begun)
				if seq == jobsInFlight {
					synctest.Wait()
					got := gather(t, reg)
					if got["millrace_pipeline_blocks_in_flight"] != jobsInFlight || got["millrace_relay_lag_seconds"] != 10 {
						t.Errorf("while blocks are in flight: %v", got)
					}
					testwait.Elapse(500 * time.Millisecond)
					if age = p.Lag(); age != 500*time.Millisecond {
						t.Errorf("the oldest frame is %v old", age)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		groups := float64(len(log.appends))
		want := map[string]float64{
			"millrace_pipeline_blocks_in_flight": 0, "millrace_pipeline_blocked_seconds_total": blocked.Seconds(),
			"millrace_pipeline_block_events sum": frames, "millrace_pipeline_block_events count": frames,
			"millrace_pipeline_commit_blocks sum": frames, "millrace_pipeline_commit_blocks count": groups,
			"millrace_pipeline_lag_seconds count":             frames,
			"millrace_pipeline_stage_seconds translate count": frames, "millrace_pipeline_stage_seconds translate sum": 0,
			"millrace_pipeline_stage_seconds intern count": frames, "millrace_pipeline_stage_seconds intern sum": 0.01 * frames,
			"millrace_pipeline_stage_seconds hydrate count": frames, "millrace_pipeline_stage_seconds hydrate sum": 0,
			"millrace_pipeline_stage_seconds seal count": frames, "millrace_pipeline_stage_seconds seal sum": 0,
			"millrace_pipeline_stage_seconds commit count": groups, "millrace_pipeline_stage_seconds commit sum": groups,
			"millrace_pipeline_queue_blocks translate": 0, "millrace_pipeline_queue_blocks intern": 0, "millrace_pipeline_queue_blocks hydrate": 0,
			"millrace_pipeline_queue_blocks seal": 0, "millrace_pipeline_queue_blocks commit": 0,
		}
		got := gather(t, reg)
		if waited := got["millrace_pipeline_wait_seconds_total commit"]; waited < groups || blocked == 0 {
			t.Errorf("jobs waited %v s to be committed in %v groups, frames %v to be handled", waited, groups, blocked)
		}
		if lag := got["millrace_pipeline_lag_seconds sum"]; lag < frames {
			t.Errorf("%d blocks of a second or more had a lag of %v s together", frames, lag)
		}
		maps.DeleteFunc(got, func(name string, _ float64) bool { _, ok := want[name]; return !ok })
		if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	})
}

// TestStageMetrics: each stage has its own metrics of what waits for it.
func TestStageMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Registerer: reg})
		want := map[string]float64{}
		for s := range numStages {
			j := newJob()
			p.metrics.stages[s].queued(j)
			time.Sleep(time.Duration(s+1) * time.Second)
			if got := gather(t, reg); got["millrace_pipeline_queue_blocks "+s.String()] != 1 {
				t.Errorf("a block that waits for %v: %v", s, got)
			}
			begun := p.metrics.stages[s].started(j)
			time.Sleep(time.Minute)
			p.metrics.stages[s].done(begun)
			want["millrace_pipeline_queue_blocks "+s.String()] = 0
			want["millrace_pipeline_wait_seconds_total "+s.String()] = float64(s + 1)
			want["millrace_pipeline_stage_seconds "+s.String()+" sum"] = 60
			want["millrace_pipeline_stage_seconds "+s.String()+" count"] = 1
		}
		got := gather(t, reg)
		maps.DeleteFunc(got, func(name string, _ float64) bool { _, ok := want[name]; return !ok })
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	})
}

// delayedResolver needs 10 ms.
type delayedResolver struct{}

func (delayedResolver) Resolve(context.Context, *translate.Batch) error {
	time.Sleep(10 * time.Millisecond)
	return nil
}

// nothing is an empty body.
type nothing struct{}

func (nothing) MarshalCBOR(w io.Writer) error {
	_, err := w.Write([]byte{0xa0})
	return err
}
