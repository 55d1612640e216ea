package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"
)

const (
	// Limits of what is logged of a relay's own words.
	maxNameBytes  = 64
	maxTextBytes  = 200
	maxErrorBytes = 1 << 10

	// errorFrameWait is how long no frame may follow an error frame before the connection is given
	// up.
	errorFrameWait = 10 * time.Second
)

// ending is how a connection ended, or why there was none.
type ending struct {
	cause     cause
	err       error         // what there is to say of it; may be nil
	up        time.Duration // how long there was a connection
	delivered bool          // frames were handed over
}

// session is one connection and what came of it. It belongs to Run's goroutine.
type session struct {
	*Client
	conn      *conn
	delivered bool
	said      ending // the error frame after which no frame came yet; its cause is "" without one
}

// session makes one connection and reads it to its end.
func (c *Client) session(ctx context.Context) ending {
	cursor, has := c.num.next()
	conn, err := open(ctx, &c.cfg, withCursor(c.url, cursor, has))
	if err != nil {
		return c.notOpened(err)
	}
	c.num.opened()
	up := time.Now()
	c.setConnected(true, "", "")
	if has {
		c.log.Info("connected to relay", "host", c.url.Host, "epoch", c.num.epoch, "cursor", cursor)
	} else {
		c.log.Info("connected to relay, live", "host", c.url.Host, "epoch", c.num.epoch)
	}
	s := &session{Client: c, conn: conn}
	s.armRecheck()
	var e ending
	for e.cause == "" {
		e = s.next(ctx)
	}
	for c.cfg.Idle != nil && c.cfg.Idle() { // what came last must not wait for the next connection
	}
	switch e.cause {
	case causeLost, causeSilent, causePing, causeProtocol:
		conn.close(false)
	default:
		conn.close(true)
	}
	if s.said.cause != "" && (e.cause == causeClosed || e.cause == causeLost || e.cause == causeErrorFrame) {
		e = s.said
	}
	e.up, e.delivered = time.Since(up), s.delivered
	c.setConnected(false, e.String(), "")
	return e
}

// notOpened is the ending of a connection that could not be made.
func (c *Client) notOpened(err error) ending {
	e := ending{cause: causeDial, err: err}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		e.cause = causeRefused
		if refused.name == errorFutureCursor {
			e.cause = causeFuture
			c.futureCursor()
		}
	}
	c.setConnected(false, e.String(), advice(err))
	return e
}

// next reads one message and deals with it. An ending with a cause ends the connection.
func (s *session) next(ctx context.Context) ending {
	broken := func(err error) ending {
		why, err := s.conn.whyEnded(err)
		return ending{cause: why, err: err}
	}
	s.conn.wire.setMessage(false)
	kind, r, err := s.conn.ws.NextReader()
	if err != nil {
		return broken(err)
	}
	s.conn.wire.setMessage(true)
	tooLarge := false
	if kind == websocket.BinaryMessage {
		var msg []byte
		if msg, tooLarge, err = s.buf.read(r); err != nil {
			return broken(err)
		}
		if e := s.message(ctx, msg, tooLarge); e.cause != "" {
			return e
		}
	} else {
		s.drop(reasonText)
	}
	if tooLarge || kind != websocket.BinaryMessage {
		s.conn.wire.setMessage(true) // the time in Handle does not count
		if err := s.buf.discard(r); err != nil {
			return broken(err)
		}
	}
	return ending{}
}

// message deals with one binary message, of which msg is only the beginning if it is too large. An
// ending with a cause ends the connection.
func (s *session) message(ctx context.Context, msg []byte, tooLarge bool) ending {
	env, drop := skim(msg)
	if tooLarge {
		s.m.drops[reasonTooLarge].Inc()
		s.logs.tooLarge.Do(func() {
			s.log.Warn("skipped a message over the size limit", "limit_bytes", maxMessageBytes, "type", env.typ, "seq", env.seq)
		})
		if drop != reasonNone || env.seq == 0 {
			return ending{}
		}
	}
	switch {
	case drop != reasonNone:
		s.drop(drop)
		return ending{}
	case env.op == opError:
		s.errorFrame(msg, env)
		return ending{}
	}
	s.m.frames[env.typ].Inc()
	s.m.bytes[env.typ].Add(float64(len(msg)))
	if env.typ == TypeInfo {
		s.info(msg, env)
		return ending{}
	}
	f := Frame{Seq: env.seq, Type: env.typ, Data: msg}
	if tooLarge {
		f.Data = nil
	}
	return s.frame(ctx, f, msg)
}

