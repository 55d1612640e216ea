package public

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/replay"
	"millrace/translate"
)

// extendedJSON is an event as extended subscribers get it, interning being off.
func extendedJSON(e truth) string {
	return strings.TrimSuffix(e.json, "}") + `,"cursor":"` + e.cursor() + `"}`
}

// wantExtended reads exactly these events.
func (c *client) wantExtended(events ...truth) {
	c.t.Helper()
	for i, e := range events {
		if _, got := c.next(); string(got) != extendedJSON(e) {
			c.t.Fatalf("event %d of %d is\n%s\nwant\n%s", i, len(events), got, extendedJSON(e))
		}
	}
}

func TestExtendedEvents(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	c := s.dial("cursor=0&extended=true")
	c.wantExtended(all...)
	c.info("live")
	c.wantExtended(l.add(identity(didN(1)))...)

	c = s.dial("cursor=0&extended=true&compress=true")
	d := jetstreams(t)
	for _, e := range l.all() {
		if _, p := c.next(); decode(t, d, p) != extendedJSON(e) {
			t.Fatalf("got %s\nwant %s", decode(t, d, p), extendedJSON(e))
		}
	}
	kind, p := c.next()
	if infoOf(t, []byte(decode(t, d, p)), "live"); kind != websocket.BinaryMessage {
		t.Error("an info message on a compressed connection is text")
	}
}

func TestExtendedLive(t *testing.T) {
	l := newTestLog(t)
	s := serve(t, l, nil)
	empty := s.dial("extended=true").info("live")
	if _, ok := empty["cursor"]; ok {
		t.Errorf("the log is empty: %v", empty)
	}
	all := l.add(posts(30)...)
	c := s.dial("extended=true&cursor=0&wantedCollections=com.example.none")
	m := c.info("live")
	last := all[len(all)-1]
	if m["cursor"] != last.cursor() || fmt.Sprint(m["time_us"]) != fmt.Sprint(last.timeUS) {
		t.Errorf("live at %v, want %s", m, last.cursor())
	}
	c.wantExtended(l.add(identity(didN(1)))...)
	c.wantExtended(l.add(identity(didN(2)))...) // nothing came between
}

func TestExtendedGap(t *testing.T) {
	l := newTestLog(t)
	before := l.add(posts(2)...)
	from := before[1].pos
	to := from
	l.seq += 100
	to.Seq = l.seq + 1
	after := l.addAfter(&replay.Gap{From: from, To: to}, posts(2)...)
	s := serve(t, l, nil)
	s.dial("cursor=0").want(l.all()...)
	c := s.dial("cursor=0&extended=true")
	c.wantExtended(before...)
	m := c.info("gap")
	if m["from"] != from.String() || m["to"] != to.String() || fmt.Sprint(m["time_us"]) > fmt.Sprint(after[0].timeUS) {
		t.Errorf("gap %v, want %v to %v", m, from, to)
	}
	c.wantExtended(after...)
}

func TestPositionCursor(t *testing.T) {
	l := newTestLog(t)
	l.add(create(didN(1), "app.bsky.feed.post", "0", ""), creates(didN(1), "app.bsky.feed.post", "x", "a", "b", "c"), identity(didN(2)))
	l.add(posts(5)...)
	all := l.all()
	s := serve(t, l, nil)
	for i, e := range all[:len(all)-1] {
		s.dial("cursor=" + e.cursor()).want(all[i+1:]...)
	}
	c := s.dial("cursor=" + all[len(all)-1].cursor())
	c.want(l.add(identity(didN(3)))...)
}

func TestPositionCursorAheadOfTheLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		last := l.add(posts(3)...)[2]
		ahead := last.pos
		ahead.Seq += 2 // two frames further
		s := serveBubble(t, l, nil)
		c := s.dial("heartbeat=1&extended=true&cursor=" + ahead.String())
		c.info("live")
		m := c.info("heartbeat")
		if m["cursor"] != ahead.String() {
			t.Errorf("heartbeat before the log is there: %v, want cursor %s", m, ahead)
		}
		l.add(identity(didN(1)))
		l.add(identity(didN(2)))
		next := l.add(identity(didN(3)))
		for {
			_, p := c.next()
			if strings.Contains(string(p), `"kind":"heartbeat"`) {
				continue
			}
			if string(p) != extendedJSON(next[0]) {
				t.Fatalf("got %s\nwant %s", p, extendedJSON(next[0]))
			}
			return
		}
	})
}

