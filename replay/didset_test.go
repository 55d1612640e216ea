package replay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"millrace/replay/internal/format"
)

func randomPLC(rng *rand.Rand) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	id := make([]byte, plcChars)
	for i := range id {
		id[i] = alphabet[rng.IntN(32)]
	}
	return plcPrefix + string(id)
}

// TestDIDSet compares sets of all sizes with maps.
func TestDIDSet(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	random := func() string {
		d := []byte(randomPLC(rng))
		switch rng.IntN(8) {
		case 0: // nearly of the form
			d[rng.IntN(len(d))] = "A189_:-z"[rng.IntN(8)]
		case 1:
			d = append(d, 'a')
		case 2:
			d = d[:len(d)-1]
		case 3:
			d = fmt.Appendf(nil, "did:web:%d.example", rng.IntN(1000))
		}
		return string(d)
	}
	for _, n := range []int{0, 1, 2, 3, 4, 5, 17, 1000, 20_000} {
		want := map[string]struct{}{}
		var dids, probes []string
		for range n {
			d := random()
			want[d] = struct{}{}
			dids = append(dids, d)
			// Neighbours: another tag or another packed byte.
			near := []byte(d)
			near[len(near)-1-rng.IntN(min(len(near), 24))] = 'q'
			probes = append(probes, d, string(near), random())
		}
		if n > 0 {
			dids = append(dids, dids[rng.IntN(n)])
		}
		s := newDIDSet(dids)
		for _, d := range probes {
			if _, ok := want[d]; s.has(xxhash.Sum64String(d), d) != ok {
				t.Fatalf("of %d: %s in the set: %t", n, d, !ok)
			}
		}
		got, yielded := map[string]struct{}{}, 0
		for d := range s.all() {
			got[d] = struct{}{}
			yielded++
		}
		if !maps.Equal(got, want) || yielded != s.len() {
			t.Errorf("of %d: it yields %d different ones of %d, len is %d", len(want), len(got), yielded, s.len())
		}
	}
}

// TestFilterBytes holds FilterConfig.Bytes against what the heap says.
func TestFilterBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	plc := func() string { return randomPLC(rng) }
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

func BenchmarkDIDSet(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var dids []string
	for range 10_000 {
		dids = append(dids, randomPLC(rng))
	}
	s := newDIDSet(dids)
	var strangers []string
	var hashes []uint64
	for range 1024 {
		strangers = append(strangers, randomPLC(rng))
		hashes = append(hashes, xxhash.Sum64String(strangers[len(strangers)-1]))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if s.has(hashes[i%1024], strangers[i%1024]) {
			b.Fatal("a stranger is in the set")
		}
	}
}
