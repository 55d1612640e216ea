package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gorilla/websocket"

	"millrace/dict/jetstream"
)

// newOf makes a client of a Config that is valid.
func newOf(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStats: each count is its own.
func TestStats(t *testing.T) {
	var c Client
	for i, n := range []interface{ Add(int64) int64 }{
		&c.counts.connects, &c.counts.failures, &c.counts.disconnects, &c.counts.events, &c.counts.bytes, &c.counts.duplicates, &c.counts.fetches, &c.counts.switches,
	} {
		n.Add(int64(i + 1))
	}
	want := Stats{Connects: 1, Failures: 2, Disconnects: 3, Events: 4, Bytes: 5, Duplicates: 6, Fetches: 7, Switches: 8}
	if got := c.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestStrict: a server refuses a cursor that is older than its log if that was asked for, or if
// another server may be asked.
func TestStrict(t *testing.T) {
	two := []*server{{}, {}}
	for _, tc := range []struct {
		c    *Client
		want bool
	}{
		{&Client{servers: two[:1]}, false}, {&Client{servers: two}, true}, {&Client{servers: two, selector: selector{lenient: true}}, false},
		{&Client{servers: two, cfg: Config{NoReconnect: true}}, false}, {&Client{servers: two[:1], cfg: Config{Strict: true}}, true},
	} {
		if got := tc.c.strict(); got != tc.want {
			t.Errorf("%d servers, lenient %t, %+v: %t", len(tc.c.servers), tc.c.selector.lenient, tc.c.cfg, got)
		}
	}
}

// TestOddCursors: an event whose cursor is no position is given out, whatever came before it.
func TestOddCursors(t *testing.T) {
	p := newProgress("", time.Second, false)
	for i, cursor := range []string{"odd", "odd", "a-5-0", "odd", "a-5-0", "a-5-1"} {
		if !p.take(&Event{Cursor: cursor, DID: fmt.Sprint(i), timeEnd: 1}) {
			t.Errorf("event %d, at %s, is not given out", i, cursor)
		}
	}
	if p.take(&Event{Cursor: "a-5-1"}) {
		t.Error("an event comes twice")
	}
}

// TestLiveForgets: the window is of no use at the end of a log, unless logs are joined by time.
func TestLiveForgets(t *testing.T) {
	for _, byTime := range []bool{false, true} {
		p := newProgress("", time.Second, false)
		p.joinByTime(byTime)
		var parsed parser
		e, err := parsed.parse([]byte(commitLine))
		if err != nil || !p.window.add(&e) {
			t.Fatal(err)
		}
		if p.live("a-1-0", 1, time.Now()); len(p.window.seen) > 0 != byTime {
			t.Errorf("by time %t: %d are remembered", byTime, len(p.window.seen))
		}
	}
}

// TestNewOfURLs: who asks is said as the Config has it, and a dictionary that the URL names is not
// asked for.
func TestNewOfURLs(t *testing.T) {
	for agent, header := range map[string]http.Header{"mine": {"User-Agent": {"mine"}}, "of the field": {"X": {"y"}}} {
		c, err := New(Config{URL: "ws://127.0.0.1:1", Header: header, UserAgent: "of the field"})
		if err != nil || c.header.Get("User-Agent") != agent {
			t.Errorf("%v: %v, %v", header, c.header, err)
		}
	}
	c := newOf(t, Config{URL: "ws://127.0.0.1:1" + V2Path + "?zstdDictionary=7", Compress: true})
	if query, hello, err := c.query(t.Context(), c.servers[0], kindMillrace, Options{}); err != nil || hello || !strings.Contains(query, "zstdDictionary=7") {
		t.Errorf("%s, %t, %v", query, hello, err)
	}
	for address, want := range map[string]string{"%": "", "ftp://a": "", "ws://": "", "a?wantedDids=did:a:b;x": "", "a?wantedDids=%zz": "", "a.test": "ws://a.test/subscribe", "https://a.test": "wss://a.test/subscribe", "http://a.test/x": "ws://a.test/x"} {
		if u, err := SubscribeURL(address); (err != nil) != (want == "") || err == nil && u.String() != want {
			t.Errorf("%s: %v, %v", address, u, err)
		}
	}
}

// TestRangeOfServers: the first server that says what its log has is believed. What else answers
// everything, a page or an object, says nothing of a log.
func TestRangeOfServers(t *testing.T) {
	answers := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	refuses, breaks, knows := answers(404, "no"), answers(503, "{"), answers(200, `{"newest":{"cursor":"a-1-0"},"retention_s":7,"gaps":[{"from":"a-0-0"}]}`)
	type row struct {
		urls []string
		says string
	}
	table := []row{{[]string{refuses, breaks, knows}, ""}, {[]string{knows}, ""}, {[]string{breaks, refuses}, "404"}, {[]string{refuses, breaks}, "503"}}
	for _, other := range []string{"", "{", "{}", "<html>", "[]", `"ok"`, "null", `{"status":"ok"}`, `{"newest":{"time_us":1}}`} {
		url := answers(200, other)
		table = append(table, row{[]string{url, knows}, ""}, row{[]string{url}, "client: range of the log: the server refused: 200 OK: it is no millrace's answer"})
	}
	for _, tc := range table {
		c := newOf(t, Config{URLs: tc.urls})
		r, err := c.Range(t.Context())
		if tc.says == "" && (err != nil || r.Newest == nil || r.Newest.Cursor != "a-1-0" || r.Retention != 7*time.Second || len(r.Gaps) != 1) ||
			tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%v: %+v, %v", tc.urls, r, err)
		}
	}
}

// TestExpectHeartbeats: of a server without heartbeats none are expected, also after one that has
// them.
func TestExpectHeartbeats(t *testing.T) {
	c, k := &Client{cfg: Config{Heartbeat: 7}}, &conn{live: &liveConn{}, server: &server{}}
	for _, has := range []bool{false, true, false} {
		c.expectHeartbeats(k, has)
		if want := map[bool]time.Duration{true: 7}[has]; k.server.heartbeat != want || k.live.heartbeat != want {
			t.Errorf("heartbeats %t: %v, of the connection %v", has, k.server.heartbeat, k.live.heartbeat)
		}
	}
}

// TestDefaults compares what is not set with what Config promises.
func TestDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	want := Config{MinBackoff: 500 * time.Millisecond, MaxBackoff: 30 * time.Second, Heartbeat: 10 * time.Second, Silence: 45 * time.Second,
		Overlap: 5 * time.Second, Lag: 10 * time.Second, UserAgent: "millrace-client"}
	if d := cmp.Diff(want, c, cmpopts.IgnoreFields(Config{}, "OnInfo", "OnWait", "Logger")); d != "" || c.OnInfo == nil || c.OnWait == nil || c.Logger != slog.Default() {
		t.Errorf("-want +got:\n%s", d)
	}
	if c := (Config{URLs: []string{"a", "b"}}).withDefaults(); c.Heartbeat != 2*time.Second || c.Silence != 6*time.Second {
		t.Errorf("of two servers: heartbeat %v, silence %v", c.Heartbeat, c.Silence)
	}
	if c := (Config{MinBackoff: time.Hour}).withDefaults(); c.MaxBackoff != time.Hour {
		t.Errorf("the longest back-off is %v, below the shortest", c.MaxBackoff)
	}
}

