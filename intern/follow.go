package intern

import (
	"slices"
	"time"
)

// follower waits for the strings that other Interners lead. It owns their items from the moment they are queued until
// their part of the call is done or passed on to the workers. In this order a string is looked for
//
//   - in the caches, which the tail fills with what the others have written;
//   - in what the tail reads from then on;
//   - at once in the store, if its key is too long for the caches, if its collection has no number yet, or if most strings
//     of late turned out to be there for long: then this Interner is behind the others, after a pause say;
//   - after the hold-off in the store, and what is not there is passed on to the workers, which give it a UID. A leader
//     that is late again and again is not relied on for a second, then for two, up to a minute: it reads another
//     stream, or the same one far behind us.
//
// run is one goroutine, glancer another.
type follower struct {
	in    *Interner
	tail  *tail
	pace  pace
	queue chan task
	asks  chan glimpse
	saw   chan glimpse

	pending map[string]*waiter // by the key waited for: a list
	order   []*waiter          // all from the oldest that is not done on
	ask     []*waiter          // to be looked for in the store
	asking  bool
	behind  bool
	key     []byte
	waiting int
}

// waiter is a string that waits.
type waiter struct {
	item   *item
	group  *group
	leader *peer
	since  time.Time
	next   *waiter // waits for the same key
	key    string  // "": not in pending
	known  bool    // the caches would have it if it had been written of late
	asked  bool    // in ask, or under way with the glancer
	done   bool
}

// group is the waiters of one task.
type group struct {
	call *call
	left int
}

func newFollower(in *Interner, t *tail, pace pace) *follower {
	return &follower{in: in, tail: t, pace: pace, queue: make(chan task, queueTasks), asks: make(chan glimpse), saw: make(chan glimpse),
		pending: make(map[string]*waiter)}
}

// run works until the Interner is closed.
func (f *follower) run() {
	ticker := time.NewTicker(f.pace.holdOff / 16)
	defer ticker.Stop()
	for {
		f.askSome()
		f.tail.hurry(f.waiting > 0)
		select {
		case t := <-f.queue:
			f.admit(t)
		case names := <-f.tail.out:
			f.deliver(names)
		case g := <-f.saw:
			f.judge(g)
		case <-ticker.C:
			f.expire()
		case <-f.in.ctx.Done():
			return
		}
	}
}

// glancer looks strings up for the follower, one batch at a time.
func (f *follower) glancer() {
	for {
		select {
		case g := <-f.asks:
			if g.err = f.in.look(g.glances); g.err == nil {
				f.in.remember(g.glances)
			}
			select {
			case f.saw <- g:
			case <-f.in.ctx.Done():
				return
			}
		case <-f.in.ctx.Done():
			return
		}
	}
}

// admit begins to wait for the strings of a task.
func (f *follower) admit(t task) {
	g := &group{call: t.call, left: len(t.items)}
	now := time.Now()
	v := f.in.peers.view.Load()
	var ours []*waiter // since they were queued
	for _, i := range t.items {
		w := &waiter{item: i, group: g, leader: v.leader(i.hash), since: now}
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
		if w.known = w.key != "" && len(w.key) <= cacheKey; !w.known || f.behind {
			f.wantGlance(w)
		}
	}
	f.passOn(ours)
}

// advance takes w as far as the caches go: it is done, or waits for one key, or for a collection's number (no key).
func (f *follower) advance(w *waiter) {
	i, in := w.item, f.in
	if i.did != nil && i.didUID == 0 {
		if i.didUID = in.dids.get(i.hash, i.did); i.didUID == 0 {
			f.await(w, i.did)
			return
		}
	}
	if !i.isURI {
		f.finish(w)
		return
	}
	if i.coll != nil && i.collNum == 0 {
		if i.collNum = in.collections.number(i.coll); i.collNum == 0 {
			return
		}
	}
	e := entry{form: i.form, coll: i.collNum, auth: i.didUID, tid: i.tid, text: i.text}
	f.key = in.codec.appendKey(f.key[:0], &e)
	if i.uriUID = in.uris.get(hashKey(f.key), f.key); i.uriUID == 0 {
		f.await(w, f.key)
		return
	}
	f.finish(w)
}

func (f *follower) await(w *waiter, key []byte) {
	w.key = string(key)
	w.next = f.pending[w.key]
	f.pending[w.key] = w
}

// forget takes w out of pending.
func (f *follower) forget(w *waiter) {
	if w.key == "" {
		return
	}
	head := f.pending[w.key]
	if head == w {
		head = w.next
	} else {
		for at := head; at != nil; at = at.next {
			if at.next == w {
				at.next = w.next
				break
			}
		}
	}
	if head == nil {
		delete(f.pending, w.key)
	} else {
		f.pending[w.key] = head
	}
	w.key, w.next = "", nil
}

// finish ends the wait of w with a result.
func (f *follower) finish(w *waiter) {
	f.forget(w)
	f.end(w)
	if w.group.left == 0 {
		w.group.call.finish(nil)
	}
}

func (f *follower) end(w *waiter) {
	w.done = true
	w.group.left--
	f.waiting--
}

