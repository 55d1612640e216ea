package public

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

func TestEventsArriveByteForByte(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(100)...)
	l.add(identity(didN(1)), account(didN(2)), creates(didN(3), "app.bsky.feed.like", "<&>\u2028", "a", "b", "c"))
	c := serve(t, l, nil).dial("cursor=0")
	c.want(l.all()...)
	c.want(l.add(identity(didN(9)))...)
	if n := len(l.all()); n != 106 {
		t.Errorf("the log holds %d events, want 106", n)
	}
}

func TestPlainGetGetsReason(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	resp, err := http.Get("http://" + s.addr + "/subscribe")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body := bodyOf(resp); resp.StatusCode != 400 || !strings.Contains(body, "ws://"+s.addr+"/subscribe") {
		t.Errorf("%s %q", resp.Status, body)
	}
	if s.count.Load() != 0 || s.metric("rejected_total", rejectHandshake) != 1 {
		t.Errorf("%d subscribers, %v rejected", s.count.Load(), s.metric("rejected_total", rejectHandshake))
	}
}

func TestForeignOriginConnects(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(1)...)
	c, resp := serve(t, l, nil).dialWith(&websocket.Dialer{}, "cursor=0", http.Header{"Origin": {"https://elsewhere.example"}})
	c.want(l.all()...)
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("Access-Control-Allow-Origin %q", got)
	}
}

func TestDeflateIsNotNegotiated(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(1)...)
	c, resp := serve(t, l, nil).dialWith(&websocket.Dialer{EnableCompression: true}, "cursor=0", nil)
	c.want(l.all()...)
	if got := resp.Header.Get("Sec-WebSocket-Extensions"); got != "" {
		t.Errorf("negotiated %q", got)
	}
}

func TestUnknownParametersAreIgnored(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(1)...)
	serve(t, l, nil).dial("cursor=0&format=cbor&WantedCollections=x&=").want(l.all()...)
}

func TestMalformedQueryIsRefused(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	s.want400("wantedCollections=%zz", "query string")
	s.want400("cursor=0;wantedDids=x", "query string")
}

func TestTenThousandDIDsInTheURL(t *testing.T) {
	l := newTestLog(t)
	l.add(identity(didN(20_000)))
	last := l.add(identity(didN(9_999)))
	query := tenThousandDIDs("wantedDids")
	if len(query) < 450_000 {
		t.Fatalf("only %d bytes", len(query))
	}
	serve(t, l, nil).dial(query).want(last...)
}

// tenThousandDIDs returns a query for all events of didN(0) to didN(9_999).
func tenThousandDIDs(parameter string) string {
	query := strings.Builder{}
	query.WriteString("cursor=0")
	for i := range 10_000 {
		query.WriteString("&" + parameter + "=" + escape(didN(i)))
	}
	return query.String()
}

func TestRepeatedParameters(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(10)...)
	all := l.all()
	s := serve(t, l, nil)
	s.dial(fmt.Sprintf("cursor=%d&cursor=0&cursor=x", all[7].timeUS)).want(all[7:]...)
	kind, _ := s.dial("cursor=0&compress=true&compress=false").next()
	if kind != websocket.BinaryMessage {
		t.Error("the second compress counted")
	}
	s.dial("cursor=0&maxMessageSizeBytes=0&maxMessageSizeBytes=1").want(all...)
}

func TestUpgradeHeaders(t *testing.T) {
	l := newTestLog(t)
	s := serve(t, l, nil)
	_, resp := s.dialWith(&websocket.Dialer{}, "", nil)
	if got := resp.Header.Get("Server"); got != "millrace/test" {
		t.Errorf("Server %q", got)
	}
	if got := resp.Header.Values(headerOldest); len(got) != 0 {
		t.Errorf("empty log, oldest %q", got)
	}
	l.add(posts(3)...)
	_, resp = s.dialWith(&websocket.Dialer{}, "compress=true", nil)
	if got, want := resp.Header.Get(headerOldest), fmt.Sprint(l.all()[0].timeUS); got != want {
		t.Errorf("oldest %q, want %s", got, want)
	}
	if got, want := resp.Header.Get(headerDictionary), "1612007021"; got != want {
		t.Errorf("dictionary %q, want %s", got, want)
	}
}

