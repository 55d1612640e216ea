package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"
)

// baselineServer replays a store laid out as Jetstream's over websockets as Jetstream does:
// everything from the cursor on is looked at and what passes is copied by one goroutine; another
// makes one write of each event, with a deadline. Both ask a limiter for each; Jetstream's let
// 50,000 and 5,000 events/s pass, these let all.
type baselineServer struct {
	store *jetstreamStore
	http  *http.Server
	addr  string

	stopping chan struct{}
	running  sync.WaitGroup // http, and replays of clients that came before stop
}

// startBaseline opens the store in dir and serves it on a port of the loopback address.
func startBaseline(dir string) (*baselineServer, error) {
	store, err := openJetstreamStore(dir)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s := &baselineServer{store: store, addr: ln.Addr().String(), stopping: make(chan struct{})}
	s.http = &http.Server{Handler: http.HandlerFunc(s.subscribe)} //nolint:gosec // its only client is ours
	s.running.Go(func() { _ = s.http.Serve(ln) })                 // until stop
	return s, nil
}

// stop ends replays and closes the store.
func (s *baselineServer) stop() error {
	close(s.stopping)
	err := s.http.Close()
	s.running.Wait() // http knows nothing of hijacked connections
	return errors.Join(err, s.store.Close())
}

// baselineFilter is what v1 looks at for each event.
type baselineFilter struct {
	dids, collections map[string]struct{} // empty: all
}

func (f *baselineFilter) passes(e *jetstreamEvent) bool {
	if len(f.dids) > 0 {
		if _, ok := f.dids[string(e.did)]; !ok {
			return false
		}
	}
	if len(f.collections) > 0 && e.collection != nil {
		if _, ok := f.collections[string(e.collection)]; !ok {
			return false
		}
	}
	return true
}

func (s *baselineServer) subscribe(w http.ResponseWriter, r *http.Request) {
	f := baselineFilter{dids: map[string]struct{}{}, collections: map[string]struct{}{}}
	compressed, opcode := false, websocket.TextMessage
	var cursor int64
	// Not url.Values: there may be more parameters than they take. No value of ours is escaped.
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "wantedDids":
			f.dids[value] = struct{}{}
		case "wantedCollections":
			f.collections[value] = struct{}{}
		case "compress":
			compressed, opcode = true, websocket.BinaryMessage
		case "cursor":
			cursor, _ = strconv.ParseInt(value, 10, 64) // 0 is the oldest
		}
	}
	up := websocket.Upgrader{ReadBufferSize: 10 << 10, WriteBufferSize: 10 << 10}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	outbox, gone := make(chan []byte, jetstreamOutbox), make(chan struct{})
	s.running.Go(func() {
		defer close(outbox)
		reads := rate.NewLimiter(noPace, noPace)
		// A failed replay shows as events that the client waits for.
		_ = s.store.Replay(compressed, cursor, func(e *jetstreamEvent) error {
			if err := reads.Wait(r.Context()); err != nil {
				return err
			}
			if !f.passes(e) {
				return nil
			}
			select {
			case outbox <- bytes.Clone(e.payload):
				return nil
			case <-gone:
			case <-s.stopping:
			}
			return net.ErrClosed
		})
	})
	// A failed write is the client's end.
	writes := rate.NewLimiter(noPace, noPace)
	for payload := range outbox {
		if err = writes.Wait(r.Context()); err == nil {
			err = ws.SetWriteDeadline(time.Now().Add(jetstreamWriteTimeout))
		}
		if err == nil {
			err = ws.WriteMessage(opcode, payload)
		}
		if err != nil {
			break
		}
	}
	close(gone)
	// Jetstream would go live. This one says that it is through, and waits until the client leaves.
	_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	_, _, _ = ws.ReadMessage()
}

// wanted makes the query for these DIDs and collections, from the oldest event on.
func wanted(dids, collections []string, more ...string) string {
	var q strings.Builder
	q.WriteString("cursor=0")
	for _, d := range dids {
		q.WriteString("&wantedDids=" + d)
	}
	for _, c := range collections {
		q.WriteString("&wantedCollections=" + c)
	}
	for _, m := range more {
		q.WriteString("&" + m)
	}
	return q.String()
}

// withBaseline runs f against the baseline.
func (b *replayBench) withBaseline(ctx context.Context, f func(ctx context.Context, addr string) error) error {
	if err := readCached(b.baselineDir()); err != nil {
		return err
	}
	s, err := startBaseline(b.baselineDir())
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, s.addr), s.stop())
}
