package public

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/dict"
	"millrace/public/internal/admission"
	"millrace/replay"
	"millrace/replay/links"
	"millrace/translate"
)

func contextWithTimeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// get asks the handler directly.
func (s *testServer) get(method, path string, header http.Header) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for k, v := range header {
		r.Header[k] = v
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestCursors(t *testing.T) {
	l := newTestLog(t)
	s := serve(t, l, nil)
	want := `{"oldest":null,"newest":null,"retention_s":129600,"gaps":[],"gaps_total":0}` + "\n"
	if got := s.get("GET", "/cursors", nil).Body.String(); got != want {
		t.Errorf("empty log: %s, want %s", got, want)
	}
	l.add(posts(5)...)
	from := l.all()[4].pos
	l.seq += 10
	to := from
	to.Seq = l.seq + 1
	gap := &replay.Gap{From: from, To: to}
	l.addAfter(gap, posts(5)...)
	all := l.all()
	w := s.get("GET", "/cursors", nil)
	want = fmt.Sprintf(`{"oldest":{"time_us":%d,"cursor":"%s"},"newest":{"time_us":%d,"cursor":"%s"},"retention_s":129600,"gaps":[{"from":"%s","to":"%s","time_us":%d}],"gaps_total":1}`+"\n",
		all[0].timeUS, all[0].cursor(), all[9].timeUS, all[9].cursor(), from, to, gap.TimeUS)
	if got := w.Body.String(); got != want || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCursorsListsTheNewestGaps(t *testing.T) {
	src := eventLog{rangeOf: func() replay.Range {
		rng := replay.Range{Gaps: make([]replay.Gap, 2500)}
		for i := range rng.Gaps {
			rng.Gaps[i].TimeUS = int64(i + 1)
		}
		return rng
	}}
	s := serveSource(t, src, newRegistry(t), nil)
	var answer struct {
		Gaps []struct {
			TimeUS int64 `json:"time_us"`
		} `json:"gaps"`
		Total int `json:"gaps_total"`
	}
	if err := json.Unmarshal(s.get("GET", "/cursors", nil).Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if n := len(answer.Gaps); n != 1000 || answer.Gaps[0].TimeUS != 1501 || answer.Gaps[n-1].TimeUS != 2500 || answer.Total != 2500 {
		t.Errorf("%d of %d gaps, from %v on, want the newest 1000 of 2500", n, answer.Total, answer.Gaps[:min(n, 1)])
	}
}

func TestDictionaries(t *testing.T) {
	l := newTestLog(t)
	s := serve(t, l, nil)
	d := l.dictionaries.Stored()
	sum := d.SHA256()
	v1 := jetstreams(t)
	since := l.Dictionaries()[0].Since.Truncate(time.Millisecond).Format(time.RFC3339Nano)
	want := fmt.Sprintf(`{"dictionaries":[{"id":%d,"bytes":%d,"sha256":"%x","stored":true,"in_log":true,"since":"%s","url":"/dictionaries/%[1]d"},`+
		`{"id":%[5]d,"bytes":%d,"sha256":"%x","stored":false,"in_log":false,"since":null,"url":"/dictionaries/%[5]d"}]}`+"\n",
		d.ID(), len(d.Bytes()), sum, since, v1.ID(), len(v1.Bytes()), v1.SHA256())
	if got := s.get("GET", "/dictionaries", nil).Body.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	path := fmt.Sprintf("/dictionaries/%d", d.ID())
	w := s.get("GET", path, nil)
	etag := w.Header().Get("ETag")
	if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), d.Bytes()) || etag != fmt.Sprintf(`"%x"`, sum) ||
		!strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("%d, %d bytes, %v", w.Code, w.Body.Len(), w.Header())
	}
	if w := s.get("GET", path, http.Header{"If-None-Match": {etag}}); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("with its ETag: %d, %d bytes", w.Code, w.Body.Len())
	}
	if w := s.get("HEAD", path, nil); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
	}
	if w := s.get("GET", "/dictionaries/4242", nil); w.Code != 404 {
		t.Errorf("unknown: %d", w.Code)
	}
	if w := s.get("GET", "/dictionaries/x", nil); w.Code != 400 {
		t.Errorf("no number: %d", w.Code)
	}
}