// TestPlainPlaceAfterStart: a client of a plain Jetstream goes back as far as it was asked to
// start, and no further than the overlap.
func TestPlainPlaceAfterStart(t *testing.T) {
	for _, tc := range []struct {
		start  string
		events []int64
		want   string
	}{
		{"", []int64{100}, "100"}, {"90", []int64{100}, "90"}, {"110", []int64{100}, "100"}, {"b7e1c0-1-0", []int64{100}, "100"},
		{"90", []int64{100, 115}, "95"}, {"90", []int64{115, 100}, "95"},
	} {
		p := newProgress(tc.start, 20*time.Microsecond, false)
		for _, us := range tc.events {
			if !p.take(plain(t, us)) {
				t.Errorf("from %q: event %d is dropped", tc.start, us)
			}
		}
		if got := p.resume(false); got != tc.want {
			t.Errorf("from %q, after %v, it resumes at %s, want %s", tc.start, tc.events, got, tc.want)
		}
	}
}

// TestSeqCursors: which cursors of v2's wire are seqs.
func TestSeqCursors(t *testing.T) {
	for s, want := range map[string]bool{"0": true, "1": true, "999999999999999": true, "1000000000000000": false, "-1": false, "": false, "x": false} {
		if at, ok := parseSeq(s); ok != want || ok && fmt.Sprint(at.seq) != s {
			t.Errorf("%q: %+v, %t", s, at, ok)
		}
	}
}

