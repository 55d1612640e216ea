package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/pipenet"
	"millrace/public/client"
)

// scripted is a server of a bubble that says what the test wants.
type scripted struct {
	handling sync.WaitGroup

	mu       sync.Mutex
	cursors  string                                 // the answer of /cursors; "": 404
	hangs    bool                                   // it answers nothing
	refuse   func(query map[string][]string) string // "": it takes the subscription
	say      func(ws *websocket.Conn)               // until it returns; then pings are answered
	accepted []string                               // their cursors
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handling.Add(1)
	defer s.handling.Done()
	s.mu.Lock()
	cursors, hangs, refuse, say := s.cursors, s.hangs, s.refuse, s.say
	s.mu.Unlock()
	if hangs {
		<-r.Context().Done()
		return
	}
	if r.URL.Path == "/cursors" {
		if cursors == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, cursors)
		return
	}
	if refuse != nil {
		if reason := refuse(r.URL.Query()); reason != "" {
			http.Error(w, reason, http.StatusBadRequest)
			return
		}
	}
	s.mu.Lock()
	s.accepted = append(s.accepted, r.URL.Query().Get("cursor"))
	s.mu.Unlock()
	talk(w, r, say)
}

func (s *scripted) reach(seq int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	point := fmt.Sprintf(`{"time_us":%d,"cursor":"b7e1c0-%d-0"}`, 1_790_000_000_000_000+seq, seq)
	s.cursors = fmt.Sprintf(`{"oldest":%s,"newest":%[1]s,"retention_s":1}`, point)
}

func (s *scripted) asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.accepted, " ")
}

// events says the events from one number to the other, with positions.
func events(ws *websocket.Conn, from, to int) {
	for n := from; n <= to; n++ {
		_ = ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil,
			`{"did":"did:plc:a","time_us":%d,"kind":"identity","identity":{"did":"did:plc:a","seq":%[2]d,"time":"t"},"cursor":"b7e1c0-%[2]d-0"}`, 1_790_000_000_000_000+n, n))
	}
}

// sendHeartbeats sends a heartbeat each second until the connection ends.
func sendHeartbeats(ws *websocket.Conn) {
	for ws.WriteMessage(websocket.TextMessage, []byte(`{"kind":"heartbeat","time_us":1790000000000000}`)) == nil {
		time.Sleep(time.Second) // of the bubble
	}
}

// several serves each server at a host of its own, s0, s1 …, and makes a client of them all.
func several(t *testing.T, cfg client.Config, servers ...*scripted) *client.Client {
	t.Helper()
	return severalAt(t, "", cfg, servers...)
}

// severalAt is several with a path of the URLs.
func severalAt(t *testing.T, path string, cfg client.Config, servers ...*scripted) *client.Client {
	t.Helper()
	listeners := map[string]*pipenet.Listener{}
	for i, s := range servers {
		host := fmt.Sprintf("s%d", i)
		srv, l := pipenet.NewServer(s)
		listeners[host+":80"] = l
		srv.Start()
		t.Cleanup(func() { srv.Close(); s.handling.Wait() })
		cfg.URLs = append(cfg.URLs, "http://"+host+path)
	}
	c := newClient(t, cfg)
	c.DialBy(func(ctx context.Context, network, address string) (net.Conn, error) {
		return listeners[address].Dial(ctx, network, address)
	})
	return c
}

// follow reads n events, numbered from first on, and returns how long that took.
func follow(t *testing.T, c *client.Client, first, n int) time.Duration {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	next := int64(first)
	for e, err := range c.Events(ctx) {
		if err != nil {
			t.Fatalf("at %d: %v", next, err)
		}
		if e.Identity.Seq != next {
			t.Fatalf("%d comes instead of %d", e.Identity.Seq, next)
		}
		if next++; next == int64(first+n) {
			break
		}
	}
	return time.Since(begun)
}