func TestHealth(t *testing.T) {
	var checks []Check
	s := serve(t, newTestLog(t), func(cfg *Config, _ *timing) { cfg.Health = func() []Check { return checks } })
	if w := s.get("GET", "/healthz", nil); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("/healthz: %d %q", w.Code, w.Body)
	}
	ready := func(code int, want string) {
		t.Helper()
		if w := s.get("GET", "/readyz", nil); w.Code != code || w.Body.String() != want+"\n" {
			t.Errorf("/readyz: %d %s\nwant %d %s", w.Code, w.Body, code, want)
		}
	}
	ready(200, `{"ready":true,"checks":[{"name":"serving","ok":true}]}`)
	checks = []Check{{Name: "relay", OK: true, Detail: "relay.test"}, {Name: "disk", Detail: "1 GiB left"}}
	ready(503, `{"ready":false,"checks":[{"name":"relay","ok":true,"detail":"relay.test"},{"name":"disk","ok":false,"detail":"1 GiB left"},{"name":"serving","ok":true}]}`)
	checks = nil
	ctx, cancel := contextWithTimeout(patience())
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	ready(503, `{"ready":false,"checks":[{"name":"serving","ok":false}]}`)
}

func TestIndex(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	body := s.get("GET", "http://millrace.test/", nil).Body.String()
	for _, word := range []string{"millrace test", "websocat 'ws://millrace.test/subscribe", "/cursors", "/dictionaries", "/readyz"} {
		if !strings.Contains(body, word) {
			t.Errorf("%q is missing in\n%s", word, body)
		}
	}
	if w := s.get("GET", "/nothing", nil); w.Code != 404 {
		t.Errorf("/nothing: %d", w.Code)
	}
	for path, word := range map[string]string{"/": "websocat 'wss://millrace.test/subscribe?", "/subscribe": "connect to wss://millrace.test/subscribe\n"} {
		body := s.get("GET", "http://millrace.test"+path, http.Header{"X-Forwarded-Proto": {"https"}}).Body.String()
		if !strings.Contains(body, word) {
			t.Errorf("%s through a proxy with TLS: %q is missing in\n%s", path, word, body)
		}
	}
}

func TestCORS(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	for _, path := range []string{"/", "/cursors", "/dictionaries", "/dictionaries/x", "/healthz", "/readyz", "/subscribe", "/nothing"} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			w := s.get(method, path, http.Header{"Origin": {"https://elsewhere.example"}})
			if got := w.Header().Get("Access-Control-Allow-Origin"); got != "*" {
				t.Errorf("%s %s: Access-Control-Allow-Origin %q", method, path, got)
			}
			if method == "OPTIONS" && (w.Code != 204 || w.Header().Get("Access-Control-Allow-Headers") != "*") {
				t.Errorf("OPTIONS %s: %d %v", path, w.Code, w.Header())
			}
		}
	}
}

// from dials as if through a proxy on loopback that is trusted.
func from(addr string) http.Header { return http.Header{"X-Forwarded-For": {addr}} }

func trustLoopback(cfg *Config) {
	cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

func TestConnectionsPerAddress(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, func(cfg *Config, _ *timing) { trustLoopback(cfg); cfg.MaxConnectionsPerIP = 3 })
	for range 3 {
		s.dialFrom("203.0.113.7")
	}
	resp, body := s.refused("", from("203.0.113.7"))
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "5" || !strings.Contains(body, "3 connections") {
		t.Errorf("%s %v %q", resp.Status, resp.Header, body)
	}
	s.dialFrom("203.0.113.8")
	for i := range 3 { // one /64
		s.dialFrom(fmt.Sprintf("2001:db8:1:2::%d", i+1))
	}
	if resp, _ := s.refused("", from("2001:db8:1:2:ffff::1")); resp.StatusCode != 429 {
		t.Errorf("the same /64: %s", resp.Status)
	}
	s.dialFrom("2001:db8:1:3::1")
	for range 10 {
		s.dialFrom("127.0.0.1")
	}
	if got := s.metric("rejected_total", admission.ReasonConnections); got != 2 {
		t.Errorf("%v rejected", got)
	}
}

func (s *testServer) dialFrom(addr string) *client {
	s.t.Helper()
	c, _ := s.dialWith(new(dialer), "", from(addr))
	return c
}