// TestPermanent: which answers end a subscription.
func TestPermanent(t *testing.T) {
	for err, want := range map[error]bool{
		&RefusedError{Status: 400}: true, &RefusedError{Status: 404}: true, &RefusedError{Status: 499}: true,
		&RefusedError{Status: 408}: false, &RefusedError{Status: 425}: false, &RefusedError{Status: 429}: false,
		&RefusedError{Status: 500}: false, &RefusedError{Status: 503}: false,
		&ClosedError{Code: websocket.CloseNormalClosure}: false, &ClosedError{Code: websocket.CloseNormalClosure, Reason: "wrong options"}: true,
		&ClosedError{Code: websocket.CloseUnsupportedData}: true, &ClosedError{Code: websocket.ClosePolicyViolation}: true,
		&ClosedError{Code: websocket.CloseMessageTooBig}: true, &ClosedError{Code: websocket.CloseMandatoryExtension}: true,
		&ClosedError{Code: websocket.CloseServiceRestart}: false, &ClosedError{Code: 4001}: false,
		ErrDictionary: true, ErrTooLarge: true, errOutdated: true, ErrSilent: false, ErrUnreadable: false,
	} {
		wrapped := fmt.Errorf("read: %w", err)
		var refused *RefusedError
		if isPermanent(wrapped) != want || isRefusal(wrapped) != errors.As(err, &refused) {
			t.Errorf("%v: permanent %t, a refusal %t", err, isPermanent(wrapped), isRefusal(wrapped))
		}
	}
	refused := &RefusedError{Status: 503, RetryAfter: 7}
	if retryAfter(fmt.Errorf("connect: %w", refused)) != 7 || retryAfter(ErrSilent) != 0 || isRefusal(fmt.Errorf("%w: %w", ErrDictionary, refused)) {
		t.Error("what a server asks for is lost, or the refusal of a dictionary is one of the subscription")
	}
}

// TestEndOf turns the errors of websocket reads into this package's.
func TestEndOf(t *testing.T) {
	var closed *ClosedError
	if err := endOf(&websocket.CloseError{Code: 4001, Text: "trimmed"}); !errors.As(err, &closed) || *closed != (ClosedError{4001, "trimmed"}) {
		t.Errorf("closed: %v", err)
	}
	if err := endOf(websocket.ErrReadLimit); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if err := endOf(&websocket.CloseError{Code: websocket.CloseAbnormalClosure}); errors.As(err, &closed) || isPermanent(err) {
		t.Errorf("broken: %v", err)
	}
	if err := endOf(io.ErrUnexpectedEOF); !errors.Is(err, io.ErrUnexpectedEOF) || isPermanent(err) {
		t.Errorf("broken: %v", err)
	}
}

// TestReason: what the server said counts, then why the client closed the connection, and then the
// error of the read.
func TestReason(t *testing.T) {
	read, said := errors.New("use of closed network connection"), &ClosedError{Code: 4001, Reason: "trimmed"}
	for _, tc := range []struct{ left, read, want error }{
		{nil, read, read}, {errNewOptions, read, errNewOptions}, {errNewOptions, said, said}, {nil, said, said},
	} {
		if got := (&Client{}).reason(&conn{left: tc.left}, tc.read); got != tc.want {
			t.Errorf("left for %v, read %v: %v", tc.left, tc.read, got)
		}
	}
}

