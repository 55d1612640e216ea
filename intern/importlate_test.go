package intern

import (
	"bytes"
	"testing"
	"time"

	"millrace/intern/kv/simkv"
)

// TestImportLate has commits of an import arrive when their retries have been applied: what they
// say of its progress is no longer so, and the store opens.
func TestImportLate(t *testing.T) {
	from := simkv.New(simkv.Config{})
	want := filled(t, from, 3000)
	dump := exported(t, from)
	for seed := range uint64(10) {
		store := simkv.New(simkv.Config{Seed: seed})
		store.SetFaults(simkv.Faults{UnknownLate: 0.5, LateBy: 20 * time.Millisecond})
		if _, err := importDump(ctx, store, bytes.NewReader(dump), nil); err != nil {
			t.Fatal(err)
		}
		store.SetFaults(simkv.Faults{})
		store.Settle()
		openOn(t, store, Config{}).Close()
		checkStore(t, store, want)
	}
}
