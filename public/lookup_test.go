package public

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"millrace/consume/relaysim/testwait"
	"millrace/intern"
	"millrace/intern/kv/pebblekv"
	"millrace/replay"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// emptyServer returns a server of an empty log.
func emptyServer(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := newServer(cfg, eventLog{rangeOf: func() replay.Range { return replay.Range{} }}, defaultTiming())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newInterner returns an interner over an empty store in memory.
func newInterner(t *testing.T, metrics prometheus.Registerer) *intern.Interner {
	t.Helper()
	store, err := pebblekv.Open(pebblekv.Config{Dir: "uids", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	in, err := intern.Open(t.Context(), intern.Config{Store: store, Seed: 1, NameBytes: 10_000, Registerer: metrics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); store.Close() })
	return in
}

// lookupServer serves look-ups in uids and nothing else.
func lookupServer(t *testing.T, uids UIDs) http.Handler {
	t.Helper()
	return emptyServer(t, Config{Dictionaries: newRegistry(t), UIDs: uids}).Handler()
}

func ask(h http.Handler, method, target, body string) (status int, answer string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	text, _ := io.ReadAll(w.Body)
	return w.Code, strings.TrimSpace(string(text))
}

const (
	lookupDID = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
	lookupURI = "at://did:plc:ewvi7nxzyoun6zhxrhs64oiz/app.bsky.feed.post/3k4duaz5vfs2b"
)

func TestUIDLookups(t *testing.T) {
	in := newInterner(t, nil)
	uids := make([]intern.Result, 1)
	if err := in.Resolve(t.Context(), []intern.Request{{Name: []byte(lookupURI)}}, uids); err != nil {
		t.Fatal(err)
	}
	did := newUIDJSON(uids[0].DIDUID, lookupDID)
	uri := newUIDJSON(uids[0].URIUID, lookupURI)
	h := lookupServer(t, in)
	for _, tc := range []struct {
		target string
		status int
		answer string // the whole of it if it is JSON, else a part
	}{
		{"/uid?did=" + lookupDID, 200, `{"uid":"` + did.UID + `","did":"` + lookupDID + `"}`},
		{"/uid?uri=" + lookupURI, 200, `{"uid":"` + uri.UID + `","uri":"` + lookupURI + `"}`},
		{"/uid/" + did.UID, 200, `{"uid":"` + did.UID + `","did":"` + lookupDID + `"}`},
		{"/uid/" + uri.UID, 200, `{"uid":"` + uri.UID + `","uri":"` + lookupURI + `"}`},
		{"/uid?did=did:plc:zzzzzzzzzzzzzzzzzzzzzzzz", 404, "has no UID"},
		{"/uid?uri=" + lookupURI + "x", 404, "has no UID"},
		{"/uid/1", 404, "stands for nothing"},
		{"/uid/18446744073709551615", 404, "stands for nothing"},
		{"/uid/18446744073709551616", 400, "no UID"},
		{"/uid/-1", 400, "no UID"},
		{"/uid/007", 400, "no UID"},
		{"/uid/x", 400, "no UID"},
		{"/uid", 400, "ask for one of"},
		{"/uid?did=" + lookupDID + "&uri=" + lookupURI, 400, "ask for one of"},
		{"/uid?did=" + lookupDID + "&did=did:web:example.com", 400, "ask for one of"},
		{"/uid?uri=" + lookupURI + "&did=", 400, "ask for one of"},
		{"/uid?did=", 400, "neither a DID nor an AT URI"},
		{"/uid?did=did:plc", 400, "neither a DID nor an AT URI"},
		{"/uid?did=" + lookupURI, 400, "with uri="},
		{"/uid?uri=" + lookupDID, 400, "with did="},
		{"/uid?uri=at://", 400, "neither a DID nor an AT URI"},
	} {
		status, answer := ask(h, "GET", tc.target, "")
		if status != tc.status || (status == 200 && answer != tc.answer) || !strings.Contains(answer, tc.answer) {
			t.Errorf("GET %s: %d %s, want %d %s", tc.target, status, answer, tc.status, tc.answer)
		}
	}
	// None of the look-ups gave a UID.
	if _, ok, err := in.Lookup(t.Context(), lookupURI+"x"); ok || err != nil {
		t.Errorf("a look-up gave a UID (%v)", err)
	}
}

func TestUIDBatches(t *testing.T) {
	in := newInterner(t, nil)
	uids := make([]intern.Result, 1)
	if err := in.Resolve(t.Context(), []intern.Request{{Name: []byte(lookupURI)}}, uids); err != nil {
		t.Fatal(err)
	}
	did := newUIDJSON(uids[0].DIDUID, lookupDID).UID
	many := func(n int) string {
		return `{"strings":["` + strings.Repeat(lookupDID+`","`, n-1) + lookupDID + `"]}`
	}
	h := lookupServer(t, in)
	for _, tc := range []struct {
		body   string
		status int
		answer string
	}{
		{`{"strings":["` + lookupDID + `","did:web:example.com"],"uids":["` + did + `","1"]}`, 200,
			`{"strings":{"did:plc:ewvi7nxzyoun6zhxrhs64oiz":"` + did + `","did:web:example.com":null},"uids":{"1":null,"` + did + `":"` + lookupDID + `"}}`},
		{`{}`, 200, `{"strings":{},"uids":{}}`},
		{many(1000), 200, did},
		{many(1001), 400, "more than 1000"},
		{strings.TrimSuffix(many(1000), "}") + `,"uids":["1"]}`, 400, "more than 1000"},
		{`{"strings":["` + lookupDID + `","nothing"]}`, 400, `"nothing" is neither a DID nor an AT URI`},
		{`{"uids":["1.5"]}`, 400, "no UID"},
		{`{"uids":[1]}`, 400, "the body is not"},
		{`{"string":[]}`, 400, "the body is not"},
		{``, 400, "the body is not"},
		{`{"strings":["` + strings.Repeat("a", maxLookupBytes) + `"]}`, 413, "more than 2097152 bytes"},
		{`{"uids":["1"],"strings":null,"uids":[]}`, 200, `{"strings":{},"uids":{"1":null}}`},
		{`{"strings":{}}`, 400, "the body is not"},
		{`{"strings":["` + lookupDID + `"`, 400, "the body is not"},
		{`{"strings":["` + lookupDID + `"]`, 400, "the body is not"},
		{`[]`, 400, "the body is not"},
		{"{} \r\n\t", 200, `{"strings":{},"uids":{}}`},
		{`{}{}`, 400, "the body is not"},
		{`{}]`, 400, "the body is not"},
		{`{}x`, 400, "the body is not"},
		{`{"uids":["1"]} "more"`, 400, "follows the object"},
		{`{}` + strings.Repeat(" ", maxLookupBytes), 413, "more than 2097152 bytes"},
	} {
		status, answer := ask(h, "POST", "/uids", tc.body)
		if status != tc.status || !strings.Contains(answer, tc.answer) {
			t.Errorf("POST %.80s: %d %.300s, want %d %s", tc.body, status, answer, tc.status, tc.answer)
		}
	}
	if status, _ := ask(h, "GET", "/uids", ""); status != 405 {
		t.Errorf("GET /uids: %d, want 405", status)
	}
}

// downUIDs is a UID store that does not answer.
type downUIDs struct{}

func (downUIDs) LookupStrings(context.Context, []string, []uint64) error { return errors.New("down") }
func (downUIDs) LookupUIDs(context.Context, []uint64, []string) error    { return errors.New("down") }
func (downUIDs) Await(context.Context, []string, func(uint64)) (*intern.Waiting, error) {
	return nil, errors.New("down")
}

// failingUIDs knows no string, and fails to wait for one, though it has found it.
type failingUIDs struct {
	downUIDs
	found func(uid uint64)
}

func (*failingUIDs) LookupStrings(context.Context, []string, []uint64) error { return nil }

func (u *failingUIDs) Await(_ context.Context, _ []string, found func(uint64)) (*intern.Waiting, error) {
	u.found = found
	return nil, errors.New("down")
}

// TestFoundAfterAFailure: a subject's UID may come when its filter has failed already.
func TestFoundAfterAFailure(t *testing.T) {
	uids := &failingUIDs{}
	s := emptyServer(t, Config{Dictionaries: newRegistry(t), UIDs: uids})
	for _, w := range []wants{{Subjects: wantedSet{members: []string{didN(1)}}}, {SubjectDIDs: wantedSet{members: []string{didN(1)}}}} {
		if _, err := s.compile(t.Context(), &w, 0, netip.IPv6Loopback()); !errors.Is(err, errUIDStore) {
			t.Fatal(err)
		}
		uids.found(7)
	}
}

func TestUIDStoreOffOrDown(t *testing.T) {
	if status, answer := ask(lookupServer(t, nil), "GET", "/uid?did="+lookupDID, ""); status != 404 || !strings.Contains(answer, "--intern=off") {
		t.Errorf("off: %d %s", status, answer)
	}
	var logged bytes.Buffer
	s := emptyServer(t, Config{Dictionaries: newRegistry(t), UIDs: downUIDs{}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	for range 3 {
		if status, answer := ask(s.Handler(), "GET", "/uid?did="+lookupDID, ""); status != 503 || strings.Contains(answer, "down") {
			t.Errorf("down: %d %s", status, answer)
		}
	}
	if n := strings.Count(logged.String(), "look-up failed"); n != 1 {
		t.Errorf("the operator is told %d times within a minute:\n%s", n, &logged)
	}
}

// countedBody counts what is read of it.
type countedBody struct {
	io.Reader
	read int
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

// TestUIDBatchIsNotReadInVain checks how much is read of a body that would become a list of half a
// million strings.
func TestUIDBatchIsNotReadInVain(t *testing.T) {
	bomb := `{"strings":[` + strings.Repeat(`"",`, 600_000) + `""]}`
	post := func(ctx context.Context, s *Server) (status, read int) {
		body := &countedBody{Reader: strings.NewReader(bomb)}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/uids", body).WithContext(ctx))
		return w.Code, body.read
	}
	start := func(uids UIDs) *Server {
		return emptyServer(t, Config{Dictionaries: newRegistry(t), UIDs: uids})
	}
	if status, read := post(t.Context(), start(nil)); status != 404 || read != 0 {
		t.Errorf("without UIDs: %d after %d bytes", status, read)
	}
	s := start(downUIDs{})
	if status, read := post(t.Context(), s); status != 400 || read > 64<<10 {
		t.Errorf("%d after %d bytes, want 400 after the first thousand strings", status, read)
	}
	if n := len(s.lookups.batches); n != 0 {
		t.Fatalf("%d turns were not given back", n)
	}
	for range batchesAtOnce {
		s.lookups.batches <- struct{}{}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if status, read := post(gone, s); status != 503 || read != 0 {
		t.Errorf("with all turns taken: %d after %d bytes", status, read)
	}
}

// lateUIDs is a UID store that takes as long to answer as a look-up may take, almost.
type lateUIDs struct{ downUIDs }

func (lateUIDs) LookupStrings(ctx context.Context, _ []string, _ []uint64) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lookupTimeout - time.Second):
		return nil
	}
}

func (lateUIDs) LookupUIDs(context.Context, []uint64, []string) error { return nil }

// TestLateUIDBatch: the time that the body of a batch may take does not bound its look-ups, as
// net/http ends the deadline with the body.
func TestLateUIDBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := serveBubble(t, newTestLog(t), func(cfg *Config, _ *timing) { cfg.UIDs = lateUIDs{} })
		nc := s.connect()
		if _, err := io.WriteString(nc, "POST /uids HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		nc.SetReadDeadline(time.Now().Add(testTimeout))
		status := make([]byte, 12)
		if _, err := io.ReadFull(nc, status); err != nil || string(status) != "HTTP/1.1 200" {
			t.Fatalf("%q, %v", status, err)
		}
	})
}

func TestDrippedUIDBatchLosesItsTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		s := serveBubble(t, l, func(cfg *Config, _ *timing) { cfg.UIDs = downUIDs{} })
		nc := s.connect()
		begin := time.Now()
		if _, err := io.WriteString(nc, "POST /uids HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"strings\":["); err != nil {
			t.Fatal(err)
		}
		nc.SetReadDeadline(time.Now().Add(testTimeout))
		status := make([]byte, 12)
		if _, err := io.ReadFull(nc, status); err != nil || string(status) != "HTTP/1.1 408" {
			t.Fatalf("%q, %v", status, err)
		}
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
		eventually(t, "its turn is given back", func() bool { return len(s.lookups.batches) == 0 })
	})
}