// TestDialEnds: an attempt that is ended fails with the cause, not with what that does to the
// connection.
func TestDialEnds(t *testing.T) {
	c := newOf(t, Config{URLs: []string{"ws://a.test", "ws://b.test"}})
	ctx, cancel := context.WithCancelCause(t.Context())
	c.hooks.dial = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		cancel(io.ErrNoProgress)
		return ours, nil
	}
	if _, err := c.dial(ctx, c.servers[0], ""); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("ended by %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		attempt, cancel := c.attempt(t.Context(), c.servers[0])
		defer cancel()
		if <-attempt.Done(); context.Cause(attempt).Error() != "no answer within 1s" {
			t.Errorf("an attempt ends with %v", context.Cause(attempt))
		}
	})
}

// TestEndlessAnswer: a server that never ends its answer to the upgrade does not fill the memory.
func TestEndlessAnswer(t *testing.T) {
	c := newOf(t, Config{URL: "ws://a.test"})
	c.hooks.dial = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		var server sync.WaitGroup
		t.Cleanup(server.Wait)
		server.Go(func() {
			defer theirs.Close()
			_, _ = theirs.Read(make([]byte, 1<<10))
			_, err := theirs.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nServer: "))
			for n := 0; n < 16 && err == nil; n++ { // no more, for this test's memory
				_, err = theirs.Write(make([]byte, 1<<20))
			}
		})
		return ours, nil
	}
	if _, err := c.dial(t.Context(), c.servers[0], ""); !errors.Is(err, errLongHandshake) {
		t.Errorf("ended by %v", err)
	}
}

// TestProxyRefuses: a proxy that does not connect is named, whatever it answers.
func TestProxyRefuses(t *testing.T) {
	c := newOf(t, Config{URL: "wss://a.test"})
	c.hooks.proxy = http.ProxyURL(&url.URL{Scheme: "http", User: url.UserPassword("name", "secret"), Host: "proxy.test:3128"})
	for answer, want := range map[string]string{
		"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n": "Proxy Authentication Required",
		"HTTP/1.1 403 \r\n\r\n":                              "it refuses, and gives no reason",
		"HTTP/1.1 403\r\n\r\n":                               "it refuses, and gives no reason",
	} {
		var proxy sync.WaitGroup
		c.hooks.dial = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			proxy.Go(func() {
				defer theirs.Close()
				if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
					_, _ = io.WriteString(theirs, answer)
				}
			})
			return ours, nil
		}
		_, err := c.dial(t.Context(), c.servers[0], "")
		if want := "connect: through the proxy proxy.test:3128: " + want; fmt.Sprint(err) != want {
			t.Errorf("%q: %v, want %s", answer, err, want)
		}
		_, err = c.Range(t.Context())
		if want := "through the proxy proxy.test:3128: " + strings.TrimSpace(answer[len("HTTP/1.1 "):]); !strings.HasSuffix(fmt.Sprint(err), want) {
			t.Errorf("%q: %v, want %s", answer, err, want)
		}
		proxy.Wait()
	}
}

// TestSocksProxies: proxies of both SOCKS schemes are asked for the server by its name.
func TestSocksProxies(t *testing.T) {
	c := newOf(t, Config{URL: "wss://a.test"})
	for _, scheme := range []string{"socks5", "socks5h"} {
		c.hooks.proxy = http.ProxyURL(&url.URL{Scheme: scheme, Host: "proxy.test:1080"})
		asked := ""
		ours, theirs := net.Pipe()
		var proxy sync.WaitGroup
		proxy.Go(func() { // RFC 1928
			defer theirs.Close()
			request := make([]byte, 3+5+len("a.test"))
			_, _ = io.ReadFull(theirs, request[:3])
			_, _ = theirs.Write([]byte{5, 0})
			_, _ = io.ReadFull(theirs, request[3:])
			asked = string(request[8:])
		})
		c.hooks.dial = func(context.Context, string, string) (net.Conn, error) { return ours, nil }
		_, err := c.dial(t.Context(), c.servers[0], "")
		ours.Close()
		if proxy.Wait(); asked != "a.test" {
			t.Errorf("%s: the proxy was asked for %q: %v", scheme, asked, err)
		}
	}
}

