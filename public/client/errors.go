package client

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// Errors that callers distinguish.
var (
	// ErrRunning is what a second iteration at the same time ends with.
	ErrRunning = errors.New("client: its events are being read already")
	// ErrSilent ends a connection over which nothing was heard for too long.
	ErrSilent = errors.New("nothing was heard")
	// ErrLag ends a connection to a server that is behind another one.
	ErrLag = errors.New("the server lags")
	// ErrDictionary says that an event cannot be decompressed, because its dictionary is not to be
	// had.
	ErrDictionary = errors.New("no dictionary")
	// ErrTooLarge says that an event is larger than any can be.
	ErrTooLarge = errors.New("message is too large")
	// ErrUnreadable says that a message is not what a server sends: twice, the second time over a
	// connection of its own.
	ErrUnreadable = errors.New("message cannot be read")
)

// errOutdated ends a strict subscription on Jetstream v2's wire, whose server clamps times.
var errOutdated = errors.New("the cursor is older than the server's log")

// errOwnSeqs is why a server of Jetstream v2's wire is passed over: no other server has its seqs.
var errOwnSeqs = errors.New("the server is no millrace, and its seqs are its own: of several servers on Jetstream v2's wire, each must be a millrace")

// errNewOptions ends a connection of Jetstream v2's wire, whose options are those of its request.
var errNewOptions = errors.New("the options have changed")

// errLeft ends a connection because the caller has left the loop.
var errLeft = errors.New("the loop was left")

// maxErrorBytes is how much of an error's text is kept.
const maxErrorBytes = 4 << 10

// longError is an error with too long a text, most of which is the server's.
type longError struct{ err error }

func (e *longError) Error() string {
	return strings.ToValidUTF8(e.err.Error()[:maxErrorBytes], "") + "…"
}

func (e *longError) Unwrap() error { return e.err }

// RefusedError is a server's answer to the handshake that is no subscription.
type RefusedError struct {
	Status     int           // of HTTP
	Reason     string        // the server's own words, or where it sends us
	RetryAfter time.Duration // 0: the server named no time
}

func (e *RefusedError) Error() string {
	said := fmt.Sprintf("the server refused: %d %s", e.Status, http.StatusText(e.Status))
	if e.Reason == "" {
		return said
	}
	return said + ": " + e.Reason
}

// permanent says whether asking again would change nothing.
func (e *RefusedError) permanent() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return e.Status < 500
}

// ClosedError is a connection that the server has ended, and has said why.
type ClosedError struct {
	Code   int // RFC 6455, section 7.4; 4001: the log trimmed its place
	Reason string
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("the server ended the connection: %d %s", e.Code, e.Reason)
}

// permanent says whether connecting again would only lead to the same end.
func (e *ClosedError) permanent() bool {
	switch e.Code {
	case websocket.CloseNormalClosure: // so a server says that the options are wrong
		return e.Reason != ""
	case websocket.CloseUnsupportedData, websocket.ClosePolicyViolation, websocket.CloseMessageTooBig, websocket.CloseMandatoryExtension:
		return true
	}
	return false
}

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = 10 * time.Minute

// parseRetryAfter reads seconds or an HTTP date (RFC 9110, section 10.2.3), 0 for neither.
func parseRetryAfter(s string, now time.Time) time.Duration {
	d := time.Duration(0)
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		d = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(s); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// isPermanent says whether err ends the subscription.
func isPermanent(err error) bool {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.permanent()
	}
	if closed, ok := errors.AsType[*ClosedError](err); ok {
		return closed.permanent()
	}
	return errors.Is(err, ErrDictionary) || errors.Is(err, ErrTooLarge) || errors.Is(err, errOutdated) || errors.Is(err, errOwnSeqs)
}

// isRefusal says whether err is the answer to a handshake; a dictionary may be refused, too.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*RefusedError](err)
	return ok && !errors.Is(err, ErrDictionary)
}

// badRequest returns what the server says is wrong with the request; "": err is no such answer.
func badRequest(err error) (reason string) {
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Status == http.StatusBadRequest {
		return refused.Reason
	}
	return ""
}

// retryAfter is how long the server wants to be left alone.
func retryAfter(err error) time.Duration {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.RetryAfter
	}
	return 0
}
