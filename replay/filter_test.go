package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"millrace/replay/internal/format"
)

// TestFilterBytes holds FilterConfig.Bytes against what the heap says.
func TestFilterBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	plc := func() string {
		id := make([]byte, 24)
		for i := range id {
			id[i] = 'a' + byte(rng.IntN(26))
		}
		return "did:plc:" + string(id)
	}
	web := func() string { return fmt.Sprintf("did:web:%x.example.org", rng.Uint64()) }
	for name, did := range map[string]func() string{"did:plc": plc, "did:web": web} {
		const filters, each = 20, 10_000
		var cfg FilterConfig
		for range each {
			cfg.DIDs = append(cfg.DIDs, did())
		}
		kept := make([]*Filter, filters)
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		for i := range kept {
			f, err := NewFilter(cfg)
			if err != nil {
				t.Fatal(err)
			}
			f.fingerprintsFor(format.FingerprintKey{})
			kept[i] = f
		}
		took := (heap() - before) / filters
		runtime.KeepAlive(kept)
		if said := cfg.Bytes(); took > said || took < said/2 {
			t.Errorf("%d %s take %d bytes, Bytes says %d", each, name, took, said)
		}
		t.Logf("%s: %.1f bytes each", name, float64(took)/each)
	}
}

// TestFingerprintsOfTwoLogs: a filter that two logs use has the fingerprints of the one that asks.
func TestFingerprintsOfTwoLogs(t *testing.T) {
	f := must(NewFilter(FilterConfig{DIDs: []string{"did:plc:a", "did:plc:b"}, Subjects: []uint64{1}, SubjectDIDs: []uint64{2}}))
	for _, n := range []byte{1, 2, 1} {
		k, err := format.DecodeFingerprintKey(bytes.Repeat([]byte{n}, format.FingerprintKeyBytes))
		if err != nil {
			t.Fatal(err)
		}
		dids := []uint64{k.Fingerprint("did:plc:a"), k.Fingerprint("did:plc:b")}
		subjects := []uint64{k.FingerprintSubject(1), k.FingerprintSubject(2), k.FingerprintAuthority(2)}
		slices.Sort(dids)
		slices.Sort(subjects)
		if got := f.fingerprintsFor(k); !slices.Equal(got, dids) {
			t.Errorf("key %d: fingerprints of DIDs %x, not %x", n, got, dids)
		}
		if got := f.references.fingerprintsFor(k); !slices.Equal(got, subjects) {
			t.Errorf("key %d: fingerprints of subjects %x, not %x", n, got, subjects)
		}
	}
}
