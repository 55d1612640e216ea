package share

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestForget: those that wait for a key go on when one is done, wherever it is in the list.
func TestForget(t *testing.T) {
	for gone := range 4 {
		f := &follower{pending: make(map[string][]*waiter)}
		var all []*waiter
		for range 4 {
			all = append(all, &waiter{key: "key"})
		}
		f.pending["key"] = slices.Clone(all)
		f.forget(all[gone])
		want := slices.Delete(slices.Clone(all), gone, gone+1)
		if got := f.pending["key"]; !slices.Equal(got, want) {
			t.Errorf("%d of 3 wait when number %d is done", len(got), gone)
		}
		for _, w := range want {
			f.forget(w)
		}
		if len(f.pending) > 0 {
			t.Error("a key is kept for which nobody waits")
		}
	}
}

// absent is an item whose key is in no cache, and a look-up that finds nothing.
type absent struct{}

func (absent) Hash() uint64                      { return 1 }
func (absent) Advance(dst []byte) ([]byte, bool) { return append(dst, "key"...), false }
func (absent) Set(*Name)                         {}
func (absent) Run(context.Context) error         { return nil }
func (absent) Found(int) bool                    { return false }
func (absent) Apply(int)                         {}

// TestLookedForAgain: a string that a look-up has not found is looked up again, as long as it has
// not waited for HoldOff.
func TestLookedForAgain(t *testing.T) {
	f := newFollower(Config{Timing: Timing{HoldOff: time.Hour}}, &Group{})
	w := &waiter{item: absent{}, group: &group{left: 1}, since: time.Now()}
	f.advance(w)
	for range 2 {
		f.wantLookup(w)
		if len(f.ask) != 1 {
			t.Fatalf("%d strings are to be looked for, want 1", len(f.ask))
		}
		f.ask = f.ask[:0]
		f.endLookup(batch{waiters: []*waiter{w}, lookup: absent{}})
		if w.done || len(f.pending["key"]) != 1 {
			t.Error("it no longer waits, or twice")
		}
	}
}

// fakeItem needs keys one after another; have are those that the caches know.
type fakeItem struct {
	hash uint64
	keys []string
	have map[string]bool
	set  []uint64
}

func (i *fakeItem) Hash() uint64 { return i.hash }

func (i *fakeItem) Advance(dst []byte) ([]byte, bool) {
	for len(i.keys) > 0 && i.have[i.keys[0]] {
		i.keys = i.keys[1:]
	}
	if len(i.keys) == 0 {
		return dst, true
	}
	return append(dst, i.keys[0]...), false
}

func (i *fakeItem) Set(n *Name) { i.set, i.keys = append(i.set, n.UID), i.keys[1:] }

// fakeCall notes what the follower calls.
type fakeCall struct {
	interned []Item
	done     int
}

func (c *fakeCall) InternHere(items []Item) { c.interned = append(c.interned, items...) }
func (c *fakeCall) Done()                   { c.done++ }

// fakeStore is an Interner whose look-ups find the keys of found.
type fakeStore struct {
	Interner
	found  map[string]bool
	cached []Name
}

type fakeLookup struct {
	store *fakeStore
	items []Item
}

func (s *fakeStore) Cache(names []Name)         { s.cached = append(s.cached, names...) }
func (s *fakeStore) LookUp(items []Item) Lookup { return &fakeLookup{s, slices.Clone(items)} }

func (l *fakeLookup) Run(context.Context) error { return nil }
func (l *fakeLookup) Found(i int) bool          { return l.store.found[l.items[i].(*fakeItem).keys[0]] }
func (l *fakeLookup) Apply(i int) {
	if l.Found(i) {
		item := l.items[i].(*fakeItem)
		item.keys = item.keys[1:]
	}
}

