package main

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// Ten subscribers with cursor=0 join a running stream of 2,000 frames a second one after the other.
// Each sees every event from the oldest to the newest once, in order.
func TestReplaysJoinARunningStream(t *testing.T) {
	t.Parallel()
	frames := 6000
	if long() {
		frames = 20_000
	}
	sim := startRelaysim(t, "--rate", "2000", "--wait-for-consumer")
	d := startDaemon(t, sim.url, t.TempDir())
	const subscribers = 10
	var got [subscribers][]truthEvent
	var end atomic.Int64
	var reading sync.WaitGroup
	for i := range subscribers {
		sim.waitMade(t, int64(frames*(i+1)/(subscribers+2)))
		s := subscribe(t, d.addr, "extended=true&heartbeat=1&cursor=0")
		reading.Go(func() { got[i] = s.readThrough(t, &streams{}, &end) })
	}
	sim.waitMade(t, int64(frames))
	want := sim.settle(t)
	end.Store(want[len(want)-1].Seq)
	reading.Wait()
	for i := range got {
		checkExact(t, fmt.Sprintf("subscriber %d", i), got[i], want)
	}
}

// Cursors just below, at and above the newest event of a running stream. Each gets a run of the log
// without a gap, that begins where its cursor says.
func TestCursorsNearTheNewestEvent(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--rate", "500", "--wait-for-consumer")
	d := startDaemon(t, sim.url, t.TempDir())
	var end atomic.Int64

	type joined struct {
		name   string
		newest int64 // of the log just before it joined
		cursor int64
		got    []truthEvent
	}
	var all []*joined
	var reading sync.WaitGroup
	for round := range 5 {
		sim.waitMade(t, int64(100*(round+1)))
		for _, offset := range []int64{-1_000_000, -1, 0, 1, 1_000, 10_000_000} {
			j := &joined{newest: newestTimeUS(t, d.addr)}
			j.cursor = j.newest + offset
			j.name = fmt.Sprintf("round %d, newest %+d µs", round, offset)
			s := subscribe(t, d.addr, "extended=true&heartbeat=1&cursor="+strconv.FormatInt(j.cursor, 10))
			all = append(all, j)
			reading.Go(func() { j.got = s.readThrough(t, &streams{}, &end) })
		}
	}
	sim.waitMade(t, sim.messages(t)+100) // events for live subscribers
	want := sim.settle(t)
	end.Store(want[len(want)-1].Seq)
	reading.Wait()
	whole := readAll(t, d.addr, "cursor=0", len(want))
	checkExact(t, "the log", whole, want)
	for _, j := range all {
		if len(j.got) == 0 {
			t.Fatalf("%s: no event, though the log goes on to %d", j.name, whole[len(whole)-1].TimeUS)
		}
		from := len(whole) - len(j.got)
		if from < 0 {
			t.Fatalf("%s: %d events, but the log has %d", j.name, len(j.got), len(whole))
		}
		for i, e := range j.got {
			if e != whole[from+i] {
				t.Fatalf("%s: event %d is %s, want %s", j.name, i, e.place(), whole[from+i].place())
			}
		}
		first := whole[from]
		switch {
		case j.cursor <= j.newest && from > 0 && whole[from-1].TimeUS >= j.cursor:
			t.Errorf("%s: began at %d and left out %d, which its cursor %d includes", j.name, first.TimeUS, whole[from-1].TimeUS, j.cursor)
		case j.cursor <= j.newest && first.TimeUS < j.cursor:
			t.Errorf("%s: began at %d, before its cursor %d", j.name, first.TimeUS, j.cursor)
		case j.cursor > j.newest && first.TimeUS <= j.newest:
			t.Errorf("%s: began at %d, not live, though its cursor %d was after the newest event %d", j.name, first.TimeUS, j.cursor, j.newest)
		}
	}
}

func newestTimeUS(t *testing.T, addr string) int64 {
	t.Helper()
	var cursors struct {
		Newest struct {
			TimeUS int64 `json:"time_us"`
		}
	}
	getJSON(t, "http://"+addr+"/cursors", &cursors)
	return cursors.Newest.TimeUS
}
