package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// jetstreamQuery is what a subscriber asks for.
type jetstreamQuery struct {
	dids, collections map[string]bool // empty: all
	compressed        bool
	cursor            int64 // negative: live
}

func newJetstreamQuery(v url.Values) jetstreamQuery {
	set := func(of []string) map[string]bool {
		m := make(map[string]bool, len(of))
		for _, name := range of {
			m[name] = true
		}
		return m
	}
	q := jetstreamQuery{dids: set(v["wantedDids"]), collections: set(v["wantedCollections"]), compressed: v.Has("compress"), cursor: -1}
	if v.Has("cursor") {
		q.cursor, _ = strconv.ParseInt(v.Get("cursor"), 10, 64) // 0 is the oldest
	}
	return q
}

// matches is what v1 looks at for each event.
func (q *jetstreamQuery) matches(e *jetstreamEvent) bool {
	return (len(q.dids) == 0 || q.dids[string(e.did)]) &&
		(len(q.collections) == 0 || e.collection == nil || q.collections[string(e.collection)])
}

// subscribe serves one subscriber: live and unfiltered, or a replay.
func (j *jetstream) subscribe(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{ReadBufferSize: 10 << 10, WriteBufferSize: 10 << 10}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	q := newJetstreamQuery(r.URL.Query())
	outbox, gone := make(chan []byte, jetstreamOutbox), make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer close(gone)
		for {
			if _, _, err := ws.ReadMessage(); err != nil {
				return
			}
		}
	})
	if q.cursor < 0 {
		j.mu.Lock()
		j.outboxes[outbox] = gone
		j.mu.Unlock()
	} else {
		running.Go(func() { j.replay(r.Context(), &q, outbox, gone) })
	}
	j.write(r.Context(), ws, &q, outbox, gone)
	ws.Close()
	running.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.outboxes, outbox)
}

// write writes what comes into the outbox, each by a write of its own, until the client is gone or
// the outbox is closed.
func (j *jetstream) write(ctx context.Context, ws *websocket.Conn, q *jetstreamQuery, outbox <-chan []byte, gone <-chan struct{}) {
	opcode := websocket.TextMessage
	if q.compressed {
		opcode = websocket.BinaryMessage
	}
	for {
		select {
		case <-gone:
			return
		case payload, ok := <-outbox:
			if !ok { // a replay is through
				_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
				<-gone
				return
			}
			if j.pace.Wait(ctx) != nil || ws.SetWriteDeadline(time.Now().Add(jetstreamWriteTimeout)) != nil || ws.WriteMessage(opcode, payload) != nil {
				return
			}
		}
	}
}

// replay looks at everything from the cursor on, and puts what passes into the outbox. A failure
// shows as events that the client waits for.
func (j *jetstream) replay(ctx context.Context, q *jetstreamQuery, outbox chan<- []byte, gone <-chan struct{}) {
	defer close(outbox)
	_ = j.store.Replay(q.compressed, q.cursor, func(e *jetstreamEvent) error {
		if err := j.pace.Wait(ctx); err != nil {
			return err
		}
		if !q.matches(e) {
			return nil
		}
		select {
		case outbox <- bytes.Clone(e.payload):
			return nil
		case <-gone:
			return net.ErrClosed
		}
	})
}
