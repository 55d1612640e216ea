package public

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"millrace/replay"
)

// maxChunkBytes is how much one write takes at most, but for a single larger event.
const maxChunkBytes = 128 << 10

// reader is what a subscriber needs of a replay.Reader.
type reader interface {
	Next(c *replay.Chunk) error
	Pending(g *replay.PendingScratch) (through replay.Point, pending bool)
	SetFilter(f *replay.Filter)
	Clamped() (oldest replay.Point, clamped bool)
	Before(us int64) bool
	Release()
	Close()
}

// subscriber is one connection. See the package comment for its goroutines.
type subscriber struct {
	server *Server
	opts   options
	client netip.Addr

	ws       *websocket.Conn // read loop
	conn     *conn
	updates  *rate.Limiter // read loop
	readDone chan struct{} // closed when the read loop has ended
	mailbox
	sleeper

	// Of the pull loop only:
	out     outbound
	filter  filter // in force
	notice  referencesNotice
	leftOut leftOutNotice
	chunk   replay.Chunk
	claimed int64 // of Server.catchUp.chunks, for chunk
	atEnd   bool  // the last chunk reached the end of the log
	live    bool  // one did
	timer   *time.Timer
	delivered
}

// delivered is what was sent.
type delivered struct {
	begun    time.Time
	events   int64
	bytes    int64
	resumeAt time.Time // no event is sent before, if events/s are limited
}

// post leaves a filter for the pull loop. It owns f's share of the budget from now on.
func (s *subscriber) post(f filter) {
	if old := s.posted.Swap(&f); old != nil {
		old.release()
	}
	s.conn.wake()
}

// takeFilter puts a posted filter in force and says whether there was one.
func (s *subscriber) takeFilter() bool {
	f := s.posted.Swap(nil)
	if f != nil {
		s.filter.release()
		s.filter, s.notice.checked = *f, false
	}
	return f != nil
}

// applyFilter gives a posted filter to the reader.
func (s *subscriber) applyFilter() {
	if s.takeFilter() {
		s.reader.SetFilter(s.filter.compiled)
	}
}

// end asks the pull loop to end the connection. Only the first ending counts.
func (s *subscriber) end(e ending) {
	s.putEnding(e)
	if e.dead {
		s.conn.Conn.Close()
	}
	s.conn.wake()
}

// run is the pull loop from start to end.
func (s *subscriber) run() {
	s.begun = time.Now()
	s.out.begin(s.begun)
	s.timer = time.NewTimer(s.server.timing.ping)
	defer s.timer.Stop()
	defer s.server.waker.leave(&s.sleeper)
	if err := s.pull(); err != nil && !errors.Is(err, errCut) {
		s.end(s.endingOfWriteError(err))
	}
	s.releaseChunk()
	s.finish()
}

// pull sends until the connection must end: then it returns nil, or the error of a write.
func (s *subscriber) pull() error {
	if s.opts.requireHello {
		if err := s.awaitHello(); err != nil || s.ended() {
			return err
		}
	}
	if oldest, clamped := s.reader.Clamped(); clamped && (s.opts.extended || s.opts.v2) {
		if s.opts.v2 {
			s.out.head = s.out.messages.appendV2Info(s.out.head[:0], "OutdatedCursor", clampedText)
		} else {
			s.out.head = s.out.messages.appendClamped(s.out.head[:0], s.opts.cursor, oldest)
		}
		if err := s.out.send(nil); err != nil {
			return err
		}
	}
	for !s.ended() {
		if ok, err := s.nextChunk(); !ok {
			return err
		}
		if err := s.deliver(); err != nil {
			return err
		}
		if err := s.rest(); err != nil {
			return err
		}
	}
	return nil
}

// nextChunk reads the next chunk, unless the connection must end. Its error is that of a write.
// Only a few subscribers that are catching up read at a time (catchUpLimits).
func (s *subscriber) nextChunk() (ok bool, err error) {
	if !s.atEnd {
		if ok, err := s.awaitTurn(); !ok {
			return false, err
		}
		defer func() { <-s.server.catchUp.slots }()
	}
	s.applyFilter()
	s.out.head = s.out.head[:0]
	if begin, due := s.referencesBegin(); due {
		s.out.head = s.out.messages.appendReferencesBegin(s.out.head, begin)
	}
	if err := s.reader.Next(&s.chunk); err != nil {
		s.server.logReadError(err)
		s.end(endingOfReaderError(err))
		return false, nil
	}
	if more := int64(s.chunk.Bytes) - s.claimed; s.claimed > 0 && more > 0 {
		s.server.catchUp.chunks.Add(more)
		s.claimed += more
	}
	return true, nil
}