// TestHalfSentUIDBatchesStarveNobody has one address send half of a body on each of many
// connections: another address gets its answer.
func TestHalfSentUIDBatchesStarveNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := serveBubble(t, newTestLog(t), func(cfg *Config, _ *timing) {
			cfg.UIDs, cfg.TrustedProxies = lateUIDs{}, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		})
		post := func(path, client string, length int) net.Conn {
			nc := s.connect()
			nc.SetDeadline(time.Now().Add(testTimeout))
			if _, err := fmt.Fprintf(nc, "POST %s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %s\r\nContent-Length: %d\r\n\r\n{}", path, client, length); err != nil {
				t.Fatal(err)
			}
			return nc
		}
		for range 2 * batchesAtOnce {
			post("/uids", "192.0.2.1", 1000)
			post(v2Prefix+"planSnapshot", "192.0.2.1", smallPlanBytes+1)
		}
		eventually(t, "a turn is taken", func() bool { return len(s.lookups.batches) > 0 })
		testwait.Elapse(time.Second)
		if n := len(s.lookups.batches); n != 1 {
			t.Errorf("one address has %d of the %d turns", n, batchesAtOnce)
		}
		status := make([]byte, 12)
		if _, err := io.ReadFull(post("/uids", "192.0.2.2", 2), status); err != nil || string(status) != "HTTP/1.1 200" {
			t.Errorf("another address: %q, %v", status, err)
		}
	})
}

// goneUIDs is a UID store whose client goes away during the look-up.
type goneUIDs struct {
	downUIDs
	leave func()
}

func (u goneUIDs) LookupStrings(ctx context.Context, _ []string, _ []uint64) error {
	u.leave()
	<-ctx.Done()
	return ctx.Err()
}

// TestLookupOfAClientThatIsGone: that is no failure of the UID store, and is not logged as one.
func TestLookupOfAClientThatIsGone(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	var out bytes.Buffer
	cfg := Config{Dictionaries: newRegistry(t), UIDs: goneUIDs{leave: leave}, Logger: slog.New(slog.NewTextHandler(&out, nil))}
	s := emptyServer(t, cfg)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/uid?did="+didN(1), nil).WithContext(ctx))
	if w.Code != 503 || out.Len() > 0 {
		t.Errorf("%d, and the log says %q", w.Code, &out)
	}
}
