package public

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
	"millrace/replay"
	"millrace/replay/links"
	"millrace/replay/references"
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

// TestShutdownUnderLoad stops a server while 40 subscribers get events, four of which do not read:
// those that read get whole frames to the end.
func TestShutdownUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		s := serveBubble(t, l, nil)
		const clients, slow = 40, 4
		results := make(chan error, clients-slow)
		for i := range clients {
			c := s.rawDial([]string{"cursor=0", "cursor=0&extended=true"}[i%2])
			if i < slow {
				continue
			}
			go func() {
				for {
					if _, _, err := c.frame(); err != nil {
						results <- err
						return
					}
				}
			}()
		}
		feed := time.NewTicker(2 * time.Millisecond)
		stop, fed := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(fed)
			for {
				l.add(posts(20)...)
				select {
				case <-feed.C:
				case <-stop:
					return
				}
			}
		}()
		testwait.Elapse(300 * time.Millisecond)
		ctx, cancel := contextWithTimeout(testTimeout)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		close(stop)
		<-fed
		for range clients - slow {
			if err := <-results; strings.Contains(err.Error(), "cut") {
				t.Errorf("a client that reads got a frame that was cut: %v", err)
			}
		}
		if n := s.metric("delivered_events_total", ""); n < (clients-slow)*20*100 {
			t.Errorf("only %v events were delivered before", n)
		}
	})
}

// lateLinks are waited for in vain.
type lateLinks struct {
	links.Queries
	waiting chan struct{} // closed when one waits
}

func (l *lateLinks) Wait(ctx context.Context, _ references.Position) error {
	close(l.waiting)
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestShutdownAnswers: a request that waits is answered.
func TestShutdownAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, all := mixed(t)
		late := &lateLinks{waiting: make(chan struct{})}
		s := serveBubble(t, l, func(c *Config, _ *timing) { c.Log, c.UIDs, c.Links = l.Log, unknownUIDs{}, late })
		client := http.Client{Transport: &http.Transport{DialContext: s.pipes.Dial, DisableKeepAlives: true}}
		answer := make(chan string, 1)
		go func() {
			defer close(answer)
			resp, err := client.Get("http://millrace/links/count?target=did:web:example.com&collection=a&path=.b&wait=10000&at=" + all[0].cursor())
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			answer <- fmt.Sprintf("%d, %s s: %s, %v", resp.StatusCode, resp.Header.Get("Retry-After"), body, err)
		}()
		<-late.waiting
		ctx, cancel := contextWithTimeout(testTimeout)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if got := <-answer; !strings.HasPrefix(got, "503, 5 s: ") || !strings.Contains(got, "the server is stopping") {
			t.Errorf("answered %q", got)
		}
	})
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
	bubble(t, func(t *testing.T) {
		s := serveSourceBubble(t, endless(1000), newRegistry(t), func(_ *Config, tm *timing) { tm.patience, tm.grace = 100*time.Millisecond, testTimeout })
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
	})
}

func TestLastWordsSurviveUnreadBytes(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, func(_ *Config, tm *timing) { tm.linger = time.Hour })
	c := s.rawDial("")
	if _, err := c.Write(appendFrame(nil, frameText, []byte("unmasked"))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.br.Peek(1); err != nil { // once the close frame has come
		t.Fatal(err)
	}
	for range 20 {
		if _, err := c.Write(make([]byte, 100<<10)); err != nil {
			t.Fatalf("the server did not wait for the client: %v", err)
		}
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
	if !testwait.Becomes(patience(), func() bool { return runtime.NumGoroutine() <= before }) {
		stacks := make([]byte, 1<<20)
		t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
	}
}

// TestShutdownDuringAnUpdate: a subscriber whose options wait for the UID store ends all the same.
func TestShutdownDuringAnUpdate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		src := eventLogOf(l.Log)
		src.rangeOf = func() replay.Range { return replay.Range{References: &replay.Point{}} }
		s := serveSourceBubble(t, src, l.dictionaries, func(cfg *Config, _ *timing) { cfg.UIDs = lateUIDs{} })
		s.dial("").update(`{"wantedSubjects":["` + didN(1) + `"]}`)
		eventually(t, "it waits", func() bool { return len(s.lookups.lookups) > 0 })
		ctx, cancel := contextWithTimeout(testTimeout)
		defer cancel()
		begin := time.Now()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > lookupTimeout/2 {
			t.Errorf("shutdown took %v", took)
		}
	})
}
