package intern

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/consume/relaysim/testwait"
	"millrace/intern/kv"
	"millrace/intern/kv/pebblekv"
	"millrace/intern/kv/simkv"
)

// TestChaos has thousands of workers intern overlapping strings on a store with every fault there
// is. They are in several instances, of which some die and come back. Afterwards both directions
// are scanned whole.
func TestChaos(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	store := simkv.New(simkv.Config{Seed: seed, Shared: true})
	first := openOn(t, store, Config{Workers: 1})
	_ = first.Close()
	store.SetFaults(simkv.Faults{
		Conflict: 0.05, UnknownApplied: 0.05, UnknownLost: 0.05, UnknownLate: 0.05, TooOld: 0.02, Unavailable: 0.02, Delay: 0.1,
		LateBy: 5 * time.Millisecond, DelayBy: 2 * time.Millisecond,
	})
	var mu sync.Mutex
	want := make(map[string]uint64)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() { trouble(store, rand.New(rand.NewPCG(seed, 1)), stop) })

	const instances, lives, workers, callers = 4, 2, 512, 16 // 4,096 workers
	var live sync.WaitGroup
	for i := range instances {
		live.Go(func() {
			for life := range lives {
				chaosLife(t, store, rand.New(rand.NewPCG(seed, uint64(100*i+life))), &mu, want, workers, callers, life == lives-1)
			}
		})
	}
	live.Wait()
	close(stop)
	wg.Wait()
	store.SetFaults(simkv.Faults{})
	store.SetDown(false)
	store.Settle()
	checkStore(t, store, want)
	stats := store.Stats()
	t.Logf("%d strings, %+v", len(want), stats)
	if stats.Conflicts == 0 || stats.Injected == 0 || len(want) < 500 {
		t.Error("the test has tested nothing")
	}
}

// trouble has outages and crashes until stop.
func trouble(store *simkv.Store, rng *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(60)) * time.Millisecond):
		}
		store.Crash()
		if rng.IntN(2) == 0 {
			store.SetDown(true)
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			store.SetDown(false)
		}
	}
}

