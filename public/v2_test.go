package public

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/zstd"

	"millrace/dict"
	"millrace/public/internal/testframe"
	"millrace/replay"
)

func TestV2Frames(t *testing.T) {
	l := newTestLog(t)
	const collection = "app.bsky.feed.post"
	made := l.add(testframe.Commit(didN(1), collection, "<&>\u2028é", "old", "new"))
	handle := l.add(identity(didN(2)))[0]
	active, gone := l.add(account(didN(3)))[0], l.add(testframe.Account(didN(3), "deleted"))[0]
	var create struct {
		Commit struct{ CID string }
	}
	if err := json.Unmarshal([]byte(made[0].json), &create); err != nil {
		t.Fatal(err)
	}
	at := func(e truth) string { return time.UnixMicro(e.timeUS).UTC().Format("2006-01-02T15:04:05.000000") + "Z" }
	const begin = `{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#`
	const inner = `"time":"2026-01-02T03:04:05.678Z"}`
	want := []string{
		fmt.Sprintf(begin+`commit","cid":"%s","collection":"%s","did":"%s","operation":"create","record":{"$type":"%[2]s","text":"\u003c\u0026\u003e\u2028é"},`+
			`"rev":"3kabcdefghi2a","rkey":"new","seq":1025024,"time":"%[4]s"}}`, create.Commit.CID, collection, didN(1), at(made[0])),
		fmt.Sprintf(begin+`commit","collection":"%s","did":"%s","operation":"delete","rev":"3kabcdefghi2a","rkey":"old","seq":1025025,"time":"%s"}}`,
			collection, didN(1), at(made[1])),
		fmt.Sprintf(begin+`identity","did":"%s","identity":{"did":"%[1]s","handle":"someone.test","seq":1002,`+inner+`,"seq":1026048,"time":"%s"}}`, didN(2), at(handle)),
		fmt.Sprintf(begin+`account","account":{"active":true,"did":"%s","seq":1003,`+inner+`,"did":"%[1]s","seq":1027072,"time":"%s"}}`, didN(3), at(active)),
		fmt.Sprintf(begin+`account","account":{"active":false,"did":"%s","seq":1004,"status":"deleted",`+inner+`,"did":"%[1]s","seq":1028096,"time":"%s"}}`, didN(3), at(gone)),
	}
	c := serve(t, l, nil).dialV2("cursor=0")
	for i, w := range want {
		if kind, got := c.next(); kind != websocket.TextMessage || string(got) != w {
			t.Errorf("event %d is\n%s\nwant\n%s", i, got, w)
		}
	}
	c.wantV2(l.add(posts(3)...)...)
}

// TestV2GapsAreNoFrames: a gap is no message to a client of Jetstream v2.
func TestV2GapsAreNoFrames(t *testing.T) {
	l := newTestLog(t)
	first := l.add(posts(1)...)[0]
	l.seq += 10
	to := first.pos
	to.Seq = l.seq + 1
	l.addAfter(&replay.Gap{From: first.pos, To: to}, posts(1)...)
	serve(t, l, nil).dialV2("cursor=0").wantV2(l.all()...)
}

// TestV2Handshake: v2's client refuses an answer with an extension.
func TestV2Handshake(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(1)...)
	s := serve(t, l, nil)
	for offered, want := range map[string]string{"": "", "xrpc.v1.json": "xrpc.v1.json", "other": "", "XRPC.v1.json": ""} {
		d := websocket.Dialer{EnableCompression: true}
		header := http.Header{"Origin": {"https://elsewhere.example"}}
		if offered != "" {
			d.Subprotocols = []string{"x", offered}
		}
		c, resp := s.dialURL(&d, s.v2URL("cursor=0"), header)
		c.wantV2(l.all()...)
		if got := resp.Header.Get("Sec-WebSocket-Protocol"); got != want {
			t.Errorf("offered %q, got %q", offered, got)
		}
		if got := resp.Header.Get("Sec-WebSocket-Extensions"); got != "" {
			t.Errorf("negotiated %q", got)
		}
	}
	several := http.Header{"Sec-Websocket-Protocol": {"x", "xrpc.v1.json"}} // RFC 6455, 11.3.4
	if _, resp := s.dialURL(&websocket.Dialer{}, s.v2URL(""), several); resp.Header.Get("Sec-WebSocket-Protocol") != "xrpc.v1.json" {
		t.Error("an offer in a second line is not seen")
	}
}

