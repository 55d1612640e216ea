package viewapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"millrace/replay/references"
	"millrace/translate"
)

// Log is what an API needs of the log; *replay.Log is one.
type Log interface {
	StreamOfEpoch(epoch uint32) translate.Stream
	EpochOfStream(stream translate.Stream) (epoch uint32, ok bool)
	LastChange(frame references.Position) references.Position
}

// At is the position that a view must have reached before it answers.
type At struct {
	position *translate.Position // nil: wherever it is
	frame    references.Position // of position, or the last change before it; after Await
	wait     time.Duration
}

// View is the part of the stream whose events a view knows.
type View struct {
	Since    references.Position // the last frame before the part
	Position references.Position // the last frame of the part
	Inexact  int64               // Unix microseconds since when deletes may be missing; 0: none is
}

// Headers of answers: the members of a View.
const (
	headerSince   = "Millrace-View-Since"
	headerCursor  = "Millrace-View-Cursor"
	headerInexact = "Millrace-Inexact-Since"
)

// Beyond says whether the request wants a view that is further than a position.
func (at *At) Beyond(p references.Position) bool { return at.position != nil && p.Before(at.frame) }

// Await waits, as long as the request allows, until a view has come to its position. wait returns
// when that is so, or its context is done. Reached says then whether the view has come there.
func (a *API) Await(ctx context.Context, at *At, wait func(context.Context, references.Position) error) error {
	if at.position == nil {
		return nil
	}
	epoch, ok := a.cfg.Log.EpochOfStream(at.position.Stream)
	if !ok {
		return Invalid("at: the stream of %v is unknown to this server", at.position)
	}
	// A heartbeat's cursor may be after the last change, where views stay.
	at.frame = a.cfg.Log.LastChange(references.Position{Epoch: epoch, Seq: at.position.Seq})
	waiting, cancel := context.WithTimeout(ctx, at.wait)
	defer cancel()
	if err := wait(waiting, at.frame); err != nil && waiting.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// Reached sets the headers that say where a view is. It returns an error if the request wants one
// that is further.
func (a *API) Reached(h http.Header, at *At, v View) error {
	cursor := a.cursorOf(v.Position)
	h.Set(headerSince, a.cursorOf(v.Since))
	h.Set(headerCursor, cursor)
	if v.Inexact != 0 {
		h.Set(headerInexact, strconv.FormatInt(v.Inexact, 10))
	}
	if at.Beyond(v.Position) {
		return &Error{http.StatusPreconditionFailed, ErrNotReached,
			fmt.Sprintf("at: the answer is known up to %s, and not to %v: try again later, or wait with wait=<milliseconds>", cursor, at.position)}
	}
	return nil
}

// cursorOf returns the cursor after all operations of a frame.
func (a *API) cursorOf(frame references.Position) string {
	return translate.Position{Stream: a.cfg.Log.StreamOfEpoch(frame.Epoch), Seq: frame.Seq, Op: math.MaxUint32}.String()
}
