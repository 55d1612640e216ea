package intern

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv/pebblekv"
)

// traffic makes requests as a relay's live stream has them. They are records whose TIDs are close
// to now, of a population in which few are busy and many are not.
type traffic struct {
	rng    *rand.Rand
	dids   [][]byte
	now    uint64 // Unix microseconds
	buffer []byte
}

var trafficCollections = []string{"app.bsky.feed.like", "app.bsky.feed.like", "app.bsky.feed.like", "app.bsky.feed.like",
	"app.bsky.feed.post", "app.bsky.feed.repost", "app.bsky.graph.follow", "app.bsky.graph.block"}

func newTraffic(seed uint64, dids int) *traffic {
	t := &traffic{rng: rand.New(rand.NewPCG(seed, 7)), now: 1_783_000_000_000_000}
	for range dids {
		packed := make([]byte, 16)
		binary.BigEndian.PutUint64(packed, t.rng.Uint64())
		binary.BigEndian.PutUint64(packed[8:], t.rng.Uint64())
		t.dids = append(t.dids, appendPLCString(nil, packed[:15]))
	}
	return t
}

// next fills reqs with new records. They are valid until the next call.
func (t *traffic) next(reqs []Request) {
	t.buffer = t.buffer[:0]
	for i := range reqs {
		t.now += 667 // 1,500 a second
		at := t.now - uint64(t.rng.ExpFloat64()*1e6)
		from := len(t.buffer)
		t.buffer = appendTID(t.buffer, at<<10|t.rng.Uint64N(1024))
		z := t.rng.Float64()
		reqs[i] = Request{
			DID:        t.dids[int(z*z*float64(len(t.dids)))],
			Collection: []byte(trafficCollections[t.rng.IntN(len(trafficCollections))]),
			RecordKey:  t.buffer[from:],
		}
	}
}

// BenchmarkResolveNew interns new URIs of known DIDs, durably, blocks of 512 from four callers.
func BenchmarkResolveNew(b *testing.B) {
	store, err := pebblekv.Open(pebblekv.Config{Dir: b.TempDir(), MemTableBytes: 32 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	in, err := Open(context.Background(), Config{Store: store})
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	const block, callers = 512, 4
	var mu sync.Mutex
	source := newTraffic(1, 100_000)
	b.ReportAllocs()
	b.ResetTimer()
	begun := time.Now()
	var wg sync.WaitGroup
	blocks := (b.N + block - 1) / block
	for range callers {
		wg.Go(func() {
			reqs, out := make([]Request, block), make([]Result, block)
			keys := make([]byte, 0, block*tidLen)
			for {
				mu.Lock()
				if blocks--; blocks < 0 {
					mu.Unlock()
					return
				}
				source.next(reqs)
				keys = append(keys[:0], source.buffer...)
				for i := range reqs {
					reqs[i].RecordKey = keys[i*tidLen : (i+1)*tidLen]
				}
				mu.Unlock()
				if err := in.Resolve(context.Background(), reqs, out); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "URIs/s")
}

// BenchmarkResolveKnown resolves a block of 512 that the caches know.
func BenchmarkResolveKnown(b *testing.B) {
	store, err := pebblekv.Open(pebblekv.Config{Dir: "uids", FS: vfs.NewMem()})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	in, err := Open(context.Background(), Config{Store: store})
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	reqs, out := make([]Request, 512), make([]Result, 512)
	newTraffic(1, 1000).next(reqs)
	b.ReportAllocs()
	for b.Loop() {
		if err := in.Resolve(context.Background(), reqs, out); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(reqs))/b.Elapsed().Seconds(), "strings/s")
}

// BenchmarkLookupUIDs looks up a page of 30 accounts, none of which is in a cache of names.
func BenchmarkLookupUIDs(b *testing.B) {
	store, err := pebblekv.Open(pebblekv.Config{FS: vfs.NewMem(), Dir: "uids", CacheBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	in, err := Open(b.Context(), Config{Store: store, Alone: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close() })
	source := newTraffic(1, 200_000)
	reqs, out := make([]Request, 500), make([]Result, 500)
	var all []uint64
	for dids := range slices.Chunk(source.dids, len(reqs)) {
		for i, did := range dids {
			reqs[i] = Request{DID: did}
		}
		if err := in.Resolve(b.Context(), reqs, out); err != nil {
			b.Fatal(err)
		}
		for i := range out {
			all = append(all, out[i].DIDUID)
		}
	}
	uids, names := make([]uint64, 30), make([]string, 30)
	b.ReportAllocs()
	for b.Loop() {
		for i := range uids {
			uids[i] = all[source.rng.IntN(len(all))]
		}
		if err := in.LookupUIDs(b.Context(), uids, names); err != nil {
			b.Fatal(err)
		}
	}
}