// mixed fills a log with one event of each sort; the last one passes every filter of the tests.
func mixed(t *testing.T) (*testLog, []truth) {
	l := newTestLog(t)
	l.add(
		create(didN(1), "app.bsky.feed.post", "1", "post"),    // 0
		create(didN(2), "app.bsky.feed.like", "1", "like"),    // 1
		create(didN(1), "app.bsky.graph.follow", "1", "foll"), // 2
		create(didN(2), "com.example.thing", "1", "thing"),    // 3
		create("did:plc:ABC", "app.bskyx.feed", "1", "x"),     // 4
		account(didN(2)),  // 5
		identity(didN(1)), // 6
	)
	return l, l.all()
}

func pick(events []truth, indices ...int) []truth {
	var picked []truth
	for _, i := range indices {
		picked = append(picked, events[i])
	}
	return picked
}

func TestWantedCollections(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	for query, want := range map[string][]int{
		"wantedCollections=app.bsky.feed.post":                                       {0, 5, 6},
		"wantedCollections=app.bsky.feed.post&wantedCollections=com.example.thing":   {0, 3, 5, 6},
		"wantedCollections=app.bsky.feed.*":                                          {0, 1, 5, 6},
		"wantedCollections=app.bsky.*":                                               {0, 1, 2, 5, 6},
		"wantedCollections=app.*":                                                    {0, 1, 2, 4, 5, 6},
		"wantedCollections=app.bsky.feed.*&wantedCollections=app.bsky.feed.post":     {0, 1, 5, 6},
		"wantedCollections=App.bsky.feed.post":                                       {5, 6},
		"wantedCollections=.*":                                                       {5, 6},
		"wantedCollections=app.bsky.feed.post&wantedDids=" + didN(1):                 {0, 6},
		"wantedCollections=app.bsky.feed.post.*&wantedCollections=com.example.thing": {3, 5, 6},
	} {
		s.dial("cursor=0&" + query).want(pick(all, want...)...)
	}
	for _, bad := range []string{"app.bsky.fo*", "*", "a b", "app", strings.Repeat("a", 400) + ".*"} {
		s.want400("wantedCollections="+escape(bad), "is not an NSID, or a prefix such as app.bsky.graph.*\n")
	}
	for query, words := range map[string]string{"wantedCollections=a.b.c,a.b.d": "NSID", "wantedDids=did:web:a.test,did:web:b.test": "is not a DID; "} {
		s.want400(query, words)
		s.want400(query, "commas do not separate values: repeat the parameter for each")
	}
}

func manyCollections(n int) string {
	var q []string
	for i := range n {
		q = append(q, fmt.Sprintf("wantedCollections=com.example.thing%c%c", 'a'+i/26, 'a'+i%26))
	}
	return strings.Join(q, "&")
}

func TestWantedCollectionsLimit(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	s.dial("cursor=0&" + manyCollections(99) + "&wantedCollections=app.bsky.feed.*&wantedCollections=app.bsky.feed.*&" + manyCollections(99)).
		want(pick(all, 0, 1, 5, 6)...)
	s.want400(manyCollections(101), "too many wanted collections")
}

func TestWantedDIDs(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	s.dial("cursor=0&wantedDids=" + didN(1)).want(pick(all, 0, 2, 6)...)
	s.dial("cursor=0&wantedDids=" + didN(1) + "&wantedDids=" + didN(2)).want(pick(all, 0, 1, 2, 3, 5, 6)...)
	c := s.dial("cursor=0&wantedDids=did:plc:ABC")
	c.want(all[4])
	lower := s.dial("cursor=0&wantedDids=did:plc:abc")
	more := l.add(identity(didN(1)), identity("did:plc:abc"), identity("did:plc:ABC"))
	lower.want(more[1])
	c.want(more[2])
	for _, bad := range []string{"DID:plc:abc", "did:PLC:abc", "did:plc:", "alice.test", "did:plc:a b"} {
		s.want400("wantedDids="+escape(bad), `invalid DID: "`+bad)
	}
}

func TestWantedDIDsLimit(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	var q strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&q, "&wantedDids=%s", didN(i))
	}
	s.dial("cursor=0" + q.String() + "&wantedDids=" + didN(1)).want(pick(all, 0, 1, 2, 3, 5, 6)...)
	s.want400("cursor=0"+q.String()+"&wantedDids="+didN(10_000), "too many wanted DIDs")
}

func TestEmptyValues(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	s.dial("cursor=0&wantedCollections=&wantedDids=&maxMessageSizeBytes=&compress=&requireHello=&wantedKinds=&zstdDictionary=&heartbeat=&extended=&strict=").want(all...)
	c := s.dial("cursor=")
	c.want(l.add(identity(didN(5)))...)
}

