package intern

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/consume/relaysim/testwait"
	"millrace/intern/internal/share"
	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// quickTiming is ten times the default.
func quickTiming() share.Timing {
	t := share.DefaultTiming()
	t.Heartbeat, t.HoldOff, t.Poll, t.IdlePoll = t.Heartbeat/10, t.HoldOff/10, t.Poll/4, t.IdlePoll/4
	return t
}

// streamBatch is batch n of a stream that all Interners read. It has new records of mostly known
// accounts, some of them with keys that the caches do not take.
func streamBatch(n, size int) []string {
	rng := rand.New(rand.NewPCG(uint64(n), 9))
	var s []string
	for i := range size {
		did := fmt.Sprintf("did:plc:%024d", rng.IntN(50+n))
		did = did[:8] + string(appendBase32(nil, uint64(rng.IntN(50+n)), 24))
		switch rng.IntN(20) {
		case 0:
			s = append(s, did)
		case 1:
			s = append(s, fmt.Sprintf("at://%s/app.bsky.feed.threadgate/a-record-key-of-some-length-%d-%d", did, n, i))
		default:
			tid := uint64(3)<<60>>2 | uint64(n)<<20 | uint64(i)<<8
			s = append(s, "at://"+did+"/app.bsky.feed.like/"+string(appendTID(nil, tid)))
		}
	}
	return s
}

func appendBase32(dst []byte, n uint64, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		d := byte(0)
		if 5*i < 64 {
			d = byte(n >> (5 * i) & 31)
		}
		dst = append(dst, "abcdefghijklmnopqrstuvwxyz234567"[d])
	}
	return dst
}

// followStream has an Interner resolve batches in order, several in flight. done gets each.
func followStream(in *Interner, batches, size, inFlight int, done func(n int, strings []string, uids []uint64)) error {
	var wg sync.WaitGroup
	var first atomic.Value
	slots := make(chan struct{}, inFlight)
	for n := range batches {
		slots <- struct{}{}
		if first.Load() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			strings := streamBatch(n, size)
			uids := make([]uint64, len(strings))
			if err := resolveStrings(ctx, in, strings, uids); err != nil {
				first.CompareAndSwap(nil, err)
				return
			}
			done(n, strings, uids)
		})
	}
	wg.Wait()
	err, _ := first.Load().(error)
	return err
}

// retriesOf sums all reasons for which an Interner began transactions anew.
func retriesOf(in *Interner) (n float64) {
	for _, reason := range []string{"conflict", "unknown_outcome", "too_old", "too_large", "unavailable"} {
		n += testutil.ToFloat64(in.metrics.retries.WithLabelValues(reason))
	}
	return n
}

// awaitPeers waits until an Interner counts so many others, and all lead their partitions.
func awaitPeers(t *testing.T, in *Interner, others int) {
	t.Helper()
	var living int
	if !testwait.Becomes(patience, func() bool {
		living = int(testutil.ToFloat64(in.metrics.share.Instances))
		return living == others && in.group.Leaders() == 1+others
	}) {
		t.Fatalf("%d others, not %d", living, others)
	}
}

// TestOneStream has two and four Interners read the same stream: all give the same UIDs, the work
// is shared, hardly a transaction is repeated.
func TestOneStream(t *testing.T) {
	for _, instances := range []int{2, 4} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { oneStream(t, instances) })
		})
	}
}

// openShared opens Interners on stores that are one, and waits until all lead their partitions.
// Each knows the numbers of the stream's collections. To number one, workers wait for a mutex, and
// a bubble's time stands still for as long as a goroutine does.
func openShared(t *testing.T, stores ...kv.Store) (all []*Interner) {
	t.Helper()
	for _, store := range stores {
		all = append(all, openOn(t, store, Config{}))
	}
	for _, in := range all {
		awaitPeers(t, in, len(stores)-1)
		resolve(t, in, "at://did:web:first.example/app.bsky.feed.like")
		resolve(t, in, "at://did:web:first.example/app.bsky.feed.threadgate")
	}
	return all
}

