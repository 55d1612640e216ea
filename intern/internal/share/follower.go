package share

import (
	"context"
	"slices"
	"time"
	"unsafe"
)

const (
	queueTasks = 64  // tasks that may wait for the follower before callers wait with theirs
	maxLookup  = 512 // strings in one look-up
	maxHoldOff = 2 * time.Second
)

// follower waits for the strings that other instances lead. In this order a string is looked for
//
//   - in the caches, which the feed fills with what the others have written;
//   - in what the feed reads from then on;
//   - at once in the store, if its key is too long for the caches or its collection has no number
//     yet. The same holds if most recent strings were there before: this instance is behind the
//     others;
//   - after the hold-off in the store. The workers take over what is not there.
//
// run is one goroutine, lookUp another.
type follower struct {
	cfg   Config
	group *Group

	queue   chan task
	lookups chan batch // to lookUp
	done    chan batch // from it
	ended   chan struct{}

	pending map[string][]*waiter // by the key waited for
	order   []*waiter            // the oldest that is not done, and all that came later
	ask     []*waiter            // to be looked for in the store
	asking  bool
	behind  bool
	key     []byte
	waiting int
}

// task is the part of a call that is followed.
type task struct {
	call  Call
	items []Item
}

// waiter is a string that waits.
type waiter struct {
	item   Item
	group  *group
	leader *instance
	since  time.Time
	key    string // "": not in pending
	known  bool   // the caches would have it if it had been written of late
	asked  bool   // in ask, or in the batch under way
	done   bool
}

// group is the waiters of one task.
type group struct {
	call Call
	left int
}

// batch is one look-up.
type batch struct {
	waiters []*waiter
	lookup  Lookup
	err     error
}

func newFollower(cfg Config, g *Group) *follower {
	return &follower{cfg: cfg, group: g, queue: make(chan task, queueTasks), lookups: make(chan batch), done: make(chan batch),
		ended: make(chan struct{}), pending: make(map[string][]*waiter)}
}

// run works until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer close(f.ended)
	ticker := time.NewTicker(f.cfg.Timing.HoldOff / 16)
	defer ticker.Stop()
	for {
		f.beginLookup(ctx)
		f.group.feed.setWaiting(f.waiting > 0)
		select {
		case t := <-f.queue:
			f.admit(t)
		case names := <-f.group.feed.out:
			f.deliver(names)
		case b := <-f.done:
			f.endLookup(b)
		case <-ticker.C:
			f.expire()
		case <-ctx.Done():
			return
		}
	}
}

// lookUp looks strings up for run, one batch at a time.
func (f *follower) lookUp(ctx context.Context) {
	for {
		select {
		case b := <-f.lookups:
			b.err = b.lookup.Run(ctx)
			select {
			case f.done <- b:
			case <-ctx.Done():
			}
		case <-ctx.Done():
			return
		}
	}
}

// admit begins to wait for the strings of a task.
func (f *follower) admit(t task) {
	g := &group{call: t.call, left: len(t.items)}
	now := time.Now()
	v := f.group.instances.view.Load()
	var ours []*waiter // of strings that this instance leads since they were queued
	for _, i := range t.items {
		w := &waiter{item: i, group: g, leader: v.leader(i.Hash()), since: now}
		f.waiting++
		f.advance(w)
		if w.done {
			continue
		}
		if w.leader == nil {
			ours = append(ours, w)
			continue
		}
		f.order = append(f.order, w)
		if w.known = w.key != "" && len(w.key) <= f.cfg.CacheKeyBytes; !w.known || f.behind {
			f.wantLookup(w)
		}
	}
	f.takeOver(ours)
}

// advance takes w as far as the caches go. It is done, or waits for one key, or for a key that
// cannot be made yet.
func (f *follower) advance(w *waiter) {
	key, done := w.item.Advance(f.key[:0])
	f.key = key
	switch {
	case done:
		f.finish(w)
	case len(key) > 0:
		w.key = string(key)
		f.pending[w.key] = append(f.pending[w.key], w)
	}
}

// forget takes w out of pending.
func (f *follower) forget(w *waiter) {
	others := slices.DeleteFunc(f.pending[w.key], func(other *waiter) bool { return other == w })
	if len(others) == 0 {
		delete(f.pending, w.key)
	} else {
		f.pending[w.key] = others
	}
	w.key = ""
}