// drop notes that a message is dropped. An address where all are is no relay's.
func (s *session) drop(why reason) {
	s.m.drops[why].Inc()
	s.logs.dropped.Do(func() { s.log.Warn("dropped a message that is no frame", "reason", why.String()) })
}

// frame decides about a frame, which msg is or begins, and hands it over if it is new.
func (s *session) frame(ctx context.Context, f Frame, msg []byte) ending {
	now := time.Now()
	s.lastFrame.Store(now.UnixNano())
	if s.said.cause != "" {
		s.said = ending{}
		s.conn.failed.Stop()
	}
	last, below, suspected := s.num.last, s.num.below.frames, s.num.reset.on
	verdict, gap := s.num.frame(now, f.Seq, s.num.catchesUp(f.Seq) && otherEvent(s.buf.kept, msg))
	switch {
	case verdict == newEpoch:
		s.epochBegan(last)
		return ending{cause: causeNewEpoch}
	case !suspected && s.num.reset.on:
		s.resetSuspected(f.Seq)
	case suspected && !s.num.reset.on:
		s.resetDenied(last, f.Seq, below)
	}
	switch verdict {
	case repeat:
		s.m.repeats.Inc()
		return ending{}
	case resume:
		return ending{cause: causeResume}
	}
	f.Epoch, f.Gap = s.num.epoch, gap
	if gap != nil {
		s.m.gaps.Inc()
		s.m.missed.Add(float64(gap.Frames()))
		s.log.Warn("gap: frames may be lost", "from_epoch", gap.FromEpoch, "from_seq", gap.From,
			"to_epoch", gap.ToEpoch, "to_seq", gap.To)
	}
	s.buf.keep()
	err := s.cfg.Handle(ctx, f)
	s.blocked.Add(int64(time.Since(now)))
	if err != nil {
		return ending{cause: causeHandleError, err: fmt.Errorf("handle frame %d: %w", f.Seq, err)}
	}
	s.delivered = true
	s.lastSeq.Store(f.Seq)
	return ending{}
}

// errorFrame deals with an error frame. The protocol lets the relay close after it. One that does
// not is read on: what the error was about may be one message that it would send again.
func (s *session) errorFrame(msg []byte, env envelope) {
	name := clip(findText(msg, env.body, "error"), maxNameBytes)
	text := clip(findText(msg, env.body, "message"), maxTextBytes)
	if s.said.cause == "" {
		s.conn.failed.Reset(errorFrameWait)
	}
	s.said = ending{cause: causeErrorFrame, err: fmt.Errorf("the relay sent error frame %s: %s", name, text)}
	label := errorOther
	switch name {
	case errorFutureCursor:
		label, s.said.cause = name, causeFuture
		suspected := s.num.reset.on
		if s.futureCursor(); !suspected {
			s.armRecheck()
		}
	case errorTooSlow:
		label, s.said.cause = name, causeTooSlow
	}
	s.m.errors.WithLabelValues(label).Inc()
	s.logs.errorFrame.Do(func() { s.log.Warn("the relay sent an error frame", "name", name, "message", text) })
}

// info deals with an info frame. It changes nothing: what an outdated cursor has lost shows by the
// jump.
func (s *session) info(msg []byte, env envelope) {
	name := clip(findText(msg, env.body, "name"), maxNameBytes)
	label, level := "other", slog.LevelInfo
	if name == "OutdatedCursor" {
		label, level = name, slog.LevelWarn
	}
	s.m.infos.WithLabelValues(label).Inc()
	s.logs.info.Do(func() {
		text := clip(findText(msg, env.body, "message"), maxTextBytes)
		s.log.Log(context.Background(), level, "the relay sent an info frame", "name", name, "message", text)
	})
}