func oneStream(t *testing.T, instances int) {
	store := simkv.New(simkv.Config{Shared: true, ReadLatency: 300 * time.Microsecond, CommitLatency: time.Millisecond})
	all := openShared(t, slices.Repeat([]kv.Store{store}, instances)...)
	var mu sync.Mutex
	want := make(map[string]uint64)
	var wg sync.WaitGroup
	for _, in := range all {
		wg.Go(func() {
			err := followStream(in, 150, 100, 4, func(_ int, strings []string, uids []uint64) { record(t, &mu, want, strings, uids) })
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var committed, repeated, followed float64
	for i, in := range all {
		own := testutil.ToFloat64(in.metrics.committed)
		committed, repeated, followed = committed+own, repeated+retriesOf(in), followed+testutil.ToFloat64(in.metrics.share.Followed)
		if own < 10 {
			t.Errorf("instance %d has committed only %v transactions", i, own)
		}
	}
	t.Logf("%d strings, %v transactions, %v repeated, %v strings followed, %v taken over", len(want), committed, repeated, followed,
		testutil.ToFloat64(all[0].metrics.share.TakenOver))
	if followed < float64(len(want))/2 {
		t.Errorf("only %v strings of %d followed", followed, len(want))
	}
	if share := repeated / committed; share > 0.05 {
		t.Errorf("%.1f %% of all transactions were repeated", 100*share)
	}
	for _, in := range all {
		_ = in.Close()
	}
	checkStore(t, store, want)
}

// TestLeaderDies kills one of two Interners without a goodbye in mid-stream. The other goes on, no
// batch waits for longer than a second, and soon it leads everything.
func TestLeaderDies(t *testing.T) { synctest.Test(t, leaderDies) }

func leaderDies(t *testing.T) {
	base := simkv.New(simkv.Config{Shared: true, ReadLatency: 300 * time.Microsecond, CommitLatency: time.Millisecond})
	var dead atomic.Bool
	die := func() error {
		if dead.Load() {
			return kv.ErrUnavailable
		}
		return nil
	}
	killedStore := &hookedStore{Store: base, beforeBegin: die, beforeCommit: die}
	both := openShared(t, killedStore, base)
	killed, survivor := both[0], both[1]
	var mu sync.Mutex
	want := make(map[string]uint64)
	const batches = 300
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = followStream(killed, batches, 60, 4, func(n int, strings []string, uids []uint64) {
			record(t, &mu, want, strings, uids)
			if n == 100 {
				dead.Store(true)
				killed.cancel()
			}
		})
	})
	var longest time.Duration
	last := time.Now()
	err := followStream(survivor, batches, 60, 4, func(n int, strings []string, uids []uint64) {
		record(t, &mu, want, strings, uids)
		mu.Lock()
		defer mu.Unlock()
		longest, last = max(longest, time.Since(last)), time.Now()
	})
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	died := time.Now()
	awaitPeers(t, survivor, 0)
	t.Logf("longest time without a batch %v, %v strings taken over, survivor led everything after another %v", longest,
		testutil.ToFloat64(survivor.metrics.share.TakenOver), time.Since(died))
	if longest = max(longest, time.Since(died)); longest > time.Second {
		t.Errorf("the survivor stood still for %v", longest)
	}
	if testutil.ToFloat64(survivor.metrics.share.TakenOver) == 0 {
		t.Error("nothing was taken over: the test has tested nothing")
	}
	_ = survivor.Close()
	checkStore(t, base, want)
}

// TestUnknownStream has two Interners that read different streams. The one's strings never come
// from the other, and after the first wait it does not wait again for a while.
func TestUnknownStream(t *testing.T) { synctest.Test(t, unknownStream) }

func unknownStream(t *testing.T) {
	store := simkv.New(simkv.Config{Shared: true})
	both := openShared(t, store, store)
	a, b := both[0], both[1]
	for _, in := range both {
		start := time.Now()
		for n := range 40 { // when b comes to them all are in the store
			resolve(t, in, streamBatch(n, 50)...)
		}
		if took := time.Since(start); took > 10*share.DefaultTiming().HoldOff {
			t.Errorf("40 batches took %v", took)
		}
	}
	if testutil.ToFloat64(a.metrics.share.TakenOver) == 0 {
		t.Error("b leads nothing: the test has tested nothing")
	}
	if n := testutil.ToFloat64(b.metrics.didNew) + testutil.ToFloat64(b.metrics.uriNew); n != 0 {
		t.Errorf("b has given %v UIDs to strings that had one", n)
	}
}
