package public

import (
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"millrace/replay"
)

// closeTrimmed is our own close code: retention trimmed away what the subscriber would have read
// next.
const closeTrimmed = 4001

// Reasons for an ending, as the metric names them.
const (
	endClientClose  = "client_close"
	endClientGone   = "client_gone"
	endProtocol     = "protocol_error"
	endTooBig       = "message_too_big"
	endInvalid      = "invalid_message"
	endSlowMessage  = "message_timeout"
	endFlood        = "inbound_flood"
	endSlow         = "slow"
	endSilent       = "no_pong"
	endTrimmed      = "trimmed"
	endOverloaded   = "overloaded"
	endShutdown     = "shutdown"
	endLogFailure   = "log_failure"
	endWriteFailure = "write_failure"
)

// ending says why and how a connection ends.
type ending struct {
	reason string // for metrics and the log
	// code and text go into the close frame; code 0: abrupt. Recoverable endings have one only with
	// extended=true.
	code        int
	text        string
	recoverable bool
	// frame, if set, is sent instead: gorilla made it.
	frame []byte
	// patience is how long the chunk that is being written may take. If it is 0, only the frame
	// that is being written is finished.
	patience time.Duration
	at       time.Time // set by subscriber.end
	// reset: the client takes nothing. What the kernel still holds for it is given up.
	reset bool
	// dead: nothing can be sent.
	dead bool
}

func endingOfReaderError(err error) ending {
	switch {
	case errors.Is(err, replay.ErrTrimmed):
		return ending{reason: endTrimmed, code: closeTrimmed, text: "the log has trimmed this place", recoverable: true}
	case errors.Is(err, replay.ErrClosed):
		return shutdownEnding(0)
	default:
		return ending{reason: endLogFailure, code: websocket.CloseInternalServerErr, text: "the log cannot be read", recoverable: true}
	}
}

func shutdownEnding(patience time.Duration) ending {
	return ending{
		reason: endShutdown, code: websocket.CloseServiceRestart, text: "the server is shutting down",
		recoverable: true, patience: patience,
	}
}

func slowEnding(timeout time.Duration) ending {
	return ending{
		reason: endSlow, code: websocket.CloseTryAgainLater,
		text: fmt.Sprintf("nothing was taken for %v: too slow", timeout), recoverable: true, reset: true,
	}
}

func overloadedEnding(text string) ending {
	return ending{reason: endOverloaded, code: websocket.CloseTryAgainLater, text: text, recoverable: true}
}

func invalidEnding(err error) ending {
	return ending{reason: endInvalid, code: websocket.CloseNormalClosure, text: err.Error()}
}

func policyEnding(reason, text string) ending {
	return ending{reason: reason, code: websocket.ClosePolicyViolation, text: text}
}

// closeFrame returns the frame to send last, nil for none.
func (e *ending) closeFrame(extended bool) []byte {
	switch {
	case e.frame != nil:
		return e.frame
	case e.code == 0 || e.recoverable && !extended:
		return nil
	}
	return newCloseFrame(e.code, e.text)
}

// v2Frame is closeFrame of v2's wire: an error frame, if the client should come back.
func (e *ending) v2Frame(m *messages) []byte {
	switch {
	case e.frame != nil || !e.recoverable:
		return e.closeFrame(false)
	case e.reason == endShutdown:
		return newCloseFrame(websocket.CloseGoingAway, "server shutting down")
	case e.reason == endLogFailure:
		return m.appendV2Error(nil, "InternalError", e.text)
	case e.text != "":
		return m.appendV2Error(nil, "ConsumerTooSlow", e.text)
	}
	return nil
}
