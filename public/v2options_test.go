package public

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestV2ChecksInOrder: of several mistakes the first in this order is named, so that none hides
// behind another.
func TestV2ChecksInOrder(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	steps := []struct{ query, name, words string }{
		{"x=%zz", v2InvalidRequest, "query string"},
		{"compress=true", v2InvalidRequest, "compress"},
		{"zstdDictionary=7", "UnknownZstdDictionary", "the current one is"},
		{"kinds=like", v2InvalidRequest, "like"},
		{"cursor=x", v2InvalidRequest, "cursor"},
	}
	for i := range steps {
		var q []string
		for _, later := range steps[i:] {
			q = append([]string{later.query}, q...)
		}
		query := strings.Join(q, "&")
		s.wantV2Refused(query, http.StatusBadRequest, steps[i].name, steps[i].words)
		// The handshake comes last.
		wantV2Error(t, s.get("GET", v2Prefix+"subscribeEvents?"+query, nil), http.StatusBadRequest, steps[i].name, steps[i].words)
	}
	resp, body := s.refusedAt(s.v2URL("zstdDictionary=7"), http.Header{"Socket-Encoding": {"gzip, zstd"}})
	checkV2Error(t, resp, body, http.StatusBadRequest, v2InvalidRequest, "Socket-Encoding")
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.wantV2Refused("x=%zz", http.StatusServiceUnavailable, "ServiceUnavailable", "shutting down")
}

func TestV2InvalidRequests(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	for query, words := range map[string]string{
		"cursor=-1": "cursor", "cursor=1.5": "cursor", "cursor=9223372036854775808": "cursor",
		"cursor=abc-1-0":           "cursor",
		"kinds=":                   "kind",
		"kinds=commit,identity":    "repeat the parameter",
		"kinds=Commit":             "kind",
		"dids=":                    "DID",
		"dids=alice.test":          "alice.test",
		"collections=":             "collection",
		"collections=app.*":        "app.*",
		"collections=*":            "collection",
		"collections=app.bsky.fe*": "collection",
		"collections=a.b.c,a.b.d":  "repeat the parameter",
		"kinds=identity&kinds=sync&collections=a.b.c":         "leave out commit",
		"maxMessageSizeBytes=":                                "maxMessageSizeBytes",
		"maxMessageSizeBytes=-1":                              "maxMessageSizeBytes",
		"maxMessageSizeBytes=4294967296":                      "4294967295",
		"maxMessageSizeBytes=5&maxMessageSizeBytes=5":         "one number",
		"zstdDictionary=0":                                    "zstdDictionary",
		"zstdDictionary=x":                                    "zstdDictionary",
		"zstdDictionary=4294967296":                           "zstdDictionary",
		"wantedDids=":                                         "take dids",
		"wantedCollections=a.b.c":                             "take collections",
		"requireHello=false":                                  "requireHello",
		"requireHello=false&wantedCollections=a&wantedDids=b": "wantedDids",
		"compress=true":                                       "zstdDictionary=<id>",
		strings.Repeat("kinds=commit&", 5):                    "at most 4",
		strings.Repeat("collections=a.b.c&", 101):             "at most 100",
		strings.Repeat("dids=did:web:a.test&", 10_001):        "at most 10000",
		"dids=" + strings.Repeat("%E2%80%A8%22", 2000):        "invalid",
		"cursor=" + escape(strings.Repeat("\"\u2028<", 2000)): "cursor",
	} {
		s.wantV2Refused(query, http.StatusBadRequest, v2InvalidRequest, words)
	}
	s.wantV2Refused("zstdDictionary=7", http.StatusBadRequest, "UnknownZstdDictionary", fmt.Sprint(s.cfg.Dictionaries.Stored().ID()))
}

