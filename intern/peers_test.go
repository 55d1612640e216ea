package intern

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// quickPace is ten times the default.
func quickPace() pace {
	p := defaultPace()
	p.beat, p.holdOff, p.tail, p.idle = p.beat/10, p.holdOff/10, p.tail/4, p.idle/4
	return p
}

// mortal is a store that one Interner reaches, until it is killed.
type mortal struct {
	kv.Store
	dead atomic.Bool
}

func (m *mortal) Begin(c context.Context) (kv.Txn, error) {
	if m.dead.Load() {
		return nil, kv.ErrUnavailable
	}
	txn, err := m.Store.Begin(c)
	return mortalTxn{txn, m}, err
}

type mortalTxn struct {
	kv.Txn
	m *mortal
}

func (t mortalTxn) Commit(c context.Context) error {
	if t.m.dead.Load() {
		return kv.ErrUnavailable
	}
	return t.Txn.Commit(c)
}

// stream is batch n of a stream that all Interners read: new records of mostly known accounts, some of them with keys that the caches
// do not take.
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

// follow has an Interner resolve batches in order, several in flight, and tells when each is done.
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
			if err := in.ResolveStrings(ctx, strings, uids); err != nil {
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
	for _, reason := range []string{retryConflict, retryUnknown, retryTooOld, retryTooLarge, retryUnavailable} {
		n += testutil.ToFloat64(in.metrics.retries.WithLabelValues(reason))
	}
	return n
}

// awaitPeers waits until an Interner counts so many others, and all lead their shares.
func awaitPeers(t *testing.T, in *Interner, others int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		v := in.peers.view.Load()
		leaders := make(map[*peer]bool)
		for _, p := range v.leaders {
			leaders[p] = true
		}
		if len(v.others) == others && leaders[nil] && len(leaders) == 1+others {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d others, not %d", len(v.others), others)
		}
	}
}

// TestOneStream has two and four Interners read the same stream: all give the same UIDs, the work is shared, hardly a
// transaction is repeated.
func TestOneStream(t *testing.T) {
	for _, instances := range []int{2, 4} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			for try := 1; ; try++ {
				unshared := oneStream(t, instances)
				if unshared == "" || t.Failed() {
					return
				}
				if try == 5 { // who stands still while others wait for it makes them write themselves
					t.Fatalf("five times, of which the last: %s", unshared)
				}
			}
		})
	}
}

// oneStream says how the work was not shared, if it was not.
func oneStream(t *testing.T, instances int) (unshared string) {
	store := simkv.New(simkv.Config{Shared: true, ReadLatency: 300 * time.Microsecond, CommitLatency: time.Millisecond})
	var all []*Interner
	for range instances {
		all = append(all, openOn(t, store, Config{}))
	}
	for _, in := range all {
		awaitPeers(t, in, instances-1)
	}
	_ = all[0].ResolveStrings(ctx, streamBatch(0, 40), make([]uint64, 40)) // numbers the collections
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
	for _, in := range all {
		own := testutil.ToFloat64(in.metrics.committed)
		committed, repeated, followed = committed+own, repeated+retriesOf(in), followed+testutil.ToFloat64(in.metrics.followed)
		if own == 0 {
			unshared = "an instance has written nothing"
		}
	}
	t.Logf("%d strings, %v transactions, %v repeated, %v strings followed, %v taken over", len(want), committed, repeated, followed,
		testutil.ToFloat64(all[0].metrics.takenOver))
	switch share := repeated / committed; {
	case followed < float64(len(want))/2:
		unshared = fmt.Sprintf("only %v strings of %d followed", followed, len(want))
	case share > 0.05:
		unshared = fmt.Sprintf("%.1f %% of all transactions were repeated", 100*share)
	}
	for _, in := range all {
		_ = in.Close()
	}
	checkStore(t, store, want)
	return unshared
}

// TestLeaderDies kills one of two Interners without a goodbye in mid-stream: the other goes on, no batch waits
// for longer than a second, and soon it leads everything.
func TestLeaderDies(t *testing.T) {
	inTime(t, time.Second, leaderDies)
}

// inTime runs what must not take longer than limit; again, a few times, if it does: a loaded machine may be slow.
func inTime(t *testing.T, limit time.Duration, run func(t *testing.T, now func() time.Duration) time.Duration) {
	t.Helper()
	var took time.Duration
	for range 5 {
		if took = run(t, running(t)); took <= limit || t.Failed() {
			return
		}
	}
	if took == testedNothing {
		t.Fatal("nothing was taken over, in the last of five times: the test has tested nothing")
	}
	t.Errorf("it took %v at least, five times, more than %v", took, limit)
}

// testedNothing is what a run takes in which nobody came to wait for another.
const testedNothing = time.Duration(math.MaxInt64)

