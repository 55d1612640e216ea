package linksapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"millrace/replay/links"
	"millrace/replay/references"
	"millrace/translate"
)

// Log gives sources, and streams, their numbers; *replay.Log is one.
type Log interface {
	FindSource(source string) (number uint32, ok bool)
	SourceOf(number uint32) (source string, ok bool)
	StreamOfEpoch(epoch uint32) translate.Stream
	EpochOfStream(stream translate.Stream) (epoch uint32, ok bool)
}

// Headers of answers: behind which position links are known, up to which they are, and since when
// (Unix microseconds) deletes may be missing.
const (
	headerSince   = "Millrace-View-Since"
	headerCursor  = "Millrace-View-Cursor"
	headerInexact = "Millrace-Inexact-Since"
)

// await waits, as long as q allows, until links have come to q.at. The caller asks the view whether
// they have.
func (a *API) await(ctx context.Context, q *query) error {
	if q.at == nil {
		return nil
	}
	epoch, ok := a.cfg.Log.EpochOfStream(q.at.Stream)
	if !ok {
		return invalidRequest("at: the stream of %v is unknown to this server", q.at)
	}
	q.frame = references.Position{Epoch: epoch, Seq: q.at.Seq}
	waiting, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	if err := a.cfg.Links.Wait(waiting, q.frame); err != nil && waiting.Err() == nil {
		return err
	}
	return ctx.Err()
}

// view returns links as they are, which is at or behind q.at, with the headers that say so.
func (a *API) view(h http.Header, q *query) (links.View, error) {
	v, err := a.cfg.Links.View()
	if errors.Is(err, links.ErrBuilding) {
		return nil, &apiError{http.StatusServiceUnavailable, errBuilding,
			fmt.Sprintf("the links are not complete yet, %v: try again later", a.cfg.Links.Progress())}
	}
	if err != nil {
		return nil, err
	}
	cursor := a.cursorOf(v.Position())
	h.Set(headerSince, a.cursorOf(a.cfg.Links.Since()))
	h.Set(headerCursor, cursor)
	if us := a.cfg.Links.InexactSince(); us != 0 {
		h.Set(headerInexact, strconv.FormatInt(us, 10))
	}
	if q.at != nil && v.Position().Before(q.frame) {
		return nil, errors.Join(v.Close(), &apiError{http.StatusPreconditionFailed, errNotReached,
			fmt.Sprintf("at: links have come to %s, and not to %v", cursor, q.at)})
	}
	return v, nil
}

// cursorOf returns the cursor behind all operations of a frame.
func (a *API) cursorOf(frame references.Position) string {
	return translate.Position{Stream: a.cfg.Log.StreamOfEpoch(frame.Epoch), Seq: frame.Seq, Op: math.MaxUint32}.String()
}
