package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/public/client"
)

const (
	tailHeartbeat = 2 * time.Second
	// endGrace is how long after --until its last events may still be on their way.
	endGrace = 2 * time.Second
	// endQuiet is how long a server that does not say that it is live has to be quiet. One of
	// several that hangs is left before.
	endQuiet = 7 * time.Second
)

func (c *tailConfig) run(ctx context.Context, _ []string, stdout, stderr io.Writer) error {
	// With the pipe's reader gone a write is to fail, not to end the process with a signal.
	signal.Ignore(syscall.SIGPIPE)
	t := &tailer{
		cfg: c, stderr: stderr, out: lineWriter{out: stdout},
		readable: c.pretty || !c.json && isTerminal(stdout),
		form:     form{colour: wantsColour() && isTerminal(stdout), zone: time.Local},
		progress: progress{now: time.Now}, end: c.end,
	}
	if isTerminal(stderr) {
		t.progress.w = stderr
	}
	return t.run(ctx)
}

// errTailDone ends the subscription: all that was asked for is printed.
var errTailDone = errors.New("done")

// tailer prints one subscription. One goroutine uses it but for what is atomic.
type tailer struct {
	cfg      *tailConfig
	stderr   io.Writer
	out      lineWriter
	readable bool
	form     form
	progress progress
	line     []byte // scratch

	end     end
	done    context.CancelCauseFunc // ends the subscription
	newest  func() (int64, error)   // stamp of the server's newest event; 0: its log is empty
	at      func() string           // the client's cursor
	printed int64
	cursor  string      // after what was printed
	file    *cursorFile // nil: none
	skipUS  int64       // events without a position up to here were printed by an earlier run
	failed  error       // of the output

	noted      string       // in file
	live       atomic.Bool  // the server says that all it has was sent
	millrace   atomic.Bool  // the server has sent what only a millrace sends
	quietSince atomic.Int64 // Unix nanoseconds; 0: there is no connection; math.MaxInt64: it is not quiet
}

func (t *tailer) run(ctx context.Context) error {
	cfg, err := t.cfg.clientConfig()
	if err != nil {
		return err
	}
	if cfg.Cursor, err = t.start(); err != nil {
		return err
	}
	cfg.OnInfo, cfg.OnWait, cfg.OnDisconnect = t.inform, t.wait, t.disconnected
	c, err := client.New(cfg)
	if err != nil {
		return usageError{err}
	}
	if t.cfg.asksServer() {
		newest, err := askNewest(ctx, c, t.stderr, cfg.NoReconnect, t.end.timeUS)
		if err != nil {
			return t.ended(ctx, err)
		}
		if newest == 0 && t.cfg.v2 {
			return nil // nothing on that wire says that the log is empty
		}
		if t.cfg.until != "now" { // which is the server's
			newest = min(newest, t.end.timeUS)
		}
		t.end.timeUS = newest
	}
	following, done := context.WithCancelCause(ctx)
	t.done, t.at = done, c.Cursor
	t.newest = func() (int64, error) { return askNewest(following, c, t.stderr, true, math.MaxInt64) }
	var watching sync.WaitGroup
	watching.Go(func() { t.watchEnd(following) })
	err = t.follow(following, c)
	done(nil)
	watching.Wait()
	t.flush()
	t.progress.erase()
	err = t.ended(ctx, err)
	if t.file != nil {
		err = errors.Join(err, t.file.close())
	}
	return err
}

// start says where to start: where the last run ended, or as the flags say.
func (t *tailer) start() (string, error) {
	if t.cfg.cursorFile == "" {
		return t.cfg.client.Cursor, nil
	}
	t.file = &cursorFile{name: t.cfg.cursorFile}
	kept, err := readCursorFile(t.cfg.cursorFile)
	if err == nil && t.cfg.v2 && strings.Contains(kept, "-") {
		err = fmt.Errorf("--cursor-file: %s holds a position, %.60q, which v2's wire does not have; name another file", t.file.name, kept)
	}
	if err == nil {
		err = checkCursorFile(t.cfg.cursorFile)
	}
	if err != nil || kept == "" {
		return t.cfg.client.Cursor, err
	}
	// A time is inclusive, a position is not.
	t.skipUS, _ = parseMicros(kept)
	return kept, nil
}

