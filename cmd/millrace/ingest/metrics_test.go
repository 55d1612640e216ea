package ingest

import (
	"context"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume"
)

// TestMetrics: frames, events and what was dropped are counted once, by what they are. So they are
// where a frame is translated a second time because it comes to much JSON.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Collections: []string{"a.b.*"}, Registerer: reg}
	cfg.hooks.blockBytes = 64 << 10
	other := frameOf(t, 6, "#unknown", nothing{})
	err := runPipelineWith(t, cfg, func(ctx context.Context, p *Pipeline) error {
		for _, f := range []consume.Frame{
			identityFrame(t, 1), identityFrame(t, 2), syncFrame(t, 3), deletesFrame(t, 4, 1023), deletesFrame(t, 5, 3), other,
		} {
			if err := p.Handle(ctx, f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"millrace_translate_frames_total commit": 2, "millrace_translate_frames_total identity": 2,
		"millrace_translate_frames_total sync": 1, "millrace_translate_frames_total unknown": 1,
		"millrace_translate_dropped_total invalid_car": 2, "millrace_translate_dropped_total unknown_kind": 1,
		"millrace_translate_events_total delete": 1026, "millrace_translate_events_total identity": 2,
	}
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
			if n := m.GetCounter().GetValue(); n > 0 && name[:18] == "millrace_translate" {
				got[name] = n
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// nothing is an empty body.
type nothing struct{}

func (nothing) MarshalCBOR(w io.Writer) error {
	_, err := w.Write([]byte{0xa0})
	return err
}
