package public

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

func TestShutdown(t *testing.T) {
	t.Parallel()
	l, all := mixed(t)
	s := serve(t, l, nil)
	plain, extended := s.dial("cursor=0"), s.dial("cursor=0&extended=true")
	hello := s.dial("requireHello=true&extended=true")
	plain.want(all...)
	extended.wantExtended(all...)
	extended.info("live")
	slow := s.rawDial("cursor=0")
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience())
		defer cancel()
		ended <- s.Shutdown(ctx)
	}()
	m := extended.info("going_away")
	if last := all[len(all)-1]; m["cursor"] != last.cursor() {
		t.Errorf("going_away %v, want cursor %s", m, last.cursor())
	}
	extended.wantClose(websocket.CloseServiceRestart, "shutting down")
	plain.wantClose(websocket.CloseAbnormalClosure, "")
	hello.wantClose(websocket.CloseServiceRestart, "")
	slow.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := s.metric("ends_total", endShutdown) + s.metric("ends_total", endClientGone); got != 4 {
		t.Errorf("%v ended", got)
	}
}

func TestShutdownRefusesNewSubscribers(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, nil)
	s.dial("")
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	resp, body := s.refused("", nil)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "shutting down") {
		t.Errorf("%s %q", resp.Status, body)
	}
}

func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	l := newTestLog(t)
	s := serve(t, l, func(_ *Config, tm *timing) { tm.patience = testTimeout / 2 })
	var stop atomic.Bool
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		for !stop.Load() {
			l.add(posts(20)...)
			time.Sleep(2 * time.Millisecond)
		}
	}()
	type result struct {
		events int
		err    error
	}
	results := make(chan result, 40)
	for i := range cap(results) {
		c := s.rawDial([]string{"cursor=0", "cursor=0&extended=true"}[i%2])
		go func() {
			var r result
			for r.err == nil {
				_, _, r.err = c.frame()
				r.events++
				if i < 4 && r.events%4 == 0 { // slow ones
					time.Sleep(time.Millisecond)
				}
			}
			results <- r
		}()
	}
	time.Sleep(300 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout/2)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	stop.Store(true)
	<-fed
	cut := 0
	for range cap(results) {
		if r := <-results; strings.Contains(r.err.Error(), "cut") {
			cut++
		}
	}
	if cut > 4 {
		t.Errorf("%d of %d clients got a frame that was cut", cut, cap(results))
	}
}

func TestShutdownDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := serveSourceBubble(t, endless(1000), newRegistry(t), nil)
		c := s.rawDial("extended=true") // never reads
		eventually(t, "it is behind", func() bool { return s.admission.Stats().Bytes > 0 })
		ctx, cancel := contextWithTimeout(300 * time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := s.Shutdown(ctx); err == nil {
			t.Error("a subscriber that reads nothing ended in order")
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("shutdown took %v", took)
		}
		if _, err := io.Copy(io.Discard, c); isTimeout(err) && !errors.Is(err, io.EOF) {
			t.Error("the connection is still open")
		}
	})
}

func TestShutdownOfASlowSubscriber(t *testing.T) {
	s := serveSource(t, endless(1000), newRegistry(t), func(_ *Config, tm *timing) { tm.patience, tm.grace = 100*time.Millisecond, testTimeout })
	c := s.rawDial("extended=true")
	eventually(t, "it is behind", func() bool { return s.admission.Stats().Bytes > 0 })
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := contextWithTimeout(patience())
		defer cancel()
		ended <- s.Shutdown(ctx)
	}()
	eventually(t, "cut", func() bool { return s.admission.Stats().Bytes == 0 })
	var last []byte
	for {
		first, payload, err := c.frame()
		if err != nil {
			t.Fatal(err)
		}
		if first == frameClose {
			if code := int(payload[0])<<8 | int(payload[1]); code != websocket.CloseServiceRestart {
				t.Errorf("code %d", code)
			}
			break
		}
		last = payload
	}
	if m := infoOf(t, last, "going_away"); m["cursor"] != nil {
		t.Errorf("a chunk was cut, but the client is told to resume after it: %v", m)
	}
	c.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestLastWordsSurviveUnreadBytes(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, func(_ *Config, tm *timing) { tm.linger = testTimeout })
	c := s.rawDial("")
	if _, err := c.Write(appendFrame(nil, frameText, []byte("unmasked"))); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := c.Write(make([]byte, 100<<10)); err != nil {
			t.Fatalf("the server did not wait for the client: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if first, _, err := c.frame(); first != frameClose || err != nil {
		t.Errorf("frame %x, %v", first, err)
	}
}

func TestNoGoroutineLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("connections", func(t *testing.T) {
		l, _ := mixed(t)
		s := serve(t, l, nil)
		for i := range 30 {
			query := []string{"cursor=0", "requireHello=true", "extended=true&heartbeat=1"}[i%3]
			c := s.rawDial(query)
			switch i % 4 {
			case 0:
				c.Close()
			case 1:
				c.Write(mask(frameText, []byte("x")))
			case 2:
				c.Write(mask(frameClose, nil))
			}
		}
	})
	for deadline := time.Now().Add(patience()); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
