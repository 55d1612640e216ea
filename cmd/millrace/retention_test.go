package main

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"
)

// Ten subscribers sit at the oldest end of a log that is trimmed, and stop reading. The trims do
// not wait for them, and a subscriber that reads on misses nothing. When they read again, they get
// the log from where they began, whole and in order, up to where the log was trimmed. Then they
// are ended in the way they asked for.
func TestRetentionDoesNotWaitForSlowReaders(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const frames, trimmed = 20_000, 10_000
	sim := startRelaysim(t, "--rate", "2500", "--frames", strconv.Itoa(frames), "--wait-for-consumer")
	d := startDaemon(t, sim.url, t.TempDir(), "--intern=off", "--retention", "100s", "--retention-bytes", "4MiB", "--slow-timeout", "1h",
		"--memory", "128MiB") // half of that has no room for what ten of them have yet to take
	healthy := subscribe(t, d.addr, "extended=true&cursor=0")
	var lines []string
	var count atomic.Int64 // of lines
	var reading sync.WaitGroup
	reading.Go(func() { // until it is closed
		for {
			msg, err := healthy.next(2 * patience)
			if err != nil {
				return
			}
			if isEvent(msg) {
				lines = append(lines, string(msg))
				count.Add(1)
			}
		}
	})
	sim.waitMade(t, 100)

	var slow []slowReader
	for i := range 10 {
		r := slowReader{extended: i%2 == 0}
		r.subscriber = *subscribe(t, d.addr, "cursor=0&extended="+strconv.FormatBool(r.extended))
		for !isEvent(r.first) {
			var err error
			if r.first, err = r.next(patience); err != nil {
				t.Fatal(err)
			}
		}
		slow = append(slow, r)
	}
	waitFor(t, "a trim", func() bool { return d.log.Range().Oldest.Position.Seq >= trimmed })

	sim.waitMade(t, frames)
	want := readTruth(t, sim.truth)
	waitFor(t, "all that the relay sent", func() bool { return count.Load() >= int64(len(want)) })
	healthy.conn.Close()
	reading.Wait()
	seen, got := streams{}, make([]truthEvent, 0, len(lines))
	for _, line := range lines {
		got = append(got, seen.parse(t, line))
	}
	checkExact(t, "the subscriber that reads on", got, want)
	defer reading.Wait()
	for i, r := range slow {
		reading.Go(func() { r.check(t, i, got) })
	}
}

// slowReader is a subscriber that stopped reading after its first event.
type slowReader struct {
	subscriber
	extended bool
	first    []byte
}

// check reads to the end, and compares what comes with the log as another subscriber got it.
func (r *slowReader) check(t *testing.T, i int, log []truthEvent) {
	var events []string
	msg, err := r.first, error(nil)
	for ; err == nil; msg, err = r.next(patience) {
		if isEvent(msg) {
			events = append(events, string(msg))
		}
	}
	code := websocket.CloseAbnormalClosure // as Jetstream
	if r.extended {
		code = 4001
	}
	// no less abnormal than an end without a close frame
	reset := !r.extended && errors.Is(err, syscall.ECONNRESET)
	if !websocket.IsCloseError(err, code) && !reset {
		t.Errorf("reader %d, extended %t, ended with %v, want code %d", i, r.extended, err, code)
	}
	seen := streams{}
	first := seen.parse(t, events[0])
	at := slices.IndexFunc(log, func(e truthEvent) bool { return e.TimeUS == first.TimeUS })
	if at < 0 || at+len(events) >= len(log) {
		t.Errorf("reader %d began at event %d and read %d, of %d", i, at, len(events), len(log))
		return
	}
	for j, e := range events {
		if e := seen.parse(t, e); e.TimeUS != log[at+j].TimeUS || e.JSON != log[at+j].JSON {
			t.Errorf("reader %d: event %d is %+v, want %+v", i, j, e, log[at+j])
			return
		}
	}
}