// futureCursor handles the error frame FutureCursor: the cursor is above all of the relay's
// numbers.
func (c *Client) futureCursor() {
	suspected, wished := c.num.reset.on, c.num.start
	c.num.futureCursor(time.Now())
	c.suspect.Store(c.num.reset.on)
	switch {
	case c.num.reset.on && !suspected:
		c.log.Error("the relay says that the cursor is in its future; it may have restarted its numbering",
			"epoch", c.num.epoch, "last_seq", c.num.last, "patience", c.num.patience)
	case wished != nil && c.num.start == nil:
		c.log.Error("the relay says that the wanted start is in its future; starting live")
	}
}

// resetSuspected notes that the frame seq makes a restart of the numbering possible.
func (s *session) resetSuspected(seq int64) {
	s.suspect.Store(true)
	s.armRecheck()
	s.logs.suspect.Do(func() {
		s.log.Warn("frames lie below the last one: they are repeats, or the relay restarted its numbering",
			"epoch", s.num.epoch, "last_seq", s.num.last, "seq", seq, "patience", s.num.patience)
	})
}

// resetDenied notes that the frame seq shows that the numbering did not restart.
func (s *session) resetDenied(last, seq, below int64) {
	s.suspect.Store(false)
	s.conn.recheck.Stop()
	s.logs.suspect.Do(func() {
		s.log.Info("the relay's numbers are at or above the last one again",
			"epoch", s.num.epoch, "last_seq", last, "seq", seq, "repeats", below)
	})
}

// epochBegan notes that a new epoch began.
func (s *session) epochBegan(last int64) {
	s.suspect.Store(false)
	s.epoch.Store(s.num.epoch)
	s.m.epochs.Inc()
	s.log.Error("the relay restarted its numbering: a new epoch begins",
		"epoch", s.num.epoch, "last_seq_before", last, "from_seq", s.num.last)
}

// armRecheck sets the timer that ends the connection, so that a new one shows whether the relay has
// its old numbering back.
func (s *session) armRecheck() {
	if d, ok := s.num.recheckIn(time.Now()); ok {
		s.conn.recheck.Reset(d)
	}
}

// logEnd says why a connection ended.
func (c *Client) logEnd(e ending, wait time.Duration) {
	level := slog.LevelWarn
	if e.cause == causeRecheck || e.cause == causeNewEpoch || e.cause == causeResume {
		level = slog.LevelInfo
	}
	attrs := []any{"host", c.url.Host, "cause", string(e.cause),
		"err", e.err, "up", e.up.Round(time.Millisecond), "retry_in", wait.Round(time.Millisecond)}
	if help := advice(e.err); help != "" && e.up == 0 {
		attrs = append(attrs, "advice", help)
	}
	c.log.Log(context.Background(), level, "not connected to relay", attrs...)
}

// String says it in one line.
func (e ending) String() string {
	if e.err == nil {
		return string(e.cause)
	}
	return string(e.cause) + ": " + e.err.Error()
}

// logLimits keep what a relay can repeat at will from flooding the log.
type logLimits struct{ dropped, info, errorFrame, tooLarge, suspect *rate.Sometimes }

func newLogLimits() logLimits {
	some := func() *rate.Sometimes { return &rate.Sometimes{First: 5, Interval: 10 * time.Second} }
	return logLimits{dropped: some(), info: some(), errorFrame: some(), tooLarge: some(), suspect: some()}
}

// clip returns the first maxBytes bytes of s as a string of valid UTF-8.
func clip[T string | []byte](s T, maxBytes int) string {
	if len(s) > maxBytes {
		return strings.ToValidUTF8(string(s[:maxBytes]), "\uFFFD") + "…"
	}
	return strings.ToValidUTF8(string(s), "\uFFFD")
}