func TestConnectionsAreGivenBack(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, func(cfg *Config, _ *timing) {
		trustLoopback(cfg)
		cfg.MaxConnectionsPerIP, cfg.MaxConnections, cfg.AttemptBurst = 1, 1, 1000
	})
	for range 20 {
		c := s.dialFrom("203.0.113.7")
		c.Close()
		eventually(t, "given back", func() bool { return s.count.Load() == 0 })
		if resp, _ := s.refused("cursor=x", from("203.0.113.7")); resp.StatusCode != 400 {
			t.Fatalf("bad request: %s", resp.Status)
		}
	}
}

func TestAttemptsPerAddress(t *testing.T) {
	s := serve(t, newTestLog(t), func(cfg *Config, _ *timing) {
		trustLoopback(cfg)
		cfg.AttemptsPerSecond, cfg.AttemptBurst = 0.01, 3
	})
	begin := time.Now()
	for range 3 {
		if resp, _ := s.refused("cursor=x", from("203.0.113.7")); resp.StatusCode != 400 {
			t.Fatalf("%s", resp.Status)
		}
	}
	resp, _ := s.refused("", from("203.0.113.7"))
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if least := 100 - time.Since(begin).Seconds(); resp.StatusCode != 429 || err != nil || float64(after) < least || after > 100 {
		t.Errorf("%s, Retry-After %q, want %.1f to 100", resp.Status, resp.Header.Get("Retry-After"), least)
	}
	s.dialFrom("203.0.113.9")
}

func TestMaxConnections(t *testing.T) {
	l, _ := mixed(t)
	s := serve(t, l, func(cfg *Config, _ *timing) { cfg.MaxConnections = 2 })
	first := s.dial("")
	s.dial("")
	resp, body := s.refused(strings.Repeat("&wantedDids=did:web:a.example.com", 50), nil)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "too many") {
		t.Errorf("%s %q", resp.Status, body)
	}
	if held := s.admission.Stats().Bytes; held != 0 {
		t.Errorf("the filter of one that was refused keeps %d bytes", held)
	}
	first.Close()
	eventually(t, "room again", func() bool { return s.count.Load() == 1 })
	s.dial("")
}

func TestSharedProxyIsReported(t *testing.T) {
	l, _ := mixed(t)
	var log syncBuffer
	s := serve(t, l, func(cfg *Config, _ *timing) { cfg.Logger = newTextLogger(&log) })
	for i := range admission.SharedProxyConnections + 5 {
		s.dialFrom(fmt.Sprintf("203.0.113.%d", i))
	}
	if n := strings.Count(log.String(), "no trusted proxy"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, log.String())
	}
	if got := s.metric("untrusted_forwards_total", ""); got != admission.SharedProxyConnections+5 {
		t.Errorf("%v counted", got)
	}
}

