package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
	"millrace/dict"
	"millrace/public/client"
)

// fake serves websockets that say whatever the test lets them say; then they answer pings, and no
// more.
func fake(t *testing.T, say func(n int, ws *websocket.Conn)) (url string, connections *atomic.Int64) {
	t.Helper()
	h, connections := fakeHandler(say)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL, connections
}

// fakeHandler is what fake serves.
func fakeHandler(say func(n int, ws *websocket.Conn)) (h http.Handler, connections *atomic.Int64) {
	connections = new(atomic.Int64)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/subscribe" {
			http.NotFound(w, r)
			return
		}
		talk(w, r, func(ws *websocket.Conn) { say(int(connections.Add(1)), ws) })
	}), connections
}

// talk upgrades the request, and answers pings once say has returned.
func talk(w http.ResponseWriter, r *http.Request, say func(ws *websocket.Conn)) {
	ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	say(ws)
	for err == nil {
		_, _, err = ws.NextReader()
	}
}

const oneEvent = `{"did":"did:plc:a","time_us":1790000000000000,"kind":"identity","identity":{"did":"did:plc:a","seq":1,"time":"t"}}`

// What cannot be read is asked for once more, and then it is an error. What needs a dictionary that
// is not to be had, or is larger than anything can be, is one at once.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	registry, err := dict.NewRegistry(dict.BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	enc, err := registry.Encoder(dict.BuiltInID)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		kind  int
		msg   []byte
		want  error
		conns int64
	}{
		"no event":      {websocket.TextMessage, []byte(`{"did":"did:plc:a"}`), client.ErrUnreadable, 2},
		"no JSON":       {websocket.TextMessage, []byte(`hello`), client.ErrUnreadable, 2},
		"broken info":   {websocket.TextMessage, []byte(`{"kind":"info","info":[]}`), client.ErrUnreadable, 2},
		"no zstd":       {websocket.BinaryMessage, []byte(`hello`), client.ErrUnreadable, 2},
		"no dictionary": {websocket.BinaryMessage, enc.Append(nil, []byte(oneEvent)), client.ErrDictionary, 1},
		"too large":     {websocket.TextMessage, make([]byte, 9<<20), client.ErrTooLarge, 1},
	} {
		url, conns := fake(t, func(_ int, ws *websocket.Conn) { _ = ws.WriteMessage(tc.kind, tc.msg) })
		if err := firstError(t, newClient(t, client.Config{URL: url})); !errors.Is(err, tc.want) || conns.Load() != tc.conns {
			t.Errorf("%s: %v after %d connections, want %v after %d", name, err, conns.Load(), tc.want, tc.conns)
		}
	}
	// One failure is tolerated, and a known dictionary is not fetched.
	url, _ := fake(t, func(n int, ws *websocket.Conn) {
		msg := []byte("hello")
		if n == 2 {
			msg = enc.Append(nil, []byte(oneEvent))
		}
		_ = ws.WriteMessage(websocket.BinaryMessage, msg)
	})
	c := newClient(t, client.Config{URL: url, Compress: true, Dictionaries: [][]byte{dict.BuiltIn().Bytes()}})
	if got := read(t, c, 1); string(got[0].Raw) != oneEvent {
		t.Errorf("got %s", got[0].Raw)
	}
}

