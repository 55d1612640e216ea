package intern

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

func TestCacheSetSize(t *testing.T) {
	if size := unsafe.Sizeof(cacheSet{}); size != cacheSetBytes {
		t.Errorf("a set has %d bytes, not %d", size, cacheSetBytes)
	}
}

// TestCache compares with a map: what the cache returns is right, and while there is room it
// returns all.
func TestCache(t *testing.T) {
	for _, sets := range []int64{1, 7, 4096} {
		c := newCache(sets * cacheSetBytes)
		plain := make(map[string]uint64)
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 1))
		hits := 0
		for range 20_000 {
			key := binary.BigEndian.AppendUint32(nil, rng.Uint32N(3000))
			key = key[rng.IntN(2):]
			got := c.get(hashKey(key), key)
			if got != 0 {
				hits++
				if got != plain[string(key)] {
					t.Fatalf("seed %d: %x has %d, not %d", seed, key, got, plain[string(key)])
				}
				continue
			}
			if sets == 4096 && plain[string(key)] != 0 {
				t.Errorf("seed %d: %x was forgotten though there is room", seed, key)
			}
			plain[string(key)] = uint64(len(plain) + 1)
			c.put(hashKey(key), key, plain[string(key)])
		}
		if hits == 0 {
			t.Error("no hits")
		}
	}
}

// TestCacheKeepsHotKeys reads one key between floods of others.
func TestCacheKeepsHotKeys(t *testing.T) {
	c := newCache(cacheSetBytes) // one set
	hot := []byte("hot")
	c.put(hashKey(hot), hot, 7)
	for i := range 1000 {
		key := fmt.Appendf(nil, "cold%d", i)
		c.put(hashKey(key), key, uint64(i+100))
		if i%3 == 0 && c.get(hashKey(hot), hot) != 7 {
			t.Fatalf("the hot key is gone after %d others", i+1)
		}
	}
}

func TestCacheLimits(t *testing.T) {
	var none *cache = newCache(-1)
	key := []byte("k")
	none.put(hashKey(key), key, 1)
	if none != nil || none.get(hashKey(key), key) != 0 {
		t.Error("a cache without memory holds something")
	}
	c := newCache(1 << 20)
	long := []byte(strings.Repeat("x", cacheKey+1))
	c.put(hashKey(long), long, 1)
	if c.get(hashKey(long), long) != 0 {
		t.Error("a key that is too long is held")
	}
	long = long[1:]
	c.put(hashKey(long), long, 1)
	if c.get(hashKey(long), long) != 1 {
		t.Error("the longest key is not held")
	}
}

func TestCollectionsAreBounded(t *testing.T) {
	c := newCollections()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range maxCollections {
				n := uint32(w*maxCollections + i + 1)
				c.put(fmt.Sprintf("a.b.c%d", n), n)
				if got := c.name(n); got != "" && got != fmt.Sprintf("a.b.c%d", n) {
					t.Errorf("collection %d is %q", n, got)
				}
			}
		})
	}
	wg.Wait()
	for name, n := range maps.Clone(c.byName) { // those that are held push none out
		c.put(name, n)
	}
	if len(c.byName) != maxCollections || len(c.byNumber) != maxCollections {
		t.Errorf("%d and %d collections are held", len(c.byName), len(c.byNumber))
	}
}

// TestResolveKnown checks that strings the caches know cost no transaction and hardly memory.
func TestResolveKnown(t *testing.T) {
	store := newMemStore(t)
	in := openOn(t, store, Config{})
	source := newTraffic(1, 50)
	reqs, out := make([]Request, 100), make([]Result, 100)
	source.next(reqs)
	run := func() {
		if err := in.Resolve(ctx, reqs, out); err != nil {
			t.Error(err)
		}
	}
	run() // gives the strings UIDs
	run() // reads the UIDs, and puts them into the caches
	before := in.metrics.committed
	count := counterValue(t, before)
	// 1; more with -race, where pools forget
	if allocs := testing.AllocsPerRun(100, run); allocs > 10 {
		t.Errorf("%.1f allocations for 100 known strings", allocs)
	}
	if n := counterValue(t, before) - count; n != 0 {
		t.Errorf("%v transactions for known strings", n)
	}
}

// TestCachesHoldWhatIsCommitted: neither before a commit nor after one that failed do the caches
// have what the transaction would write. Workers run it, or the caller itself does.
func TestCachesHoldWhatIsCommitted(t *testing.T) {
	for _, shared := range []bool{false, true} {
		store := &hookedStore{Store: simkv.New(simkv.Config{Shared: shared})}
		in := openOn(t, store, Config{Workers: 1, Alone: true})
		const did = "did:web:a.example"
		key := appendDIDKey(nil, []byte(did))
		commits := 0
		store.beforeCommit = func() error {
			if uid := in.dids.get(hashKey(key), key); uid != 0 {
				t.Errorf("shared %v: before commit %d the cache has UID %d", shared, commits, uid)
			}
			if commits++; commits == 1 {
				return kv.ErrConflict
			}
			return nil
		}
		uid := resolve(t, in, did)[0]
		if commits != 2 {
			t.Errorf("shared %v: %d commits, want 2", shared, commits)
		}
		if got := in.dids.get(hashKey(key), key); got != uid {
			t.Errorf("shared %v: the cache has UID %d of a committed string, want %d", shared, got, uid)
		}
	}
}
