package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"
)

// together says whether subscribers that want everything have all seen about the same, so that none of them falls off
// a log that is trimmed now.
func (r *round) together() bool {
	least, most := 1<<62, 0
	for _, w := range r.watchers[:2] {
		w.mu.Lock()
		n := len(w.events)
		w.mu.Unlock()
		least, most = min(least, n), max(most, n)
	}
	return most-least < 4000
}

// seenThrough waits until the subscriber, whom nothing is filtered for, has seen the event that has the cursor, and
// returns all it saw.
func (w *watcher) seenThrough(t *testing.T, cursor string) []truthEvent {
	t.Helper()
	for end := time.Now().Add(soakSettle); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		events, err := slices.Clone(w.events), w.err
		w.mu.Unlock()
		if err != nil {
			t.Fatalf("subscriber (%s): %v", w.name, err)
		}
		if n := len(events); n > 0 && events[n-1].position(&w.r.seen).String() == cursor {
			return events
		}
	}
	t.Fatalf("subscriber (%s) did not reach %s within %v", w.name, cursor, soakSettle)
	return nil
}

// trim starts the daemon anew, which trims, and returns what is left of the log: the end of it, no more than may be
// kept, and no less than half of that.
func (r *round) trim(log []truthEvent) []truthEvent {
	r.process.kill()
	r.start(nil)
	var status struct{ Log struct{ Bytes int64 } }
	for end := time.Now().Add(soakSettle); ; time.Sleep(10 * time.Millisecond) {
		if resp, err := http.Get("http://" + r.addr + "/status"); err == nil {
			err = json.NewDecoder(resp.Body).Decode(&status)
			resp.Body.Close()
			if n := status.Log.Bytes; err == nil && n > 0 && n <= soakRetention {
				break
			}
		}
		if time.Now().After(end) {
			r.t.Fatalf("the log takes %d bytes, it may take %d", status.Log.Bytes, soakRetention)
		}
	}
	c, err := r.cursors()
	if err != nil {
		r.t.Fatal(err)
	}
	left := readThrough(r.t, r.addr, &r.seen, c.Newest.Cursor)
	if len(left) > len(log) {
		r.t.Fatalf("%d events are left of %d", len(left), len(log))
	}
	if len(left) < len(log) && status.Log.Bytes < soakRetention/2 {
		r.t.Fatalf("%d bytes are left, %d may be kept", status.Log.Bytes, soakRetention)
	}
	if err := sameEvents(left, log[len(log)-len(left):]); err != nil {
		r.t.Fatalf("what is left of the trimmed log: %v", err)
	}
	r.total.add("events trimmed", len(log)-len(left))
	return left
}