// awaitTurn waits for the bytes of a chunk and a slot of Server.catchUp, and sends what is due
// meanwhile. It comes back without the slot if the connection must end.
func (s *subscriber) awaitTurn() (ok bool, err error) {
	granted := s.server.catchUp.chunks.Take(maxChunkBytes)
	defer func() {
		if granted != nil {
			s.server.catchUp.chunks.Cancel(granted, maxChunkBytes)
		}
	}()
	var slots chan<- struct{} // nil: the bytes come first
	for !s.ended() {
		select {
		case <-granted:
			granted = nil
			s.claimed, slots = maxChunkBytes, s.server.catchUp.slots
			continue
		case slots <- struct{}{}:
			return true, nil
		case <-s.conn.interrupt: // a filter waits for the next chunk
		case <-s.timerAt(s.out.dueAt()):
		}
		if err := s.out.sendDue(s.through); err != nil {
			return false, err
		}
	}
	return false, nil
}

// releaseChunk gives the chunk's memory back.
func (s *subscriber) releaseChunk() {
	s.chunk.Release()
	if s.claimed > 0 {
		s.server.catchUp.chunks.Release(s.claimed)
		s.claimed = 0
	}
}

// release lets go of all that the subscriber holds of the log, before a wait.
func (s *subscriber) release() {
	s.releaseChunk()
	s.reader.Release()
}

// awaitHello sends nothing but pings until the first valid options update.
func (s *subscriber) awaitHello() error {
	for !s.ended() {
		if s.takeFilter() {
			// Live means live from now on.
			s.out.lastMessage = time.Now()
			switch err := s.openReader(); {
			case err == nil:
			case refusalOf(err).status == http.StatusBadRequest && s.filter.byReference:
				s.end(invalidEnding(err))
			case refusalOf(err).status == http.StatusBadRequest: // it was all right when it connected
				s.end(endingOfReaderError(replay.ErrTrimmed))
			default:
				s.end(endingOfReaderError(replay.ErrClosed))
			}
			return nil
		}
		select {
		case <-s.conn.interrupt:
		case <-s.timerAt(s.out.nextPing):
		}
		if err := s.out.send(nil); err != nil {
			return err
		}
	}
	return nil
}

// deliver sends the chunk and what belongs before and after it, after what nextChunk left in head.
func (s *subscriber) deliver() error {
	c, out := &s.chunk, &s.out
	out.tail = out.tail[:0]
	s.through = c.Through
	if c.Gap != nil && s.opts.extended {
		out.head = out.messages.appendGap(out.head, c.Gap)
	}
	s.atEnd = c.Live
	if c.Live && !s.live {
		s.live = true
		if s.opts.extended {
			out.tail = out.messages.appendLive(out.tail, c.Through)
		}
	}
	if s.live && s.opts.extended && s.server.cfg.LeftOut != nil {
		if n := s.leftOut.due(s.server.cfg.LeftOut(), time.Now()); n > 0 {
			out.tail = out.messages.appendLeftOut(out.tail, n)
		}
	}
	if c.Events == 0 {
		out.appendHeartbeat(s.through)
	}
	if err := out.send(c.Frames); err != nil {
		return err
	}
	if c.Events > 0 {
		s.count(c)
	}
	s.releaseChunk()
	if s.atEnd {
		out.writer.trim()
		if cap(c.Frames) > keptSlices {
			c.Frames = nil
		}
	}
	return nil
}