func TestCursorIsInclusive(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(50)...)
	l.add(posts(50)...)
	all := l.all()
	s := serve(t, l, nil)
	for _, i := range []int{0, 1, 49, 50, 51, 99} {
		s.dial(fmt.Sprintf("cursor=%d", all[i].timeUS)).want(all[i:]...)
	}
}

func TestCursorOldest(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	for _, cursor := range []string{"0", "-5", "+0", "00"} {
		s.dial("cursor=" + escape(cursor)).want(all...)
	}
}

func TestCursorAtTheEnd(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(20)...)
	all := l.all()
	newest := all[len(all)-1]
	s := serve(t, l, nil)
	below := s.dial(fmt.Sprintf("cursor=%d", newest.timeUS-1))
	at := s.dial(fmt.Sprintf("cursor=%d", newest.timeUS))
	above := s.dial(fmt.Sprintf("cursor=%d", newest.timeUS+1))
	future := s.dial(fmt.Sprintf("cursor=%d", time.Now().Add(time.Hour).UnixMicro()))
	none := s.dial("")
	first := len(all) - 1
	for first > 0 && all[first-1].timeUS >= newest.timeUS-1 {
		first--
	}
	more := l.add(posts(3)...)
	below.want(append(all[first:], more...)...)
	at.want(append([]truth{newest}, more...)...)
	above.want(more...)
	future.want(more...)
	none.want(more...)
}

func TestCursorThatIsNone(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, nil)
	for _, bad := range []string{"abc", "1.5", "1e9", " 1", "99999999999999999999", "ffffff", "xyz-1-0", "FFFFFF-1-0"} {
		s.want400("cursor="+escape(bad), "cursor")
	}
	s.want400("cursor=ffffff-1-0", "unknown")
}

func TestTenReplaysJoinARunningStream(t *testing.T) {
	const clients, blocks, perBlock = 10, 250, 10
	l := newTestLog(t)
	l.add(posts(1000)...)
	s := serve(t, l, nil)
	done, join := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := range blocks {
			if i%(blocks/clients) == 0 {
				join <- struct{}{} // the next client comes while this goes on
			}
			l.add(posts(perBlock)...)
		}
	}()
	results := make(chan error, clients)
	for range clients {
		<-join
		c := s.dial("cursor=0")
		go func() {
			c.SetReadDeadline(time.Now().Add(3 * patience()))
			var got []string
			for len(got) < 1000+blocks*perBlock {
				_, p, err := c.ReadMessage()
				if err != nil {
					results <- err
					return
				}
				got = append(got, string(p))
			}
			<-done
			for i, e := range l.all() {
				if got[i] != e.json {
					results <- fmt.Errorf("event %d is %s, want %s", i, got[i], e.json)
					return
				}
			}
			results <- nil
		}()
	}
	for range clients {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// noise returns n letters that do not compress well.
func noise(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(random.IntN(26))
	}
	return string(b)
}

func TestMaxMessageSize(t *testing.T) {
	l := newTestLog(t)
	l.add(
		create(didN(1), "app.bsky.feed.post", "1", noise(3000)),
		create(didN(1), "app.bsky.feed.post", "2", "small"),
		identity(didN(1)),
	)
	all := l.all()
	s := serve(t, l, nil)
	for _, none := range []string{"0", "-1", "many", "", "1.5", "99999999999999999999"} {
		s.dial("cursor=0&maxMessageSizeBytes=" + none).want(all...)
	}
	s.dial(fmt.Sprintf("cursor=0&maxMessageSizeBytes=%d", len(all[0].json))).want(all...)
	s.dial(fmt.Sprintf("cursor=0&maxMessageSizeBytes=%d", len(all[0].json)-1)).want(all[1:]...)
	s.dial("cursor=0&maxMessageSizeBytes=1&extended=true").info("live") // nothing came before
	// As sent: an event that is too large plain may pass compressed.
	limit := len(all[1].json) - 1
	s.dial(fmt.Sprintf("cursor=0&maxMessageSizeBytes=%d", limit)).want(all[2])
	c := s.dial(fmt.Sprintf("cursor=0&compress=true&maxMessageSizeBytes=%d", limit))
	for _, e := range []truth{all[1], all[2]} {
		if _, p := c.next(); decode(t, jetstreams(t), p) != e.json || len(p) > limit {
			t.Fatalf("%d bytes, want a compressed %s", len(p), e.json)
		}
	}
}

