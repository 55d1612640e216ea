package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gorilla/websocket"
)

// A watcher that updates its options sees, on each connection, what one filter after the other lets
// through. At which event an update takes effect is the server's to say, but each event is judged
// by exactly one filter.

// updateFilters are those that such a watcher draws from. They overlap in all ways, so that an
// event that is judged by none or by two of them shows.
var updateFilters = []soakFilter{
	{collections: []string{"app.bsky.feed.like"}},
	{collections: []string{"app.bsky.feed.post", "app.bsky.feed.like"}},
	{collections: []string{"app.bsky.graph.*"}},
	{},
	{collections: []string{"app.bsky.feed.repost"}},
}

// updateEvery is a little more than a second: servers take one update a second.
const updateEvery = 1100 * time.Millisecond

// updates is what an updating watcher asked for. The watcher's mutex guards it.
type updates struct {
	rng   *rand.Rand
	conns []updatedConn
}

// updatedConn is one connection of such a watcher.
type updatedConn struct {
	first int // how many events were seen before it
	asked []askedFilter
}

// askedFilter is a filter and how many events had been seen when it was asked for.
type askedFilter struct {
	filter soakFilter
	seen   int
}

// connect draws the filter that a new connection begins with, seen events having been seen.
func (u *updates) connect(seen int) soakFilter {
	u.conns = append(u.conns, updatedConn{first: seen})
	return u.ask(seen)
}

// ask draws the next filter of the newest connection.
func (u *updates) ask(seen int) soakFilter {
	f := updateFilters[u.rng.IntN(len(updateFilters))]
	c := &u.conns[len(u.conns)-1]
	c.asked = append(c.asked, askedFilter{f, seen})
	return f
}

// updating sends updates on conn until ended is closed.
func (w *watcher) updating(conn *websocket.Conn, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(updateEvery):
		}
		w.mu.Lock()
		f := w.updates.ask(len(w.events))
		w.mu.Unlock()
		msg, err := json.Marshal(map[string]any{"type": "options_update", "payload": map[string]any{"wantedCollections": f.collections}})
		if err != nil {
			w.failed("%w", err)
			return
		}
		if conn.WriteMessage(websocket.TextMessage, msg) != nil {
			return
		}
		w.r.total.add("options updates", 1)
	}
}

// explain is nil if each connection saw what the log has by its filters between its cursor and its
// last event. For the last connection that is the end of the log.
func (u *updates) explain(events, log []truthEvent, facts []eventFacts) error {
	after := map[string]int{} // by place, where the log goes on
	for i, e := range log {
		after[e.place()] = i + 1
	}
	place := func(seen int) int {
		if seen == 0 {
			return 0
		}
		return after[events[seen-1].place()]
	}
	for n, c := range u.conns {
		last, end := len(events), len(log)
		if n+1 < len(u.conns) {
			last = u.conns[n+1].first
			end = place(last)
		}
		if err := c.explain(events[:last], log[:end], facts, place(c.first)); err != nil {
			return fmt.Errorf("connection %d of %d: %w", n+1, len(u.conns), err)
		}
	}
	return nil
}

// explain walks the log from event at on with every filter that may be in force, and wants one way
// to have seen exactly events.
func (c *updatedConn) explain(events, log []truthEvent, facts []eventFacts, at int) error {
	type state struct{ filter, seen int } // the filter in force, and how many events are explained
	states := map[state]bool{{0, c.first}: true}
	for ; at < len(log); at++ {
		next := map[state]bool{}
		for s := range states {
			for n := s.filter; n < len(c.asked) && (n == s.filter || c.asked[n].seen <= s.seen); n++ {
				switch {
				case !c.asked[n].filter.match(facts[at]):
					next[state{n, s.seen}] = true
				case s.seen < len(events) && events[s.seen] == log[at]:
					next[state{n, s.seen + 1}] = true
				}
			}
		}
		if states = next; len(states) == 0 {
			return fmt.Errorf("%s of the log: no filter in force explains whether it was seen", log[at].place())
		}
	}
	for s := range states {
		if s.seen == len(events) {
			return nil
		}
	}
	return fmt.Errorf("saw %d events; its filters do not give them", len(events)-c.first)
}
