package public

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
	"millrace/replay"
)

func TestV2Shutdown(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(3)...)
	s := serve(t, l, nil)
	c := s.dialV2("cursor=0")
	c.wantV2(l.all()...)
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience())
		defer cancel()
		ended <- s.Shutdown(ctx)
	}()
	c.wantClose(websocket.CloseGoingAway, "server shutting down")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestV2NothingIsRead: whatever a client sends as data ends its connection; pings do not.
func TestV2NothingIsRead(t *testing.T) {
	l := newTestLog(t)
	first := l.add(posts(3)...)
	s := serve(t, l, nil)
	for _, kind := range []int{websocket.TextMessage, websocket.BinaryMessage} {
		c := s.dialV2("cursor=0")
		c.wantV2(first...)
		if err := c.WriteMessage(kind, []byte(`{"type":"options_update","payload":{}}`)); err != nil {
			t.Fatal(err)
		}
		c.wantClose(websocket.ClosePolicyViolation, "nothing is read")
	}
	s.waitMetric("ends_total", endInvalid, 2)
	c := s.rawDialURL("", v2Prefix+"subscribeEvents")
	if _, err := c.Write(mask(framePing, []byte("x"))); err != nil {
		t.Fatal(err)
	}
	if first, p, err := c.frame(); err != nil || first != framePong || string(p) != "x" {
		t.Errorf("after a ping: frame %x %q, %v", first, p, err)
	}
	next := l.add(posts(1)...)[0]
	if first, p, err := c.frame(); err != nil || first != frameText || string(p) != next.v2(t) {
		t.Errorf("after a pong: frame %x %q, %v", first, p, err)
	}
}

// TestV2Errors: before an end that a client recovers from it gets an error frame, compressed if its
// events are.
func TestV2Errors(t *testing.T) {
	for name, e := range map[string]struct {
		err         error
		reason      string
		want, words string
	}{
		"trimmed": {fmt.Errorf("read: %w", replay.ErrTrimmed), endTrimmed, "ConsumerTooSlow", "the log has trimmed this place"},
		"failed":  {errors.New("disk on fire"), endLogFailure, "InternalError", "the log cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSource(t, thenError(e.err), newRegistry(t), nil)
			want := fmt.Sprintf(`{"$type":"error","error":"%s","message":"%s"}`, e.want, e.words)
			c := s.dialV2("")
			if _, p := c.next(); string(p) != "event" {
				t.Errorf("got %s", p)
			}
			if kind, p := c.next(); kind != websocket.TextMessage || string(p) != want {
				t.Errorf("got %s, want %s", p, want)
			}
			c.wantClose(websocket.CloseAbnormalClosure, "")
			c.Close()
			d := s.cfg.Dictionaries.Stored()
			c = s.dialV2(fmt.Sprintf("zstdDictionary=%d", d.ID()))
			c.next()
			if got := c.nextV2(d); got != want {
				t.Errorf("compressed: got %s, want %s", got, want)
			}
			c.wantClose(websocket.CloseAbnormalClosure, "")
			c.Close()
			s.waitMetric("ends_total", e.reason, 2)
		})
	}
}

// TestV2SlowSubscriber: it gets an error frame if it takes bytes again within the grace period.
func TestV2SlowSubscriber(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := serveSourceBubble(t, endless(1000), newRegistry(t), func(cfg *Config, tm *timing) {
			cfg.SlowTimeout, tm.grace = 10*time.Second, testTimeout
		})
		c := s.rawDialURL("", v2Prefix+"subscribeEvents")
		eventually(t, "it is judged", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			for sub := range s.subscribers {
				return sub.ended()
			}
			return false
		})
		var last []byte
		for {
			_, p, err := c.frame()
			if err != nil {
				if isTimeout(err) || errors.Is(err, net.ErrClosed) {
					t.Fatal(err)
				}
				break
			}
			last = p
		}
		const want = `{"$type":"error","error":"ConsumerTooSlow","message":"nothing was taken for 10s: too slow"}`
		if string(last) != want {
			t.Errorf("the last frame is %.100q, want %s", last, want)
		}
		s.waitMetric("ends_total", endSlow, 1)
	})
}

// TestV2Pings: a client that answers pings stays, however long nothing happens.
func TestV2Pings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		s := serveBubble(t, l, nil)
		c := s.dialV2("")
		pings := 0
		answer := c.PingHandler()
		c.SetPingHandler(func(data string) error { pings++; return answer(data) })
		c.SetReadDeadline(time.Time{})
		got := make(chan []byte)
		go func() {
			_, p, _ := c.ReadMessage()
			got <- p
		}()
		testwait.Elapse(10 * time.Minute)
		next := l.add(posts(1)...)
		if p := <-got; string(p) != next[0].v2(t) {
			t.Errorf("got %s", p)
		}
		if pings < 19 {
			t.Errorf("%d pings in ten minutes", pings)
		}
		c.Close()
		go io.Copy(io.Discard, s.rawDialURL("", v2Prefix+"subscribeEvents")) // answers no ping
		testwait.Elapse(10 * time.Minute)
		s.waitMetric("ends_total", endSilent, 1)
	})
}

// TestV2SeqsEnd: relay numbers that this wire cannot count are the end for v2's client, which would
// come back for ever after any other answer.
func TestV2SeqsEnd(t *testing.T) {
	l := newTestLog(t)
	l.seq = 1e15/1024 - 2
	fits := l.add(posts(1)...)
	s := serve(t, l, nil)
	s.dialV2("cursor=0").wantV2(fits...)
	l.add(posts(2)...)
	s.wantV2Refused("cursor=0", 400, v2InvalidRequest, "use /subscribe")
	s.dial("cursor=0").want(l.all()...)
}