// TestSilentServerIsLeft: one that sends nothing for three heartbeats, not even once, is left,
// though it answers pings; the next one goes on after the last position.
func TestSilentServerIsLeft(t *testing.T) {
	for said, asked := range map[int]string{0: "/", 3: "/b7e1c0-3-0"} {
		synctest.Test(t, func(t *testing.T) {
			a := &scripted{say: func(ws *websocket.Conn) { events(ws, 1, said) }}
			b := &scripted{say: func(ws *websocket.Conn) { events(ws, max(1, said), 6) }}
			a.reach(3)
			b.reach(3)
			var reasons []error
			c := several(t, client.Config{OnDisconnect: func(err error, _ time.Duration) { reasons = append(reasons, err) }}, a, b)
			if took := follow(t, c, 1, 6); took != 6*time.Second {
				t.Errorf("it took %v", took)
			}
			if len(reasons) != 1 || !errors.Is(reasons[0], client.ErrSilent) || !strings.HasPrefix(reasons[0].Error(), "ws://s0/subscribe: ") {
				t.Errorf("left for %v", reasons)
			}
			if got := a.asked() + "/" + b.asked(); got != asked || c.Stats().Switches != 1 || c.Stats().Duplicates != int64(min(1, said)) {
				t.Errorf("asked for %s; %+v", got, c.Stats())
			}
		})
	}
}

// TestLaggingServerIsLeft: one that has not reached what another has had for Config.Lag is left,
// and all that is as far as the others is not.
func TestLaggingServerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &scripted{say: func(ws *websocket.Conn) { events(ws, 1, 3); sendHeartbeats(ws) }}
		b := &scripted{say: func(ws *websocket.Conn) { events(ws, 4, 5); sendHeartbeats(ws) }}
		dead := &scripted{}
		a.reach(3)
		b.reach(3)
		dead.reach(3)
		var reasons []error
		c := several(t, client.Config{OnDisconnect: func(err error, _ time.Duration) { reasons = append(reasons, err) }}, a, dead, b)
		time.AfterFunc(time.Minute, func() { b.reach(5); dead.mu.Lock(); dead.cursors = "no answer"; dead.mu.Unlock() })
		if took := follow(t, c, 1, 5); took < 70*time.Second || took > 75*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(reasons) != 1 || !errors.Is(reasons[0], client.ErrLag) || !strings.HasSuffix(reasons[0].Error(), "over 10s behind ws://s2/subscribe") {
			t.Errorf("left for %v", reasons)
		}
		if got := b.asked(); got != "b7e1c0-3-0" {
			t.Errorf("asked for %s", got)
		}
	})
}

// TestSwitchIsShort: where two of three servers fail, the client is at the third within a second,
// though that was left for lag a moment ago, or broke the connection just now.
func TestSwitchIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broke time.Time
		var waits []time.Duration
		ended := func(ws *websocket.Conn) { broke = time.Now(); ws.Close() }
		reads := 0
		a, b, hangs := new(scripted), new(scripted), &scripted{hangs: true}
		a.say = func(ws *websocket.Conn) {
			switch reads++; reads {
			case 1:
				events(ws, 1, 3)
				sendHeartbeats(ws)
			case 2:
				waits = append(waits, time.Since(broke))
				events(ws, 6, 7)
				ended(ws)
			default:
				waits = append(waits, time.Since(broke))
				events(ws, 8, 9)
			}
		}
		b.say = func(ws *websocket.Conn) {
			events(ws, 4, 5)
			time.Sleep(time.Second) // of the bubble
			a.reach(7)
			time.Sleep(3 * time.Second)
			b.mu.Lock()
			b.hangs = true
			b.mu.Unlock()
			ended(ws)
		}
		a.reach(3)
		b.reach(3)
		time.AfterFunc(time.Minute, func() { b.reach(5) })
		c := several(t, client.Config{OnDisconnect: func(error, time.Duration) {}}, a, b, hangs)
		follow(t, c, 1, 9)
		if len(waits) != 2 || max(waits[0], waits[1]) > 1250*time.Millisecond {
			t.Errorf("the switches took %v", waits)
		}
	})
}

// trimmed refuses a cursor that the log does not reach back to, if it must.
func trimmed(query map[string][]string) string {
	if query["strict"] != nil {
		return "cursor is too old"
	}
	return ""
}