// TestV2ErrorsAreShort: whatever an error quotes, it fits into what v2's client reads, as JSON.
func TestV2ErrorsAreShort(t *testing.T) {
	for _, text := range []string{"short", "x" + strings.Repeat("é", 600), strings.Repeat("<", 600), strings.Repeat("\u2028", 4000), strings.Repeat("x", 983)} {
		w := httptest.NewRecorder()
		badRequest("CursorTooOld", errors.New(text)).writeV2(w)
		wantV2Error(t, w, http.StatusBadRequest, "CursorTooOld", text[:3])
		if strings.Contains(w.Body.String(), `\ufffd`) {
			t.Errorf("a rune is cut: %s", w.Body)
		}
	}
	// One that just fits is not cut.
	for n, whole := range map[int]bool{987: true, 988: false} {
		w := httptest.NewRecorder()
		text := strings.Repeat("x", n)
		badRequest("CursorTooOld", errors.New(text)).writeV2(w)
		if strings.Contains(w.Body.String(), text) != whole || whole && w.Body.Len() != maxV2ErrorBytes {
			t.Errorf("a message of %d bytes comes whole: %t, in %d bytes", n, !whole, w.Body.Len())
		}
	}
}

func TestV2Cursor(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(3)...)
	l.add(creates(didN(3), "app.bsky.feed.like", "x", "a", "b", "c"), identity(didN(1)))
	all := l.all()
	s := serve(t, l, nil)
	for i, e := range all {
		s.dialV2(fmt.Sprintf("cursor=%d", e.seq())).wantV2(all[i:]...)
		s.dialV2(fmt.Sprintf("cursor=%d", e.timeUS)).wantV2(all[i:]...)
		if i > 0 {
			s.dialV2(fmt.Sprintf("cursor=%d", all[i-1].seq()+1)).wantV2(all[i:]...)
		}
	}
	s.dialV2("cursor=0").wantV2(all...)
	s.dialV2("cursor=0&cursor=x").wantV2(all...)
	newest := all[len(all)-1]
	var live []*client
	for _, query := range []string{
		"", "cursor=", fmt.Sprintf("cursor=%d", newest.seq()+1), "cursor=999999999999999",
		fmt.Sprintf("cursor=%d", time.Now().Add(time.Hour).UnixMicro()), "cursor=9223372036854775807",
	} {
		live = append(live, s.dialV2(query))
	}
	s.waitIdle(int(s.count.Load()))
	next := l.add(posts(1)...)
	for _, c := range live {
		c.wantV2(next...)
	}
}

// TestV2CursorOnAnotherInstance: instances behind one relay that cut its stream differently, and
// began at different times, have the same seqs.
func TestV2CursorOnAnotherInstance(t *testing.T) {
	a, b := newTestLog(t), newTestLog(t)
	frames := []frame{
		create(didN(1), "app.bsky.feed.post", "1", "one"), creates(didN(2), "app.bsky.feed.like", "two", "a", "b"),
		identity(didN(3)), create(didN(4), "app.bsky.feed.post", "2", "three"), account(didN(5)),
	}
	a.add(frames...)
	b.seq++
	b.add(frames[1])
	b.add(frames[2:]...)
	for i, e := range a.all()[1:] {
		if got := b.all()[i].seq(); got != e.seq() {
			t.Fatalf("event %d has seq %d, and %d on the other instance", i, e.seq(), got)
		}
	}
	other := serve(t, b, nil)
	for i, e := range a.all()[1:] {
		other.dialV2(fmt.Sprintf("cursor=%d", e.seq())).wantV2(b.all()[i:]...)
	}
}

// trimmed is a log whose first block was trimmed.
func trimmed(t *testing.T) (*testLog, []truth) {
	t.Helper()
	l := newTestLog(t)
	l.add(posts(20)...)
	before := l.Range().Bytes
	kept := l.add(posts(5)...)
	if err := l.TrimTo(t.Context(), l.Range().Bytes-before); err != nil {
		t.Fatal(err)
	}
	return l, kept
}

func TestV2CursorTooOld(t *testing.T) {
	l, kept := trimmed(t)
	s := serve(t, l, nil)
	old := l.all()[3].seq()
	s.wantV2Refused(fmt.Sprintf("cursor=%d", old), http.StatusBadRequest, v2CursorTooOld, fmt.Sprint(old))
	s.wantV2Refused("cursor=1", http.StatusBadRequest, v2CursorTooOld, fmt.Sprint(kept[0].seq()))
	s.dialV2("cursor=0").wantV2(kept...)
	s.dialV2(fmt.Sprintf("cursor=%d", kept[0].seq())).wantV2(kept...)
	if err := l.TrimTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	last := kept[len(kept)-1].seq()
	s.wantV2Refused(fmt.Sprintf("cursor=%d", last), http.StatusBadRequest, v2CursorTooOld, fmt.Sprintf("begins at %d", last+1))
	s.dialV2(fmt.Sprintf("cursor=%d", last+1)).wantV2(l.add(identity(didN(1)))...)
}

