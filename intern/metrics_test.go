package intern

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume/relaysim/testmetrics"
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
	got := testmetrics.Values(t, reg, "millrace_intern_")
	maps.DeleteFunc(got, func(_ string, value float64) bool { return value == 0 })
	want := map[string]float64{
		"strings_total did store": 2, "strings_total uri store": 2,
		"strings_total uri new": 1, "strings_total did new": 3,
		"strings_total did cache": 3, "strings_total uri cache": 1,
		"transactions_total":     3,
		"retries_total conflict": 2, "retries_total too_old": 1,
		"transaction_seconds": 3, "transaction_strings": 3, "up": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