func TestWantedKinds(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	for query, want := range map[string][]int{
		"wantedKinds=commit":                                   {0, 1, 2, 3, 4},
		"wantedKinds=identity":                                 {6},
		"wantedKinds=account,identity":                         {5, 6},
		"wantedKinds=account&wantedKinds=identity":             {5, 6},
		"wantedKinds=commit,identity,account":                  {0, 1, 2, 3, 4, 5, 6},
		"wantedKinds=commit&wantedCollections=app.bsky.feed.*": {0, 1},
		"wantedKinds=,account,":                                {5},
	} {
		c := s.dial("cursor=0&" + query)
		c.want(pick(all, want...)...)
	}
	c := s.dial("cursor=0&wantedKinds=commit")
	c.want(all[:5]...)
	c.want(l.add(identity(didN(1)), posts(1)[0])[1])
}

func TestZstdDictionaryByID(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	d := l.dictionaries.Stored()
	c := s.dial(fmt.Sprintf("cursor=0&zstdDictionary=%d", d.ID()))
	for _, e := range all {
		if kind, p := c.next(); kind != websocket.BinaryMessage || decode(t, d, p) != e.json {
			t.Fatalf("kind %d, %x", kind, p)
		}
	}
	s.want400("zstdDictionary=4242", fmt.Sprintf("stored one is %d", d.ID()))
	for _, bad := range []string{"0", "-1", "x", "99999999999"} {
		s.want400("zstdDictionary="+bad, "no dictionary ID")
	}
}

func TestOwnParametersAreChecked(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	s.want400("extended=1", "extended")
	s.want400("strict=yes", "strict")
	s.want400("wantedKinds=commit,post", "wantedKinds")
	for _, bad := range []string{"0", "-1", "0.5", "3601", "often"} {
		s.want400("heartbeat="+bad, "heartbeat")
	}
	s.dial("extended=false&strict=false&heartbeat=3600")
}

func TestHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		s := serveBubble(t, l, nil)
		if m := s.dial("heartbeat=1").info("heartbeat"); m["cursor"] != nil || fmt.Sprint(m["time_us"]) != "0" {
			t.Errorf("the log is empty: %v", m)
		}
		last := l.add(posts(10)...)[9]
		begin := time.Now()
		c := s.dial("heartbeat=1&wantedCollections=com.example.none&cursor=0")
		for range 2 {
			m := c.info("heartbeat")
			if m["cursor"] != last.cursor() || fmt.Sprint(m["time_us"]) != fmt.Sprint(last.timeUS) {
				t.Errorf("heartbeat %v, want %s", m, last.cursor())
			}
		}
		if took := time.Since(begin); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("two heartbeats within %v", took)
		}
		next := l.add(posts(1)...)[0]
		if m := c.info("heartbeat"); m["cursor"] != next.cursor() {
			t.Errorf("heartbeat %v, want %s", m, next.cursor())
		}
	})
}

// TestHeartbeatsBesidePings: pings that come more often than heartbeats put none off.
func TestHeartbeatsBesidePings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := serveBubble(t, newTestLog(t), func(_ *Config, tm *timing) { tm.ping = 300 * time.Millisecond })
		c := s.dial("heartbeat=1")
		begin := time.Now()
		for range 5 {
			c.info("heartbeat")
		}
		if took := time.Since(begin); took > 5100*time.Millisecond {
			t.Errorf("five heartbeats within %v", took)
		}
	})
}

func TestCursorOlderThanTheLogIsClamped(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	s.dial("cursor=1000000").want(all...)
	c := s.dial("cursor=1000000&extended=true")
	m := c.info("cursor_clamped")
	if m["requested"] != "1000000" || fmt.Sprint(m["oldest"]) != fmt.Sprint(all[0].timeUS) || m["oldest_cursor"] != all[0].cursor() {
		t.Errorf("%v", m)
	}
	c.wantExtended(all...)
	s.dial("cursor=0&extended=true").wantExtended(all...)
	s.dial(fmt.Sprintf("cursor=%d&extended=true", all[0].timeUS)).wantExtended(all...)
}