// chaosLife runs one instance. Unless it is the last life, the instance dies in the middle.
func chaosLife(t *testing.T, store kv.Store, rng *rand.Rand, mu *sync.Mutex, want map[string]uint64, workers, callers int, last bool) {
	in, err := Open(ctx, Config{Store: store, Workers: workers, CacheBytes: 32 << 10, Seed: rng.Uint64(),
		hooks: testHooks{batchStrings: 1 + rng.IntN(64), timing: quickTiming()}})
	if err != nil {
		t.Error(err)
		return
	}
	defer in.Close()
	var wg sync.WaitGroup
	for caller := range callers {
		own := rand.New(rand.NewPCG(rng.Uint64(), 1))
		// the same strings in all instances at about the same time, as on one stream
		if caller%2 == 0 {
			own = rand.New(rand.NewPCG(uint64(caller), 1))
		}
		wg.Go(func() {
			for range 8 {
				strings := randomStrings(own, 1+own.IntN(40))
				uids := make([]uint64, len(strings))
				call, cancel := ctx, context.CancelFunc(func() {})
				if own.IntN(10) == 0 { // an impatient caller
					call, cancel = context.WithTimeout(ctx, time.Duration(own.IntN(20))*time.Millisecond)
				}
				var err error
				if own.IntN(2) == 0 {
					err = resolveStrings(call, in, strings, uids)
				} else {
					strings, uids, err = resolveSubjects(call, in, strings)
				}
				cancel()
				switch {
				case err == nil:
					record(t, mu, want, strings, uids)
				case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errClosed) && !last:
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	if !last {
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		_ = in.Close()
	}
	wg.Wait()
}

// TestCrashes runs random batches on the embedded store and kills the machine again and again:
// every UID that was returned is there afterwards, and stays.
func TestCrashes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := vfs.NewCrashableMem()
	var mu sync.Mutex
	want := make(map[string]uint64) // the plain map
	storeID := ""
	const rounds, least = 10, 500
	for round := range rounds {
		store, err := pebblekv.Open(pebblekv.Config{Dir: "uids", FS: fs, MemTableBytes: 256 << 10, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		in, err := Open(ctx, Config{Store: store, Workers: 1 + rng.IntN(8), hooks: testHooks{batchStrings: 1 + rng.IntN(50)}, CacheBytes: int64(rng.IntN(64 << 10))})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if storeID == "" {
			storeID = in.StoreID()
		}
		if in.StoreID() != storeID {
			t.Fatalf("seed %d: store ID %s has become %s", seed, storeID, in.StoreID())
		}
		life, kill := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for range 4 {
			own := rand.New(rand.NewPCG(rng.Uint64(), 2))
			wg.Go(func() {
				for life.Err() == nil {
					strings := randomStrings(own, 1+own.IntN(40))
					strings = append(strings, fmt.Sprintf("at://did:web:new.com/a.b.c/%d", own.Uint32()))
					strings, uids, err := resolveSubjects(ctx, in, strings)
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					if life.Err() == nil { // else the crash was first
						record(t, &mu, want, strings, uids)
					}
				}
			})
		}
		// It happens at some time while the map grows; the last one waits until there is enough.
		have := func() int { mu.Lock(); defer mu.Unlock(); return len(want) }
		enough := have() + rng.IntN(2*least/rounds)
		if round == rounds-1 {
			enough = max(enough, least)
		}
		testwait.Eventually(t, patience, fmt.Sprintf("seed %d: %d strings", seed, enough), func() bool { return have() >= enough })
		mu.Lock()
		kill() // under mu: what is recorded was returned before the crash
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(4) * 33, RNG: rand.New(rand.NewPCG(seed, uint64(round)))})
		mu.Unlock()
		wg.Wait()
		_ = in.Close()
		_ = store.Close()
		fs = clone
	}
	store, err := pebblekv.Open(pebblekv.Config{Dir: "uids", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	checkStore(t, store, want)
	if len(want) < least {
		t.Errorf("only %d strings", len(want))
	}
	t.Logf("%d strings", len(want))
}

// TestUnknownOutcomes has every commit report an unknown outcome at first, one kind of it
// after the other.
func TestUnknownOutcomes(t *testing.T) {
	for name, shared := range map[string]bool{"direct": false, "workers": true} {
		t.Run(name, func(t *testing.T) { testUnknownOutcomes(t, shared) })
	}
}

func testUnknownOutcomes(t *testing.T, shared bool) {
	for _, faults := range []simkv.Faults{{UnknownApplied: 0.5}, {UnknownLost: 0.5}, {UnknownLate: 0.5, LateBy: 3 * time.Millisecond}} {
		store := simkv.New(simkv.Config{Seed: 1, Shared: shared})
		in := openOn(t, store, Config{CacheBytes: -1, Workers: 2, Alone: true})
		store.SetFaults(faults)
		want := make(map[string]uint64)
		var mu sync.Mutex
		for n := range 10 {
			strings := []string{fmt.Sprintf("did:web:%d.com", n), fmt.Sprintf("at://did:web:%d.com/a.b.c%d/x", n, n), fmt.Sprintf("at://did:web:%d.com/a.b.c%d/x", n/2, n/2)}
			record(t, &mu, want, strings, resolve(t, in, strings...))
			subjects := []string{fmt.Sprintf("did:plc:%024d", n+2222), fmt.Sprintf("at://%d.example.com/a.b.c/x", n/2), fmt.Sprintf("at://did:web:%d.com/a.b.c/r%d", n, n)}
			names, uids, err := resolveSubjects(ctx, in, subjects)
			if err != nil {
				t.Fatal(err)
			}
			record(t, &mu, want, names, uids)
		}
		store.SetFaults(simkv.Faults{})
		store.Settle()
		checkStore(t, store, want)
		if n := testutil.ToFloat64(in.metrics.sequenceContended); n != 0 && faults.UnknownLate == 0 {
			t.Errorf("%+v: the interner took its own writes for %v contended sequences", faults, n)
		}
	}
}