// TestFollower: what is known is done at once, what another leads waits for the feed, then for the
// store, and in the end is interned here. Each call is done once, when all of its strings are.
func TestFollower(t *testing.T) {
	store := &fakeStore{found: map[string]bool{}}
	leader, other := &instance{id: 2}, &instance{id: 3}
	metrics := NewMetrics(nil)
	cfg := Config{ID: 1, Interner: store, CacheKeyBytes: 8, Timing: Timing{HoldOff: time.Hour}, Metrics: metrics}
	g := New(cfg)
	f := g.follower
	lead := func(partition int, i *instance) {
		v := &view{others: []*instance{leader, other}}
		if before := g.instances.view.Load(); before.others != nil {
			v.leaders = before.leaders
		}
		v.leaders[partition] = i
		g.instances.view.Store(v)
	}
	lead(1, leader)
	const theirs, ours = 1 << 56, 2 << 56
	if !g.Led(theirs) || g.Led(ours) || g.Leaders() != 2 {
		t.Errorf("led %v and %v, %d leaders", g.Led(theirs), g.Led(ours), g.Leaders())
	}
	item := func(hash uint64, keys ...string) *fakeItem { return &fakeItem{hash: hash, keys: keys} }
	known, led := item(theirs), item(theirs, "a", "b")
	mine, long := item(ours, "c"), item(theirs, "a-long-key")
	first, second := &fakeCall{}, &fakeCall{}
	f.admit(task{first, []Item{known, led, mine}})
	f.admit(task{second, []Item{item(theirs, "a"), long}})
	asked := func() (keys []string) {
		for _, w := range f.ask {
			keys = append(keys, w.item.(*fakeItem).keys[0])
		}
		return keys
	}
	if len(first.interned) != 1 || first.interned[0] != Item(mine) || first.done+second.done != 0 || f.waiting != 3 || !slices.Equal(asked(), []string{"a-long-key"}) {
		t.Fatalf("interned %v, %d done, %d wait, asked for %v", first.interned, first.done+second.done, f.waiting, asked())
	}
	// Both wait for a, and one of them then for b.
	f.deliver([]Name{{Key: []byte("x"), UID: 7}, {Key: []byte("a"), UID: 8}})
	if !slices.Equal(led.set, []uint64{8}) || len(store.cached) != 2 || f.waiting != 2 || first.done+second.done != 0 || len(f.pending) != 2 {
		t.Fatalf("set %v, cached %v, %d wait, %d are pending", led.set, store.cached, f.waiting, len(f.pending))
	}
	f.deliver([]Name{{Key: []byte("b"), UID: 9}})
	if first.done != 1 || second.done != 0 || f.waiting != 1 {
		t.Fatalf("done %d and %d, %d wait", first.done, second.done, f.waiting)
	}
	if n := counter(t, metrics.Followed); n != 3 {
		t.Errorf("followed %v", n)
	}
	// A look-up that finds it ends the wait.
	lookUp := func(failed error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // nobody takes it
		f.lookups = make(chan batch, 1)
		for len(f.lookups) == 0 && len(f.ask) > 0 {
			f.asking = false
			kept := slices.Clone(f.ask)
			if f.beginLookup(ctx); len(f.lookups) == 0 {
				f.ask = kept // ctx was chosen
			}
		}
		b := <-f.lookups
		b.err = failed
		f.endLookup(b)
	}
	store.found["a-long-key"] = true
	lookUp(nil)
	if second.done != 1 || f.waiting != 0 || len(f.pending) != 0 || f.asking {
		t.Fatalf("done %d, %d wait, %d are pending", second.done, f.waiting, len(f.pending))
	}
	// What is absent is looked for after HoldOff only, then interned here; its leader is late.
	third := &fakeCall{}
	f.admit(task{third, []Item{item(theirs, "d"), item(theirs, "e")}})
	if f.expire(); len(f.ask) != 0 || len(f.order) != 2 {
		t.Fatalf("asked for %v at once, %d in order", asked(), len(f.order))
	}
	f.order[0].since = time.Now().Add(-time.Hour)
	f.expire()
	if !slices.Equal(asked(), []string{"d"}) {
		t.Fatalf("after its time asked for %v", asked())
	}
	lookUp(nil)
	if len(third.interned) != 1 || third.done != 0 || f.waiting != 1 || leader.lateness.count != 1 || other.lateness.count != 0 {
		t.Fatalf("interned %v, %d done, late %d and %d", third.interned, third.done, leader.lateness.count, other.lateness.count)
	}
	// The partition has another leader now: its hold-off is not waited for.
	lead(1, other)
	f.expire()
	if !slices.Equal(asked(), []string{"e"}) {
		t.Fatalf("of another leader asked for %v", asked())
	}
	lookUp(nil)
	if len(third.interned) != 2 || third.done != 1 || f.waiting != 0 || other.lateness.count != 0 || counter(t, metrics.TakenOver) != 3 {
		t.Fatalf("interned %v, %d done, taken over %v", third.interned, third.done, counter(t, metrics.TakenOver))
	}
	// A look-up that fails gives all to the workers.
	fourth := &fakeCall{}
	f.admit(task{fourth, []Item{item(theirs, "another-long-key")}})
	lookUp(context.DeadlineExceeded)
	if len(fourth.interned) != 1 || fourth.done != 1 {
		t.Fatalf("after a failed look-up %v is interned", fourth.interned)
	}
	// One that is behind looks at once, until most of what it looks for is absent.
	for _, there := range []bool{true, false} {
		store.found["f"], store.found["g"] = true, there
		f.admit(task{&fakeCall{}, []Item{item(theirs, "f"), item(theirs, "g")}})
		for _, w := range f.order {
			w.since = time.Now().Add(-time.Hour)
		}
		f.expire()
		if lookUp(nil); f.behind != there {
			t.Errorf("two of two there: %v, behind %v", there, f.behind)
		}
	}
	f.behind = true
	f.admit(task{&fakeCall{}, []Item{item(theirs, "h")}})
	if !slices.Equal(asked(), []string{"h"}) {
		t.Errorf("behind, it asked for %v", asked())
	}
}

