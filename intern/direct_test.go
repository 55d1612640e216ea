package intern

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/intern/kv/simkv"
)

// urisOf returns n AT URIs of as many DIDs, which fall to all workers.
func urisOf(n int, tag string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("at://did:web:%s%d.example/app.bsky.feed.post/%s", tag, i, tag))
	}
	return all
}

// transactions counts those that f makes.
func transactions(in *Interner, f func()) float64 {
	before := testutil.ToFloat64(in.metrics.committed)
	f()
	return testutil.ToFloat64(in.metrics.committed) - before
}

// TestDirect: while nothing is in flight a small call is one transaction, whatever workers its
// strings fall to. A large one, and any on a store that is shared, is one for each worker.
func TestDirect(t *testing.T) {
	for _, c := range []struct {
		name    string
		shared  bool
		strings int
		most    float64
		least   float64
	}{
		{"small", false, 40, 1, 1},
		{"large", false, 400, 8, 4},
		{"shared", true, 40, 8, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := simkv.New(simkv.Config{Shared: c.shared})
			in := openOn(t, store, Config{Workers: 4, Alone: true})
			// numbers the collection
			resolve(t, in, "at://did:web:first.example/app.bsky.feed.post/1")
			n := transactions(in, func() { resolve(t, in, urisOf(c.strings, "x")...) })
			if n < c.least || n > c.most {
				t.Errorf("%v transactions, want %v to %v", n, c.least, c.most)
			}
			checkStore(t, store, nil)
		})
	}
}

// TestDirectBesideWorkers: small and large calls of the same strings at the same time agree, and
// never conflict: a direct call has the store to itself.
func TestDirectBesideWorkers(t *testing.T) {
	store := simkv.New(simkv.Config{Seed: 1, ReadLatency: 50 * time.Microsecond, CommitLatency: 200 * time.Microsecond})
	in := openOn(t, store, Config{Workers: 4, CacheBytes: -1})
	all := urisOf(600, "y")
	want := make(map[string]uint64)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for round := range 20 {
				n := 30
				if (g+round)%3 == 0 {
					n = 300
				}
				at := (g*37 + round*71) % (len(all) - n)
				uids := make([]uint64, n)
				if err := resolveStrings(ctx, in, all[at:at+n], uids); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, s := range all[at : at+n] {
					if have, ok := want[s]; ok && have != uids[i] {
						t.Errorf("%s has UID %d and %d", s, have, uids[i])
					}
					want[s] = uids[i]
				}
				mu.Unlock()
				time.Sleep(time.Duration(g) * 100 * time.Microsecond)
			}
		})
	}
	wg.Wait()
	if n := store.Stats().Conflicts; n > 0 {
		t.Errorf("%d transactions conflicted with the Interner's own", n)
	}
	checkStore(t, store, nil)
}

// TestDirectFails: what a direct call cannot do the workers do; one that comes after Close gets an
// error.
func TestDirectFails(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{Workers: 4})
	resolve(t, in, "at://did:web:first.example/app.bsky.feed.post/1")
	for _, f := range []simkv.Faults{{Conflict: 0.7}, {UnknownApplied: 0.7}, {UnknownLost: 0.7}, {TooOld: 0.7}, {Unavailable: 0.3}} {
		store.SetFaults(f)
		for i := range 5 {
			resolve(t, in, urisOf(3, fmt.Sprintf("f%d", i))...)
		}
	}
	store.SetFaults(simkv.Faults{})
	checkStore(t, store, nil)
	uids := make([]uint64, 1)
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := resolveStrings(ctx, in, []string{"did:web:late.example"}, uids); err != errClosed { //nolint:errorlint // it is returned as it is
		t.Errorf("after Close: %v", err)
	}
}