// TestServerWithoutTheCursorIsPassedOver: neither one of another relay nor one that has trimmed the
// position is read while one has it. If none has, the longest log is.
func TestServerWithoutTheCursorIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &scripted{refuse: func(map[string][]string) string { return "unknown stream b7e1c0" }}
		short := &scripted{refuse: trimmed, say: func(ws *websocket.Conn) { events(ws, 30, 31) }}
		whole := &scripted{say: func(ws *websocket.Conn) { events(ws, 4, 9) }}
		for s, oldest := range map[*scripted]int{other: 1, short: 30, whole: 2} {
			s.reach(oldest)
		}
		var reasons []string
		cfg := client.Config{Cursor: "b7e1c0-3-0", OnDisconnect: func(err error, _ time.Duration) { reasons = append(reasons, err.Error()) }}
		follow(t, several(t, cfg, other, short, whole), 4, 6)
		if len(reasons) != 2 || !strings.Contains(reasons[0], "s0/subscribe: the server refused: 400 Bad Request: unknown stream") ||
			!strings.Contains(reasons[1], "s1/subscribe: the server refused: 400 Bad Request: cursor is too old") {
			t.Errorf("passed over for %q", reasons)
		}
		shorter := &scripted{refuse: trimmed, say: func(ws *websocket.Conn) { events(ws, 40, 41) }}
		shorter.reach(40)
		follow(t, several(t, cfg, shorter, other, short), 30, 2)
		cfg.Strict = true
		for _, err := range several(t, cfg, shorter, other, short).Events(t.Context()) {
			if want := new(client.RefusedError); !errors.As(err, &want) {
				t.Errorf("strict: %v", err)
			}
		}
	})
}

// TestTrimmedServerAndHangingOne: where one server has trimmed the position and the other does not
// answer, the oldest log is read after a minute.
func TestTrimmedServerAndHangingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, hangs := &scripted{refuse: trimmed, say: func(ws *websocket.Conn) { events(ws, 30, 31) }}, &scripted{hangs: true}
		short.reach(30)
		c := several(t, client.Config{Cursor: "b7e1c0-3-0", MinBackoff: time.Second, OnDisconnect: func(error, time.Duration) {}}, short, hangs)
		if took := follow(t, c, 30, 2); took < time.Minute || took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// TestSeamByTime: a plain Jetstream and a millrace take turns. Where they meet each has some of the
// other's events again, with its own stamps; each event is given out once, in order.
func TestSeamByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const base = 1_790_000_000_000_000
		say := func(skew int, position bool) func(ws *websocket.Conn) {
			turn := 0
			return func(ws *websocket.Conn) {
				first := max(1, 20*turn-9) // ten again
				for n := first; n < 20*turn+20; n++ {
					msg := fmt.Sprintf(`{"did":"did:plc:a","time_us":%d,"kind":"identity","identity":{"did":"did:plc:a","seq":%d,"time":"t"}}`, base+100_000*n+skew, n)
					if position {
						msg = fmt.Sprintf(`%s,"cursor":"b7e1c0-%d-0"}`, strings.TrimSuffix(msg, "}"), n)
					}
					_ = ws.WriteMessage(websocket.TextMessage, []byte(msg))
				}
				turn++
				time.Sleep(10 * time.Millisecond) // of the bubble: the other may be asked again
				ws.Close()
			}
		}
		ours, theirs := &scripted{say: say(0, true)}, &scripted{say: say(-70_000, false)}
		ours.reach(1)
		c := several(t, client.Config{OnDisconnect: func(error, time.Duration) {}}, ours, theirs)
		follow(t, c, 1, 99)
		if got := c.Stats(); got.Switches < 4 || got.Duplicates == 0 {
			t.Errorf("%+v", got)
		}
		for cursor := range strings.FieldsSeq(theirs.asked()) {
			if strings.Contains(cursor, "-") {
				t.Errorf("a Jetstream was asked for %s", cursor)
			}
		}
	})
}