// TestLookupsAreBounded: a look-up has so many strings at most, and none that is done.
func TestLookupsAreBounded(t *testing.T) {
	f := newFollower(Config{Interner: &fakeStore{}, Timing: Timing{HoldOff: time.Hour}}, &Group{})
	f.lookups = make(chan batch, 1)
	for i := range 2*maxLookup + 10 {
		w := &waiter{item: absent{}, done: i%2 == 0}
		f.wantLookup(w)
		f.wantLookup(w)
	}
	f.beginLookup(t.Context())
	if b := <-f.lookups; len(b.waiters) != maxLookup || len(b.lookup.(*fakeLookup).items) != maxLookup || b.waiters[0].done {
		t.Errorf("%d strings", len(b.waiters))
	}
	if f.beginLookup(t.Context()); len(f.lookups) != 0 || len(f.ask) != 10 {
		t.Errorf("%d look-ups beside one, %d left to be asked", len(f.lookups), len(f.ask))
	}
	f.asking = false
	if f.beginLookup(t.Context()); len(f.ask) != 0 || len((<-f.lookups).waiters) != 5 {
		t.Errorf("%d left to be asked", len(f.ask))
	}
}

// TestHoldOff: a leader is waited for as long as some transactions take, within bounds.
func TestHoldOff(t *testing.T) {
	g := New(Config{Timing: Timing{HoldOff: 100 * time.Millisecond}})
	if got := g.follower.holdOff(); got != 200*time.Millisecond {
		t.Errorf("before a transaction was seen: %v", got)
	}
	for took, want := range map[time.Duration]time.Duration{time.Microsecond: 100 * time.Millisecond, 60 * time.Millisecond: 300 * time.Millisecond, time.Minute: maxHoldOff} {
		for range 400 {
			g.Observe(took)
		}
		if got := g.follower.holdOff(); got < want-time.Millisecond || got > want {
			t.Errorf("transactions of %v: %v, want %v", took, got, want)
		}
	}
	g.took.Store(800)
	if g.Observe(1600); g.took.Load() != 900 {
		t.Errorf("the mean of 800 and 1600 is %d", g.took.Load())
	}
}

// newTestFollower returns a follower of a Group where another instance leads all.
func newTestFollower(holdOff time.Duration) (*follower, *fakeStore, *instance) {
	store, leader := &fakeStore{found: map[string]bool{}}, &instance{id: 2}
	g := New(Config{ID: 1, Interner: store, CacheKeyBytes: 8, Timing: Timing{HoldOff: holdOff}, Metrics: NewMetrics(nil)})
	v := &view{others: []*instance{leader}}
	for i := range v.leaders {
		v.leaders[i] = leader
	}
	g.instances.view.Store(v)
	g.took.Store(0)
	g.follower.lookups = make(chan batch, 1)
	return g.follower, store, leader
}

// TestFollowerEnds: a string ends once, whatever comes while a look-up of it is under way, and
// whichever instance leads it by then.
func TestFollowerEnds(t *testing.T) {
	f, store, leader := newTestFollower(time.Hour)
	call := &fakeCall{}
	ended := func(what string, done, waiting int) {
		t.Helper()
		if call.done != done || f.waiting != waiting || len(f.pending) != waiting || len(call.interned) > 0 {
			t.Errorf("%s: %d calls done, %d wait, %d are pending, %d interned", what, call.done, f.waiting, len(f.pending), len(call.interned))
		}
	}
	f.admit(task{call, []Item{&fakeItem{keys: []string{"ninebytes"}}, &fakeItem{keys: []string{"8-bytes!"}}}})
	if len(f.ask) != 1 {
		t.Fatalf("%d strings are looked for at once, want that whose key is too long", len(f.ask))
	}
	f.beginLookup(t.Context())
	f.deliver([]Name{{Key: []byte("ninebytes")}})
	f.endLookup(<-f.lookups)
	ended("delivered while it is looked for", 0, 1)
	f.deliver([]Name{{Key: []byte("8-bytes!")}})
	ended("both are delivered", 1, 0)
	f.expire() // all are done
	if len(f.order) != 0 {
		t.Errorf("%d in order", len(f.order))
	}
	// It is found in the store when its time is over.
	item := &fakeItem{keys: []string{"ninebytes"}}
	f.admit(task{call, []Item{item}})
	f.order[0].since = time.Now().Add(-time.Hour)
	store.found["ninebytes"] = true
	f.beginLookup(t.Context())
	f.endLookup(<-f.lookups)
	ended("found late", 2, 0)
	// Its leader is this instance by now, or is late too often, and the caches have it.
	f.group.instances.view.Load().leaders[0] = nil
	f.admit(task{call, []Item{&fakeItem{}, &fakeItem{hash: 1 << 56}}})
	ended("known", 3, 0)
	for n := range tolerated + 1 {
		if !f.group.Led(1 << 56) {
			t.Errorf("not waited for, though late %d times only", n)
		}
		leader.late(time.Now().Add(time.Duration(n)*2*time.Second), time.Second)
	}
	if f.group.Led(1 << 56) {
		t.Error("waited for, though late too often")
	}
	if f.beginLookup(t.Context()); f.asking {
		t.Error("a look-up of nothing is under way")
	}
}

