package main

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"slices"
	"sort"
	"strconv"
	"testing"

	"millrace/consume/relaysim/testwait"
	"millrace/translate"
)

// together says whether all subscribers are so near to the end of the truth that a trim of the log
// now ends none of them. The log is a beginning of the truth.
func (r *round) together() bool {
	const near = 4000 // events; of soakRetention at least some 7,000 are kept
	raw, err := os.ReadFile(r.sim.truth)
	if err != nil {
		r.t.Fatal(err)
	}
	least := r.leastSeq()
	for range near {
		raw = raw[:max(0, bytes.LastIndexByte(raw, '\n'))]
		_, line, _ := bytes.Cut(raw[bytes.LastIndexByte(raw, '\n')+1:], []byte(`"seq":`))
		if len(line) == 0 {
			return true // there are no more
		}
		seq, err := strconv.ParseInt(string(line[:bytes.IndexByte(line, ',')]), 10, 64)
		if err != nil {
			r.t.Fatalf("truth: %v", err)
		}
		if seq <= least {
			return true
		}
	}
	return false
}

// leastSeq is the seq from which the subscriber that is furthest behind goes on.
func (r *round) leastSeq() int64 {
	all := r.watchers[0] // gets every event, with its place
	all.mu.Lock()
	seen := slices.Clone(all.events)
	all.mu.Unlock()
	least := int64(math.MaxInt64)
	for _, w := range r.watchers {
		w.mu.Lock()
		cursor, us := w.cursor, w.lastUS
		w.mu.Unlock()
		seq := int64(0) // it has seen nothing, and wants the oldest
		if p, err := translate.ParsePosition(cursor); err == nil {
			seq = p.Seq
		} else if n := sort.Search(len(seen), func(i int) bool { return seen[i].TimeUS > us }); n > 0 {
			seq = seen[n-1].Seq
		}
		least = min(least, seq)
	}
	return least
}

// seenThrough waits until the subscriber, whom nothing is filtered for, has seen the event that has
// the cursor, and returns all it saw.
func (w *watcher) seenThrough(t *testing.T, cursor string) []truthEvent {
	t.Helper()
	var events []truthEvent
	seen := testwait.Becomes(soakSettle, func() bool {
		w.mu.Lock()
		var err error
		events, err = slices.Clone(w.events), w.err
		w.mu.Unlock()
		if err != nil {
			t.Fatalf("subscriber (%s): %v", w.name, err)
		}
		n := len(events)
		return n > 0 && events[n-1].position(&w.r.seen).String() == cursor
	})
	if !seen {
		t.Fatalf("subscriber (%s) did not reach %s within %v", w.name, cursor, soakSettle)
	}
	return events
}

// trim starts the daemon anew, which trims, and returns what is left of the log. That is the end of
// it, no more than may be kept, and no less than half of that.
func (r *round) trim(log []truthEvent) []truthEvent {
	r.process.kill()
	r.calm = true
	r.start(nil)
	var status struct{ Log struct{ Bytes int64 } }
	trimmed := testwait.Becomes(soakSettle, func() bool {
		resp, err := http.Get("http://" + r.addr + "/status")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		err = json.NewDecoder(resp.Body).Decode(&status)
		return err == nil && status.Log.Bytes > 0 && status.Log.Bytes <= soakRetention
	})
	if !trimmed {
		r.t.Fatalf("the log takes %d bytes, it may take %d", status.Log.Bytes, soakRetention)
	}
	c, err := r.cursors()
	if err != nil {
		r.t.Fatal(err)
	}
	left := r.readThrough(c.Newest.Cursor)
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
