package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/translate"
)

// stallingProxy passes TCP connections on to a relay, under one address for all. While it is
// stalled the second connection, and whatever comes after it, gets nothing.
type stallingProxy struct {
	url     string
	stalled atomic.Bool
	conns   atomic.Int64
}

func newStallingProxy(t *testing.T, relay string) *stallingProxy {
	t.Helper()
	ln := listenLoopback(t)
	host, _, _ := strings.Cut(strings.TrimPrefix(relay, "ws://"), "/")
	l := &stallingProxy{url: strings.Replace(relay, host, ln.Addr().String(), 1)}
	var running sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n := l.conns.Add(1)
			running.Go(func() { l.carry(c, host, n > 1) })
		}
	})
	return l
}

func (l *stallingProxy) carry(c net.Conn, relay string, mayStall bool) {
	defer c.Close()
	up, err := net.Dial("tcp", relay)
	if err != nil {
		return
	}
	defer up.Close()
	done := make(chan struct{})
	go func() { // ends when either connection does
		defer close(done)
		_, _ = io.Copy(up, c)
		up.Close()
	}()
	buf := make([]byte, 16<<10)
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for {
		for mayStall && l.stalled.Load() {
			<-pace.C
		}
		n, err := up.Read(buf)
		if err != nil {
			break
		}
		if _, err := c.Write(buf[:n]); err != nil {
			break
		}
	}
	c.Close()
	<-done
}

// Two instances follow one relay, the second of them now and then by a second late. A subscriber
// goes from one to the other again and again with the last position it saw. It sees the truth once,
// in order.
func TestHoppingBetweenInstances(t *testing.T) {
	t.Parallel()
	// The subscriber must keep up with the rate, also under the race detector. Else no instance is
	// behind it.
	duration, rate, stay := 6*time.Second, 250, 300*time.Millisecond
	if long() {
		duration, rate, stay = time.Minute, 1000, 3*time.Second
	}
	rng := rand.New(rand.NewPCG(testSeed(t), 0))
	frames := int64(rate) * int64(duration/time.Second)
	sim := startRelaysim(t, "--rate", strconv.Itoa(rate), "--wait-for-consumer")
	line := newStallingProxy(t, sim.url)
	first := startDaemon(t, line.url, t.TempDir())
	waitFor(t, "the first instance to be connected", func() bool { return line.conns.Load() == 1 })
	second := startDaemon(t, line.url, t.TempDir())
	waitFor(t, "the second instance to hold something", func() bool { return second.log.Range().Oldest.Position.Seq > 0 })

	stalling := make(chan struct{})
	stop := make(chan struct{})
	go func() { // until stop
		defer close(stalling)
		for on := true; ; on = !on {
			line.stalled.Store(on)
			select {
			case <-stop:
				line.stalled.Store(false)
				return
			case <-time.After(stay + stay/3):
			}
		}
	}()
	stopStalling := sync.OnceFunc(func() { close(stop); <-stalling })
	defer stopStalling()

	h := hoppingSubscriber{t: t}
	// so that the second has begun by where the first is left
	for h.last.Seq < second.log.Range().Oldest.Position.Seq {
		h.visit(first.addr, stay)
	}
	ahead := 0
	for at, made := 1, int64(0); made < frames || ahead == 0 && made < 10*frames; at, made = at+1, sim.messages(t) {
		d := []*testDaemon{first, second}[at%2]
		if d.log.Progress().Seq < h.last.Seq {
			ahead++
		}
		h.visit(d.addr, stay/2+time.Duration(rng.Int64N(int64(stay))))
	}
	want := sim.settle(t)
	stopStalling()
	h.lastVisit(second.addr, want[len(want)-1].Seq)
	for i := range h.events {
		h.events[i].TimeUS = int64(i) + 1 // each instance has stamps of its own
	}
	checkExact(t, fmt.Sprintf("after %d visits", h.visits), h.events, want)
	if ahead == 0 {
		t.Error("never did the subscriber come to an instance that was behind it")
	}
	t.Logf("%d events in %d visits, %d of them to an instance that was behind", len(h.events), h.visits, ahead)
}

// hoppingSubscriber is a subscriber that takes nothing along but its last position.
type hoppingSubscriber struct {
	t      *testing.T
	seen   streams
	last   translate.Position
	events []truthEvent
	visits int
}

// subscribe goes on where the last visit ended.
func (h *hoppingSubscriber) subscribe(addr string) *subscriber {
	h.t.Helper()
	cursor := "0"
	if h.last != (translate.Position{}) {
		cursor = h.last.String()
	}
	h.visits++
	return subscribe(h.t, addr, "extended=true&strict=true&heartbeat=1&cursor="+cursor)
}

// lastVisit reads from an instance through the seq end.
func (h *hoppingSubscriber) lastVisit(addr string, end int64) {
	h.t.Helper()
	s := h.subscribe(addr)
	defer s.conn.Close()
	var known atomic.Int64
	known.Store(end)
	h.events = append(h.events, s.readThrough(h.t, &h.seen, &known)...)
}

// visit reads from an instance for a while.
func (h *hoppingSubscriber) visit(addr string, stay time.Duration) {
	h.t.Helper()
	s := h.subscribe(addr)
	defer s.conn.Close()
	for end := time.Now().Add(stay); time.Now().Before(end); {
		msg, err := s.next(time.Until(end))
		if err != nil {
			return
		}
		if !isEvent(msg) {
			continue
		}
		e := h.seen.parse(h.t, string(msg))
		h.events = append(h.events, e)
		h.last = e.position(&h.seen)
	}
}
