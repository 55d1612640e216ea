package relaysim

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/pipenet"
	"millrace/consume/relaysim/testwait"
)

// seqs returns the sequence numbers of messages.
func seqs(t testing.TB, messages []received) (list []int64) {
	t.Helper()
	for _, m := range messages {
		list = append(list, seqOf(t, m.data))
	}
	return list
}

// upTo returns from, from+1 ... to.
func upTo(from, to int64) (list []int64) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// waitMade waits until n messages are made, written down, and in the window.
func waitMade(t testing.TB, r *testRelay, n int64) {
	t.Helper()
	testwait.Eventually(t, patience, itoa(n)+" messages are made", func() bool { return r.producer.shown.Load() >= n })
}

// TestResume asks for every kind of cursor.
func TestResume(t *testing.T) {
	r := startRelay(t, "--frames", "50", "--first-seq", "101", "--window-frames", "200")
	waitMade(t, r, 50)
	for _, test := range []struct {
		query string
		want  []int64
	}{
		{"", nil},
		{"cursor=0", upTo(101, 150)},
		{"cursor=100", upTo(101, 150)},
		{"cursor=101", upTo(102, 150)},
		{"cursor=149", upTo(150, 150)},
		{"cursor=150", nil},
		{"cursor=151", nil},
		{"cursor=999999999", nil},
	} {
		got := seqs(t, r.connect(test.query).drain(len(test.want)))
		if !slices.Equal(got, test.want) {
			t.Errorf("%q: got %v, want %v", test.query, got, test.want)
		}
	}
	res, err := http.Get("http://" + r.addr + subscribePath + "?cursor=x")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("cursor=x: %s", res.Status)
	}
}

