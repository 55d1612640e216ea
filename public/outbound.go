package public

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/replay"
)

// slowestBytesPerSecond is how fast a client must read at least to be seen alive.
const slowestBytesPerSecond = 1 << 10

var errSilent = errors.New("the client answers no ping")

// outbound is a pull loop's way to its client: event frames, info messages and heartbeats, pings
// and pongs.
type outbound struct {
	conn      *conn
	writer    writer
	messages  messages
	timing    *timing
	pings     prometheus.Counter
	heartbeat time.Duration // without a message, until the client wants one; 0: it wants none

	head []byte // frames to be sent before the next event frames
	tail []byte // and after them

	lastMessage time.Time // when a message was sent; pings and pongs are none
	nextPing    time.Time
	// from conn.started to the first ping since the client was heard last; 0: none
	pinged time.Duration
}

// begin starts the times until the first ping and heartbeat.
func (o *outbound) begin(now time.Time) {
	o.lastMessage, o.nextPing = now, now.Add(o.timing.ping)
}

// send writes head, frames and tail, and before them the pong and the ping that are due.
func (o *outbound) send(frames [][]byte) error {
	now := time.Now()
	if len(o.head)+len(frames)+len(o.tail) > 0 {
		o.lastMessage = now
	}
	o.head = o.conn.appendPong(o.head)
	if !now.Before(o.nextPing) {
		if o.silent() {
			return errSilent
		}
		if o.conn.heardAt() >= o.pinged {
			o.pinged = now.Sub(o.conn.started)
		}
		o.head = appendFrame(o.head, framePing, strconv.AppendInt(nil, o.writer.written, 10))
		o.nextPing = now.Add(o.timing.ping)
		o.pings.Inc()
	}
	if len(o.head)+len(frames)+len(o.tail) == 0 {
		return nil
	}
	err := o.writer.send(o.head, frames, o.tail)
	o.head, o.tail = o.head[:0], o.tail[:0]
	return err
}

// silent says whether the client must be taken for dead. Since the ping it sent nothing, not even
// pongs, for longer than a slow one needs to read what it was sent. Silence before a ping says
// nothing.
func (o *outbound) silent() bool {
	if o.conn.heardAt() >= o.pinged {
		return false
	}
	backlog := o.writer.written - o.conn.taken.Load()
	return time.Since(o.conn.started)-o.pinged > o.timing.silent+time.Duration(backlog/slowestBytesPerSecond)*time.Second
}

// dueAt is when the next ping or heartbeat is due.
func (o *outbound) dueAt() time.Time {
	if o.heartbeat > 0 {
		return earlier(o.nextPing, o.lastMessage.Add(o.heartbeat))
	}
	return o.nextPing
}

// sendDue sends the heartbeat, the ping and the pong that are due. Everything up to through was
// sent.
func (o *outbound) sendDue(through replay.Point) error {
	o.tail = o.tail[:0]
	o.appendHeartbeat(through)
	return o.send(nil)
}

// appendHeartbeat appends to tail the heartbeat that is due, if one is.
func (o *outbound) appendHeartbeat(through replay.Point) {
	if o.heartbeat > 0 && time.Since(o.lastMessage) >= o.heartbeat {
		o.tail = o.messages.appendHeartbeat(o.tail, through)
	}
}
