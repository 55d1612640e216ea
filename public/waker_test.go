package public

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/public/internal/admission"
	"millrace/replay"
)

func TestPace(t *testing.T) {
	for _, c := range []struct {
		members, busy int
		want          time.Duration
	}{
		{1, 1, 0},
		{4, 4, 0},
		{12, 12, 12 * wakeEach},
		{50, 50, 50 * wakeEach},
		{100, 100, crowdPace},
		{400, 400, crowdPace},
		{500, 500, 2 * maxWait},
		{1000, 1000, maxWait * 3 / 2},
		{1000, 1, 5 * time.Millisecond},
		{3000, 3000, 60 * time.Millisecond},
		{10_000, 0, 50 * time.Millisecond},
		{20_000, 20_000, maxPace},
	} {
		if got := pace(c.members, float64(c.busy)); got != c.want {
			t.Errorf("%d members, %d of them busy: %v a round, want %v", c.members, c.busy, got, c.want)
		}
	}
}

// busyReader always has more; it counts how often it is asked.
type busyReader struct {
	fakeReader
	glances *atomic.Int64
}

func (r *busyReader) Pending(*replay.Glance) (replay.Mark, bool) {
	r.glances.Add(1)
	return mark(1), true
}

// TestManySubscribersWakeSeldom counts how often a crowd pulls from a log that is written to all the time.
func TestManySubscribersWakeSeldom(t *testing.T) {
	for _, clients := range []int{400, 1000} { // all at once, and in parts
		t.Run(strconv.Itoa(clients), func(t *testing.T) { wakeSeldom(t, clients) })
	}
}

func wakeSeldom(t *testing.T, clients int) {
	every := pace(clients, float64(clients))
	turn := every / time.Duration(turns(clients, float64(clients)))
	var pulls, glances atomic.Int64
	always := make(chan struct{})
	close(always)
	s := serveSource(t, source{
		newReader: func(replay.ReaderConfig) (reader, error) {
			return &busyReader{fakeReader{next: func(c *replay.Chunk) error {
				*c = replay.Chunk{Live: true, Through: mark(1)}
				pulls.Add(1)
				return nil
			}}, &glances}, nil
		},
		changed: func() <-chan struct{} { return always },
		rangeOf: func() replay.Range { return replay.Range{} },
	}, newRegistry(t), func(cfg *Config, _ *timing) { cfg.MaxConnections = 2 * clients })
	var conns []io.Closer
	for range clients {
		conns = append(conns, s.rawDial(""))
	}
	eventually(t, "the waker knows how many they are", func() bool { return s.Pace() >= turn/2 })
	begin := time.Now() // before they are counted, and later the other way round
	before := pulls.Load()
	time.Sleep(500 * time.Millisecond)
	eventually(t, "they pull", func() bool { return pulls.Load()-before >= int64(clients)/2 })
	perSecond := float64(pulls.Load()-before) / time.Since(begin).Seconds() / float64(clients)
	if limit := 1.2 / every.Seconds(); perSecond > limit {
		t.Errorf("each of %d subscribers pulled %.0f times a second, want at most %.0f", clients, perSecond, limit)
	}
	if got := s.Pace(); got < turn/2 || got > min(2*turn, every) {
		t.Errorf("Pace says every %v for %d, want %v", got, clients, turn)
	}
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "Pace is of nobody", func() bool { return s.Pace() == 0 })
}

// TestNobodyIsWokenInVain has many subscribers that nothing passes to: they are looked at, but do not pull.
func TestNobodyIsWokenInVain(t *testing.T) {
	const clients = 50
	l := newTestLog(t)
	l.add(posts(1)...)
	src := logSource(l.Log)
	var pulls atomic.Int64
	inner := src.newReader
	src.newReader = func(cfg replay.ReaderConfig) (reader, error) {
		r, err := inner(cfg)
		return &countingReader{r, &pulls}, err
	}
	s := serveSource(t, src, l.dictionaries, nil)
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
	// A heartbeat tells how far they have been looked at for, and what comes then is sent.
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
}

type countingReader struct {
	reader
	pulls *atomic.Int64
}

func (r *countingReader) Next(c *replay.Chunk) error {
	r.pulls.Add(1)
	return r.reader.Next(c)
}

// TestUpdateOfASleeper changes the filter of a subscriber that waits: what passes only the new one must wake
// it.
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

// TestNoWakeUpIsLost appends while subscribers come, go, write and wait: each gets every event soon.
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

// TestLateParkerIsNotPassedOver has the waker come by while a subscriber is about to park.
func TestLateParkerIsNotPassedOver(t *testing.T) {
	w := newWaker(nil)
	var glances atomic.Int64
	s := &subscriber{server: &Server{waker: w}, conn: newConn(nil, 0), reader: &busyReader{glances: &glances}}
	var g replay.Glance
	nudged := func() bool {
		select {
		case <-w.nudged:
			return true
		default:
			return false
		}
	}
	if s.park(); nudged() {
		t.Error("another round is asked for, but nobody was passed over")
	}
	if !s.glance(&g) || s.glance(&g) || !s.unpark() || glances.Load() != 1 {
		t.Error("it was not woken, or twice")
	}
	if s.glance(&g) {
		t.Error("its reader was used while it was not parked")
	}
	if s.park(); !nudged() {
		t.Error("it was passed over, and waits for ever")
	}
}

