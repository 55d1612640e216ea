package client

import (
	"strconv"
	"sync"
	"time"
)

// progress is how far the subscription has come, and so where the next connection starts. It is
// safe for concurrent use; one goroutine changes it.
type progress struct {
	overlapUS int64
	parse     func(cursor string) (position, bool)

	mu       sync.Mutex
	cursor   string   // that of the start, "": live; or the last one that a server sent
	position position // of cursor, if it is one
	past     bool     // the seq after cursor is asked for
	lastUS   int64    // newest stamp that was given out
	plain    bool     // lastUS is the place, not cursor: the last event came from a plain Jetstream
	floorUS  int64    // the lowest time that a plain Jetstream is asked for
	joining  bool     // events of a plain Jetstream have come, which a millrace may repeat
	byTime   bool     // a plain Jetstream may repeat what a millrace has sent
	window   window
}

func newProgress(cursor string, overlap time.Duration, v2 bool) *progress {
	p := &progress{cursor: cursor, overlapUS: overlap.Microseconds(), parse: parsePosition}
	if v2 {
		p.parse = parseSeq
	}
	p.position, _ = p.parse(cursor)
	p.window.spanUS = 4 * p.overlapUS
	return p
}

// take notes the event, and says whether the caller must get it.
func (p *progress) take(e *Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Cursor == "" {
		p.movePlainLocked(e.TimeUS)
		return p.window.add(e)
	}
	if !p.moveLocked(e.Cursor, e.TimeUS) {
		return false
	}
	if !p.joining && !p.byTime {
		return true
	}
	fresh := p.window.add(e)
	return fresh || !p.joining // between millraces positions suffice
}

// moveLocked moves to the cursor that a millrace has sent, unless it is a position that does not
// follow the last one.
func (p *progress) moveLocked(cursor string, timeUS int64) bool {
	at, ok := p.parse(cursor)
	if ok && !at.follows(p.position) {
		return false
	}
	p.cursor, p.position, p.past, p.plain = cursor, at, false, false
	p.lastUS = max(p.lastUS, timeUS)
	return true
}

// movePlainLocked moves to a stamp of a plain Jetstream, whose clock is its own.
func (p *progress) movePlainLocked(timeUS int64) {
	if !p.plain {
		p.plain, p.joining, p.floorUS, p.lastUS = true, true, timeUS, timeUS
		if start, err := strconv.ParseInt(p.cursor, 10, 64); err == nil {
			// another instance's stamps may be earlier than this one's
			p.floorUS = min(p.floorUS, start)
		}
	}
	p.lastUS = max(p.lastUS, timeUS)
}

// reach notes that everything up to the position has been given out.
func (p *progress) reach(cursor string, timeUS int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.parse(cursor); ok {
		p.moveLocked(cursor, timeUS)
	}
}

// clockSkew is how far a server's clock may be behind ours.
const clockSkew = time.Minute

// live notes that a millrace's log has been read to its end, at the position, "" if it is empty.
func (p *progress) live(cursor string, timeUS int64, now time.Time) {
	p.reach(cursor, timeUS)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cursor == "" && cursor == "" {
		// All that this log will ever hold comes after this; but the next connection may be to
		// another.
		p.cursor = strconv.FormatInt(now.Add(-clockSkew).UnixMicro(), 10)
	}
	if p.joining = false; !p.byTime {
		p.window.forget()
	}
}

// joinByTime says whether a plain Jetstream may be among the servers. Then the window has all
// events.
func (p *progress) joinByTime(may bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byTime = may; !p.byTime && !p.joining {
		p.window.forget()
	}
}

// changed notes that other options are in force from here on: what is before is not to come again.
func (p *progress) changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.floorUS = p.lastUS
}

// clamp makes the next connection ask for less, since the server lacks the event of the cursor, a
// seq: first for the next one, as that event is not wanted; then, unless it must be strict, for the
// oldest that the server has. It says whether there is less to ask for.
func (p *progress) clamp(strict bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, isSeq := parseSeq(p.cursor)
	p.past = isSeq && !p.past
	if !p.past && isSeq && !strict {
		p.cursor = v2OldestCursor
		return true
	}
	return p.past
}

// resume returns the cursor for the next connection, which may be known to be to a plain Jetstream.
func (p *progress) resume(plain bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plain || plain && p.lastUS > 0 {
		return strconv.FormatInt(max(p.floorUS, p.lastUS-p.overlapUS), 10)
	}
	if p.past {
		return strconv.FormatInt(p.position.seq+1, 10)
	}
	return p.cursor
}

// current returns what Client.Cursor does.
func (p *progress) current() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plain {
		return strconv.FormatInt(p.lastUS, 10)
	}
	return p.cursor
}
