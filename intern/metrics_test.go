package intern

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// TestMetrics compares each series with what was interned.
func TestMetrics(t *testing.T) {
	store := simkv.New(simkv.Config{})
	before := openOn(t, store, Config{Alone: true})
	resolve(t, before, "did:web:a.com", "did:web:b.com", "at://did:web:a.com/a.b.c/1")
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	var fail []error // of the next commits
	faulty := &hookedStore{Store: store, beforeCommit: func() error {
		if len(fail) == 0 {
			return nil
		}
		err := fail[0]
		fail = fail[1:]
		return err
	}}
	reg := prometheus.NewRegistry()
	in := openOn(t, faulty, Config{Workers: 1, Alone: true, Registerer: reg})
	resolve(t, in, "did:web:a.com", "did:web:b.com", "at://did:web:a.com/a.b.c/1", "at://did:web:a.com/a.b.c/2")
	// an authority is looked up too; a URI is cached once it was read
	resolve(t, in, "did:web:a.com", "at://did:web:a.com/a.b.c/1", "at://did:web:a.com/a.b.c/2")
	fail = []error{kv.ErrConflict, kv.ErrTooOld, kv.ErrConflict}
	resolve(t, in, "did:web:c.com", "did:web:d.com", "did:web:e.com")
	got := seriesOf(t, reg)
	want := map[string]float64{
		"millrace_intern_strings_total did store": 2, "millrace_intern_strings_total uri store": 2,
		"millrace_intern_strings_total uri new": 1, "millrace_intern_strings_total did new": 3,
		"millrace_intern_strings_total did cache": 3, "millrace_intern_strings_total uri cache": 1,
		"millrace_intern_transactions_total":     3,
		"millrace_intern_retries_total conflict": 2, "millrace_intern_retries_total too_old": 1,
		"millrace_intern_transaction_seconds": 3, "millrace_intern_transaction_strings": 3, "millrace_intern_up": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// seriesOf returns the counters, gauges and numbers of observations that are not 0, by name and
// labels.
func seriesOf(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()); v != 0 {
				got[name] = v
			}
		}
	}
	return got
}