// TestNewcomerTakesNobodysTurn has somebody join while the waker goes round: it looks at the newcomer in place of
// a member, who must not wait for the log's next change.
func TestNewcomerTakesNobodysTurn(t *testing.T) {
	w := newWaker(nil)
	w.timer = time.NewTimer(0)
	defer w.timer.Stop()
	var newcomer sync.Once
	join := func(glances *atomic.Int64, onGlance func()) {
		s := &subscriber{server: &Server{waker: w}, conn: newConn(nil, 0)}
		s.reader = &idleReader{glances: glances, onGlance: onGlance}
		s.park()
		w.join(s)
	}
	members := minPaced() // so many that a round takes a while
	glances := make([]atomic.Int64, members+1)
	for i := range members {
		join(&glances[i], func() { newcomer.Do(func() { join(&glances[members], func() {}) }) })
	}
	select {
	case <-w.nudged:
	default:
	}
	for nudged := true; nudged; {
		w.lookAtAll()
		select {
		case <-w.nudged:
		default:
			nudged = false
		}
	}
	for i := range glances {
		if glances[i].Load() == 0 {
			t.Errorf("member %d of %d was passed over, and waits for ever", i, members+1)
		}
	}
}

// lookAtAll is what run does when the log has changed once.
func (w *waker) lookAtAll() {
	next, _ := w.turn(true)
	for next > 0 {
		next, _ = w.turn(false)
	}
}

// TestTurns: when a round is over all have their turn at once, as many as may be; when the log has changed sooner, only
// those who have waited longest; and those who are left have theirs soon though it does not change again.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name    string
		members int
		ago     float64 // when the log had grown before, in rounds
		turns   []int   // how many are looked at in the first ones
	}{
		{"a round is over", 100, 1, []int{100}},
		{"or nearly", 100, 0.8, []int{100}},
		{"long ago", 100, 100, []int{100}},
		{"half of one", 100, 0.5, []int{57, 43}},
		{"two in quick succession", 160, 0, []int{11, 16}},
		{"a crowd", 1000, 1. / 3, []int{396, 501, 103}},
		{"a crowd, and a round is over", 1000, 1, []int{667, 333}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWaker(nil)
			w.timer = time.NewTimer(time.Hour)
			defer w.timer.Stop()
			glances := make([]atomic.Int64, c.members)
			for i := range glances {
				s := &subscriber{server: &Server{waker: w}, conn: newConn(nil, 0)}
				s.reader = &idleReader{glances: &glances[i], onGlance: func() {}}
				s.park()
				w.join(s)
			}
			w.busy = float64(c.members)
			round := pace(c.members, w.busy)
			w.fresh, w.last = time.Now().Add(-time.Duration(c.ago*float64(round))), time.Now()
			seen := 0
			for i, more := 0, true; more; i++ {
				next, _ := w.turn(i == 0)
				more = next > 0
				looked := 0
				for j := range glances {
					looked += int(glances[j].Load())
				}
				if i < len(c.turns) && looked-seen != c.turns[i] || !more && i < len(c.turns)-1 || next > round {
					t.Errorf("%s: turn %d is for %d members, the next in %v", c.name, i+1, looked-seen, next)
				}
				seen = looked
				time.Sleep(next)
				w.busy = float64(c.members)
			}
			for i := range glances {
				if n := glances[i].Load(); n != 1 {
					t.Errorf("%s: member %d was looked at %d times", c.name, i, n)
				}
			}
		})
	}
}

// minPaced is how many idle members make a round take a time.
func minPaced() int {
	n := 1
	for pace(n, 0) == 0 {
		n++
	}
	return n
}

// idleReader never has anything.
type idleReader struct {
	fakeReader
	glances  *atomic.Int64
	onGlance func()
}

func (r *idleReader) Pending(*replay.Glance) (replay.Mark, bool) {
	r.glances.Add(1)
	r.onGlance()
	return mark(1), false
}

// TestPendingIsNotThrough: how far a reader that waits for its position has looked is behind that position,
// and nobody may be told to go on from there.
func TestPendingIsNotThrough(t *testing.T) {
	var glances atomic.Int64
	s := &subscriber{server: &Server{}, conn: newConn(nil, 0), reader: &busyReader{glances: &glances}, through: mark(7)}
	s.park()
	if !s.glance(new(replay.Glance)) || s.through != mark(7) {
		t.Errorf("through is %v, which Next never said", s.through)
	}
}

// TestPostedFilterStopsTheWaker: once a filter is posted nothing may be passed over by the one before.
func TestPostedFilterStopsTheWaker(t *testing.T) {
	var glances atomic.Int64
	server := &Server{admission: admission.New(admission.Config{Bytes: 1 << 20}), waker: newWaker(nil)}
	s := &subscriber{server: server, conn: newConn(nil, 0), reader: &busyReader{glances: &glances}}
	s.park()
	s.post(filter{})
	if s.glance(new(replay.Glance)) || glances.Load() != 0 || !s.parking.missed {
		t.Errorf("the waker looked %d times with a filter that is no longer in force; comes again: %v", glances.Load(), s.parking.missed)
	}
	s.unpark()
	s.applyFilter()
	s.park()
	if !s.glance(new(replay.Glance)) {
		t.Error("nothing is pending with the new filter")
	}
}
