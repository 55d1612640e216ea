package consume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
)

func TestQuietRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			select {
			case <-time.After(10 * time.Hour):
				p.commits(11, 11)
				p.wait()
			case <-p.gone:
			}
		})
		c := start(t, l, Config{Cursor: 10})
		wantFrames(t, c, 1, "0/11")
		wantCursors(t, r, "10")
	})
}

// TestDeadRelay answers no ping: it is redialled after the silence, not before.
func TestDeadRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			if p.n == 1 {
				p.commits(11, 11)
				p.pause(time.Hour)
				return
			}
			p.commits(12, 12)
			p.wait()
		})
		// A pipe has no buffer: let the pings be taken from it, but not be answered.
		n := 0
		c := func() *running {
			s := newSink()
			return startWith(t, nil, Config{URL: "ws://relay.test", Cursor: 10, hooks: testHooks{dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				nc, err := l.Dial(ctx, network, addr)
				if n++; n == 1 && err == nil {
					nc = &muted{Conn: nc}
				}
				return nc, err
			}}}, s)
		}()
		began := time.Now()
		c.until(t, 2)
		if took := time.Since(began); took < 45*time.Second || took > 47*time.Second {
			t.Errorf("redialled after %v", took)
		}
		wantCursors(t, r, "10", "11")
		wantMetric(t, c, "reconnects_total", string(causeSilent), 1)
	})
}

// muted swallows what is written after the handshake.
type muted struct {
	net.Conn
	writes int
}

func (m *muted) Write(p []byte) (int, error) {
	if m.writes++; m.writes > 1 {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// TestWriteFails has a relay that takes nothing: the ping cannot be written, though frames still
// come.
func TestWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, nil)
		r.readsNothing.Store(true)
		r.script = func(p *peer) {
			r.readsNothing.Store(false)
			next := int64(11)
			if p.cursor != "10" {
				fmt.Sscan(p.cursor, &next)
				next++
			}
			for ; p.commits(next, next); next++ {
				p.pause(700 * time.Millisecond) // so that a read waits whenever a ping is due
			}
		}
		c := start(t, l, Config{Cursor: 10})
		frames := c.until(t, 60)
		for i, f := range frames {
			if f.Seq != int64(11+i) || f.Gap != nil {
				t.Fatalf("frames %s", show(frames))
			}
		}
		wantMetric(t, c, "reconnects_total", string(causePing), 1)
	})
}

// TestTrickle: a message of which a byte comes now and then is given up, however lively the relay
// is. The largest that a slow link has in time is not.
func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := frameOf(TypeCommit, 12, maxMessageBytes-100)
		r, l := pipeRelay(t, func(p *peer) {
			w, _ := p.ws.NextWriter(websocket.BinaryMessage)
			write := func(msg []byte, size int, every time.Duration) {
				for part := range slices.Chunk(msg, size) {
					if _, err := w.Write(part); err != nil {
						return
					}
					p.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Minute))
					p.pause(every)
				}
				w.Close()
			}
			if p.n == 1 {
				write(frameOf(TypeCommit, 11, 2<<20), 8<<10, 30*time.Second)
				return
			}
			write(commitFrame(11), 1<<10, 0)
			p.pause(time.Hour)
			w, _ = p.ws.NextWriter(websocket.BinaryMessage)
			write(large, 1<<20, messageTimeout/6)
			p.wait()
		})
		c := start(t, l, Config{Cursor: 10})
		began := time.Now()
		c.until(t, 1)
		if took := time.Since(began); took < messageTimeout || took > messageTimeout+silenceTimeout {
			t.Errorf("given up after %v", took)
		}
		wantFrames(t, c, 2, "0/11 0/12")
		if n := len(c.all()[1].Data); n != len(large) {
			t.Errorf("%d bytes", n)
		}
		wantCursors(t, r, "10", "10")
		wantMetric(t, c, "reconnects_total", string(causeTooLong), 1)
	})
}

