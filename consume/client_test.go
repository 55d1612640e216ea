package consume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/cbor"
	"millrace/consume/relaysim/testwait"
)

// wantFrames waits for as many frames as want shows (see show) and compares; a moment later there
// must be no more.
func wantFrames(t *testing.T, r *running, n int, want string) {
	t.Helper()
	r.until(t, n)
	testwait.Elapse(time.Second)
	if diff := cmp.Diff(want, show(r.all())); diff != "" {
		t.Fatalf("frames (-want +got):\n%s", diff)
	}
}

func wantCursors(t *testing.T, r *relay, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.cursors()); diff != "" {
		t.Fatalf("cursors asked for (-want +got):\n%s", diff)
	}
}

func wantMetric(t *testing.T, r *running, name, label string, want float64) {
	t.Helper()
	if got := r.metric(t, name, label); got != want {
		t.Errorf("%s{%s} = %v, want %v", name, label, got, want)
	}
}

func ptr[T any](v T) *T { return &v }

// TestStart shows where reading begins, and what counts as a gap there.
func TestStart(t *testing.T) {
	tests := []struct {
		name   string
		cfg    Config
		cursor string
		send   []int64
		want   string
	}{
		{"nothing committed: live, no gap", Config{}, "live", []int64{500, 501}, "0/500 0/501"},
		{"from the oldest, no gap", Config{Start: ptr[int64](0)}, "0", []int64{70, 71}, "0/70 0/71"},
		{"from a seq, nothing committed", Config{Start: ptr[int64](40)}, "40", []int64{70, 71}, "0/70 0/71"},
		{"resume", Config{Cursor: 10}, "10", []int64{11, 12}, "0/11 0/12"},
		{"resume with repeats", Config{Cursor: 10}, "10", []int64{8, 9, 10, 11, 12}, "0/11 0/12"},
		{"resume with the position itself, then a jump", Config{Cursor: 10}, "10", []int64{10, 15}, "0/15"},
		{"resume beyond the next: a gap", Config{Cursor: 10, Epoch: 3}, "10", []int64{15, 16}, "[3/10..3/15] 3/15 3/16"},
		{"a jump later on is none", Config{Cursor: 10}, "10", []int64{11, 15}, "0/11 0/15"},
		{"operator skips ahead: a gap", Config{Cursor: 10, Start: ptr[int64](40)}, "40", []int64{41}, "[0/10..0/41] 0/41"},
		{"operator's new epoch: a gap", Config{Epoch: 1, Start: ptr[int64](0), Previous: &EpochEnd{0, 10}}, "0", []int64{5, 6}, "[0/10..1/5] 1/5 1/6"},
		{"operator's new epoch, live", Config{Epoch: 1, Previous: &EpochEnd{0, 10}}, "live", []int64{5}, "[0/10..1/5] 1/5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, l := pipeRelay(t, func(p *peer) {
					for _, s := range tt.send {
						p.send(commitFrame(s))
					}
					p.wait()
				})
				c := start(t, l, tt.cfg)
				wantFrames(t, c, 1, tt.want)
				wantCursors(t, r, tt.cursor)
			})
		})
	}
}

func TestResumeAfterDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			switch p.n {
			case 1:
				p.commits(500, 502)
			case 2: // nothing at all
			case 3:
				p.commits(501, 503) // the first two again
			case 4:
				p.commits(510, 511)
				p.wait()
			}
		})
		c := start(t, l, Config{})
		wantFrames(t, c, 6, "0/500 0/501 0/502 0/503 [0/503..0/510] 0/510 0/511")
		wantCursors(t, r, "live", "502", "502", "503")
		wantMetric(t, c, "repeats_total", "", 2)
		wantMetric(t, c, "gaps_total", "", 1)
		wantMetric(t, c, "gap_frames_total", "", 6)
		wantMetric(t, c, "reconnects_total", string(causeLost), 3)
		wantMetric(t, c, "frames_total", TypeCommit, 8)
		wantMetric(t, c, "bytes_total", TypeCommit, float64(8*len(commitFrame(500))))
		wantMetric(t, c, "last_seq", "", 511)
		wantMetric(t, c, "connected", "", 1)
	})
}