func TestV2OutdatedTime(t *testing.T) {
	l, kept := trimmed(t)
	s := serve(t, l, nil)
	const want = `{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#info",` +
		`"message":"the cursor is older than the log: starting at its oldest event","name":"OutdatedCursor"}}`
	for _, us := range []int64{1e15, l.all()[3].timeUS} {
		c := s.dialV2(fmt.Sprintf("cursor=%d", us))
		if _, got := c.next(); string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		c.wantV2(kept...)
	}
	d := l.dictionaries.Stored()
	c := s.dialV2(fmt.Sprintf("cursor=1000000000000000&zstdDictionary=%d", d.ID()))
	if got := c.nextV2(d); got != want {
		t.Errorf("compressed: got  %s\nwant %s", got, want)
	}
	if got := c.nextV2(d); got != kept[0].v2(t) {
		t.Errorf("then %s", got)
	}
}

func TestV2Filters(t *testing.T) {
	l, all := mixed(t)
	last := l.add(identity(didN(2)))
	s := serve(t, l, nil)
	for query, want := range map[string][]int{
		"kinds=commit":                 {0, 1, 2, 3, 4},
		"kinds=identity&kinds=account": {5, 6},
		"kinds=commit&kinds=identity&kinds=account&kinds=sync": {0, 1, 2, 3, 4, 5, 6},
		"kinds=sync&kinds=account":                             {5},
		"kinds=sync":                                           {},
		"dids=" + didN(1):                                      {0, 2, 6},
		"dids=" + didN(1) + "&dids=did:plc:ABC":                {0, 2, 4, 6},
		"collections=app.bsky.feed.post":                       {0, 5, 6},
		"collections=app.bsky.*":                               {0, 1, 2, 5, 6},
		"collections=app.bsky.feed.*":                          {0, 1, 5, 6},
		"collections=app.bsky.*&kinds=commit":                  {0, 1, 2},
		"collections=app.bsky.*&kinds=commit&dids=" + didN(1):  {0, 2},
		"collections=com.example.thing&collections=app.bsky.graph.follow&dids=" + didN(2): {3, 5},
		"foo=bar&extended=x&strict=true&wantedKinds=x":                                    {0, 1, 2, 3, 4, 5, 6},
	} {
		t.Run(query, func(t *testing.T) {
			s.dialV2("cursor=0&" + query).wantV2(append(pick(all, want...), after(query, last)...)...)
		})
	}
}

// after returns the events that a filter of identities or of didN(2) passes, too: they show that
// nothing came in between.
func after(query string, last []truth) []truth {
	if strings.Contains(query, "kinds") && !strings.Contains(query, "identity") || strings.Contains(query, "dids=") && !strings.Contains(query, didN(2)) {
		return nil
	}
	return last
}

func TestV2TenThousandDIDs(t *testing.T) {
	l := newTestLog(t)
	l.add(identity(didN(20_000)))
	last := l.add(identity(didN(9_999)))
	serve(t, l, nil).dialV2(tenThousandDIDs("dids")).wantV2(last...)
}

func TestV2MaxMessageSize(t *testing.T) {
	l := newTestLog(t)
	small := l.add(create(didN(1), "app.bsky.feed.post", "1", "small"))[0]
	large := l.add(create(didN(1), "app.bsky.feed.post", "2", strings.Repeat("easily compressed ", 100)))[0]
	last := l.add(create(didN(1), "app.bsky.feed.post", "3", "small"))[0]
	s := serve(t, l, nil)
	d := l.dictionaries.Stored()
	size := len(large.v2(t))
	for limit, want := range map[int][]truth{
		0: {small, large, last}, size: {small, large, last}, size - 1: {small, last}, len(small.v2(t)): {small, last}, 4294967295: {small, large, last},
	} {
		query := fmt.Sprintf("cursor=0&maxMessageSizeBytes=%d", limit)
		s.dialV2(query).wantV2(want...)
		c := s.dialV2(fmt.Sprintf("%s&zstdDictionary=%d", query, d.ID()))
		for i, e := range want {
			if got := c.nextV2(d); got != e.v2(t) {
				t.Errorf("limit %d, compressed: event %d is %s", limit, i, got)
			}
		}
	}
}
