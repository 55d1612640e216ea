package public

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// post asks the handler directly.
func (s *testServer) post(path, body string) *httptest.ResponseRecorder {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
	return w
}

const wantPlan = `{"plannedThroughSeq":0,"sealedTipSeq":0,"segments":[],"stats":{"segmentsExamined":0,"segmentsMatched":0,"blocksMatched":0,"entries":0}}`

func TestV2Plan(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	const path = v2Prefix + "planSnapshot"
	did := `"` + didN(1) + `"`
	for _, body := range []string{
		"", "{}", `{"afterSeq":0}`, `{"afterSeq":123456789012345}`, `{"afterSeq":1,"beforeSeq":2}`, `{"beforeSeq":0}`, `{"other":[1]}`,
		`{"kinds":["commit","sync"],"dids":[` + did + `],"collections":["app.bsky.*","a.b.c"]}`,
		`{"dids":[` + strings.Repeat(did+",", 9_999) + did + `]}`,
	} {
		w := s.post(path, body)
		if w.Code != http.StatusOK || w.Body.String() != wantPlan || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%.80s: %d %s", body, w.Code, w.Body)
		}
	}
	for body, words := range map[string]string{
		"[]": "", "{": "", `{"afterSeq":"1"}`: "", `{"afterSeq":1.5}`: "", `{"dids":1}`: "",
		`{"kinds":["like"]}`: "like", `{"kinds":[""]}`: "kind",
		`{"kinds":["sync","sync","sync","sync","sync"]}`: "at most 4",
		`{"dids":["x"]}`: "DID",
		`{"dids":[` + strings.Repeat(did+",", 10_000) + did + `]}`:         "at most 10000",
		`{"collections":["app.*"]}`:                                        "app.*",
		`{"collections":[` + strings.Repeat(`"a.b.c",`, 100) + `"a.b.c"]}`: "at most 100",
		`{"collections":["a.b.c"],"kinds":["account"]}`:                    "leave out commit",
		`{"afterSeq":-1}`:              "negative",
		`{"beforeSeq":-1}`:             "negative",
		`{"afterSeq":5,"beforeSeq":5}`: "beforeSeq",
	} {
		wantV2Error(t, s.post(path, body), http.StatusBadRequest, v2InvalidRequest, words)
	}
	wantV2Error(t, s.post(path, `{"x":"`+strings.Repeat("x", maxPlanBytes)+`"}`), http.StatusRequestEntityTooLarge, "PayloadTooLarge", fmt.Sprint(maxPlanBytes))
	if n := len(s.lookups.batches); n != 0 {
		t.Errorf("%d turns were never given back", n)
	}
}