// TestEveryType hands over all that has a seq, and leaves the data as it came.
func TestEveryType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := [][]byte{
			frameOf(TypeCommit, 11, 3), frameOf(TypeIdentity, 12, 0), frameOf(TypeAccount, 13, 0),
			frameOf(TypeSync, 14, 9), frameOf("#tombstone", 15, 0), frameOf("", 16, 0),
		}
		_, l := pipeRelay(t, func(p *peer) {
			p.send(infoFrameOf("OutdatedCursor"), infoFrameOf("Fnord"))
			p.send(sent...)
			p.wait()
		})
		c := start(t, l, Config{Cursor: 10})
		got := c.until(t, len(sent))
		for i, typ := range []string{TypeCommit, TypeIdentity, TypeAccount, TypeSync, TypeOther, TypeOther} {
			if got[i].Type != typ || !bytes.Equal(got[i].Data, sent[i]) {
				t.Errorf("frame %d: %s %x, want %s %x", i, got[i].Type, got[i].Data, typ, sent[i])
			}
		}
		wantMetric(t, c, "frames_total", TypeOther, 2)
		wantMetric(t, c, "frames_total", TypeInfo, 2)
		wantMetric(t, c, "info_frames_total", "OutdatedCursor", 1)
		wantMetric(t, c, "info_frames_total", "other", 1)
	})
}

// TestBadMessages are dropped by reason; the good ones around them arrive over the same connection.
func TestBadMessages(t *testing.T) {
	noSeq := cbor.AppendHead(messageHeader(TypeCommit), majorMap, 0)
	negative := cbor.AppendHead(cbor.AppendText(cbor.AppendHead(messageHeader(TypeCommit), majorMap, 1), "seq"), majorNint, 4)
	opTwo := cbor.AppendHead(cbor.AppendText(cbor.AppendHead(nil, majorMap, 1), "op"), majorUint, 2)
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			p.commits(11, 11)
			p.ws.WriteMessage(websocket.TextMessage, []byte("hello"))
			p.ws.WriteMessage(websocket.TextMessage, bytes.Repeat([]byte("hello"), 2<<20))
			p.send(nil, []byte{})
			p.send([]byte{0xff, 0xff}, []byte("garbage"), messageHeader(TypeCommit)[:5], cbor.AppendHead(nil, majorMap, 0))
			p.send(opTwo, cbor.AppendHead(opTwo, majorMap, 0))
			p.send(noSeq, negative, messageHeader(TypeCommit), commitFrame(12)[:30])
			p.commits(12, 12)
			p.wait()
		})
		c := start(t, l, Config{Cursor: 10})
		wantFrames(t, c, 2, "0/11 0/12")
		wantCursors(t, r, "10")
		wantMetric(t, c, "dropped_total", "text", 2)
		wantMetric(t, c, "dropped_total", "empty", 2)
		wantMetric(t, c, "dropped_total", "bad_header", 4)
		wantMetric(t, c, "dropped_total", "bad_op", 2)
		wantMetric(t, c, "dropped_total", "no_seq", 4)
	})
}

// TestTooLarge skips messages over the limit on the connection they came on.
func TestTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fits := frameOf(TypeCommit, 11, maxMessageBytes)
		fits = frameOf(TypeCommit, 11, maxMessageBytes-(len(fits)-maxMessageBytes))
		if len(fits) != maxMessageBytes {
			t.Fatalf("built %d bytes", len(fits))
		}
		r, l := pipeRelay(t, func(p *peer) {
			p.send(fits, frameOf(TypeCommit, 12, maxMessageBytes), commitFrame(13), make([]byte, 9<<20), frameOf(TypeSync, 14, 20<<20), commitFrame(15))
			p.wait()
		})
		c := start(t, l, Config{Cursor: 10})
		wantFrames(t, c, 5, "0/11 0/12 0/13 0/14 0/15")
		for i, f := range c.all() {
			if large := i == 1 || i == 3; large != (f.Data == nil) {
				t.Errorf("frame %d has %d bytes", f.Seq, len(f.Data))
			}
		}
		if n := cap(c.buf.buf); n > maxMessageBytes+1 {
			t.Errorf("the buffer is %d bytes", n)
		}
		wantCursors(t, r, "10")
		wantMetric(t, c, "dropped_total", "too_large", 3)
	})
}

