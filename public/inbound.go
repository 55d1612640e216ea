package public

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"millrace/public/internal/admission"
)

// Bounds of what is read from clients.
const (
	maxMessageBytes = 10_000_000
	// smallMessageBytes may be held by every connection at once, larger messages only by as many
	// as there are slots.
	smallMessageBytes  = 4 << 10
	mediumMessageBytes = 1 << 20
	// slotPatience times as long as a message may take to arrive is the wait for a slot.
	// Some addresses that send half a message each may be first.
	slotPatience = 4

	// maxDrainBytes is how much is read, to be forgotten, from a client that was asked to go.
	maxDrainBytes = 32 << 20

	updatesPerSecond = 1
	updateBurst      = 20
)

// readLoop reads what the client sends until the connection ends. It never writes, and waits for
// the pull loop in nothing.
func (s *subscriber) readLoop() {
	defer close(s.readDone)
	s.ws.SetReadLimit(maxMessageBytes)
	s.ws.SetPingHandler(s.conn.pinged)
	s.ws.SetPongHandler(s.conn.ponged)
	s.ws.SetCloseHandler(func(int, string) error { return nil })
	for {
		kind, r, err := s.ws.NextReader()
		if err == nil {
			err = cmp.Or(s.readMessage(kind, r), s.conn.Conn.SetReadDeadline(time.Time{}))
		}
		if err != nil {
			e := s.endingOfReadError(err)
			s.end(e)
			if !e.dead && e.reason != endClientClose {
				// Bytes that nobody read would make the kernel reset the connection, and the
				// client lose what it was sent last.
				_, _ = io.CopyN(io.Discard, s.conn.Conn, maxDrainBytes) // an error ends it, too
			}
			return
		}
	}
}

// readMessage reads one message and does what it says. Its errors are those of the connection. What
// is wrong with the message itself ends the connection but not the reading, so that the client's
// close frame is still seen.
func (s *subscriber) readMessage(kind int, r io.Reader) error {
	if s.opts.v2 {
		s.end(policyEnding(endInvalid, "nothing is read from clients here"))
	}
	text := kind == websocket.TextMessage && !s.ended()
	if text {
		// Before any of it is read: a client that has to wait takes no room meanwhile.
		if err := s.waitForUpdate(); err != nil {
			return err
		}
	}
	patience := s.server.timing.message
	extend := func() error { return s.conn.Conn.SetReadDeadline(time.Now().Add(patience)) }
	if err := extend(); err != nil {
		return err
	}
	if !text {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	data, more, err := readUpTo(nil, r, smallMessageBytes)
	if err != nil {
		return err
	}
	if more {
		s.server.metrics.large.Inc()
		claim, err := s.server.admission.ClaimMessage(s.client, s.conn.ctx.Done(), slotPatience*patience)
		if err != nil {
			return err
		}
		defer claim.Release()
		for _, limit := range []int{mediumMessageBytes, maxMessageBytes} {
			if !more {
				break
			}
			if err := claim.Take(); err != nil {
				return err
			}
			if err := extend(); err != nil {
				return err
			}
			if data, more, err = readUpTo(data, r, limit); err != nil {
				return err
			}
		}
	}
	s.update(data)
	return nil
}

// waitForUpdate holds a client back that sends messages faster than they are worked off.
func (s *subscriber) waitForUpdate() error {
	if s.updates == nil {
		s.updates = rate.NewLimiter(updatesPerSecond, updateBurst)
	}
	wait := s.updates.Reserve().Delay()
	if wait == 0 {
		return nil
	}
	s.server.metrics.held.WithLabelValues(heldUpdates).Inc()
	select {
	case <-time.After(wait):
		return nil
	case <-s.conn.ctx.Done():
		return net.ErrClosed
	}
}

// readUpTo appends to data until r ends, or one byte more than limit shows that there is more.
func readUpTo(data []byte, r io.Reader, limit int) (_ []byte, more bool, err error) {
	for len(data) <= limit && err == nil {
		if len(data) == cap(data) {
			grown := make([]byte, len(data), min(max(2*cap(data), 512), limit+1))
			copy(grown, data)
			data = grown
		}
		var n int
		n, err = r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data, len(data) > limit, err
}

// update does what a text message asks for.
func (s *subscriber) update(data []byte) {
	w, err := parseUpdate(data)
	if err != nil {
		s.end(invalidEnding(err))
		return
	}
	if w == nil {
		return
	}
	err = s.server.checkReferences(&options{wants: w})
	var f filter
	if err == nil {
		if w.Kinds.given {
			s.opts.kinds, _ = parseKinds("", w.Kinds.members) // each is one
		}
		f, err = s.server.compile(s.conn.ctx, w, s.opts.kinds, s.client)
	}
	switch {
	case errors.Is(err, errFilterMemory), errors.Is(err, errUIDStore):
		s.end(overloadedEnding(err.Error()))
	case err != nil:
		s.end(invalidEnding(fmt.Errorf("failed to parse subscriber options: %w", err)))
	default:
		s.post(f)
		s.server.metrics.updates.Inc()
	}
}

func (s *subscriber) endingOfReadError(err error) ending {
	if errors.Is(err, websocket.ErrReadLimit) {
		return ending{
			reason: endTooBig, code: websocket.CloseMessageTooBig,
			text: fmt.Sprintf("messages may have at most %d bytes", maxMessageBytes),
		}
	}
	if frame := s.conn.takeCloseFrame(); frame != nil {
		return ending{reason: endProtocol, frame: frame}
	}
	var closed *websocket.CloseError
	var netErr net.Error
	switch {
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure:
		return ending{reason: endClientClose, frame: newCloseFrame(closed.Code, "")}
	case errors.Is(err, errFlood):
		return policyEnding(endFlood, "too much is sent")
	case errors.Is(err, admission.ErrNoSlot):
		return overloadedEnding("no memory left for large messages")
	case errors.As(err, &netErr) && netErr.Timeout():
		return policyEnding(endSlowMessage, "a message was begun and not finished in time")
	default:
		return ending{reason: endClientGone, dead: true}
	}
}