func TestRequireHello(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	live := s.dial("requireHello=true")
	replay := s.dial("requireHello=true&cursor=0&wantedCollections=com.example.thing")
	plain := s.dial("requireHello=1&cursor=0")
	plain.want(all...)
	second := s.dial("requireHello=true")
	live.say(`{"type":"other","payload":{}}`)
	between := l.add(identity(didN(8)))
	live.update(`{"wantedDids":["` + didN(8) + `"]}`)
	s.waitUpdates(1)
	s.waitIdle(2) // plain and live
	l.add(identity(didN(9)))
	live.want(l.add(identity(didN(8)))...)
	replay.update(`{"wantedCollections":["app.bsky.feed.post"]}`)
	replay.want(pick(all, 0, 5, 6)...)
	replay.want(between...)
	second.update(`{"wantedCollections":["not valid"]}`)
	second.wantClose(1000, "invalid collection")
}

func TestOptionsUpdate(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, nil)
	c := s.dial("wantedCollections=app.bsky.feed.post&wantedKinds=commit&maxMessageSizeBytes=100000")
	updates := 0
	update := func(payload string) {
		t.Helper()
		c.update(payload)
		updates++
		s.waitUpdates(updates)
	}
	all := func() []truth {
		return l.add(
			create(didN(1), "app.bsky.feed.post", "a", "one"),
			create(didN(2), "app.bsky.feed.like", "b", strings.Repeat("two", 100)),
			create(didN(3), "com.example.thing", "c", "three"),
			identity(didN(1)))
	}
	c.want(pick(all(), 0)...)
	update(`{"wantedCollections":["com.example.*"]}`)
	c.want(pick(all(), 2)...)
	update(`{"wantedDids":["` + didN(2) + `","` + didN(3) + `"],"maxMessageSizeBytes":0}`)
	c.want(pick(all(), 1, 2)...)
	update(`{"wantedCollections":[],"wantedDids":null,"maxMessageSizeBytes":400}`)
	c.want(pick(all(), 0, 2)...)
	update(`{"WANTEDCOLLECTIONS":["app.bsky.feed.like"],"extra":[1,{}],"maxMessageSizeBytes":-4}`)
	c.want(pick(all(), 1)...)
	update(`{}`)
	c.want(pick(all(), 0, 1, 2)...)
	c.say(`{"payload":{"wantedCollections":["com.example.thing"]},"type":"options_update"}`)
	updates++
	s.waitUpdates(updates)
	c.want(pick(all(), 2)...)
	update(`null`)
	c.want(pick(all(), 0, 1, 2)...)
}

func TestInvalidMessagesEndWith1000(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, nil)
	many := func(n int, f func(int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + f(i) + `"`)
		}
		return b.String()
	}
	for message, reason := range map[string]string{
		`x`:                                      "failed to unmarshal subscriber sourced message",
		``:                                       "failed to unmarshal subscriber sourced message",
		`["a"]`:                                  "failed to unmarshal subscriber sourced message",
		`{"a":1`:                                 "failed to unmarshal subscriber sourced message",
		`{}{}`:                                   "failed to unmarshal subscriber sourced message",
		`"hello"`:                                "failed to unmarshal subscriber sourced message",
		`{"type":5}`:                             "failed to unmarshal subscriber sourced message",
		`{"type":"options_update"}`:              "failed to unmarshal subscriber options update",
		`{"type":"options_update","payload":[]}`: "failed to unmarshal subscriber options update",
		`{"type":"options_update","payload":{"wantedDids":"did:plc:abc"}}`:                                                                                          "failed to unmarshal subscriber options update",
		`{"type":"options_update","payload":{"wantedDids":[1]}}`:                                                                                                    "failed to unmarshal subscriber options update",
		`{"type":"options_update","payload":{"wantedDids":[["x"]]}}`:                                                                                                "failed to unmarshal subscriber options update",
		`{"type":"options_update","payload":{"maxMessageSizeBytes":"5"}}`:                                                                                           "failed to unmarshal subscriber options update",
		`{"type":"options_update","payload":{"wantedDids":[""]}}`:                                                                                                   "failed to parse subscriber options",
		`{"type":"options_update","payload":{"wantedCollections":["app.bsky.fo*"]}}`:                                                                                "failed to parse subscriber options",
		`{"type":"options_update","payload":{"wantedCollections":["` + strings.Repeat("é", 200) + `"]}}`:                                                            "failed to parse subscriber options",
		`{"type":"options_update","payload":{"wantedDids":[` + many(10_001, didN) + `]}}`:                                                                           "too many wanted DIDs",
		`{"type":"options_update","payload":{"wantedCollections":[` + many(101, func(i int) string { return fmt.Sprintf("a.b.c%c%c", 'a'+i/26, 'a'+i%26) }) + `]}}`: "too many wanted collections",
	} {
		for _, query := range []string{"", "extended=true", "requireHello=true"} {
			c := s.dial(query)
			c.say("%s", message)
			c.wantClose(1000, reason)
		}
	}
	s.waitMetric("ends_total", endInvalid, 3*18)
}

