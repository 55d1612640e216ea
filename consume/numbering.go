package consume

import "time"

// connState is what the present connection has shown of the numbers that follow the last one.
type connState uint8

const (
	// connAsked has been asked for what follows the last number. No frame came yet: a jump means
	// that the relay does not have the numbers between.
	connAsked connState = iota
	// connUnsure began without a cursor, or sends frames below the last one. Before the next frame
	// above it others may be missing that the relay has.
	connUnsure
	// connFollows has reached the last number. What comes next is whole.
	connFollows
)

// verdict says what to do with a frame.
type verdict uint8

const (
	deliver verdict = iota // hand it over
	repeat                 // drop it: it was handed over before
	// drop it and reconnect with the cursor: frames before it may be missing
	resume
	newEpoch // drop it and reconnect with the cursor: the numbering began anew
)

// observation is a frame's number, and what is known when it comes.
type observation struct {
	first   bool      // no number is known: the frame is the first of all
	step    int64     // the frame's number less the last one
	other   bool      // step is 0, and the frame is another event than the last one
	conn    connState // of the present connection
	below   int64     // how many frames directly before this one lay below the last number
	resumes int       // connections in a row that were given up with resume
	// a reset has been suspected for the patience, and since before this connection
	expired bool
}

// decision is what follows from an observation.
type decision struct {
	verdict verdict
	conn    connState // of the connection from now on
	suspect bool      // the relay may have restarted its numbering
	gap     bool      // with deliver: frames may be missing before this one
}

// maxResumes limits how often in a row a connection is given up for missing frames. A relay that
// keeps on leaving them out does not have them: the gap is recorded.
const maxResumes = 3

// decide is the policy of the numbering.
//
// A connection that follows the last number is ordered and whole. There a jump is no gap, and a
// single frame below the last number is a repeat and no more. A second one in a row, or one before
// the connection follows, makes a reset suspected.
func decide(o observation) decision {
	switch {
	case o.first:
		return decision{verdict: deliver, conn: connFollows}
	case o.step < 0 && o.conn == connFollows && o.below == 0:
		return decision{verdict: repeat, conn: connFollows}
	case o.step < 0 && o.expired, o.step == 0 && o.other:
		return decision{verdict: newEpoch}
	case o.step < 0:
		return decision{verdict: repeat, conn: connUnsure, suspect: true}
	case o.step == 0: // the relay is at the last number: it repeats frames, and has not restarted
		return decision{verdict: repeat, conn: connFollows}
	case o.step == 1 || o.conn == connFollows:
		return decision{verdict: deliver, conn: connFollows}
	case o.conn == connUnsure && o.resumes < maxResumes:
		return decision{verdict: resume}
	}
	return decision{verdict: deliver, conn: connFollows, gap: true}
}

// rechecks is how many times within the patience a relay is dialled anew while a reset is
// suspected.
const rechecks = 4

// numbering keeps the position in a relay's numbers, and applies decide to each frame. It does no
// I/O, and is given the time.
//
// For each connection its owner calls next (what to ask for), opened, and then frame for each
// frame, or futureCursor if the relay says so.
type numbering struct {
	patience time.Duration

	epoch    uint32
	last     int64     // the last seq handed over, or below which nothing is wanted
	have     bool      // last means something; otherwise the first frame is taken as it comes
	start    *int64    // where the operator wants the first connection to start
	previous *EpochEnd // the end of an earlier epoch, until a frame of this one is handed over
	goLive   bool      // the next connection asks for no cursor
	resumes  int       // connections given up in a row for missing frames

	conn  uint64 // counts connections
	state connState
	below belowRun
	reset suspectedReset
}

// belowRun is the frames below the last one that came since one at or above it, on all connections.
type belowRun struct {
	frames int64
	lowest int64 // 0: none
}

// suspectedReset lasts until a frame at or above the last one comes, or a new epoch begins.
type suspectedReset struct {
	on    bool
	since time.Time
	// the connection on which it began, or the one before the dial that was refused with
	// FutureCursor
	conn uint64
}

