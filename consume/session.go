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

// Limits of what is logged of a relay's own words.
const (
	maxNameBytes = 64
	maxTextBytes = 200
)

// ending is how a connection ended, or why there was none.
type ending struct {
	cause cause
	err   error         // what there is to say of it; may be nil
	up    time.Duration // how long there was a connection
}

// session makes one connection and reads it to its end.
func (c *Client) session(ctx context.Context) ending {
	cursor, has := c.num.next()
	conn, err := c.dialer.open(ctx, withCursor(c.url, cursor, has))
	if err != nil {
		return c.notOpened(err)
	}
	c.num.opened()
	up := time.Now()
	c.setConnected(true, "")
	if has {
		c.log.Info("connected to relay", "host", c.url.Host, "epoch", c.num.epoch, "cursor", cursor)
	} else {
		c.log.Info("connected to relay, live", "host", c.url.Host, "epoch", c.num.epoch)
	}
	c.armRecheck(conn)
	e := c.read(ctx, conn)
	for c.cfg.Idle != nil && c.cfg.Idle() { // what came last must not wait for the next connection
	}
	switch e.cause {
	case causeLost, causeSilent, causePing, causeProtocol:
		conn.close(false)
	default:
		conn.close(true)
	}
	e.up = time.Since(up)
	c.setConnected(false, e.String())
	return e
}

// notOpened is the ending of a connection that could not be made.
func (c *Client) notOpened(err error) ending {
	e := ending{cause: causeDial, err: err}
	var refused *refusedError
	if errors.As(err, &refused) {
		e.cause = causeRefused
		if refused.name == errorFutureCursor {
			e.cause = causeFuture
			c.futureCursor()
		}
	}
	c.setConnected(false, e.String())
	return e
}

// read reads messages until the connection ends or must be given up.
func (c *Client) read(ctx context.Context, conn *conn) ending {
	for {
		if ctx.Err() != nil { // the buffer may hold many more messages
			return ending{cause: causeStopped}
		}
		if e := c.next(ctx, conn); e.cause != "" {
			return e
		}
	}
}

// next reads one message and deals with it. An ending with a cause ends the connection.
func (c *Client) next(ctx context.Context, conn *conn) ending {
	broken := func(err error) ending {
		why, err := conn.whyEnded(err)
		return ending{cause: why, err: err}
	}
	kind, r, err := conn.ws.NextReader()
	if err != nil {
		return broken(err)
	}
	tooLarge := false
	if kind == websocket.BinaryMessage {
		var msg []byte
		if msg, tooLarge, err = c.buf.read(r); err != nil {
			return broken(err)
		}
		if e := c.message(ctx, conn, msg, tooLarge); e.cause != "" {
			return e
		}
	} else {
		c.m.drops[reasonText].Inc()
	}
	if tooLarge || kind != websocket.BinaryMessage {
		if err := c.buf.discard(r, c.cfg.SilenceTimeout); err != nil {
			return broken(err)
		}
	}
	return ending{}
}

// message deals with one binary message, of which msg is only the beginning if it is too large. An
// ending with a cause ends the connection.
func (c *Client) message(ctx context.Context, conn *conn, msg []byte, tooLarge bool) ending {
	env, drop := skim(msg)
	if tooLarge {
		c.m.drops[reasonTooLarge].Inc()
		c.logs.tooLarge.Do(func() {
			c.log.Warn("skipped a message over the size limit", "limit_bytes", MaxMessageBytes, "type", env.typ, "seq", env.seq)
		})
		if drop != reasonNone || env.seq == 0 {
			return ending{}
		}
	}
	switch {
	case drop != reasonNone:
		c.m.drops[drop].Inc()
		return ending{}
	case env.op == opError:
		return c.errorFrame(msg, env)
	}
	c.m.frames[env.typ].Inc()
	c.m.bytes[env.typ].Add(float64(len(msg)))
	if env.typ == TypeInfo {
		c.info(msg, env)
		return ending{}
	}
	f := Frame{Seq: env.seq, Type: env.typ, Data: msg}
	if tooLarge {
		f.Data = nil
	}
	return c.frame(ctx, conn, f, msg)
}

// frame puts a frame, which msg is or begins, in its place in the numbering, and hands it over if it is
// new.
func (c *Client) frame(ctx context.Context, conn *conn, f Frame, msg []byte) ending {
	now := time.Now()
	c.lastFrame.Store(now.UnixNano())
	before := c.num.last
	r := c.num.frame(now, f.Seq, c.num.climbs(f.Seq) && otherEvent(c.buf.kept, msg))
	if r.began {
		c.suspected(conn, f.Seq)
	}
	if r.ended {
		c.cleared(conn, before, f.Seq)
	}
	switch r.verdict {
	case repeat:
		c.m.repeats.Inc()
		return ending{}
	case resume:
		return ending{cause: causeResume}
	case newEpoch:
		c.begunEpoch(before)
		return ending{cause: causeNewEpoch}
	}
	f.Epoch, f.Gap = c.num.epoch, r.gap
	if r.gap != nil {
		c.m.gaps.Inc()
		c.m.missed.Add(float64(r.gap.Frames()))
		c.log.Warn("gap: frames may be lost", "from_epoch", r.gap.FromEpoch, "from_seq", r.gap.From,
			"to_epoch", r.gap.ToEpoch, "to_seq", r.gap.To)
	}
	c.buf.keep()
	err := c.cfg.Handle(ctx, f)
	c.blocked.Add(int64(time.Since(now)))
	if err != nil {
		return ending{cause: causeHandleError, err: fmt.Errorf("handle frame %d: %w", f.Seq, err)}
	}
	c.lastSeq.Store(f.Seq)
	return ending{}
}