func TestUnknownMessagesAreIgnored(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, nil)
	c := s.dial("")
	for _, message := range []string{`{}`, `null`, `{"type":"ping"}`, `{"type":"heartbeat","payload":"x"}`, `{"type":"OPTIONS_UPDATE","payload":7}`, `{"payload":[]}`} {
		c.say("%s", message)
	}
	if err := c.WriteMessage(websocket.BinaryMessage, []byte("not json")); err != nil {
		t.Fatal(err)
	}
	c.update(`{"wantedCollections":["app.bsky.feed.post"]}`)
	s.waitMetric("options_updates_total", "", 1)
	c.want(l.add(identity(didN(1)))...)
	if got := s.metric("options_updates_total", ""); got != 1 {
		t.Errorf("%v updates", got)
	}
}

func TestTooLargeMessage(t *testing.T) {
	l, _ := mixed(t)
	// ten megabytes take their time
	s := serve(t, l, func(_ *Config, tm *timing) { tm.message = time.Hour })
	padded := func(size int) []byte {
		m := []byte(`{"type":"options_update","payload":{"wantedCollections":["app.bsky.feed.post"]}}`)
		return append(m, bytes.Repeat([]byte(" "), size-len(m))...)
	}
	c := s.dial("")
	if err := c.WriteMessage(websocket.TextMessage, padded(10_000_000)); err != nil {
		t.Fatal(err)
	}
	s.waitUpdates(1)
	c.want(l.add(create(didN(1), "app.bsky.feed.like", "1", ""), identity(didN(1)))[1])
	go c.WriteMessage(websocket.TextMessage, padded(10_000_001))
	c.wantClose(websocket.CloseMessageTooBig, "10000000 bytes")
	c = s.dial("")
	go c.WriteMessage(websocket.BinaryMessage, padded(20_000_000))
	c.wantClose(websocket.CloseMessageTooBig, "")
}

func TestManyOptionsUpdates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := mixed(t)
		s := serveBubble(t, l, nil)
		c := s.dial("")
		begin := time.Now()
		for i := range updateBurst + 2 {
			c.update(fmt.Sprintf(`{"wantedDids":["%s"]}`, didN(i)))
		}
		s.waitUpdates(updateBurst + 2)
		s.waitMetric("held_back_total", heldUpdates, 1)
		if took := time.Since(begin); took < time.Second {
			t.Errorf("%d updates were put in force within %v", updateBurst+2, took)
		}
		c.want(l.add(identity(didN(1)), identity(didN(updateBurst+1)))[1])
	})
}

func TestPingIsAnswered(t *testing.T) {
	l, _ := mixed(t)
	c := serve(t, l, nil).dial("")
	pongs := make(chan string, 10)
	c.SetPongHandler(func(p string) error { pongs <- p; return nil })
	go io.Copy(io.Discard, neverEnding{c})
	for _, payload := range []string{"", "hello", strings.Repeat("x", 125)} {
		if err := c.WriteControl(websocket.PingMessage, []byte(payload), time.Now().Add(patience())); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-pongs:
			if got != payload {
				t.Errorf("pong %q, want %q", got, payload)
			}
		case <-time.After(patience()):
			t.Fatalf("no pong for %q", payload)
		}
	}
}

// neverEnding reads a client's messages until it is closed.
type neverEnding struct{ c *client }

func (n neverEnding) Read(p []byte) (int, error) {
	_, _, err := n.c.ReadMessage()
	return 0, err
}

func TestClientClose(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, nil)
	for _, code := range []int{1000, 1001, 4321} {
		c := s.dial("")
		if err := c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, "bye"), time.Now().Add(patience())); err != nil {
			t.Fatal(err)
		}
		c.wantClose(code, "")
	}
	c := s.rawDial("")
	if _, err := c.Write(mask(frameClose, nil)); err != nil {
		t.Fatal(err)
	}
	first, payload, err := c.frame()
	if first != frameClose || len(payload) != 0 || err != nil {
		t.Errorf("answer to an empty close frame: %x %q %v", first, payload, err)
	}
	s.waitMetric("ends_total", endClientClose, 4)
}