// TestCloseWords: what a relay says when it closes a connection is repeated, if it says something.
func TestCloseWords(t *testing.T) {
	for text, want := range map[string]string{"": "the relay closed the connection: 1001", "bye": "the relay closed the connection: 1001 bye"} {
		c := &conn{wire: &wire{}}
		if why, err := c.whyEnded(&websocket.CloseError{Code: websocket.CloseGoingAway, Text: text}); why != causeClosed || err.Error() != want {
			t.Errorf("%s: %q, want %q", why, err, want)
		}
	}
}

// TestSlowHandle blocks for longer than any timeout: nothing is lost, and the relay is not taken
// for silent.
func TestSlowHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			p.commits(11, 20)
			p.wait()
		})
		s := newSink()
		s.before = func(ctx context.Context, f Frame) error {
			if f.Seq%4 == 0 {
				time.Sleep(20*time.Minute + 7*time.Second) // never as a ping is due
			}
			return nil
		}
		c := startWith(t, l, Config{Cursor: 10}, s)
		wantFrames(t, c, 10, "0/11 0/12 0/13 0/14 0/15 0/16 0/17 0/18 0/19 0/20")
		wantCursors(t, r, "10")
		wantMetric(t, c, "handle_blocked_seconds_total", "", 3*(20*60+7))
	})
}

// TestSlowHandleTooLarge blocks on a frame that is skipped: the rest of it may still come.
func TestSlowHandleTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			p.send(frameOf(TypeCommit, 11, 2*maxMessageBytes), commitFrame(12))
			p.wait()
		})
		s := newSink()
		s.before = func(context.Context, Frame) error {
			time.Sleep(2 * messageTimeout)
			return nil
		}
		c := startWith(t, l, Config{Cursor: 10}, s)
		wantFrames(t, c, 2, "0/11 0/12")
		wantCursors(t, r, "10")
	})
}

// TestSlowHandleDropped is the same with a relay that drops us meanwhile, as one does that buffers
// only so much.
func TestSlowHandleDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := pipeRelay(t, func(p *peer) {
			next := int64(11)
			if p.cursor != "10" {
				fmt.Sscan(p.cursor, &next)
				next++
			}
			for ; next <= 100; next++ {
				p.ws.SetWriteDeadline(time.Now().Add(30 * time.Second))
				if !p.commits(next, next) {
					return
				}
			}
			p.wait()
		})
		s := newSink()
		s.before = func(ctx context.Context, f Frame) error {
			if f.Seq%10 == 0 {
				time.Sleep(time.Minute)
			}
			return nil
		}
		c := startWith(t, l, Config{Cursor: 10}, s)
		frames := c.until(t, 90)
		for i, f := range frames {
			if f.Seq != int64(11+i) || f.Gap != nil {
				t.Fatalf("frames %s", show(frames))
			}
		}
		if c.metric(t, "reconnects_total", string(causeLost)) == 0 {
			t.Error("the relay did not drop us")
		}
	})
}

// TestPings answers the relay's pings, also a flood of them, and never stops reading for it.
func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pongs []string
		r, l := pipeRelay(t, func(p *peer) {
			p.ws.SetPongHandler(func(data string) error {
				pongs = append(pongs, data)
				return nil
			})
			p.ws.WriteControl(websocket.PingMessage, []byte("one"), time.Now().Add(time.Minute))
			p.pause(time.Second)
			for i := range 1000 {
				p.ws.WriteControl(websocket.PingMessage, fmt.Append(nil, i), time.Now().Add(time.Minute))
			}
			p.commits(11, 11)
			p.pause(time.Second)
			p.commits(12, 12)
			p.wait()
		})
		c := start(t, l, Config{Cursor: 10})
		wantFrames(t, c, 2, "0/11 0/12")
		c.stop()
		r.wg.Wait()
		if len(pongs) < 2 || pongs[0] != "one" || !slices.Contains(pongs, "999") {
			t.Errorf("pongs: %q", pongs)
		}
	})
}

