package public

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/consume/relaysim/testwait"
	"millrace/public/internal/admission"
	"millrace/replay"
)

// TestWakeBudget: what was saved up is spent at once, then batches are spaced so that they use
// their share.
func TestWakeBudget(t *testing.T) {
	start := time.Unix(1, 0)
	for _, c := range []struct {
		name           string
		credit, since  time.Duration
		visited, woken int
		want           time.Duration
	}{
		{"saved credit pays", 3 * time.Millisecond, 0, 64, 64, 0},
		{"the share of the time since pays", 0, 3 * time.Millisecond, 64, 64, 0},
		{"all woken, nothing saved", 0, 0, 64, 64, 2273333 * time.Nanosecond},
		{"none woken", 0, 0, 64, 0, 140 * time.Microsecond},
		{"debt adds up", -time.Millisecond, 0, 4, 4, 1840 * time.Microsecond},
		{"credit has a limit", 0, time.Hour, 1000, 1000, 26700 * time.Microsecond},
	} {
		b := wakeBudget{credit: c.credit, at: start}
		if got := b.charge(start.Add(c.since), c.visited, c.woken).Truncate(time.Nanosecond); got != c.want {
			t.Errorf("%s: wait %v, want %v", c.name, got, c.want)
		}
	}
}

// busyReader always has more; it counts how often it is asked.
type busyReader struct {
	fakeReader
	visits *atomic.Int64
}

func (r *busyReader) Pending(*replay.PendingScratch) (replay.Point, bool) {
	r.visits.Add(1)
	return point(1), true
}

// TestWakePassesShareACore has subscribers that always have something to read. Few are woken with
// every block, many as often as the budget allows, and all equally often.
func TestWakePassesShareACore(t *testing.T) {
	const (
		blocks   = 400
		interval = 5 * time.Millisecond // between blocks
	)
	for _, members := range []int{1, 12, 100, 1000} {
		t.Run(strconv.Itoa(members), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				changed := make(chan struct{})
				var mu sync.Mutex
				w := newWaker(func() <-chan struct{} { mu.Lock(); defer mu.Unlock(); return changed })
				wakes := make([]atomic.Int64, members)
				var all []*sleeper
				ended := make(chan struct{})
				var running sync.WaitGroup
				for i := range members {
					s := newSleeper(&busyReader{visits: new(atomic.Int64)})
					s.fallAsleep(w)
					all = append(all, s)
					if start := w.join(s); start {
						running.Go(w.run)
					}
					running.Go(func() {
						for {
							select {
							case <-s.conn.interrupt:
								wakes[i].Add(1)
								s.wakeUp()
								s.fallAsleep(w)
							case <-ended:
								return
							}
						}
					})
				}
				testwait.Elapse(time.Second) // until the passes for new members are over
				for i := range wakes {
					wakes[i].Store(0)
				}
				for range blocks {
					testwait.Elapse(interval)
					mu.Lock()
					old := changed
					changed = make(chan struct{})
					mu.Unlock()
					close(old)
				}
				testwait.Elapse(0)
				for _, s := range all {
					w.leave(s)
				}
				close(ended)
				running.Wait()
				least, most, total := math.MaxInt, 0, 0
				for i := range wakes {
					n := int(wakes[i].Load())
					least, most, total = min(least, n), max(most, n), total+n
				}
				seconds := (blocks * interval).Seconds()
				allowed := int(wakeShare*seconds/wakeCost.Seconds()) + int(maxWakeCredit/wakeCost) + wakeBatch
				if total > allowed {
					t.Errorf("%d wakes in %.0f s, allowed are %d", total, seconds, allowed)
				}
				if want := min(blocks, allowed/members*8/10); least < want || least < most*9/10 {
					t.Errorf("woken %d to %d times, want at least %d", least, most, want)
				}
			})
		})
	}
}

// TestNobodyIsWokenInVain has many subscribers that nothing passes to: they are looked at, but do
// not pull.
func TestNobodyIsWokenInVain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const clients = 50
		l := newTestLog(t)
		l.add(posts(1)...)
		src := eventLogOf(l.Log)
		var pulls atomic.Int64
		inner := src.newReader
		src.newReader = func(cfg replay.ReaderConfig) (reader, error) {
			r, err := inner(cfg)
			return &countingReader{r, &pulls}, err
		}
		s := serveSourceBubble(t, src, l.dictionaries, nil)
		var quiet []*client
		for range clients {
			quiet = append(quiet, s.dial("extended=true&heartbeat=1&wantedDids="+didN(77)))
		}
		for _, c := range quiet {
			c.info("live")
		}
		busy := s.dial("")
		s.waitIdle(clients + 1)
		before := pulls.Load()
		var last truth
		for range 100 {
			added := l.add(posts(3)...)
			last = added[len(added)-1]
			busy.want(added...)
		}
		if n := pulls.Load() - before; n > 2*100+2 {
			t.Errorf("%d pulls for 100 blocks that only one subscriber wants", n)
		}
		// Heartbeats report how far the log was searched for each. Events that come then are sent.
		for _, c := range quiet {
			for {
				if m := c.info("heartbeat"); fmt.Sprint(m["cursor"]) == last.cursor() {
					break
				}
			}
		}
		l.add(identity(didN(77)))
		for _, c := range quiet {
			for {
				if _, m := c.next(); strings.Contains(string(m), didN(77)) {
					break
				}
			}
		}
	})
}

type countingReader struct {
	reader
	pulls *atomic.Int64
}

