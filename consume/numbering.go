package consume

import "time"

// verdict says what to do with a frame.
type verdict uint8

const (
	deliver  verdict = iota // hand it over
	repeat                  // drop it: it was handed over before
	resume                  // drop it and reconnect with the cursor: frames before it were left out
	newEpoch                // drop it and reconnect with the cursor: the numbering began anew
)

// ruling is what numbering.frame decides.
type ruling struct {
	verdict verdict
	gap     *Gap // with deliver: what may be missing before the frame
	began   bool // the frame began a suspicion
	ended   bool // the frame ended one
}

// footing is what is known, on the present connection, of the numbers between the last frame handed
// over and the next one the relay sends.
type footing uint8

const (
	footAsked footing = iota // asked for what follows the cursor; nothing came yet
	footLive                 // asked for no cursor; nothing came yet
	footBelow                // the newest frame lies below the last one
	footAt                   // the newest frame is the last one: nothing is missing behind it
)

// maxResumes limits how often in a row a connection is given up because frames were left out. A relay
// that keeps on leaving them out does not have them: the gap is recorded.
const maxResumes = 3

// rechecks is how many times within the patience a suspected relay is dialled afresh.
const rechecks = 4

// numbering decides which frames are new, which are repeats, and when a relay has restarted its
// numbering. It is pure: the clock is given to it, and it does no I/O.
//
// The connection's life goes next (what to ask for), opened, then frame for every frame, futureCursor if the
// relay says so.
type numbering struct {
	patience time.Duration

	epoch    uint32
	last     int64  // the last seq handed over, or below which nothing is wanted
	have     bool   // last means something; otherwise the first frame is taken as it comes
	start    *int64 // where the operator wants the first connection to start
	previous *Mark  // the end of an earlier epoch, until a frame of this one is handed over
	goLive   bool   // the next connection asks for no cursor
	resumes  int    // connections given up in a row for frames left out

	conn    uint64 // counts connections
	footing footing
	suspect suspicion
}

// suspicion is the time in which all frames lie below the last one.
type suspicion struct {
	on     bool
	since  time.Time
	conn   uint64 // the connection it began on, or the failed one that said FutureCursor
	lowest int64  // the lowest seq seen since, 0 if none was
	frames int64  // dropped since
}

// next returns what the next connection is to ask for.
func (n *numbering) next() (cursor int64, has bool) {
	switch {
	case n.goLive:
		return 0, false
	case n.start != nil:
		return *n.start, true
	}
	return n.last, n.have
}

// opened begins a connection that was dialled with what next returned.
func (n *numbering) opened() {
	n.conn++
	n.footing = footAsked
	if n.goLive {
		n.footing = footLive
		n.goLive = false
	}
}

// recheckIn returns after how long the connection is to be given up to see whether the relay has its
// old numbering back; ok is false if that need not be. It is asked when a connection opens and
// when a suspicion begins.
func (n *numbering) recheckIn(now time.Time) (d time.Duration, ok bool) {
	s := &n.suspect
	if !s.on || now.Sub(s.since) >= n.patience && s.conn != n.conn {
		return 0, false
	}
	return max(n.patience/rechecks, time.Millisecond), true
}

// futureCursor notes that the relay called the cursor of this connection one of the future. The next
// connection asks for none, so that the relay's numbers are seen. It reports whether that begins a
// suspicion.
func (n *numbering) futureCursor(now time.Time) (began bool) {
	n.goLive = true
	if !n.have {
		n.start = nil // the operator's wish cannot be met
		return false
	}
	if n.suspect.on {
		return false
	}
	n.suspect = suspicion{on: true, since: now, conn: n.conn}
	return true
}

// climbs tells whether the frame seq would be the last one again, reached from below: then frame must be
// told whether it is the same event.
func (n *numbering) climbs(seq int64) bool {
	return n.have && seq == n.last && n.footing == footBelow
}

// frame rules on a frame. For deliver it counts the frame as handed over. other tells that it climbs and is
// another event than the last one of that number: these are other numbers, and no patience would show more.
// A relay that alternates between two numberings gets there with every change of its; nothing here limits
// how often, Client.Run does.
func (n *numbering) frame(now time.Time, seq int64, other bool) ruling {
	switch {
	case !n.have:
		return n.deliver(seq, nil)
	case seq < n.last:
		return n.below(now, seq)
	case other:
		return n.restart()
	case seq == n.last:
		// The relay stands where we do: it repeats itself (an inclusive cursor), it does not restart.
		n.footing = footAt
		r := ruling{verdict: repeat, ended: n.suspect.on}
		n.suspect.on = false
		return r
	}
	if n.footing == footAt || seq-n.last == 1 {
		return n.deliver(seq, nil)
	}
	if n.footing != footAsked && n.resumes < maxResumes {
		n.resumes++
		r := ruling{verdict: resume, ended: n.suspect.on}
		n.suspect.on = false
		return r
	}
	return n.deliver(seq, &Gap{FromEpoch: n.epoch, From: n.last, ToEpoch: n.epoch, To: seq})
}

func (n *numbering) deliver(seq int64, gap *Gap) ruling {
	if p := n.previous; p != nil {
		gap = &Gap{FromEpoch: p.Epoch, From: p.Seq, ToEpoch: n.epoch, To: seq}
		n.previous = nil
	}
	r := ruling{verdict: deliver, gap: gap, ended: n.suspect.on}
	n.suspect.on = false
	n.last, n.have, n.start = seq, true, nil
	n.resumes = 0
	n.footing = footAt
	return r
}

// below rules on a frame under the last one: a repeat, and reason for suspicion.
func (n *numbering) below(now time.Time, seq int64) ruling {
	n.footing = footBelow
	s := &n.suspect
	began := !s.on
	if began {
		*s = suspicion{on: true, since: now, conn: n.conn}
	}
	if s.lowest == 0 || seq < s.lowest {
		s.lowest = seq
	}
	s.frames++
	if s.conn == n.conn || now.Sub(s.since) < n.patience {
		return ruling{verdict: repeat, began: began}
	}
	return n.restart()
}

// restart begins a new epoch with the lowest suspect.
func (n *numbering) restart() ruling {
	if n.previous == nil { // else nothing was handed over of this epoch
		n.previous = &Mark{Epoch: n.epoch, Seq: n.last}
	}
	n.epoch++
	n.last = n.suspect.lowest - 1
	n.start, n.goLive, n.resumes = nil, false, 0
	n.suspect.on = false
	return ruling{verdict: newEpoch}
}
