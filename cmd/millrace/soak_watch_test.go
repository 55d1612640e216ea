package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
)

// watcher subscribes again and again, each time from where its last connection ended, and keeps
// what it saw.
type watcher struct {
	r        *round
	name     string
	filter   soakFilter
	extended bool
	decode   func([]byte) ([]byte, error) // nil: plain
	further  url.Values
	updates  *updates // nil: the filter stays

	mu      sync.Mutex
	cursor  string // where the next connection begins; only run writes it
	lastUS  int64  // of the last event, when the cursor is a time; likewise
	events  []truthEvent
	gaps    map[soakGap]bool
	through int64 // time_us up to which heartbeats promise that all was sent
	err     error // the first thing that must not be
}

// newWatchers returns subscribers of every kind.
func newWatchers(r *round) []*watcher {
	decode := soakDecode(r.t)
	all := []*watcher{
		{name: "extended, all kinds, by position", extended: true, filter: soakFilter{kinds: strings.Split(allKinds, ",")}},
		{name: "v1, by time"},
		{name: "v1 compressed, likes, by time", decode: decode, filter: soakFilter{collections: []string{"app.bsky.feed.like"}}},
		{name: "extended compressed, a rare collection, by heartbeat", extended: true, decode: decode,
			filter: soakFilter{collections: []string{"app.bsky.graph.*"}, kinds: []string{"commit"}}, further: url.Values{"heartbeat": {"1"}}},
		{name: "extended, nothing but accounts, by heartbeat", extended: true,
			filter: soakFilter{kinds: []string{"account"}}, further: url.Values{"heartbeat": {"1"}}},
		{name: "extended, updating its options", extended: true,
			further: url.Values{"heartbeat": {"1"}}, updates: &updates{rng: rand.New(rand.NewPCG(r.plan.seed, 4))}},
	}
	if r.plan.trims {
		all = all[:len(all)-1] // its cursor stays behind for long where its filter passes little
	}
	for _, w := range all {
		w.r, w.cursor, w.gaps = r, "0", map[soakGap]bool{}
	}
	return all
}

func (w *watcher) failed(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.connect(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// connect reads one connection to its end.
func (w *watcher) connect(ctx context.Context) {
	q := w.filter.values()
	if w.updates != nil {
		w.mu.Lock()
		q = w.updates.connect(len(w.events)).values()
		w.mu.Unlock()
	}
	for k, v := range w.further {
		q[k] = v
	}
	q.Set("cursor", w.cursor)
	q.Set("extended", strconv.FormatBool(w.extended))
	q.Set("compress", strconv.FormatBool(w.decode != nil))
	if w.extended && w.r.plan.references {
		q.Set("references", "true")
	}
	conn, resp, err := websocket.DefaultDialer.DialContext(ctx, "ws://"+w.r.addr+"/subscribe?"+q.Encode(), nil)
	if err != nil {
		if resp != nil && resp.StatusCode == 400 {
			w.failed("cursor %s: %s", w.cursor, resp.Status)
		}
		return // not up yet, or killed
	}
	w.r.total.add("subscriptions", 1)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if w.updates != nil {
		ended := make(chan struct{})
		var updating sync.WaitGroup
		updating.Go(func() { w.updating(conn, ended) })
		defer updating.Wait()
		defer close(ended)
	}
	defer conn.Close()
	for first := true; ; {
		_, msg, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if w.decode != nil {
			if msg, err = w.decode(msg); err != nil {
				w.failed("decompress: %w", err)
				return
			}
		}
		if !isEvent(msg) {
			w.message(msg)
			continue
		}
		e := w.r.seen.parse(w.r.t, string(msg))
		if again := first && !w.extended && w.lastUS != 0; again {
			// A time is inclusive: the event it is of comes again.
			first = false
			if e.TimeUS != w.lastUS {
				w.failed("cursor %d began with %d", w.lastUS, e.TimeUS)
			}
			continue
		}
		first = false
		w.mu.Lock()
		w.cursor, w.lastUS = nextCursor(msg), e.TimeUS
		if e.TimeUS <= w.through && w.updates == nil && w.err == nil {
			w.err = fmt.Errorf("event %d came after a heartbeat that said that all up to %d had come", e.TimeUS, w.through)
		}
		w.events = append(w.events, e)
		w.mu.Unlock()
	}
}

// message takes an info message or a heartbeat.
func (w *watcher) message(msg []byte) {
	var m struct {
		Kind   string
		TimeUS int64 `json:"time_us"`
		Cursor string
		Info   struct {
			Name string
			soakGap
		}
	}
	if err := json.Unmarshal(msg, &m); err != nil {
		w.failed("%q: %w", msg, err)
		return
	}
	switch {
	case m.Kind == "heartbeat" && m.Cursor != "":
		w.mu.Lock()
		if w.updates == nil { // else what one filter left out the next may want
			w.cursor = m.Cursor
		}
		w.through = max(w.through, m.TimeUS)
		w.mu.Unlock()
		w.r.total.add("heartbeats gone on from", 1)
	case m.Info.Name == "gap":
		w.mu.Lock()
		w.gaps[m.Info.soakGap] = true
		w.mu.Unlock()
	case !w.extended:
		w.failed("a v1 subscriber was sent %s", msg)
	case strings.HasPrefix(m.Info.Name, "cursor_clamped"):
		w.failed("clamped, though nothing was trimmed: %s", msg)
	}
}

// waitFor waits until the watcher has seen the log and the gaps in it.
func (w *watcher) waitFor(t *testing.T, log []truthEvent, gaps []soakGap) {
	t.Helper()
	want := len(w.filter.apply(log, factsOf(t, log)))
	testwait.Becomes(soakSettle, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.updates != nil {
			return w.through >= log[len(log)-1].TimeUS || w.err != nil
		}
		return len(w.events) >= want && len(w.missed(gaps)) == 0 || w.err != nil
	})
}

// check holds what the watcher saw over all its connections, which are closed, against the log.
func (w *watcher) check(t *testing.T, log []truthEvent, gaps []soakGap) {
	t.Helper()
	if w.err != nil {
		t.Fatalf("subscriber (%s): %v", w.name, w.err)
	}
	var err error
	if w.updates != nil {
		err = w.updates.explain(w.events, log, factsOf(t, log))
	} else {
		err = sameEvents(w.events, asServed(w.filter.apply(log, factsOf(t, log)), w.extended))
	}
	if err != nil {
		t.Fatalf("subscriber (%s): %v", w.name, err)
	}
	if missed := w.missed(gaps); len(missed) > 0 {
		t.Errorf("subscriber (%s): did not get the gaps %v", w.name, missed)
	}
}

// missed returns the gaps that the watcher was not sent, and must be.
func (w *watcher) missed(gaps []soakGap) []soakGap {
	if !w.extended {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(gaps), func(g soakGap) bool { return w.gaps[g] })
}