func (r *countingReader) Next(c *replay.Chunk) error {
	r.pulls.Add(1)
	return r.reader.Next(c)
}

// TestUpdateOfASleeper changes the filter of a subscriber that waits: what passes only the new one
// must wake it.
func TestUpdateOfASleeper(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(1)...)
	s := serve(t, l, nil)
	c := s.dial("wantedDids=" + didN(77))
	for i := range 20 {
		l.add(posts(1)...)
		c.update(fmt.Sprintf(`{"wantedDids":["%s"]}`, didN(100+i)))
		s.waitUpdates(i + 1)
		s.waitIdle(1) // it is asleep again
		l.add(identity(didN(77)))
		c.want(l.add(identity(didN(100 + i)))...)
	}
}

// TestNoWakeUpIsLost appends while subscribers come, go, write and wait: each gets every event
// soon.
func TestNoWakeUpIsLost(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(1)...)
	s := serve(t, l, nil)
	all := s.dial("")
	one := s.dial("wantedDids=" + didN(77))
	stop := make(chan struct{})
	gone := make(chan struct{})
	go func() { // comes and goes, so that members move
		defer close(gone)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if nc, _, err := new(dialer).Dial(s.url(fmt.Sprintf("wantedDids=%s", didN(i))), nil); err == nil {
				nc.Close()
			}
		}
	}()
	for range 300 {
		e := l.add(identity(didN(77)))
		all.want(e...)
		one.want(e...)
	}
	close(stop)
	<-gone
}

// newSleeper returns a subscriber's sleeper that reads from r and has no new filter.
func newSleeper(r reader) *sleeper {
	return &sleeper{reader: r, conn: newConn(nil, 0), mailbox: new(mailbox)}
}

// TestSubscriberThatFallsAsleepIsNotMissed has the waker visit a subscriber that is about to
// wait.
func TestSubscriberThatFallsAsleepIsNotMissed(t *testing.T) {
	w := newWaker(nil)
	var visits atomic.Int64
	s := newSleeper(&busyReader{visits: &visits})
	var scratch replay.PendingScratch
	passRequested := func() bool {
		select {
		case <-w.passRequested:
			return true
		default:
			return false
		}
	}
	if s.fallAsleep(w); passRequested() {
		t.Error("another pass is asked for, but it was not missed")
	}
	if !s.peek(&scratch) || s.peek(&scratch) || !s.wakeUp() || visits.Load() != 1 {
		t.Error("it was not woken, or twice")
	}
	if s.peek(&scratch) {
		t.Error("its reader was used while it was awake")
	}
	if s.fallAsleep(w); !passRequested() {
		t.Error("it was missed, and waits for ever")
	}
}

// TestNewcomerTakesNoVisit has a subscriber join during a pass, which then visits it in place of a
// member. Another pass must follow, as that member would wait for the log's next change.
func TestNewcomerTakesNoVisit(t *testing.T) {
	w := newWaker(nil)
	var newcomer sync.Once
	join := func(visits *atomic.Int64, onVisit func()) {
		s := newSleeper(&idleReader{visits: visits, onVisit: onVisit})
		s.fallAsleep(w)
		w.join(s)
	}
	const members = 3 * wakeBatch
	visits := make([]atomic.Int64, members+1)
	for i := range members {
		join(&visits[i], func() { newcomer.Do(func() { join(&visits[members], func() {}) }) })
	}
	<-w.passRequested
	for requested := true; requested; {
		w.pass()
		select {
		case <-w.passRequested:
		default:
			requested = false
		}
	}
	for i := range visits {
		if visits[i].Load() == 0 {
			t.Errorf("member %d of %d was not visited", i, members+1)
		}
	}
}

// idleReader never has anything.
type idleReader struct {
	fakeReader
	visits  *atomic.Int64
	onVisit func()
}

func (r *idleReader) Pending(*replay.PendingScratch) (replay.Point, bool) {
	r.visits.Add(1)
	r.onVisit()
	return point(1), false
}

// TestPendingIsNotThrough: how far a reader that waits for its position has looked is behind that
// position. No client may be asked to go on from there.
func TestPendingIsNotThrough(t *testing.T) {
	var visits atomic.Int64
	s := newSleeper(&busyReader{visits: &visits})
	s.through = point(7)
	s.fallAsleep(newWaker(nil))
	if !s.peek(new(replay.PendingScratch)) || s.through != point(7) {
		t.Errorf("through is %v, which Next never said", s.through)
	}
}

// TestPostedFilterStopsTheWaker: once a filter is posted nothing may be passed over by the one
// before.
func TestPostedFilterStopsTheWaker(t *testing.T) {
	var visits atomic.Int64
	server := &Server{admission: admission.New(admission.Config{Bytes: 1 << 20}), waker: newWaker(nil)}
	s := &subscriber{server: server, conn: newConn(nil, 0)}
	s.sleeper = sleeper{reader: &busyReader{visits: &visits}, conn: s.conn, mailbox: &s.mailbox}
	s.fallAsleep(server.waker)
	s.post(filter{})
	if s.peek(new(replay.PendingScratch)) || visits.Load() != 0 || !s.missed {
		t.Errorf("the waker looked %d times with a filter that is no longer in force; comes again: %v", visits.Load(), s.missed)
	}
	s.wakeUp()
	s.applyFilter()
	s.fallAsleep(server.waker)
	if !s.peek(new(replay.PendingScratch)) {
		t.Error("nothing is pending with the new filter")
	}
}