// TestTooLargeBreaks: a message over the limit that never arrives whole is not asked for again on
// the next connection.
func TestTooLargeBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			switch p.cursor {
			case "10": // cut off
				w, _ := p.ws.NextWriter(websocket.BinaryMessage)
				w.Write(frameOf(TypeCommit, 11, maxMessageBytes))
				w.Write(make([]byte, 1<<20))
			case "11": // endless, alive
				w, _ := p.ws.NextWriter(websocket.BinaryMessage)
				w.Write(frameOf(TypeCommit, 12, maxMessageBytes))
				for {
					if _, err := w.Write(make([]byte, 1<<10)); err != nil {
						return
					}
					p.pause(100 * time.Millisecond)
				}
			case "12":
				p.commits(13, 13)
				p.wait()
			}
		})
		c := start(t, l, Config{Cursor: 10})
		began := time.Now()
		wantFrames(t, c, 3, "0/11 0/12 0/13")
		wantCursors(t, r, "10", "11", "12")
		if took := time.Since(began); took < messageTimeout || took > messageTimeout+5*time.Second {
			t.Errorf("took %v", took)
		}
		wantMetric(t, c, "reconnects_total", string(causeTooLong), 1)
	})
}

// TestCutAnywhere breaks the connection after every byte of a frame.
func TestCutAnywhere(t *testing.T) {
	frame := commitFrame(11)
	raw := append([]byte{0x82, byte(len(frame))}, frame...)
	if len(frame) > 125 {
		t.Fatal("the frame needs a longer head")
	}
	for cut := range len(raw) + 1 {
		synctest.Test(t, func(t *testing.T) {
			r, l := pipeRelay(t, func(p *peer) {
				if p.n == 1 {
					p.ws.NetConn().Write(raw[:cut])
					return
				}
				first, _ := strconv.ParseInt(p.cursor, 10, 64)
				p.commits(first+1, 12)
				p.wait()
			})
			c := start(t, l, Config{Cursor: 10})
			wantFrames(t, c, 2, "0/11 0/12")
			if want := map[bool]string{false: "10", true: "11"}[cut == len(raw)]; r.cursors()[1] != want {
				t.Errorf("cut after %d of %d bytes: resumed after %s", cut, len(raw), r.cursors()[1])
			}
			wantMetric(t, c, "dropped_total", reasonEmpty.String(), 0)
		})
	}
}

// TestErrorFrames reads on after an error frame. How the connection ends is named after the error
// frame if no frame followed it.
func TestErrorFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			switch p.n {
			case 1: // goes on, and then breaks
				p.commits(11, 12)
				p.send(errorFrameOf(errorTooSlow), commitFrame(13))
			case 2:
				p.send(errorFrameOf(errorTooSlow))
			case 3:
				p.send(errorFrameOf("Fnord"))
				p.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1008, "fnord"), time.Now().Add(time.Second))
				p.wait()
			case 4:
				p.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1012, "restart"), time.Now().Add(time.Second))
				p.wait()
			case 5: // an opcode that RFC 6455 reserves
				p.ws.NetConn().Write([]byte{0x8f, 0})
				p.wait()
			default:
				p.commits(14, 14)
				p.wait()
			}
		})
		c := start(t, l, Config{Cursor: 10})
		wantFrames(t, c, 4, "0/11 0/12 0/13 0/14")
		wantCursors(t, r, "10", "13", "13", "13", "13", "13")
		wantMetric(t, c, "error_frames_total", errorTooSlow, 2)
		wantMetric(t, c, "error_frames_total", errorOther, 1)
		wantMetric(t, c, "reconnects_total", string(causeLost), 1)
		wantMetric(t, c, "reconnects_total", string(causeTooSlow), 1)
		wantMetric(t, c, "reconnects_total", string(causeErrorFrame), 1)
		wantMetric(t, c, "reconnects_total", string(causeClosed), 1)
		wantMetric(t, c, "reconnects_total", string(causeProtocol), 1)
	})
}