// finish ends the wait of w, which is not in pending: it has its result, or the workers have it.
func (f *follower) finish(w *waiter) {
	w.done = true
	f.waiting--
	if w.group.left--; w.group.left == 0 {
		w.group.call.Done()
	}
}

// deliver caches the names that the feed has read, and gives them to the items that wait for them.
func (f *follower) deliver(names []Name) {
	f.cfg.Interner.Cache(names)
	for i := range names {
		n := &names[i]
		waiters := f.pending[alias(n.Key)]
		delete(f.pending, alias(n.Key))
		for _, w := range waiters {
			w.key = ""
			w.item.Set(n)
			f.advance(w)
		}
	}
	f.cfg.Metrics.Followed.Add(float64(len(names)))
}

// alias is b as a string that does not outlive it.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// wantLookup queues w to be looked for in the store.
func (f *follower) wantLookup(w *waiter) {
	if !w.asked {
		w.asked = true
		f.ask = append(f.ask, w)
	}
}

// beginLookup begins the next look-up, unless one is under way.
func (f *follower) beginLookup(ctx context.Context) {
	if f.asking {
		return
	}
	var b batch
	var items []Item
	n := 0
	for ; n < len(f.ask) && len(items) < maxLookup; n++ {
		if w := f.ask[n]; !w.done {
			b.waiters, items = append(b.waiters, w), append(items, w.item)
		}
	}
	f.ask = append(f.ask[:0], f.ask[n:]...)
	if len(items) == 0 {
		return
	}
	f.asking = true
	b.lookup = f.cfg.Interner.LookUp(items)
	select {
	case f.lookups <- b:
	case <-ctx.Done():
	}
}

// endLookup takes what a look-up has found. What has waited for its time and was not there goes to
// the workers.
func (f *follower) endLookup(b batch) {
	f.asking = false
	there, known := 0, 0
	var late []*waiter
	now, holdOff := time.Now(), f.holdOff()
	for i, w := range b.waiters {
		w.asked = false
		if w.known {
			known++
			if b.err == nil && b.lookup.Found(i) {
				there++
			}
		}
		if w.done {
			continue
		}
		f.forget(w)
		if b.err == nil {
			b.lookup.Apply(i)
		}
		// Its DID or collection may be known by now.
		if f.advance(w); !w.done && (b.err != nil || now.Sub(w.since) >= holdOff) {
			late = append(late, w)
		}
	}
	if known > 0 {
		f.behind = 2*there > known
	}
	f.takeOver(late)
}

// holdOff is how long a leader's result is waited for. It is at least the configured time, and
// where the store is slow as long as a few transactions take. A leader that has died is not waited
// for, see expire.
func (f *follower) holdOff() time.Duration {
	return max(f.cfg.Timing.HoldOff, min(5*time.Duration(f.group.took.Load()), maxHoldOff))
}

// expire queues a look-up in the store for each string that has waited for too long, or whose key
// is not known.
func (f *follower) expire() {
	done := 0
	for done < len(f.order) && f.order[done].done {
		done++
	}
	f.order = slices.Delete(f.order, 0, done)
	now, holdOff := time.Now(), f.holdOff()
	v := f.group.instances.view.Load()
	for _, w := range f.order {
		if w.done {
			continue
		}
		if v.leader(w.item.Hash()) != w.leader { // the leader has died, or has missed heartbeats
			w.since, w.leader = time.Time{}, nil
		}
		if w.key == "" || now.Sub(w.since) >= holdOff {
			f.wantLookup(w)
		}
	}
}

// takeOver gives strings to the workers.
func (f *follower) takeOver(late []*waiter) {
	if len(late) == 0 {
		return
	}
	f.cfg.Metrics.TakenOver.Add(float64(len(late)))
	calls := make(map[*group][]Item)
	for _, w := range late {
		f.forget(w)
		calls[w.group] = append(calls[w.group], w.item)
		if w.leader != nil {
			w.leader.late(time.Now(), f.holdOff())
		}
	}
	for g, items := range calls {
		g.call.InternHere(items)
	}
	for _, w := range late { // after InternHere: no call is done before its strings are
		f.finish(w)
	}
}