// follow prints until the end, or an error.
func (t *tailer) follow(ctx context.Context, c *client.Client) error {
	for e, err := range c.Events(ctx) {
		if err != nil {
			return t.advise(err)
		}
		// It is quiet again once all that came is printed, however long that takes.
		t.quietSince.Store(math.MaxInt64)
		if !t.cfg.v2 { // there each event has a seq
			t.millrace.Store(e.Cursor != "")
		}
		switch {
		case e.TimeUS <= t.skipUS:
			continue
		case e.TimeUS > t.end.timeUS:
			return nil
		case (e.Cursor == "" || t.cfg.v2) && t.end.live && t.end.timeUS == math.MaxInt64 && e.TimeUS > t.cfg.now.UnixMicro():
			return nil // a plain Jetstream says neither that it is live nor where its log ends
		}
		t.print(&e)
		if t.printed++; t.printed == t.cfg.count {
			return nil
		}
	}
	return nil
}

// advise says what to do about a cursor that a server does not take, if it is our file's.
func (t *tailer) advise(err error) error {
	if refused, ok := errors.AsType[*client.RefusedError](err); ok && t.file != nil && refused.Status == http.StatusBadRequest && strings.Contains(refused.Reason, "cursor") {
		return fmt.Errorf("%w; if %s is of another server's log, remove it, or name another --cursor-file", err, t.file.name)
	}
	return err
}

func (t *tailer) print(e *client.Event) {
	switch {
	case t.readable:
		t.line = t.form.appendEvent(t.line[:0], e)
	case t.cfg.extended:
		t.line = append(append(t.line[:0], e.Raw...), '\n')
	default:
		t.line = append(e.AppendPlain(t.line[:0]), '\n')
	}
	t.progress.see(e.TimeUS, 1)
	t.write(t.line, cmp.Or(e.Cursor, strconv.FormatInt(e.TimeUS, 10)))
}

// write prints a line. The cursor is that after it.
func (t *tailer) write(line []byte, cursor string) {
	if len(t.out.held)+len(line) > tailBuffer {
		t.flush()
	}
	t.out.hold(line, cursor)
	t.cursor = cursor
}

// wait is called when there is a connection, and whenever nothing more has come over it.
func (t *tailer) wait() {
	t.flush()
	if since := t.quietSince.Load(); since == 0 || since == math.MaxInt64 {
		t.quietSince.Store(time.Now().UnixNano())
	}
}

// flush writes out what is printed, and notes how far that is.
func (t *tailer) flush() {
	if len(t.out.held) > 0 {
		t.progress.erase() // maybe to the same terminal
	}
	cursor := t.cursor
	if whole, err := t.out.flush(); err != nil {
		cursor = cmp.Or(whole, t.noted)
		t.failed = cmp.Or(t.failed, err)
	}
	if t.file != nil && cursor != t.noted {
		t.noted = cursor
		t.failed = cmp.Or(t.failed, t.file.note(cursor))
	}
	if t.failed != nil && t.done != nil {
		t.done(t.failed)
	}
	t.progress.draw()
}