// next returns what the next connection must ask for.
func (n *numbering) next() (cursor int64, has bool) {
	n.state = connAsked
	switch {
	case n.goLive:
		n.state = connUnsure
		return 0, false
	case n.start != nil:
		return *n.start, true
	}
	return n.last, n.have
}

// opened begins a connection that was dialled with what next returned.
func (n *numbering) opened() {
	n.conn++
	n.goLive = false
}

// recheckIn returns after how long the connection must be given up to see whether the relay has its
// old numbering back. ok is false if it need not be. It is asked when a connection opens and when a
// reset becomes suspected.
func (n *numbering) recheckIn(now time.Time) (d time.Duration, ok bool) {
	if !n.reset.on || n.expired(now) {
		return 0, false
	}
	return max(n.patience/rechecks, time.Millisecond), true
}

// expired says that a reset has been suspected for the patience and that this connection is newer.
func (n *numbering) expired(now time.Time) bool {
	return n.reset.on && n.reset.conn != n.conn && now.Sub(n.reset.since) >= n.patience
}

// futureCursor notes that the relay called the cursor of this connection, or of the one being
// dialled, one of the future. The next connection asks for none, so that the relay's numbers are
// seen. A relay that has sent a frame at or above the cursor contradicts itself, and is not
// believed.
func (n *numbering) futureCursor(now time.Time) {
	switch {
	case n.state == connFollows:
	case !n.have:
		n.goLive, n.start = true, nil // the operator's wish cannot be met
	default:
		n.goLive, n.state = true, connUnsure
		n.suspect(now)
	}
}

func (n *numbering) suspect(now time.Time) {
	if !n.reset.on {
		n.reset = suspectedReset{on: true, since: now, conn: n.conn}
	}
}

// catchesUp says that the frame seq would be the last one again, reached from below. Then frame
// must learn whether it is the same event.
func (n *numbering) catchesUp(seq int64) bool {
	return n.have && seq == n.last && n.below.frames > 0 && n.state != connFollows
}

// frame decides about a frame. If the verdict is deliver, the frame counts as handed over, and gap
// is what may be missing before it. other says that the frame has the last one's number and is
// another event: the relay then numbers anew, and waiting would show nothing more.
func (n *numbering) frame(now time.Time, seq int64, other bool) (v verdict, gap *Gap) {
	d := decide(observation{
		first: !n.have, step: seq - n.last, other: other,
		conn: n.state, below: n.below.frames, resumes: n.resumes, expired: n.expired(now),
	})
	below := n.have && seq < n.last
	if below {
		n.below.add(seq)
	}
	if d.verdict == newEpoch {
		n.restart()
		return newEpoch, nil
	}
	n.state = d.conn
	switch {
	case d.suspect:
		n.suspect(now)
	case !below:
		n.trust()
	}
	switch d.verdict {
	case deliver:
		gap = n.deliver(seq, d.gap)
	case resume:
		n.resumes++
	}
	return d.verdict, gap
}

// trust ends a suspected reset, and forgets what made it suspected.
func (n *numbering) trust() {
	n.reset, n.below, n.goLive = suspectedReset{}, belowRun{}, false
}

func (b *belowRun) add(seq int64) {
	if b.lowest == 0 || seq < b.lowest {
		b.lowest = seq
	}
	b.frames++
}

// deliver moves the position to seq.
func (n *numbering) deliver(seq int64, jumped bool) (gap *Gap) {
	switch {
	case n.previous != nil:
		gap = &Gap{FromEpoch: n.previous.Epoch, From: n.previous.Seq, ToEpoch: n.epoch, To: seq}
	case jumped:
		gap = &Gap{FromEpoch: n.epoch, From: n.last, ToEpoch: n.epoch, To: seq}
	}
	n.last, n.have = seq, true
	n.start, n.previous = nil, nil
	n.resumes = 0
	return gap
}

// restart begins a new epoch with the lowest frame seen below the last one.
func (n *numbering) restart() {
	if n.previous == nil { // else this epoch ends before a frame of it was handed over
		n.previous = &EpochEnd{Epoch: n.epoch, Seq: n.last}
	}
	n.epoch++
	n.last = n.below.lowest - 1
	n.start, n.resumes = nil, 0
	n.trust()
}