// TestErrorFrameAtOnePlace has a relay that sends an error frame at the same place of its stream
// each time, of any name. It is passed on the first connection.
func TestErrorFrameAtOnePlace(t *testing.T) {
	for _, name := range []string{errorTooSlow, errorFutureCursor, "Fnord"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, l := pipeRelay(t, func(p *peer) {
					p.commits(11, 12)
					for range 100 {
						p.send(errorFrameOf(name))
					}
					p.commits(13, 14)
					p.wait()
				})
				c := start(t, l, Config{Cursor: 10})
				wantFrames(t, c, 4, "0/11 0/12 0/13 0/14")
				testwait.Elapse(10 * time.Minute)
				wantCursors(t, r, "10")
				wantMetric(t, c, "error_frames_total", "", 100)
				if st := c.Status(); st.Suspect || !st.Connected {
					t.Errorf("status: %+v", st)
				}
			})
		})
	}
}

// TestErrorFrameThenSilence has a relay that sends error frames, one every few seconds, and
// neither closes nor goes on.
func TestErrorFrameThenSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			if p.n > 1 {
				p.commits(11, 11)
				p.wait()
			}
			for p.send(errorFrameOf("Fnord")) {
				select {
				case <-time.After(errorFrameWait / 3):
				case <-p.gone:
					return
				}
			}
		})
		c := start(t, l, Config{Cursor: 10})
		began := time.Now()
		c.until(t, 1)
		if took := time.Since(began); took < errorFrameWait || took > errorFrameWait+backoffBase {
			t.Errorf("took %v", took)
		}
		wantCursors(t, r, "10", "10")
		wantMetric(t, c, "reconnects_total", string(causeErrorFrame), 1)
	})
}

// TestFlakyRelay has a relay of 20 frames a second that cuts every few seconds: all is handed over
// within 3 s of the end.
func TestFlakyRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, every = 2_400, 50 * time.Millisecond
		began := time.Now()
		_, l := pipeRelay(t, func(p *peer) {
			next, _ := strconv.ParseInt(p.cursor, 10, 64)
			cut := time.After(time.Second + time.Duration(p.n%5)*time.Second)
			for next++; next <= total; next++ {
				select {
				case <-time.After(time.Until(began.Add(time.Duration(next) * every))):
				case <-cut:
					return
				case <-p.gone:
					return
				}
				if !p.commits(next, next) {
					return
				}
			}
			p.wait()
		})
		c := start(t, l, Config{Start: ptr[int64](0)})
		c.until(t, total)
		if late := time.Since(began) - total*every; late > 3*time.Second {
			t.Errorf("all were handed over %v after the end", late)
		}
		for i, f := range c.all() {
			if f.Seq != int64(i)+1 || f.Gap != nil {
				t.Fatalf("frame %d: %s", i, show([]Frame{f}))
			}
		}
		if n := c.metric(t, "reconnects_total", string(causeLost)); n < 30 {
			t.Errorf("%v connections were cut", n)
		}
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			p.commits(11, 11)
			p.wait()
		})
		r.refusal = func(n int, w http.ResponseWriter) bool {
			switch n {
			case 1:
				http.Error(w, "slow down", http.StatusTooManyRequests)
			case 2:
				http.Error(w, `{"error":"UpstreamFailure","message":"down"}`, http.StatusBadGateway)
			}
			return n < 3
		}
		c := start(t, l, Config{Cursor: 10})
		wantFrames(t, c, 1, "0/11")
		wantCursors(t, r, "10", "10", "10")
		wantMetric(t, c, "reconnects_total", string(causeRefused), 2)
	})
}

func TestHandleErrorEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			p.commits(11, 20)
			p.wait()
		})
		failed := errors.New("disk is full")
		c, err := New(Config{hooks: testHooks{dial: l.Dial}, Cursor: 10, Handle: func(_ context.Context, f Frame) error {
			if f.Seq == 13 {
				return failed
			}
			return nil
		}, URL: "ws://relay.test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); !errors.Is(err, failed) {
			t.Fatalf("Run: %v", err)
		}
		if s := c.Status(); s.Connected || s.Seq != 12 {
			t.Errorf("status %+v", s)
		}
		if err := c.Run(t.Context()); err == nil {
			t.Error("Run ran twice")
		}
		r.wg.Wait()
		if diff := cmp.Diff([]int{websocket.CloseNormalClosure}, r.closes); diff != "" {
			t.Errorf("close frames (-want +got):\n%s", diff)
		}
	})
}