// TestV2PlanIsNotDecodedInVain checks how much memory a body takes that would become a list of half
// a million strings.
func TestV2PlanIsNotDecodedInVain(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	bomb := `{"dids":[` + strings.Repeat(`"",`, 600_000) + `""]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	wantV2Error(t, s.post(v2Prefix+"planSnapshot", bomb), http.StatusBadRequest, v2InvalidRequest, "at most 10000")
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8*uint64(len(bomb)) {
		t.Errorf("%d bytes were allocated for a body of %d", took, len(bomb))
	}
}

// TestV2PlanBeforeReady: a plan that is refused ends v2's client at once.
func TestV2PlanBeforeReady(t *testing.T) {
	s := serve(t, newTestLog(t), func(cfg *Config, _ *timing) {
		cfg.Health = func() []Check { return []Check{{Name: "relay"}} }
	})
	if w := s.get("GET", "/readyz", nil); w.Code != http.StatusServiceUnavailable {
		t.Fatalf("ready: %d", w.Code)
	}
	if w := s.post(v2Prefix+"planSnapshot", "{}"); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestV2LargePlansTakeTurns: bodies that take memory wait for each other, small ones do not.
func TestV2LargePlansTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := serveBubble(t, newTestLog(t), nil)
		for range cap(s.lookups.batches) {
			s.lookups.batches <- struct{}{}
		}
		ask := func(body string) string {
			nc := s.connect()
			defer nc.Close()
			go fmt.Fprintf(nc, "POST %splanSnapshot HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", v2Prefix, len(body), body)
			answer, _ := io.ReadAll(nc)
			status, _, _ := strings.Cut(string(answer), "\r\n")
			return status
		}
		if got := ask("{}"); got != "HTTP/1.1 200 OK" {
			t.Error(got)
		}
		large := `{"x":"` + strings.Repeat("x", smallPlanBytes) + `"}`
		if got := ask(large); got != "HTTP/1.1 503 Service Unavailable" {
			t.Error(got)
		}
		for range cap(s.lookups.batches) {
			<-s.lookups.batches
		}
		if got := ask(large); got != "HTTP/1.1 200 OK" {
			t.Error(got)
		}
	})
}

// TestV2DrippedPlan: a body that comes too slowly gets no InvalidRequest, which is for good, and
// gives its turn back.
func TestV2DrippedPlan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := serveBubble(t, newTestLog(t), nil)
		nc := s.connect()
		begin := time.Now()
		fmt.Fprintf(nc, "POST %splanSnapshot HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n{", v2Prefix, smallPlanBytes+1)
		answer, _ := io.ReadAll(nc)
		if got := string(answer); !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, `{"error":"RequestTimeout"`) {
			t.Error(got)
		}
		if took := time.Since(begin); took != s.timing.body {
			t.Errorf("it took %v, want %v", took, s.timing.body)
		}
		if n := len(s.lookups.batches); n != 0 {
			t.Errorf("%d turns were not given back", n)
		}
	})
}

func TestV2Dictionary(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	const path = v2Prefix + "getZstdDictionary"
	stored, v1 := s.cfg.Dictionaries.Stored(), jetstreams(t)
	for query, d := range map[string][]byte{
		"": stored.Bytes(), fmt.Sprintf("?id=%d", stored.ID()): stored.Bytes(), fmt.Sprintf("?id=%d", v1.ID()): v1.Bytes(),
	} {
		id := stored.ID()
		if bytes.Equal(d, v1.Bytes()) {
			id = v1.ID()
		}
		w := s.get("GET", path+query, nil)
		h := w.Header()
		if w.Code != http.StatusOK || !bytes.Equal(w.Body.Bytes(), d) || h.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%q: %d, %d bytes of %s", query, w.Code, w.Body.Len(), h.Get("Content-Type"))
		}
		if h.Get("ETag") != fmt.Sprintf(`"zstd-dict-%d"`, id) || h.Get("X-Zstd-Dictionary-Id") != fmt.Sprint(id) {
			t.Errorf("%q: %v", query, h)
		}
		if immutable := strings.Contains(h.Get("Cache-Control"), "immutable"); immutable != (query != "") {
			t.Errorf("%q: Cache-Control %q", query, h.Get("Cache-Control"))
		}
		if w := s.get("GET", path+query, http.Header{"If-None-Match": {h.Get("ETag")}}); w.Code != http.StatusNotModified {
			t.Errorf("%q: %d with its ETag", query, w.Code)
		}
	}
	if w := s.get("HEAD", path, nil); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
	}
	for _, query := range []string{"?id=", "?id=x", "?id=1.0", "?id=9223372036854775808"} {
		wantV2Error(t, s.get("GET", path+query, nil), http.StatusBadRequest, v2InvalidRequest, "id")
	}
	for _, id := range []int64{0, 7, -1, 1<<32 + int64(stored.ID())} {
		wantV2Error(t, s.get("GET", fmt.Sprintf("%s?id=%d", path, id), nil), http.StatusNotFound, "DictionaryNotFound", fmt.Sprint(stored.ID()))
	}
}

func TestV2Segments(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	for _, query := range []string{"", "?limit=1", "?limit=100000&cursor=", "?cursor=7"} {
		if w := s.get("GET", v2Prefix+"listSegments"+query, nil); w.Code != http.StatusOK || w.Body.String() != `{"segments":[]}` {
			t.Errorf("%q: %d %s", query, w.Code, w.Body)
		}
	}
	const name = "seg_0000000001.jss"
	for path, status := range map[string]int{
		"listSegments?limit=0": 400, "listSegments?limit=": 400, "listSegments?cursor=x": 400,
		"getSegment": 400, "getSegment?name=../x": 400, "getSegment?name=" + name: 404,
		"getBlock?segment=" + name: 400, "getBlock?segment=" + name + "&blockIndex=-1": 400, "getBlock?blockIndex=1": 400,
		"getBlock?segment=" + name + "&blockIndex=1": 404,
	} {
		want := v2InvalidRequest
		if status == 404 {
			want = "SegmentNotFound"
		}
		wantV2Error(t, s.get("GET", v2Prefix+path, nil), status, want, "")
	}
}

func TestV2Methods(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	for _, path := range []string{"", "getSnapshot", "subscribeEvents/"} {
		wantV2Error(t, s.get("GET", v2Prefix+path, nil), http.StatusNotImplemented, "MethodNotImplemented", "")
	}
	for path, method := range map[string]string{
		"subscribeEvents": "POST", "planSnapshot": "GET", "getZstdDictionary": "POST", "listSegments": "DELETE", "getSegment": "PUT", "getBlock": "POST",
	} {
		w := s.get(method, v2Prefix+path, nil)
		takes, allowed := "GET", "GET, HEAD"
		if path == "planSnapshot" {
			takes, allowed = "POST", "POST"
		}
		wantV2Error(t, w, http.StatusMethodNotAllowed, "MethodNotAllowed", "this method takes "+takes)
		if got := w.Header().Get("Allow"); got != allowed {
			t.Errorf("%s: Allow: %s, want %s", path, got, allowed)
		}
	}
	if w := s.get("OPTIONS", v2Prefix+"planSnapshot", nil); w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("OPTIONS: %d %v", w.Code, w.Header())
	}
}