func TestV2PlainGet(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	w := s.get("GET", v2Prefix+"subscribeEvents", nil)
	wantV2Error(t, w, http.StatusUpgradeRequired, v2InvalidRequest, "websocket")
	if got := w.Header().Get("Upgrade") + w.Header().Get("Sec-WebSocket-Version"); got != "websocket13" {
		t.Errorf("Upgrade %q", got)
	}
	nc := s.connect()
	fmt.Fprintf(nc, "GET %ssubscribeEvents HTTP/1.0\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", v2Prefix, s.addr)
	nc.SetReadDeadline(time.Now().Add(patience()))
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body := bodyOf(resp); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "HTTP/1.1") {
		t.Errorf("HTTP/1.0: %s %s", resp.Status, body)
	}
	if n := s.metric("rejected_total", rejectHandshake); n != 2 || s.count.Load() != 0 {
		t.Errorf("%v rejected, %d subscribers", n, s.count.Load())
	}
}

func TestV2RateLimit(t *testing.T) {
	s := serve(t, newTestLog(t), func(cfg *Config, _ *timing) {
		trustLoopback(cfg)
		cfg.MaxConnectionsPerIP = 1
	})
	s.dialFrom("192.0.2.1")
	resp, body := s.refusedAt(s.v2URL(""), from("192.0.2.1"))
	checkV2Error(t, resp, body, http.StatusTooManyRequests, "RateLimitExceeded", "connections")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("it does not say when to come back")
	}
}

// wantV2Error checks an answer that is an error.
func wantV2Error(t testing.TB, w *httptest.ResponseRecorder, status int, name, words string) {
	t.Helper()
	checkV2Error(t, w.Result(), w.Body.String(), status, name, words)
}

func checkV2Error(t testing.TB, resp *http.Response, body string, status int, name, words string) {
	t.Helper()
	var answer struct{ Error, Message string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Errorf("%s: %v: %.200s", resp.Status, err, body)
	}
	if resp.StatusCode != status || answer.Error != name || !strings.Contains(answer.Message, words) {
		t.Errorf("%s %.300s, want %d %s with %q", resp.Status, body, status, name, words)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	if len(body) > 1024 {
		t.Errorf("%d bytes, of which v2's client reads 1024", len(body))
	}
}

// wantV2Refused checks that a query is refused.
func (s *testServer) wantV2Refused(query string, status int, name, words string) {
	s.t.Helper()
	resp, body := s.refusedAt(s.v2URL(query), nil)
	checkV2Error(s.t, resp, body, status, name, words)
	if s.t.Failed() {
		s.t.Logf("of %.200s", query)
	}
}

// nextV2 reads a message compressed with d.
func (c *client) nextV2(d *dict.Dictionary) string {
	c.t.Helper()
	kind, p := c.next()
	if kind != websocket.BinaryMessage {
		c.t.Fatalf("message of kind %d: %.100q", kind, p)
	}
	var h zstd.Header
	if err := h.Decode(p); err != nil || h.DictionaryID != d.ID() {
		c.t.Fatalf("the header names dictionary %d, want %d: %v", h.DictionaryID, d.ID(), err)
	}
	return decode(c.t, d, p)
}

func TestV2Compressed(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(20)...)
	l.add(identity(didN(1)), account(didN(2)))
	s := serve(t, l, nil)
	for _, d := range []*dict.Dictionary{dict.BuiltIn(), jetstreams(t)} {
		c := s.dialV2(fmt.Sprintf("cursor=0&zstdDictionary=%d", d.ID()))
		for i, e := range l.all() {
			if got, want := c.nextV2(d), e.v2(t); got != want {
				t.Fatalf("event %d is\n%s\nwant\n%s", i, got, want)
			}
		}
	}
	s.dialV2("cursor=0&zstdDictionary=").wantV2(l.all()...)
	if got := s.metric("subscribers", "v2_zstd"); got != 2 {
		t.Errorf("%v subscribers of variant v2_zstd", got)
	}
	if got := s.metric("subscribers", "v2"); got != 1 {
		t.Errorf("%v subscribers of variant v2", got)
	}
}

func TestV2Delivered(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(5)...)
	s := serve(t, l, nil)
	s.dialV2("cursor=0").wantV2(l.all()...)
	s.dial(fmt.Sprintf("cursor=%d", l.all()[3].timeUS)).want(l.all()[3:]...)
	s.waitMetric("delivered_events_total", wireV1, 2)
	s.waitMetric("delivered_events_total", wireV2, 5)
	bytes := 0
	for _, e := range l.all() {
		bytes += len(appendFrame(nil, frameText, []byte(e.v2(t))))
	}
	eventually(t, fmt.Sprintf("%d bytes are counted", bytes), func() bool { // after their events
		return s.metric("delivered_bytes_total", wireV2) == float64(bytes)
	})
}