// TestHandleStops: a Handle that returns why it was stopped is no failure of Run; any other error
// is.
func TestHandleStops(t *testing.T) {
	why, failed := errors.New("shutdown"), errors.New("disk is full")
	for _, tc := range []struct {
		name      string
		err, want error
	}{{"canceled", context.Canceled, nil}, {"cause", why, nil}, {"failure", failed, failed}} {
		synctest.Test(t, func(t *testing.T) {
			_, l := pipeRelay(t, func(p *peer) {
				p.commits(11, 20)
				p.wait()
			})
			ctx, stop := context.WithCancelCause(t.Context())
			c, err := New(Config{hooks: testHooks{dial: l.Dial}, Cursor: 10, URL: "ws://relay.test", Handle: func(context.Context, Frame) error {
				stop(why)
				return fmt.Errorf("handle: %w", tc.err)
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Run(ctx); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, l := pipeRelay(t, func(p *peer) {
			p.pause(time.Minute)
			if p.n == 1 {
				p.commits(11, 11)
			}
			p.wait()
		})
		c := start(t, l, Config{Cursor: 10, Epoch: 2})
		testwait.Elapse(2 * time.Minute)
		want := Status{Host: "relay.test", Connected: true, Since: began, LastFrame: began.Add(time.Minute), Epoch: 2, Seq: 11}
		if diff := cmp.Diff(want, c.Status()); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		l.Close()
		c.stop()
		if s := c.Status(); s.Connected || !s.Since.After(began) {
			t.Errorf("status after Run: %+v", s)
		}
	})
}

func TestConfig(t *testing.T) {
	ok := func(context.Context, Frame) error { return nil }
	for _, tc := range []struct {
		want string // how the error begins
		cfg  Config
	}{
		{"relay: ", Config{Handle: ok}},
		{"consume: field Handle: ", Config{URL: "a.test"}},
		{"consume: field Cursor: ", Config{URL: "a.test", Handle: ok, Cursor: -1}},
		{"consume: field Start: ", Config{URL: "a.test", Handle: ok, Start: ptr[int64](-1)}},
		{"consume: field Start: ", Config{URL: "a.test", Handle: ok, Cursor: 10, Start: ptr[int64](9)}},
		{"consume: field Previous: ", Config{URL: "a.test", Handle: ok, Cursor: 10, Epoch: 1, Previous: &EpochEnd{0, 5}}},
		{"consume: field Previous: ", Config{URL: "a.test", Handle: ok, Epoch: 1, Previous: &EpochEnd{1, 5}}},
		{"consume: field EpochPatience: ", Config{URL: "a.test", Handle: ok, EpochPatience: -1}},
		{"", Config{URL: "a.test", Handle: ok, Cursor: 10, Start: ptr[int64](10)}},
		{"", Config{URL: "a.test", Handle: ok, Epoch: 2, Previous: &EpochEnd{1, 5}}},
		{"", Config{URL: "a.test", Handle: ok, EpochPatience: 1}},
	} {
		switch _, err := New(tc.cfg); {
		case tc.want == "" && err != nil:
			t.Error(err)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
	c, err := New(Config{URL: "a.test", Handle: ok})
	if err != nil {
		t.Fatal(err)
	}
	if c.cfg.UserAgent != "millrace" {
		t.Errorf("the defaults differ from Config's comments: %+v", c.cfg)
	}
	if c.cfg.EpochPatience != 5*time.Minute || maxMessageBytes != 5<<20 || errorFrameWait != 10*time.Second || backoffCap != 30*time.Second {
		t.Errorf("what docs/operations.md and docs/input.md say is not so: %v, %d bytes, %v, %v", c.cfg.EpochPatience, maxMessageBytes, errorFrameWait, backoffCap)
	}
}

// TestSinceStays: failed attempts to connect do not change since when there is no connection.
func TestSinceStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{URL: "ws://relay.test", Handle: func(context.Context, Frame) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		want := time.Now()
		for _, connected := range []bool{false, false, true, true, false} {
			testwait.Elapse(time.Minute)
			if connected != c.Status().Connected {
				want = time.Now()
			}
			c.setConnected(connected, "", "")
			if got := c.Status().Since; !got.Equal(want) {
				t.Errorf("connected %t since %v, want %v", connected, got, want)
			}
		}
	})
}