func TestEndsAreLogged(t *testing.T) {
	l, all := mixed(t)
	var log syncBuffer
	s := serve(t, l, func(cfg *Config, _ *timing) { cfg.Logger = newTextLogger(&log) })
	c := s.dial("cursor=0&extended=true")
	c.wantExtended(all...)
	c.say("x")
	c.wantClose(1000, "")
	eventually(t, "logged", func() bool { return strings.Contains(log.String(), "subscriber ended") })
	for _, word := range []string{"address=127.0.0.1", "reason=invalid_message", "variant=extended", "events=7"} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("%s is missing in %s", word, log.String())
		}
	}
	if got := s.metric("delivered_events_total", ""); got != 7 {
		t.Errorf("%v events", got)
	}
	if got := s.metric("subscribers", "extended"); got != 0 {
		t.Errorf("%v subscribers", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	ok := Config{Dictionaries: newRegistry(t)}
	without, err := dict.NewRegistry(dict.BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer without.Close()
	for _, tc := range []struct {
		field  string
		change func(*Config)
	}{
		{"Dictionaries", func(c *Config) { c.Dictionaries = nil }},
		{"Dictionaries", func(c *Config) { c.Dictionaries = without }},
		{"Links", func(c *Config) { c.Links = struct{ links.Queries }{} }},
		{"MaxConnections", func(c *Config) { c.MaxConnections = -1 }},
		{"MaxConnectionsPerIP", func(c *Config) { c.MaxConnectionsPerIP = -1 }},
		{"MaxHandshakes", func(c *Config) { c.MaxHandshakes = -1 }},
		{"AttemptsPerSecond", func(c *Config) { c.AttemptsPerSecond = -1 }},
		{"AttemptBurst", func(c *Config) { c.AttemptBurst = -1 }},
		{"MaxEventsPerSecond", func(c *Config) { c.MaxEventsPerSecond = -1 }},
		{"SlowTimeout", func(c *Config) { c.SlowTimeout = -1 }},
		{"ClientBytes", func(c *Config) { c.ClientBytes = -1 }},
		{"ChunkBytes", func(c *Config) { c.ChunkBytes = -1 }},
		{"TrustedProxies", func(c *Config) { c.TrustedProxies = make([]netip.Prefix, 1) }},
	} {
		cfg := ok
		tc.change(&cfg)
		if _, err := newServer(cfg, eventLog{}, defaultTiming()); err == nil || !strings.HasPrefix(err.Error(), "public: field "+tc.field+": ") {
			t.Errorf("field %s: error %v", tc.field, err)
		}
	}
	most := ok
	most.MaxConnections, most.MaxConnectionsPerIP = math.MaxInt, math.MaxInt
	if err := most.withDefaults().validate(); err != nil {
		t.Errorf("no limits: %v", err)
	}
	if _, err := New(ok); err == nil || !strings.HasPrefix(err.Error(), "public: field Log: ") {
		t.Errorf("field Log: error %v", err)
	}
}

// TestWireTableNamesRealTests keeps docs/wire.md honest.
func TestWireTableNamesRealTests(t *testing.T) {
	doc, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	limits, err := filepath.Glob("internal/admission/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, limits...)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				tests[fn.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	own := regexp.MustCompile(`^## ([1-8]|11)\. `) // sections whose list items each name a test
	rows, listed := 0, false
	for i, line := range strings.Split(string(doc), "\n") {
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if !tests[m[1]] {
				t.Errorf("line %d names %s, which there is not", i+1, m[1])
			}
		}
		if strings.HasPrefix(line, "## ") {
			listed = own.MatchString(line)
		}
		head := strings.HasPrefix(line, "|---") || strings.HasSuffix(line, "pinned by |")
		if strings.HasPrefix(line, "| ") && !head || strings.HasPrefix(line, "- ") && listed {
			rows++
			if !named.MatchString(line[max(0, strings.LastIndexAny(strings.TrimSuffix(line, " |"), "|(")):]) {
				t.Errorf("line %d names no test: %s", i+1, line)
			}
		}
	}
	if rows < 60 {
		t.Errorf("only %d rows", rows)
	}
}

func TestParseMessages(t *testing.T) {
	w, err := parseUpdate([]byte(`{"type":"options_update","payload":{"wantedDids":["` + didN(1) + `","` + didN(1) + `"],"wantedDids":["` + didN(2) + `","` + didN(1) + `"],"wantedCollections":["a.b.c","a.*","a.b.c"],"maxMessageSizeBytes":7}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{didN(2), didN(1)}, w.DIDs.members); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a.b.c", "a.*"}, w.Collections.members); diff != "" {
		t.Error(diff)
	}
	if w.MaxPayload != 7 {
		t.Errorf("maxPayload %d", w.MaxPayload)
	}
	if w, err := parseUpdate([]byte(`{"type":"options_update","payload":{"maxMessageSizeBytes":-1}}`)); err != nil || w.MaxPayload != 0 {
		t.Errorf("a negative size: %+v, %v", w, err)
	}
}

func TestParseEscapedMembers(t *testing.T) {
	w, err := parseUpdate([]byte(`{"type":"options_update","payload":{"wantedDids":[ "did\u003aplc:ab\u0063" ,
		"did:plc:d"],"wantedCollections":null}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"did:plc:abc", "did:plc:d"}, w.DIDs.members); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`"x\""`, `"\\"`, `"\\","did:plc:a"`} {
		if _, err := parseUpdate([]byte(`{"type":"options_update","payload":{"wantedDids":[` + bad + `]}}`)); !errors.Is(err, errInvalidOptions) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func FuzzParseUpdate(f *testing.F) {
	f.Add([]byte(`{"type":"options_update","payload":{"wantedDids":["did:plc:abc"],"wantedCollections":["a.b.c"],"maxMessageSizeBytes":7}}`))
	f.Add([]byte(`{"payload":null,"type":"options_update"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := parseUpdate(data)
		if w == nil || err != nil {
			return
		}
		if len(w.DIDs.members) > maxWantedDIDs || len(w.Collections.members) > maxWantedCollections || w.MaxPayload < 0 {
			t.Errorf("%d DIDs, %d collections, maxPayload %d", len(w.DIDs.members), len(w.Collections.members), w.MaxPayload)
		}
		// What it took must be what encoding/json sees.
		var plain struct {
			Payload struct {
				WantedDIDs []string `json:"wantedDids"`
			} `json:"payload"`
		}
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Fatalf("taken, but encoding/json says: %v", err)
		}
		for _, did := range plain.Payload.WantedDIDs {
			if !slices.Contains(w.DIDs.members, did) {
				t.Errorf("%q is missing", did)
			}
		}
	})
}

func TestMessages(t *testing.T) {
	var m messages
	for point, want := range map[replay.Point]string{
		{}: `{"kind":"heartbeat","time_us":0}`,
		{Position: translate.Position{Stream: 1}}: `{"kind":"heartbeat","time_us":0}`,
		{TimeUS: 7}: `{"kind":"heartbeat","time_us":7}`,
		{TimeUS: 7, Position: translate.Position{Stream: 1, Seq: 2, Op: 3}}: `{"kind":"heartbeat","time_us":7,"cursor":"000001-2-3"}`,
	} {
		if got := string(m.appendHeartbeat(nil, point)[2:]); got != want {
			t.Errorf("%+v: %s, want %s", point, got, want)
		}
	}
	if got := newCloseFrame(1000, strings.Repeat("x", 122)+"é"); len(got) != 2+2+122 {
		t.Errorf("close frame of %d bytes: %q", len(got), got)
	}
	for _, n := range []int{0, 1, 125, 126, 65535, 65536, 70000} {
		f := appendFrame([]byte("prefix"), frameText, bytes.Repeat([]byte("x"), n))[len("prefix"):]
		if frameLen(f) != len(f) || frameLen(append(f, "more"...)) != len(f) {
			t.Errorf("%d bytes: frameLen %d, want %d", n, frameLen(f), len(f))
		}
	}
	for _, short := range [][]byte{nil, {0x81}, {0x81, 126}, {0x81, 126, 1}, {0x81, 127, 0, 0, 0, 0, 0, 0, 1}} {
		if frameLen(short) != 0 {
			t.Errorf("% x: %d", short, frameLen(short))
		}
	}
}

var _ io.Writer = (*syncBuffer)(nil)

// TestTurnedAwayIsLogged: whoever is turned away or ended leaves a debug line with address and
// reason, and counts.
func TestTurnedAwayIsLogged(t *testing.T) {
	t.Parallel()
	var out syncBuffer
	l, _ := mixed(t)
	s := serve(t, l, func(cfg *Config, _ *timing) {
		cfg.Logger = newTextLogger(&out)
		cfg.MaxConnections = 1
		cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	c := s.rawDialFrom("192.0.2.7", "")
	s.refused("", http.Header{"X-Forwarded-For": {"192.0.2.8"}})
	s.refused("cursor=x", http.Header{"X-Forwarded-For": {"192.0.2.9"}})
	if _, err := c.Write(mask(frameClose, []byte{3, 232})); err != nil {
		t.Fatal(err)
	}
	s.waitMetric("ends_total", endClientClose, 1)
	for _, want := range []string{
		`msg="subscriber ended" address=192.0.2.7 reason=client_close`,
		`msg="client turned away" address=192.0.2.8 reason=max_connections`,
		`msg="client turned away" address=192.0.2.9 reason=bad_request`,
	} {
		eventually(t, want, func() bool { return strings.Contains(out.String(), want) })
	}
	for name, want := range map[string]float64{"connections_limit": 1, "connections_per_address_limit": 100, "addresses": 3} {
		eventually(t, fmt.Sprintf("%s is %v", name, want), func() bool { return s.metric(name, "") == want })
	}
}