func TestStrictCursor(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	s.want400("strict=true&cursor=1000000", fmt.Sprintf("oldest is %d (%s)", all[0].timeUS, all[0].cursor()))
	s.dial("strict=true&cursor=0").want(all...)
	s.dial(fmt.Sprintf("strict=true&cursor=%d", all[0].timeUS)).want(all...)
	s.dial("strict=true").want(l.add(identity(didN(1)))...)
}

// TestStrictCursorOfAnEmptyLog: what is refused since all was trimmed is said to be.
func TestStrictCursorOfAnEmptyLog(t *testing.T) {
	l, _ := mixed(t)
	if err := l.TrimTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	s := serve(t, l, nil)
	s.want400("strict=true&cursor=1000000", "empty: all of it was trimmed; leave the cursor out")
}

// fakeReader gives what a test wants to be read.
type fakeReader struct {
	next     func(c *replay.Chunk) error
	clamped  bool
	released atomic.Int64
	closed   atomic.Int64
}

func (r *fakeReader) Next(c *replay.Chunk) error                          { return r.next(c) }
func (r *fakeReader) Pending(*replay.PendingScratch) (replay.Point, bool) { return point(1), false }
func (r *fakeReader) SetFilter(*replay.Filter)                            {}
func (r *fakeReader) Clamped() (replay.Point, bool)                       { return point(1), r.clamped }
func (r *fakeReader) Before(int64) bool                                   { return false }
func (r *fakeReader) Release()                                            { r.released.Add(1) }
func (r *fakeReader) Close()                                              { r.closed.Add(1) }

func point(seq int64) replay.Point {
	return replay.Point{TimeUS: seq, Position: translate.Position{Stream: 0xabc, Seq: seq}}
}

// fakeSource is an event log of one fakeReader after the other.
func fakeSource(next func(c *replay.Chunk) error) eventLog {
	return eventLog{
		changed:   func() <-chan struct{} { return nil },
		newReader: func(replay.ReaderConfig) (reader, error) { return &fakeReader{next: next}, nil },
		rangeOf:   func() replay.Range { return replay.Range{} },
	}
}

// thenError is a reader that gives one event and then an error.
func thenError(err error) eventLog {
	return eventLog{
		changed: func() <-chan struct{} { return nil },
		newReader: func(replay.ReaderConfig) (reader, error) {
			calls := 0
			return &fakeReader{next: func(c *replay.Chunk) error {
				if calls++; calls > 1 {
					return err
				}
				*c = replay.Chunk{Frames: [][]byte{appendFrame(nil, frameText, []byte("event"))}, Events: 1, Through: point(1)}
				return nil
			}}, nil
		},
		rangeOf: func() replay.Range { return replay.Range{} },
	}
}

func TestTrimmedSubscriber(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := serveSourceBubble(t, thenError(fmt.Errorf("read: %w", replay.ErrTrimmed)), newRegistry(t), nil)
		for query, code := range map[string]int{"": websocket.CloseAbnormalClosure, "extended=true": closeTrimmed} {
			c := s.dial(query)
			if _, p := c.next(); string(p) != "event" {
				t.Errorf("got %s", p)
			}
			c.wantClose(code, "")
		}
		s.waitMetric("ends_total", endTrimmed, 2)
	})
}

func TestLogFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var said syncBuffer
		s := serveSourceBubble(t, thenError(errors.New("disk on fire")), newRegistry(t), func(cfg *Config, _ *timing) { cfg.Logger = newTextLogger(&said) })
		s.dial("").wantClose(websocket.CloseAbnormalClosure, "")
		s.dial("extended=true").wantClose(websocket.CloseInternalServerErr, "cannot be read")
		s.waitMetric("ends_total", endLogFailure, 2)
		if n := strings.Count(said.String(), "disk on fire"); n != 1 {
			t.Errorf("the failure was logged %d times, want once", n)
		}
	})
}