// inform takes what the server says besides events.
func (t *tailer) inform(i client.Info) {
	if !t.cfg.v2 || i.Name == client.InfoHeartbeat || i.Name == client.InfoReferencesBegin {
		t.millrace.Store(true) // Jetstream v2 sends the others, too
	}
	if i.Name == client.InfoHeartbeat || i.Name == client.InfoLive || i.Name == client.InfoGoingAway {
		t.progress.see(i.TimeUS, 0)
		if i.Cursor != "" && i.TimeUS <= t.end.timeUS {
			t.cursor = t.at() // nothing that is wanted came before that
		}
	}
	dated := i.TimeUS > 0 && i.Name != client.InfoReferencesBegin // whose place may lie ahead
	switch {
	case i.Name == client.InfoHeartbeat: // the client's own
	case dated && i.TimeUS > t.end.timeUS: // of a later window
	case t.cfg.extended && !t.readable:
		t.write(append(i.Raw, '\n'), t.cursor)
	case i.Name == client.InfoClamped || i.Name == client.InfoGap || i.Name == client.InfoReferencesBegin || i.Name == client.InfoLeftOut:
		t.say("%s", describe(i))
	}
	if i.Name == client.InfoLive {
		t.live.Store(true)
	}
	if dated && i.TimeUS >= t.end.timeUS || i.Name == client.InfoLive && t.end.live || t.exhausts(i) {
		t.done(errTailDone)
	}
}

// exhausts says whether i is a heartbeat of v2's wire that covers the whole log, after --until has
// passed.
func (t *tailer) exhausts(i client.Info) bool {
	if !t.cfg.v2 || i.Name != client.InfoHeartbeat || !t.end.passed(time.Now()) {
		return false
	}
	newest, err := t.newest()
	return err == nil && i.TimeUS >= newest
}

// describe says what is missing.
func describe(i client.Info) string {
	if i.Name == client.InfoGap {
		return fmt.Sprintf("the relay may have lost events between %s and %s", i.From, i.To)
	}
	if i.Name == client.InfoLeftOut {
		return fmt.Sprintf("%d events that failed verification were left out", i.LeftOut)
	}
	if i.Name == client.InfoReferencesBegin {
		return fmt.Sprintf("what records point at is known from %s on: events before that do not match", i.Cursor)
	}
	if i.Requested == "" {
		return i.Message // v2's wire
	}
	if i.OldestUS == 0 {
		return "the server's log is empty: its first event will be the first here"
	}
	return fmt.Sprintf("the server's log begins at %s (%d), after %s: what was before is not there",
		time.UnixMicro(i.OldestUS).Format(time.DateTime), i.OldestUS, i.Requested)
}

func (t *tailer) disconnected(err error, wait time.Duration) {
	t.live.Store(false)
	t.quietSince.Store(0)
	if wait == 0 {
		t.say("%v; going on with another server", err)
		return
	}
	t.say("%v; connecting again in %.1f s", err, wait.Seconds())
}

// say writes a line for people.
func (t *tailer) say(format string, args ...any) {
	t.progress.erase()
	printLine(t.stderr, "millrace tail: "+format, args...)
}

// watchEnd ends the subscription once --until has passed and nothing more can come, though no event
// says so.
func (t *tailer) watchEnd(ctx context.Context) {
	if t.end.never() {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(endGrace / 8):
		}
		now := time.Now()
		if !t.end.passed(now) {
			continue
		}
		since := t.quietSince.Load()
		quiet := now.Sub(time.Unix(0, since))
		if t.live.Load() && quiet > endGrace || !t.millrace.Load() && since > 0 && quiet > endQuiet {
			t.done(errTailDone)
			return
		}
	}
}

// ended says how the process ends.
func (t *tailer) ended(ctx context.Context, err error) error {
	switch {
	case errors.Is(t.failed, syscall.EPIPE):
		return nil // head has what it wants
	case t.failed != nil && t.out.torn:
		return fmt.Errorf("write events: %w; the output ends within a line: cut it after its last newline", t.failed)
	case t.failed != nil:
		return fmt.Errorf("write events: %w", t.failed)
	case err == nil || errors.Is(err, errTailDone):
		return nil
	case ctx.Err() == nil:
		return err
	case t.cfg.count == 0 && t.cfg.until == "":
		return nil // that is how it ends
	}
	return exitCode(exitInterrupted)
}