// TestCancel stops at many moments: while dialling, in the handshake, reading, skipping, handling,
// waiting.
func TestCancel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 120 {
		after := time.Duration(rng.Int64N(int64(20 * time.Second)))
		synctest.Test(t, func(t *testing.T) {
			r, l := pipeRelay(t, func(p *peer) {
				p.commits(11, 12)
				p.ws.WriteMessage(websocket.TextMessage, []byte("x"))
				w, _ := p.ws.NextWriter(websocket.BinaryMessage)
				for range 6 {
					if _, err := w.Write(make([]byte, 1<<20)); err != nil {
						return
					}
					p.pause(300 * time.Millisecond)
				}
				w.Close()
				p.pause(time.Second)
			})
			r.refusal = func(n int, w http.ResponseWriter) bool {
				time.Sleep(3 * time.Second)
				if n%3 == 1 {
					http.Error(w, "no", http.StatusInternalServerError)
				}
				return n%3 == 1
			}
			s := newSink()
			s.before = func(ctx context.Context, f Frame) error {
				select {
				case <-time.After(time.Second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			c := startWith(t, l, Config{Cursor: 10}, s)
			testwait.Elapse(after)
			began := time.Now()
			if err := c.stop(); err != nil {
				t.Errorf("run %d, stopped after %v: %v", i, after, err)
			}
			if took := time.Since(began); took > closeTimeout+lingerTimeout {
				t.Errorf("run %d, stopped after %v: took %v", i, after, took)
			}
			if s := c.Status(); s.Connected {
				t.Errorf("run %d: still connected", i)
			}
		})
	}
}

// TestCloseFrame: the relay gets a close frame.
func TestCloseFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) { p.wait() })
		c := start(t, l, Config{Cursor: 10})
		testwait.Elapse(time.Second)
		c.stop()
		r.wg.Wait()
		if diff := cmp.Diff([]int{websocket.CloseNormalClosure}, r.closes); diff != "" {
			t.Errorf("close frames (-want +got):\n%s", diff)
		}
	})
}

// TestHandshakeTimeout has a relay that takes the connection and never answers.
func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			p.commits(11, 11)
			p.wait()
		})
		r.refusal = func(n int, w http.ResponseWriter) bool {
			if n == 1 {
				time.Sleep(time.Hour)
			}
			return n == 1
		}
		began := time.Now()
		c := start(t, l, Config{Cursor: 10})
		c.until(t, 1)
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("took %v", took)
		}
		wantMetric(t, c, "reconnects_total", string(causeDial), 1)
	})
}

// TestCutBeforeRead cuts a connection that is not being read: the next read must not wait.
func TestCutBeforeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		defer ours.Close()
		w := &wire{Conn: ours, timeout: time.Hour}
		w.cut(causeRecheck)
		w.cut(causeStopped)
		began := time.Now()
		if _, err := w.Read(make([]byte, 1)); err == nil || time.Since(began) > 0 {
			t.Errorf("read: %v after %v", err, time.Since(began))
		}
		if why := *w.cutBy.Load(); why != causeRecheck {
			t.Errorf("cut by %s", why)
		}
	})
}

func TestClip(t *testing.T) {
	for in, want := range map[string]string{"": "", "abc": "abc", "abcdef": "abcd…", "abcéf": "abc\uFFFD…", "\xff": "\uFFFD"} {
		if got := clip(in, 4); got != want {
			t.Errorf("clip(%q) = %q, want %q", in, got, want)
		}
		if got := clip([]byte(in), 4); got != want {
			t.Errorf("clip of bytes %q = %q, want %q", in, got, want)
		}
	}
	if got := (ending{cause: causeLost}).String(); !strings.Contains(got, "lost") {
		t.Error(got)
	}
}

// TestNewestPingIsAnswered: of pings that come faster than they are answered the newest counts.
func TestNewestPingIsAnswered(t *testing.T) {
	c := &conn{pongs: make(chan string, 1)}
	for _, data := range []string{"first", "second", "third"} {
		if err := c.answer(data); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-c.pongs; got != "third" || len(c.pongs) > 0 {
		t.Errorf("%q is answered, and %d more", got, len(c.pongs))
	}
}