// deliver takes what the tail has read.
func (f *follower) deliver(names []found) {
	for i := range names {
		n := &names[i]
		hash := hashKey(n.key)
		if n.did {
			f.in.dids.put(hash, n.key, n.uid)
		} else {
			f.in.uris.put(hash, n.key, n.uid)
		}
		w := f.pending[alias(n.key)]
		if w == nil {
			continue
		}
		delete(f.pending, alias(n.key))
		for w != nil {
			next := w.next
			w.key, w.next = "", nil
			if n.did {
				w.item.didUID = n.uid
				f.advance(w)
			} else {
				w.item.uriUID = n.uid
				f.finish(w)
			}
			w = next
		}
	}
	f.in.metrics.followed.Add(float64(len(names)))
}

// wantGlance queues w to be looked for in the store.
func (f *follower) wantGlance(w *waiter) {
	if !w.asked {
		w.asked = true
		f.ask = append(f.ask, w)
	}
}

// askSome gives the glancer its next batch, unless it has one.
func (f *follower) askSome() {
	if f.asking || len(f.ask) == 0 {
		return
	}
	g := glimpse{}
	n := 0
	for ; n < len(f.ask) && len(g.glances) < maxGlances; n++ {
		w := f.ask[n]
		if w.done {
			continue
		}
		g.glances = append(g.glances, newGlance(w))
	}
	f.ask = append(f.ask[:0], f.ask[n:]...)
	if len(g.glances) == 0 {
		return
	}
	f.asking = true
	select {
	case f.asks <- g:
	case <-f.in.ctx.Done():
	}
}

// judge takes what the glancer has seen. What has waited for its time and was not there goes to the workers.
func (f *follower) judge(g glimpse) {
	f.asking = false
	there, known := 0, 0
	var late []*waiter
	now, holdOff := time.Now(), f.holdOff()
	for i := range g.glances {
		s := &g.glances[i]
		w := s.w
		w.asked = false
		if w.known {
			known++
			there += one(s.complete)
		}
		if w.done {
			continue
		}
		f.forget(w)
		if g.err == nil {
			w.item.didUID, w.item.uriUID = max(w.item.didUID, s.didUID), max(w.item.uriUID, s.uriUID)
			w.item.collNum = max(w.item.collNum, s.collNum)
		}
		switch {
		case w.item.done():
			f.finish(w)
		case g.err != nil || now.Sub(w.since) >= holdOff:
			late = append(late, w)
		default:
			f.advance(w) // its DID or collection may be known by now
		}
	}
	if known > 0 {
		f.behind = 2*there > known
	}
	f.passOn(late)
}

// maxHoldOff bounds how long a living leader is waited for.
const maxHoldOff = 2 * time.Second

// noteSpeed takes the time of a transaction into the mean.
func (in *Interner) noteSpeed(took time.Duration) {
	mean := in.speed.Load()
	in.speed.Store(mean + (int64(took)-mean)/8)
}

// holdOff is how long a leader's result is waited for: at least the configured time, and where the store is slow as long
// as a few transactions take. A leader that has died is not waited for, see expire.
func (f *follower) holdOff() time.Duration {
	return max(f.pace.holdOff, min(5*time.Duration(f.in.speed.Load()), maxHoldOff))
}

// expire has what has waited for too long, and what waits for no key, looked for in the store.
func (f *follower) expire() {
	done := 0
	for done < len(f.order) && f.order[done].done {
		done++
	}
	f.order = slices.Delete(f.order, 0, done)
	now, holdOff := time.Now(), f.holdOff()
	v := f.in.peers.view.Load()
	for _, w := range f.order {
		if w.done {
			continue
		}
		if v.leader(w.item.hash) != w.leader { // it has died, or is not relied on any more
			w.since, w.leader = time.Time{}, nil
		}
		if w.key == "" || now.Sub(w.since) >= holdOff {
			f.wantGlance(w)
		}
	}
}

// How long a leader whose results do not come is not relied on. A few late ones are forgiven: a machine can be slow.
const (
	forgiven  = 2
	minAlone  = time.Second
	maxAlone  = time.Minute
	lateAgain = 10 * time.Second // lateness after so long without any is the first again
)

// late says that a result of the peer did not come within holdOff.
func (p *peer) late(now time.Time, holdOff time.Duration) {
	until := time.Unix(0, p.aloneUntil.Load())
	if now.Before(until) || now.Sub(p.lateAt) < holdOff {
		return // it is the same lateness
	}
	if since := now.Sub(p.lateAt); since > lateAgain && since > 8*p.backOff {
		p.lates, p.backOff = 0, 0
	}
	p.lateAt = now
	if p.lates++; p.lates <= forgiven {
		return
	}
	p.backOff = min(max(2*p.backOff, minAlone), maxAlone)
	p.aloneUntil.Store(now.Add(p.backOff).UnixNano())
}

// passOn gives strings to the workers.
func (f *follower) passOn(late []*waiter) {
	if len(late) == 0 {
		return
	}
	f.in.metrics.takenOver.Add(float64(len(late)))
	calls := make(map[*group][]*item)
	for _, w := range late {
		f.forget(w)
		calls[w.group] = append(calls[w.group], w.item)
		if w.leader != nil {
			w.leader.late(time.Now(), f.holdOff())
		}
		f.end(w)
	}
	for g, items := range calls {
		tasks := f.in.split(g.call, items)
		g.call.parts.Add(int32(len(tasks)))
		if g.left == 0 {
			g.call.finish(nil)
		}
		for _, t := range tasks {
			f.in.handOver(t)
		}
	}
}