// TestFollowerWithoutKey: a string whose key cannot be made yet is looked for in the store at each
// tick, and waits for no key.
func TestFollowerWithoutKey(t *testing.T) {
	f, _, _ := newTestFollower(time.Hour)
	f.admit(task{&fakeCall{}, []Item{&fakeItem{keys: []string{""}}}})
	for range 2 {
		if f.expire(); len(f.ask) != 1 || len(f.pending) != 0 {
			t.Fatalf("%d are looked for, %d are pending", len(f.ask), len(f.pending))
		}
		f.beginLookup(t.Context())
		f.endLookup(<-f.lookups)
	}
}

// orderCall notes how many strings it was given when it was done.
type orderCall struct {
	fakeCall
	atDone []int
}

func (c *orderCall) Done() { c.atDone = append(c.atDone, len(c.interned)) }

// TestTakenOverBeforeDone: a call is done once, and after its last strings were handed over.
func TestTakenOverBeforeDone(t *testing.T) {
	f, _, _ := newTestFollower(time.Hour)
	call := &orderCall{}
	f.admit(task{call, []Item{&fakeItem{keys: []string{"a"}}, &fakeItem{keys: []string{"b"}}}})
	f.takeOver(slices.Clone(f.order))
	if !slices.Equal(call.atDone, []int{2}) || f.waiting != 0 || len(f.pending) != 0 {
		t.Errorf("done with %v strings handed over, %d wait, %d are pending", call.atDone, f.waiting, len(f.pending))
	}
}

// TestBehind: a follower is behind if most strings that the caches would have were in the store.
// Look-ups that failed, or of other strings, say nothing about it.
func TestBehind(t *testing.T) {
	f, store, _ := newTestFollower(time.Hour)
	store.found["there"], store.found["too-long-a-key"] = true, true
	lookUp := func(failed error, keys ...string) {
		var items []Item
		for _, k := range keys {
			items = append(items, &fakeItem{keys: []string{k}})
		}
		f.admit(task{&fakeCall{}, items})
		for _, w := range f.order {
			f.wantLookup(w)
		}
		f.beginLookup(t.Context())
		b := <-f.lookups
		b.err = failed
		f.endLookup(b)
		f.order = nil
	}
	for _, tc := range []struct {
		keys   []string
		failed error
		behind bool
	}{
		{[]string{"too-long-a-key"}, nil, false},
		{[]string{"there"}, context.DeadlineExceeded, false},
		{[]string{"there", "absent"}, nil, false},
		{[]string{"there"}, nil, true},
		{[]string{"too-long-a-key"}, nil, true},
		{[]string{"absent"}, nil, false},
	} {
		if lookUp(tc.failed, tc.keys...); f.behind != tc.behind {
			t.Errorf("after %v, %v: behind is %v", tc.keys, tc.failed, f.behind)
		}
	}
}

// TestHoldOffEnds: a string is looked for, and interned here, when it has waited for HoldOff, no
// sooner.
func TestHoldOffEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, _ := newTestFollower(time.Second)
		call := &fakeCall{}
		f.admit(task{call, []Item{&fakeItem{keys: []string{"key"}}}})
		time.Sleep(time.Second - 1)
		if f.expire(); len(f.ask) != 0 {
			t.Error("looked for too early")
		}
		time.Sleep(time.Nanosecond)
		if f.expire(); len(f.ask) != 1 {
			t.Fatal("not looked for in time")
		}
		f.beginLookup(t.Context())
		if f.endLookup(<-f.lookups); len(call.interned) != 1 {
			t.Error("not interned here in time")
		}
	})
}

func counter(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	return metric(t, c).GetCounter().GetValue()
}

func gauge(t *testing.T, g prometheus.Gauge) float64 {
	t.Helper()
	return metric(t, g).GetGauge().GetValue()
}

func metric(t *testing.T, c prometheus.Metric) *dto.Metric {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return &m
}
