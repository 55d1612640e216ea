package references

import (
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume/relaysim/testmetrics"
)

// TestMetrics compares each counter with what was hydrated, applied and swept.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := openTest(t, Config{Registerer: reg})
	update := like(1, 11, 5, 103)
	update.Operation = Update
	a := hydrate(t, s, 1, like(1, 10, 1, 100), like(1, 11, 2, 101), like(2, 20, 3, 100), unlike(1, 12, 4), update, unlike(1, 10, 6))
	bytes := testmetrics.Values(t, reg, "millrace_references_")["overlay_bytes"]
	apply(t, s, a)
	do(t, s, 20, unlike(1, 10, 6), // it comes again
		Change{Operation: DeleteAccount, Account: 2, Rev: 3, TimeUS: 4},
		Change{Operation: Deactivate, Account: 1, TimeUS: 5}, Change{Operation: Activate, Account: 1, TimeUS: 6})
	for more := true; more; {
		var err error
		if more, err = s.sweep(); err != nil {
			t.Fatal(err)
		}
	}
	got := testmetrics.Values(t, reg, "millrace_references_")
	maps.DeleteFunc(got, func(_ string, value float64) bool { return value == 0 })
	if bytes == 0 || got["disk_bytes"] == 0 {
		t.Errorf("overlay_bytes %v with a batch in flight, disk_bytes %v", bytes, got["disk_bytes"])
	}
	delete(got, "disk_bytes")
	want := map[string]float64{
		"changes_total create": 3, "changes_total update": 1, "changes_total delete": 3,
		"changes_total delete_account": 1, "changes_total deactivate": 1, "changes_total activate": 1, "arrival": 4,
		"had_total found": 2, "had_total unknown": 1, "repeated_total": 1, "swept_rows_total": 1,
		"position_seq": 24, "generation": 1, "apply_seconds": 2, "lookup_seconds": 8,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	s.db.Fail(errors.New("the disk said no"))
	if got := testmetrics.Values(t, reg, "millrace_references_")["failed"]; got != 1 {
		t.Errorf("failed is %v after a failure", got)
	}
}