// running is a clock that stands still while the machine does: of the milliseconds that its ticker could not give it
// counts one.
func running(t *testing.T) (now func() time.Duration) {
	var ticks atomic.Int64
	ticker := time.NewTicker(time.Millisecond)
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for {
			select {
			case <-ticker.C:
				ticks.Add(1)
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() {
		ticker.Stop()
		close(done)
		ticking.Wait()
	})
	return func() time.Duration { return time.Duration(ticks.Load()) * time.Millisecond }
}

// leaderDies returns the longest time that a batch took, or that it took the heir to lead everything.
func leaderDies(t *testing.T, now func() time.Duration) time.Duration {
	base := simkv.New(simkv.Config{Shared: true, ReadLatency: 300 * time.Microsecond, CommitLatency: time.Millisecond})
	victimStore := &mortal{Store: base}
	victim, heir := openOn(t, victimStore, Config{}), openOn(t, base, Config{})
	awaitPeers(t, victim, 1)
	awaitPeers(t, heir, 1)
	var mu sync.Mutex
	want := make(map[string]uint64)
	const batches = 300
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = followStream(victim, batches, 60, 4, func(n int, strings []string, uids []uint64) {
			record(t, &mu, want, strings, uids)
			if n == 100 {
				victimStore.dead.Store(true)
				victim.cancel()
			}
		})
	})
	var longest time.Duration
	last := now()
	err := followStream(heir, batches, 60, 4, func(n int, strings []string, uids []uint64) {
		record(t, &mu, want, strings, uids)
		mu.Lock()
		defer mu.Unlock()
		longest, last = max(longest, now()-last), now()
	})
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	t.Logf("longest time without a batch %v, %v strings taken over", longest, testutil.ToFloat64(heir.metrics.takenOver))
	died := now()
	awaitPeers(t, heir, 0)
	longest = max(longest, now()-died)
	if testutil.ToFloat64(heir.metrics.takenOver) == 0 {
		longest = testedNothing
	}
	_ = heir.Close()
	checkStore(t, base, want)
	return longest
}

// TestStranger has two Interners that read different streams: the one's strings never come from the other, and after the
// first wait it does not wait again for a while.
func TestStranger(t *testing.T) {
	inTime(t, 10*defaultPace().holdOff, strangers)
}

// strangers returns how long 40 batches took, of the one or the other.
func strangers(t *testing.T, now func() time.Duration) time.Duration {
	store := simkv.New(simkv.Config{Shared: true})
	a, b := openOn(t, store, Config{}), openOn(t, store, Config{})
	awaitPeers(t, a, 1)
	awaitPeers(t, b, 1)
	start := now()
	for n := range 40 {
		resolve(t, a, streamBatch(n, 50)...)
	}
	took := now() - start
	if testutil.ToFloat64(a.metrics.takenOver) == 0 {
		took = testedNothing // b leads nothing
	}
	start = now()
	for n := range 40 { // b is behind: all of it is in the store
		resolve(t, b, streamBatch(n, 50)...)
	}
	took = max(took, now()-start)
	if n := testutil.ToFloat64(b.metrics.didNew) + testutil.ToFloat64(b.metrics.uriNew); n != 0 {
		t.Errorf("b has given %v UIDs to strings that had one", n)
	}
	return took
}

func TestBeats(t *testing.T) {
	value := appendBeat(nil, 77, []uint32{1, 16383, 5})
	got, err := parseBeat(appendInstanceKey(nil, 9), value)
	if want := (instance{9, 77, []uint32{1, 16383, 5}}); err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(instance{})) {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range value {
		if _, err := parseBeat(appendInstanceKey(nil, 9), value[:n]); err == nil {
			t.Errorf("%d bytes of %d were taken", n, len(value))
		}
	}
	if _, err := parseBeat([]byte{tagInstances, 1}, value); err == nil {
		t.Error("a short key was taken")
	}
	if _, err := parseBeat(appendInstanceKey(nil, 9), append(value, 0)); err == nil {
		t.Error("trailing bytes were taken")
	}
}

// TestLeaders checks that leaders are the same in all views, near evenly spread, and that only the dead one's shards move.
func TestLeaders(t *testing.T) {
	store := simkv.New(simkv.Config{Shared: true})
	in := openOn(t, store, Config{})
	leads := func(self uint64, others ...uint64) [shards]uint64 {
		p := newPeers(in, self, defaultPace())
		p.beats = 10
		for _, id := range others {
			p.known[id] = &peer{id: id, beat: 10}
		}
		p.look()
		var ids [shards]uint64
		for i, leader := range p.view.Load().leaders {
			if ids[i] = self; leader != nil {
				ids[i] = leader.id
			}
		}
		return ids
	}
	four := leads(1, 2, 3, 4)
	if four != leads(3, 4, 2, 1) {
		t.Error("two instances see different leaders")
	}
	three, counts := leads(1, 2, 4), make(map[uint64]int)
	for i, id := range four {
		counts[id]++
		if id != 3 && three[i] != id {
			t.Errorf("shard %d went from %d to %d though 3 has died", i, id, three[i])
		}
	}
	for id := uint64(1); id <= 4; id++ {
		if counts[id] < shards/8 {
			t.Errorf("instance %d leads %d shards", id, counts[id])
		}
	}
}

// TestJoining: nobody waits for the results of an Interner that does not lead anything yet.
func TestJoining(t *testing.T) {
	in := openOn(t, simkv.New(simkv.Config{Shared: true}), Config{Alone: true})
	pace := defaultPace()
	old, joining := newPeers(in, 1, pace), newPeers(in, 2, pace)
	old.beats = 100
	for joining.beats = 1; joining.beats < 6; joining.beats++ {
		old.known[2] = &peer{id: 2, beat: joining.beats}
		joining.known[1] = &peer{id: 1, beat: old.beats}
		old.look()
		joining.look()
		for shard := range shards {
			if old.view.Load().leaders[shard] != nil && joining.view.Load().leaders[shard] != nil {
				t.Fatalf("at beat %d nobody leads shard %d", joining.beats, shard)
			}
		}
	}
	if len(old.view.Load().others) != 1 || !slices.ContainsFunc(old.view.Load().leaders[:], func(p *peer) bool { return p != nil }) {
		t.Error("the newcomer leads nothing in the end")
	}
}