// rest waits until there is something to do: more to read, a message in the mailbox, a ping or a
// heartbeat that is due.
func (s *subscriber) rest() error {
	for !s.ended() {
		switch {
		case time.Now().Before(s.resumeAt):
			s.server.metrics.held.WithLabelValues(heldEvents).Inc()
			s.reader.Release()
			select {
			case <-s.conn.interrupt: // a filter waits for the next chunk
			case <-s.timerAt(earlier(s.out.dueAt(), s.resumeAt)):
			}
		case s.atEnd:
			s.applyFilter() // a hold may have taken its interrupt, and with one posted the waker wakes nothing
			s.fallAsleep(s.server.waker)
			select {
			case <-s.conn.interrupt:
			case <-s.timerAt(s.out.dueAt()):
			}
			woken := s.wakeUp()
			s.applyFilter() // the waker, too, must go by it
			if woken {
				return nil
			}
		default:
			return nil // the next chunk takes a pong along
		}
		if err := s.out.sendDue(s.through); err != nil {
			return err
		}
	}
	return nil
}

// count accounts for a chunk that was sent.
func (s *subscriber) count(c *replay.Chunk) {
	s.events += int64(c.Events)
	s.bytes += int64(c.Bytes)
	m := &s.server.metrics
	sent := m.delivered[s.opts.wire()]
	sent.events.Add(float64(c.Events))
	sent.bytes.Add(float64(c.Bytes))
	now := time.Now()
	if s.live {
		m.lag.Observe(now.Sub(time.UnixMicro(c.Through.TimeUS)).Seconds())
	}
	if perSecond := s.server.cfg.MaxEventsPerSecond; perSecond > 0 {
		if s.resumeAt.Before(now) {
			s.resumeAt = now
		}
		s.resumeAt = s.resumeAt.Add(time.Duration(float64(c.Events) / perSecond * float64(time.Second)))
	}
}

// endingOfWriteError says why the connection ends if a write failed.
func (s *subscriber) endingOfWriteError(err error) ending {
	switch {
	case errors.Is(err, errSilent):
		return ending{reason: endSilent, recoverable: true, reset: true, dead: true}
	case errors.Is(err, errSlow):
		return slowEnding(s.server.cfg.SlowTimeout)
	case errors.Is(err, errNoMemory):
		return overloadedEnding("no memory left for a slow client's events")
	default:
		return ending{reason: endWriteFailure, dead: true}
	}
}

// finish ends the connection as its ending asks, and forgets the subscriber.
func (s *subscriber) finish() {
	e := *s.ending.Load()
	if !e.dead {
		s.say(&e)
	}
	if tcp, ok := s.conn.Conn.(*net.TCPConn); ok && e.reset { // what the kernel still holds is dropped
		_ = tcp.SetLinger(0) // else it is closed in order
	}
	s.conn.Conn.Close()
	s.conn.done()
	<-s.readDone
	s.takeFilter() // what was posted and never put in force counts too
	s.server.ended(s, e)
}

// say sends what must be sent last, and gives the client time to take it.
func (s *subscriber) say(e *ending) {
	var last []byte
	if e.reason == endShutdown && s.opts.extended {
		through := s.through
		if s.out.writer.unsent != nil {
			through = replay.Point{} // not all events up to it were sent: no cursor
		}
		last = s.out.messages.appendGoingAway(last, through)
	}
	frame := s.lastFrame(e)
	last = append(last, frame...)
	grace, linger := s.server.timing.grace, s.server.timing.linger
	if e.reason == endTrimmed && (s.opts.extended || s.opts.v2) { // the others get no last frame
		grace, linger = s.server.timing.trimmed, s.server.timing.trimmed
	}
	if e.reset && frame == nil {
		return
	}
	if err := s.out.writer.finish(last, grace); err != nil {
		e.reset = true
		return
	}
	e.reset = false
	if tcp, ok := s.conn.Conn.(*net.TCPConn); ok {
		if err := tcp.CloseWrite(); err != nil {
			return
		}
	}
	select {
	case <-s.readDone:
	case <-time.After(linger):
	}
}

// lastFrame returns the frame to send last, nil for none.
func (s *subscriber) lastFrame(e *ending) []byte {
	if s.opts.v2 {
		return e.v2Frame(&s.out.messages)
	}
	return e.closeFrame(s.opts.extended)
}

// timerAt returns a channel that fires at t. There is one timer a subscriber.
func (s *subscriber) timerAt(t time.Time) <-chan time.Time {
	s.timer.Reset(time.Until(t))
	return s.timer.C
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