// errorFrame deals with an error frame, after which the protocol has the connection end.
func (c *Client) errorFrame(msg []byte, env envelope) ending {
	name := clip(findText(msg, env.body, "error"), maxNameBytes)
	text := clip(findText(msg, env.body, "message"), maxTextBytes)
	e := ending{cause: causeErrorFrame, err: fmt.Errorf("error frame %s: %s", name, text)}
	label := errorOther
	switch name {
	case errorFutureCursor:
		label, e.cause = name, causeFuture
		c.futureCursor()
	case errorTooSlow:
		label, e.cause = name, causeTooSlow
	}
	c.m.errors.WithLabelValues(label).Inc()
	return e
}

// info deals with an info frame. It changes nothing: what an outdated cursor has lost shows by the jump.
func (c *Client) info(msg []byte, env envelope) {
	name := clip(findText(msg, env.body, "name"), maxNameBytes)
	label, level := "other", slog.LevelInfo
	if name == "OutdatedCursor" {
		label, level = name, slog.LevelWarn
	}
	c.m.infos.WithLabelValues(label).Inc()
	c.logs.info.Do(func() {
		text := clip(findText(msg, env.body, "message"), maxTextBytes)
		c.log.Log(context.Background(), level, "info frame from relay", "name", name, "message", text)
	})
}

// futureCursor notes that the relay called our cursor one of the future.
func (c *Client) futureCursor() {
	began := c.num.futureCursor(time.Now())
	c.suspect.Store(c.num.suspect.on)
	switch {
	case began:
		c.log.Error("the relay says that our cursor is in its future; it may have restarted its numbering",
			"epoch", c.num.epoch, "last_seq", c.num.last, "patience", c.num.patience)
	case !c.num.have:
		c.log.Error("the relay says that the wanted start is in its future; starting live")
	}
}

// suspected notes that the frame seq began a suspicion.
func (c *Client) suspected(conn *conn, seq int64) {
	c.suspect.Store(true)
	c.armRecheck(conn)
	c.logs.suspect.Do(func() {
		c.log.Warn("a frame lies below the last one; repeats, or the relay restarted its numbering",
			"epoch", c.num.epoch, "last_seq", c.num.last, "seq", seq, "patience", c.num.patience)
	})
}

// cleared notes that the frame seq ended a suspicion.
func (c *Client) cleared(conn *conn, last, seq int64) {
	c.suspect.Store(false)
	conn.recheck.Stop()
	c.logs.suspect.Do(func() {
		c.log.Info("the relay's numbers are at or above the last one again",
			"epoch", c.num.epoch, "last_seq", last, "seq", seq, "repeats", c.num.suspect.frames)
	})
}

// begunEpoch notes that a new epoch began.
func (c *Client) begunEpoch(last int64) {
	c.suspect.Store(false)
	c.epoch.Store(c.num.epoch)
	c.m.epochs.Inc()
	c.log.Error("the relay restarted its numbering: a new epoch begins",
		"epoch", c.num.epoch, "last_seq_before", last, "from_seq", c.num.last, "seen_seqs", c.num.suspect.frames)
}

// armRecheck sets the timer that ends the connection of a suspected relay.
func (c *Client) armRecheck(conn *conn) {
	if d, ok := c.num.recheckIn(time.Now()); ok {
		conn.recheck.Reset(d)
	}
}

// logEnd says why a connection ended.
func (c *Client) logEnd(e ending, wait time.Duration) {
	level := slog.LevelWarn
	if e.cause == causeRecheck || e.cause == causeNewEpoch || e.cause == causeResume {
		level = slog.LevelInfo
	}
	attrs := []any{"host", c.url.Host, "cause", string(e.cause),
		"error", e.err, "up", e.up.Round(time.Millisecond), "retry_in", wait.Round(time.Millisecond)}
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
type logLimits struct{ info, tooLarge, suspect *rate.Sometimes }

func newLogLimits() logLimits {
	some := func() *rate.Sometimes { return &rate.Sometimes{First: 5, Interval: 10 * time.Second} }
	return logLimits{info: some(), tooLarge: some(), suspect: some()}
}

// clip returns the first maxBytes bytes of s as a string of valid UTF-8.
func clip[T string | []byte](s T, maxBytes int) string {
	if len(s) > maxBytes {
		return strings.ToValidUTF8(string(s[:maxBytes]), "\uFFFD") + "…"
	}
	return strings.ToValidUTF8(string(s), "\uFFFD")
}