// TestLongErrors: what a server says, in whatever way, is short in the client's errors.
func TestLongErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 512<<10)
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(conn, long+"\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}))
	t.Cleanup(garbage.Close)
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		talk(w, r, func(ws *websocket.Conn) {
			_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"$type":"error","error":"InternalError","message":"`+long+`"}`))
		})
	}))
	t.Cleanup(failing.Close)
	for url, want := range map[string]string{garbage.URL: "malformed HTTP", failing.URL + client.V2Path: "InternalError"} {
		err := firstError(t, newClient(t, client.Config{URL: url, NoReconnect: true}))
		if text := err.Error(); !strings.Contains(text, want) || len(text) > 8<<10 {
			t.Errorf("%d bytes: %.200s", len(text), text)
		}
	}
}

// A server that closes says why; a connection that is gone is no answer of the server's.
func TestEndings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		code int // of the close frame; 0: there is none
		text string
	}{
		"gone":      {0, ""},
		"restart":   {websocket.CloseServiceRestart, "soon"},
		"no reason": {websocket.CloseNormalClosure, ""},
		"wrong":     {websocket.CloseNormalClosure, "invalid"},
		"trimmed":   {4001, "trimmed"},
	} {
		url, _ := fake(t, func(_ int, ws *websocket.Conn) {
			if tc.code == 0 {
				ws.NetConn().Close()
				return
			}
			_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(tc.code, tc.text))
		})
		err := firstError(t, newClient(t, client.Config{URL: url, NoReconnect: true}))
		var closed *client.ClosedError
		switch said := errors.As(err, &closed); {
		case err == nil || said != (tc.code != 0):
			t.Errorf("%s: ends with %v", name, err)
		case said && (closed.Code != tc.code || closed.Reason != tc.text):
			t.Errorf("%s: code %d, reason %q", name, closed.Code, closed.Reason)
		}
	}
}

// A millrace that answers pings and sends neither events nor heartbeats is stuck.
func TestMissingHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		extended := strings.TrimSuffix(oneEvent, "}") + `,"cursor":"b7e1c0-1-0"}`
		h, conns := fakeHandler(func(_ int, ws *websocket.Conn) {
			_ = ws.WriteMessage(websocket.TextMessage, []byte(extended))
		})
		for i, silence := range []time.Duration{2, 3, 6} {
			c := servePipes(t, h, client.Config{Silence: silence * time.Second, Heartbeat: time.Second, NoReconnect: true})
			begin := time.Now()
			err := firstErrorOf(t.Context(), c)
			want := max(silence, 3) * time.Second
			if took := time.Since(begin); !errors.Is(err, client.ErrSilent) || took != want || int(conns.Load()) != i+1 {
				t.Errorf("%v after %v and %d connections, want %v", err, took, conns.Load(), want)
			}
		}
	})
}

// A client that was served goes on asking a server that refuses it, for a minute from the first
// refusal since it was served last.
func TestPatienceBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		served := 0
		events, _ := fakeHandler(func(n int, ws *websocket.Conn) {
			event := fmt.Sprintf(`{"did":"did:plc:a%d","time_us":%d,"kind":"identity","identity":{}}`, n, 1_790_000_000_000_000+n)
			_ = ws.WriteMessage(websocket.TextMessage, []byte(event))
			_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseServiceRestart, ""))
		})
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if time.Since(begin) < time.Duration(served)*50*time.Second {
				http.Error(w, "not now", http.StatusBadRequest)
				return
			}
			served++
			events.ServeHTTP(w, r)
		})
		c := servePipes(t, h, client.Config{OnDisconnect: func(error, time.Duration) {}})
		if got := read(t, c, 3); len(got) != 3 || time.Since(begin) < 100*time.Second {
			t.Errorf("%d events in %v", len(got), time.Since(begin))
		}
	})
}

// The pause grows also where each attempt takes as long as a connection that counts as a success.
func TestBackoffWhereNothingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		var waits []time.Duration
		c := newClient(t, client.Config{URL: "ws://nowhere.test", MinBackoff: time.Second, OnDisconnect: func(_ error, wait time.Duration) {
			if waits = append(waits, wait); len(waits) == 5 {
				cancel(io.EOF)
			}
		}})
		c.DialBy(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		// A pause is at least half of its base, which doubles.
		if err := firstErrorOf(ctx, c); !errors.Is(err, io.EOF) || waits[len(waits)-1] < 8*time.Second {
			t.Errorf("%v after pauses of %v", err, waits)
		}
	})
}

// The pause grows also where a message comes over each connection, but nothing new, or nothing that
// can be read.
func TestBackoffWithoutProgress(t *testing.T) {
	const ofDictionary77777 = "\x28\xb5\x2f\xfd\x23\xd1\x2f\x01\x00\x02\x11\x00\x00{}"
	for msg, kind := range map[string]int{
		ofDictionary77777: websocket.BinaryMessage,
		oneEvent:          websocket.TextMessage,
		`{"kind":"info","info":{"name":"cursor_clamped"}}`: websocket.TextMessage,
	} {
		synctest.Test(t, func(t *testing.T) {
			events, _ := fakeHandler(func(_ int, ws *websocket.Conn) {
				_ = ws.WriteMessage(kind, []byte(msg))
				_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseServiceRestart, ""))
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			var waits []time.Duration
			c := servePipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/dictionaries/") {
					http.Error(w, "not now", http.StatusServiceUnavailable)
					return
				}
				events.ServeHTTP(w, r)
			}), client.Config{Compress: true, MinBackoff: time.Second, OnInfo: func(client.Info) {}, OnDisconnect: func(_ error, wait time.Duration) {
				if waits = append(waits, wait); len(waits) == 5 {
					cancel(io.EOF)
				}
			}})
			for range c.Events(ctx) {
			}
			// A pause is at least half of its base, which doubles.
			if len(waits) < 5 || waits[4] < 8*time.Second {
				t.Errorf("%q: pauses of %v", msg, waits)
			}
		})
	}
}

// A client that is stopped waits for no answer to its handshake.
func TestStopInHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := servePipes(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			cancel(io.EOF)
			<-r.Context().Done()
		}), client.Config{})
		begin := time.Now()
		if err := firstErrorOf(ctx, c); !errors.Is(err, io.EOF) || time.Since(begin) > 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// A client that is stopped gives out nothing more, whatever it has read ahead.
func TestStopWithEventsReadAhead(t *testing.T) {
	t.Parallel()
	url, _ := fake(t, func(_ int, ws *websocket.Conn) {
		frame := "\x81" + string(rune(len(oneEvent))) + oneEvent
		_, _ = io.WriteString(ws.NetConn(), frame+strings.Replace(frame, ":1,", ":2,", 1)) // at once
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := 0
	for _, err := range newClient(t, client.Config{URL: url}).Events(ctx) {
		if err == nil {
			events++
			cancel()
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if events != 1 {
		t.Errorf("%d events, of which only the first came before the end of the context", events)
	}
}

// The shortest Lag is short, and no panic.
func TestShortestLag(t *testing.T) {
	t.Parallel()
	url, _ := fake(t, func(_ int, ws *websocket.Conn) { ws.Close() })
	if err := firstError(t, newClient(t, client.Config{URLs: []string{url, url}, Lag: 1, NoReconnect: true})); err == nil {
		t.Error("the connection that is closed goes on")
	}
}

// Options that change while a connection is made are sent over it.
func TestUpdateWhileConnecting(t *testing.T) {
	t.Parallel()
	l, s := served(t)
	var c *client.Client
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.Update(client.Options{DIDs: []string{didN(2)}}); err != nil {
			t.Error(err)
		}
		s.public.Handler().ServeHTTP(w, r)
	}))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var adding sync.WaitGroup
	defer adding.Wait()
	defer cancel()
	c = newClient(t, client.Config{URL: srv.URL, Options: client.Options{DIDs: []string{didN(1)}}, OnInfo: onceLive(func() {
		adding.Go(func() { keepAdding(ctx, l, identity(didN(1)), identity(didN(2))) })
	})})
	updated := 0
	for e, err := range c.Events(ctx) { // the server reads the update when it likes
		if err != nil {
			t.Fatalf("after %d events of %s: %v", updated, didN(2), err)
		}
		if e.DID == didN(2) {
			updated++
		} else if updated > 0 {
			t.Fatalf("got an event of %s after %d of %s", e.DID, updated, didN(2))
		}
		if updated == 3 {
			break
		}
	}
}

// Of two updates at a time the server hears last of the one that the client will go by, whoever
// writes first.
func TestUpdatesAtATime(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 2)
	url, _ := fake(t, func(_ int, ws *websocket.Conn) {
		_ = ws.WriteMessage(websocket.TextMessage, []byte(oneEvent))
		for range cap(heard) {
			_, msg, err := ws.ReadMessage()
			if err != nil {
				return
			}
			heard <- string(msg)
		}
	})
	c := newClient(t, client.Config{URL: url})
	for _, err := range c.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		release := c.HoldWrites()
		var updating sync.WaitGroup
		for i := 1; i <= cap(heard); i++ {
			updating.Go(func() {
				if err := c.Update(client.Options{DIDs: []string{didN(i)}}); err != nil {
					t.Error(err)
				}
			})
			testwait.Eventually(t, patience, "it waits for its turn", func() bool { return c.Updates() == i })
		}
		release()
		updating.Wait()
		for range cap(heard) {
			if msg := <-heard; !strings.Contains(msg, didN(2)) {
				t.Errorf("the server heard %s, but the options are those of %s by then", msg, didN(2))
			}
		}
		break
	}
}

// brokenWrites is a connection whose writes fail once err is set.
type brokenWrites struct {
	net.Conn
	err atomic.Pointer[error]
}

func (c *brokenWrites) Write(p []byte) (int, error) {
	if err := c.err.Load(); err != nil {
		return 0, *err
	}
	return c.Conn.Write(p)
}

// A connection over which options cannot be sent ends, and the reason is that of the write.
func TestUpdateCannotBeSent(t *testing.T) {
	t.Parallel()
	url, _ := fake(t, func(_ int, ws *websocket.Conn) { _ = ws.WriteMessage(websocket.TextMessage, []byte(oneEvent)) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var reasons []error
	c := newClient(t, client.Config{URL: url, OnDisconnect: func(err error, _ time.Duration) { reasons = append(reasons, err); cancel() }})
	broken := &brokenWrites{}
	c.DialBy(func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
		broken.Conn = raw
		return broken, err
	})
	for _, err := range c.Events(ctx) {
		if err != nil {
			break
		}
		gone := io.ErrShortWrite
		broken.err.Store(&gone)
		if err := c.Update(client.Options{DIDs: []string{didN(1)}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(reasons) != 1 || !errors.Is(reasons[0], io.ErrShortWrite) || !strings.HasPrefix(reasons[0].Error(), "the connection broke: send the options: ") {
		t.Errorf("disconnected by %v", reasons)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	l := newEventLog(t, traffic(0, 20)...)
	srv := httptest.NewTLSServer(serve(t, l).public.Handler())
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	c := newClient(t, client.Config{URL: srv.URL, Cursor: "0", Compress: true, TLS: &tls.Config{RootCAs: roots}})
	check(t, read(t, c, len(l.all())), l.all())
	checkNoMore(t, c, l)
}

// A file that was kept under a wrong name is not taken for what its name says.
func TestDictionaryOfAnotherID(t *testing.T) {
	t.Parallel()
	l, s := served(t, traffic(0, 5)...)
	cfg := client.Config{URL: s.URL, Cursor: "0", Compress: true, DictionaryDir: t.TempDir()}
	check(t, read(t, newClient(t, cfg), 5), l.all()[:5])
	files, err := filepath.Glob(filepath.Join(cfg.DictionaryDir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(raw[4:], 4242)
	if err := os.WriteFile(files[0], raw, 0o644); err != nil {
		t.Fatal(err)
	}
	check(t, read(t, newClient(t, cfg), 5), l.all()[:5])
	if mended, err := os.ReadFile(files[0]); err != nil || binary.LittleEndian.Uint32(mended[4:]) != dict.BuiltInID {
		t.Errorf("the file is not replaced: %v", err)
	}
}

// BenchmarkEvents reads a log of some megabytes through the whole client.
func BenchmarkEvents(b *testing.B) {
	for _, compress := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "zstd"}[compress], func(b *testing.B) {
			l := newEventLog(b)
			s := serve(b, l)
			for i := range 20 {
				l.add(traffic(500*i, 500)...)
			}
			all := l.all()
			bytes := 0
			for _, e := range all {
				bytes += len(e.json)
			}
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				read(b, newClient(b, client.Config{URL: s.URL, Cursor: "0", Compress: compress}), len(all))
			}
			b.ReportMetric(float64(b.N*len(all))/b.Elapsed().Seconds(), "events/s")
		})
	}
}