// TestRefusalOf reads what servers answer instead of a subscription.
func TestRefusalOf(t *testing.T) {
	for body, want := range map[string]string{
		" too many DIDs \n": "too many DIDs", `{"error":"CursorTooOld","message":"by far"}`: "CursorTooOld: by far", `{"message":"x"}`: `{"message":"x"}`,
		strings.Repeat("x", 2000): strings.Repeat("x", 1<<10),
	} {
		resp := &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"9"}}, Body: io.NopCloser(strings.NewReader(body))}
		var got *RefusedError
		if !errors.As(refusalOf(resp), &got) || *got != (RefusedError{503, want, 9 * time.Second}) {
			t.Errorf("%.40q: %+v", body, got)
		}
	}
	moved := refusalOf(&http.Response{StatusCode: 301, Header: http.Header{"Location": {"https://b.test/"}}, Body: http.NoBody})
	if got := moved.Error(); got != "the server refused: 301 Moved Permanently: it is at https://b.test/" {
		t.Errorf("a redirect is %q", got)
	}
	page := http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	for _, resp := range []*http.Response{
		{StatusCode: 500, Body: http.NoBody}, {StatusCode: 500, Header: page, Body: io.NopCloser(strings.NewReader("<html>\n<head>"))},
	} {
		if got := refusalOf(resp).Error(); got != "the server refused: 500 Internal Server Error" {
			t.Errorf("an answer without a reason is %q", got)
		}
	}
}

// TestDictionaryDir: a directory that cannot be written is no cache, and does no harm.
func TestDictionaryDir(t *testing.T) {
	raw := jetstream.Dictionary()
	id, err := dictionaryID(raw, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	u := &url.URL{Scheme: "ws", Host: "a.test", Path: "/subscribe"}
	for name, cache := range map[string]string{"none": "", "below a file": filepath.Join(file, "dir"), "no room": "/proc/self", "new": filepath.Join(dir, "a", "b")} {
		d := &decoder{subscribe: u, dir: cache}
		d.save(id, raw)
		if kept := d.load(id); (kept != nil) != (name == "new") {
			t.Errorf("%s: %d bytes are kept", name, len(kept))
		}
	}
	d := &decoder{subscribe: u, dir: filepath.Join(dir, "taken")}
	if err := os.MkdirAll(filepath.Join(d.file(id), "full"), 0o755); err != nil { // so rename fails
		t.Fatal(err)
	}
	d.save(id, raw)
	if left, _ := os.ReadDir(d.dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
	other := *u
	other.Host = "b.test"
	d = &decoder{subscribe: &other, dir: filepath.Join(dir, "a", "b")}
	if d.load(id) != nil {
		t.Error("the dictionary of another server is used")
	}
	for what, bad := range map[string][]byte{"too large": make([]byte, maxDictionaryBytes+1), "cut": raw[:8], "text": []byte("no dictionary")} {
		if _, err := dictionaryID(bad, 0); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	for want, ok := range map[uint32]bool{id: true, id + 1: false} {
		if _, err := dictionaryID(raw, want); (err == nil) != ok {
			t.Errorf("dictionary %d is taken as %d: %v", id, want, err)
		}
	}
}

// TestFullOfDictionaries: a client that knows as many as it may learns no more.
func TestFullOfDictionaries(t *testing.T) {
	d := &decoder{known: make([][]byte, maxDictionaries), asked: 7}
	if id, err := d.current(t.Context()); id != 7 || err != nil {
		t.Errorf("a dictionary that is known: %d, %v", id, err)
	}
	if !d.outdated() || d.outdated() || d.asked != 0 {
		t.Errorf("a refused dictionary is asked for again and again: %+v", d)
	}
	if err := d.learn(t.Context(), []byte("no frame")); !errors.Is(err, ErrUnreadable) {
		t.Errorf("no frame: %v", err)
	}
}

// plain is an event of a plain Jetstream, one of each account.
func plain(t *testing.T, us int64) *Event {
	t.Helper()
	e, err := new(parser).parse(fmt.Appendf(nil, `{"did":"did:web:%d.test","time_us":%[1]d,"kind":"identity","identity":{}}`, us))
	if err != nil {
		t.Fatal(err)
	}
	return &e
}