// TestV2ServersArePassedOver: on Jetstream v2's wire neither a server whose seqs are its own is
// read, nor one that has trimmed the seq, while another has it.
func TestV2ServersArePassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooOld := func(query map[string][]string) string {
			if c := query["cursor"][0]; c == "3072" || c == "3073" {
				return `{"error":"CursorTooOld","message":"older than the log"}`
			}
			return ""
		}
		say := func(from int) func(ws *websocket.Conn) {
			return func(ws *websocket.Conn) {
				for n := from; n < from+3; n++ {
					_ = ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#identity",`+
						`"did":"did:plc:a","identity":{"did":"did:plc:a","seq":%d,"time":"t"},"seq":%d,"time":"2026-11-25T00:00:00.000000Z"}}`, n, n<<10))
				}
			}
		}
		foreign := &scripted{say: say(1)} // it has no /cursors
		short, whole := &scripted{refuse: tooOld, say: say(30)}, &scripted{say: say(3)}
		short.reach(30)
		whole.reach(30)
		var reasons []string
		cfg := client.Config{Cursor: "3072", OnDisconnect: func(err error, _ time.Duration) { reasons = append(reasons, err.Error()) }}
		follow(t, severalAt(t, client.V2Path, cfg, foreign, short, whole), 4, 2) // 3 was given out
		if len(reasons) != 2 || !strings.Contains(reasons[0], "its seqs are its own") || !strings.Contains(reasons[1], "CursorTooOld") || foreign.asked() != "" {
			t.Errorf("passed over for %q; the foreign one was asked for %q", reasons, foreign.asked())
		}
		follow(t, severalAt(t, client.V2Path, cfg, short, foreign), 30, 3)
	})
}

// TestServersOfTwoWires: their cursors are not each other's.
func TestServersOfTwoWires(t *testing.T) {
	_, err := client.New(client.Config{URL: "a", URLs: []string{"b" + client.V2Path}})
	if err == nil || !strings.Contains(err.Error(), "field URLs: ws://b"+client.V2Path+" is not of the same wire as ws://a/subscribe") {
		t.Error(err)
	}
}

// TestLargeEventOverSlowConnections: a server that is sending an event is not silent, however long
// that takes, unless next to nothing comes.
func TestLargeEventOverSlowConnections(t *testing.T) {
	for _, tc := range []struct{ bytes, left int }{{300, 0}, {100, 1}} {
		synctest.Test(t, func(t *testing.T) {
			msg := fmt.Sprintf(`{"did":"did:plc:a","time_us":1790000000000004,"kind":"identity","identity":{"did":"did:plc:a","seq":4},"cursor":"b7e1c0-4-0","pad":"%30000d"}`, 0)
			slow := &scripted{say: func(ws *websocket.Conn) {
				events(ws, 1, 3)
				frame := append([]byte{0x81, 126, byte(len(msg) >> 8), byte(len(msg))}, msg...) // of text
				for part := range slices.Chunk(frame, tc.bytes) {
					if _, err := ws.NetConn().Write(part); err != nil {
						return
					}
					time.Sleep(time.Second) // of the bubble
				}
			}}
			next := &scripted{say: func(ws *websocket.Conn) { events(ws, 4, 4) }}
			slow.reach(3)
			next.reach(3)
			c := several(t, client.Config{OnDisconnect: func(error, time.Duration) {}}, slow, next)
			if took := follow(t, c, 1, 4); c.Stats().Disconnects != int64(tc.left)+1 {
				t.Errorf("%d bytes a second: it took %v, and %+v", tc.bytes, took, c.Stats())
			}
		})
	}
}

// TestRefusalsAndShortWaits: one that refused is asked again though another, which fails each time,
// is never far from its next attempt.
func TestRefusalsAndShortWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		h := &scripted{say: func(ws *websocket.Conn) { events(ws, 1, 3) }}
		h.refuse = func(map[string][]string) string {
			if time.Since(begun) < 30*time.Second {
				return "not now"
			}
			return ""
		}
		broken := &scripted{say: func(ws *websocket.Conn) { ws.Close() }}
		h.reach(3)
		broken.reach(3)
		cfg := client.Config{MinBackoff: 500 * time.Millisecond, MaxBackoff: 500 * time.Millisecond, OnDisconnect: func(error, time.Duration) {}}
		if took := follow(t, several(t, cfg, h, broken), 1, 3); took > 45*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