// TestResumeWithinWindow: the window is as long as it says, and reports what is gone if asked to.
func TestResumeWithinWindow(t *testing.T) {
	r := startRelay(t, "--frames", "60", "--window-frames", "20", "--rate", "100000", "--outdated-cursor-info", "--future-cursor-error")
	waitMade(t, r, 60)
	for query, want := range map[string][]int64{"cursor=50": upTo(51, 60), "cursor=40": upTo(41, 60), "cursor=60": nil} {
		if got := seqs(t, r.connect(query).drain(len(want))); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	got := r.connect("cursor=39").drain(21)
	if len(got) != 21 || !bytes.Contains(got[0].data, []byte("OutdatedCursor")) || seqOf(t, got[1].data) != 41 {
		t.Errorf("cursor=39: got %d messages, %q", len(got), got[0].data)
	}
	got = r.connect("cursor=61").drain(1)
	if len(got) != 1 || !bytes.Contains(got[0].data, []byte("FutureCursor")) {
		t.Errorf("cursor=61: got %d messages", len(got))
	}
}

// TestResumeOverChunks reads from every place in a window of many chunks.
func TestResumeOverChunks(t *testing.T) {
	w := newWindow(0, 1000, 64<<20)
	var b batch
	payload := make([]byte, 300_000)
	for i := range int64(40) {
		b.reset()
		b.add(i+1, false, payload[:int(i+1)*7000])
		w.publish(&b)
	}
	for cursor := range int64(40) {
		c, outdated, future := w.join(cursor, false)
		if outdated || future {
			t.Fatalf("cursor %d: outdated %v, future %v", cursor, outdated, future)
		}
		for next := cursor; next < 40; {
			wire, frames, _, err := c.take(1)
			if err != nil || frames != 1 || len(wire) < int(next+1)*7000 || len(wire) > int(next+1)*7000+10 {
				t.Fatalf("cursor %d, message %d: %d frames, %d bytes, %v", cursor, next+1, frames, len(wire), err)
			}
			next += int64(frames)
		}
		if frames, bytes, _ := w.lead(); frames != 0 || bytes != 0 {
			t.Fatalf("cursor %d: lead of %d frames, %d bytes at the end", cursor, frames, bytes)
		}
		c.leave()
	}
}

// TestFlatOut: several consumers, one of them slow, get everything though the window is small.
func TestFlatOut(t *testing.T) {
	const frames = 6000
	r := startRelay(t, "--frames", "6000", "--window-frames", "300", "--wait-for-consumer")
	r.post("quiet?for=1h") // until all are there
	consumers := []*testConsumer{r.connect("cursor=0"), r.connect("cursor=0"), r.connect("cursor=0")}
	joined := func() int64 { _, _, n := r.producer.current.Load().win.lead(); return n }
	testwait.Eventually(t, patience, "all consumers are there", func() bool { return joined() == int64(len(consumers)) })
	r.post("quiet?for=0s")
	var group sync.WaitGroup
	for i, c := range consumers {
		group.Go(func() {
			for n := range int64(frames) {
				m, err := c.next()
				if err != nil {
					t.Errorf("consumer %d: after %d: %v", i, n, err)
					return
				}
				if seq := seqOf(t, m.data); seq != n+1 {
					t.Errorf("consumer %d: got %d, want %d", i, seq, n+1)
					return
				}
				if i == 0 && n%1000 == 0 {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	group.Wait()
}

// deserted says whether no consumer is there.
func (r *testRelay) deserted() bool {
	w := r.producer.current.Load().win
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.consumers) == 0
}

// TestFlatOutReturn: a consumer that goes away and returns finds its place, though it has not read
// all that was written to its socket.
func TestFlatOutReturn(t *testing.T) {
	const frames, window, each = 30_000, 10_000, 4000
	r := startRelay(t, "--frames", itoa(frames), "--window-frames", itoa(window), "--wait-for-consumer")
	c := r.connect("")
	for last := int64(0); last < frames; {
		for range min(each, frames-last) {
			m, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			if seq := seqOf(t, m.data); seq != last+1 {
				t.Fatalf("got %d after %d", seq, last)
			}
			last++
		}
		c.Close()
		testwait.Eventually(t, patience, "the consumer that left is gone", r.deserted)
		c = r.connect("cursor=" + itoa(last))
	}
}

// TestFlatOutAlone: without a consumer, the stream stops after half a window.
func TestFlatOutAlone(t *testing.T) {
	r := startRelay(t, "--window-frames", "1000")
	waitMade(t, r, 500)
	if !testwait.Stays(20*time.Millisecond, func() bool { return r.producer.made.Load() == 500 }) {
		t.Errorf("%d frames made, want 500", r.producer.made.Load())
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// TestTooSlow: with a rate, the relay waits for no consumer.
func TestTooSlow(t *testing.T) {
	r := startRelay(t, "--window-frames", "50", "--rate", "20000", "--wait-for-consumer")
	c := r.connect("")
	r.post("stall?for=300ms")
	var last received
	for {
		m, err := c.next()
		if err != nil {
			var closed *websocket.CloseError
			if !errors.As(err, &closed) {
				t.Errorf("the connection ended with %v", err)
			}
			break
		}
		last = m
	}
	if !bytes.Contains(last.data, []byte("ConsumerTooSlow")) {
		t.Errorf("the last message is %.100q", last.data)
	}
}

// TestPings: pings are answered, while frames come and when none do, and none is lost in the middle
// of one.
func TestPings(t *testing.T) {
	r := startRelay(t, "--rate", "4000", "--wait-for-consumer")
	c := r.connect("")
	var pongs atomic.Int64
	quiet := errors.New("pong")
	c.SetPongHandler(func(data string) error {
		if pongs.Add(1); data == "quiet" {
			return quiet
		}
		return nil
	})
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for pings := int64(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if pings-pongs.Load() < waitingPongs-1 { // else the relay may ignore the last ping below
				pings++
				_ = c.WriteControl(websocket.PingMessage, []byte("ping"), time.Now().Add(patience))
			}
		}
	})
	var got []int64
	for len(got) < 2000 || pongs.Load() < 20 {
		got = append(got, seqs(t, c.read(1))...)
	}
	close(stop)
	group.Wait()
	if !slices.Equal(got, upTo(1, int64(len(got)))) {
		t.Error("frames are missing between pongs")
	}
	r.post("quiet?for=1h")
	c.read(int(r.producer.made.Load()) - len(got))
	if err := c.WriteControl(websocket.PingMessage, []byte("quiet"), time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if m, err := c.next(); !errors.Is(err, quiet) {
		t.Errorf("instead of a pong when quiet: %q, %v", m.data, err)
	}
}

// TestRestartNumbering: connections end, numbers begin at 1, the old ones are gone, the truth says
// so.
func TestRestartNumbering(t *testing.T) {
	r := startRelay(t, "--window-frames", "60", "--wait-for-consumer")
	var want []string
	for epoch := range uint32(3) {
		c := r.connect("cursor=0")
		first := c.read(40)
		r.post("restart-numbering")
		got := append(first, c.drain(untilItEnds)...)
		if !slices.Equal(seqs(t, got), upTo(1, int64(len(got)))) {
			t.Errorf("epoch %d: got %d messages, the last is %d", epoch, len(got), seqOf(t, got[len(got)-1].data))
		}
		want = append(want, recompute(t, epoch, got)...)
	}
	checkTruth(t, want, r.lines()[:len(want)])
}

// TestBroken: a connection that breaks within a frame gives no part of it.
func TestBroken(t *testing.T) {
	r := startRelay(t, "--rate", "2000", "--wait-for-consumer")
	last := int64(0)
	for _, after := range []string{"1", "2", "500", "1999", "12345"} {
		c := r.connect("cursor=" + itoa(last))
		first := c.read(1)
		r.post("disconnect?after=" + after)
		got := append(first, c.drain(untilItEnds)...)
		for _, seq := range seqs(t, got) {
			if seq != last+1 {
				t.Fatalf("after=%s: got %d after %d", after, seq, last)
			}
			last = seq
		}
		if _, err := c.next(); isTimeout(err) {
			t.Errorf("after=%s: the connection is still there", after)
		}
	}
}

// TestServeWaitsForConsumers: Serve returns once no consumer runs, and lets none begin meanwhile.
func TestServeWaitsForConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRelay(t, "--generate", "60", "--accounts", "6", "--population", "50", "--clock", "virtual", "--frames", "1")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Serve(ctx, pipenet.Listen()) }()
		raw, _ := net.Pipe()
		c := &conn{raw: raw, stop: func(error) {}}
		if !r.add(c) {
			t.Error("a consumer is refused")
		}
		cancel()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("Serve has returned while a consumer runs")
		}
		if r.add(&conn{}) {
			t.Error("a consumer begins while Serve waits for the others")
		}
		r.remove(c)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
