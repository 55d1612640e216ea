package linksapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/public/internal/viewapi"
	"millrace/public/internal/viewapi/viewapitest"
	"millrace/replay/references"
)

func TestErrors(t *testing.T) {
	subject := "subject=" + post(1)
	both := subject + "&source=" + likeSource
	old := "target=" + post(1) + "&collection=" + like + "&path=.subject.uri"
	toMany := "getManyToMany?pathToOther=subject&" + both
	for _, tc := range []struct {
		path    string
		status  int
		name    string
		message string // a part
	}{
		{xrpc + "getBacklinks", 400, "InvalidRequest", "source: it is missing"},
		{xrpc + "getBacklinks?" + subject, 400, "InvalidRequest", "source: it is missing"},
		{xrpc + "getBacklinks?source=" + likeSource, 400, "InvalidRequest", "subject: it is missing"},
		{xrpc + "getBacklinks?" + both + "&" + subject, 400, "InvalidRequest", "subject: it is given 2 times"},
		{xrpc + "getBacklinks?source=none&" + subject, 400, "InvalidRequest", `source: "none" is not <collection>:<path>`},
		{xrpc + "getBacklinks?source=" + like + ":&" + subject, 400, "InvalidRequest", `:" is not <collection>:<path>`},
		{xrpc + "getBacklinks?source=:subject.uri&" + subject, 400, "InvalidRequest", `":subject.uri" is not <collection>:<path>`},
		{"/links/count?collection=" + like + "&path=&target=" + post(1), 400, "InvalidRequest", "path: it is missing"},
		{xrpc + "getBacklinks?source=" + like + ":.subject.uri&" + subject, 400, "InvalidRequest", `uri" has a dot behind the colon`},
		{"/links/count?collection=" + like + "&path=subject.uri&target=" + post(1), 400, "InvalidRequest", `"subject.uri" does not begin with a dot`},
		{xrpc + "getBacklinks?%zz", 400, "InvalidRequest", "query string"},
		{xrpc + "getBacklinks?limit=0&" + both, 400, "InvalidRequest", `limit: "0" is no number from 1 to 1000`},
		{xrpc + "getBacklinks?limit=1001&" + both, 400, "InvalidRequest", "limit"},
		{xrpc + "getBacklinks?limit=-1&" + both, 400, "InvalidRequest", "limit"},
		{xrpc + "getBacklinks?limit=x&" + both, 400, "InvalidRequest", "limit"},
		{xrpc + "getBacklinks?reverse=1&" + both, 400, "InvalidRequest", `reverse: "1" is neither true nor false`},
		{xrpc + "getBacklinks?cursor=cgEDAgA&" + both, 400, "InvalidRequest", "cursor: another server made it"},
		{xrpc + "getBacklinks?cursor=cgICAgA&" + both, 400, "InvalidRequest", "begin again without a cursor"},
		{xrpc + "getBacklinks?cursor=null&" + both, 400, "InvalidRequest", `cursor: "null" is no cursor of this endpoint`},
		{xrpc + "getBacklinks?cursor=ZAECAwA&" + both, 400, "InvalidRequest", "cursor"},
		{xrpc + "getBacklinks?cursor=cgEC&" + both, 400, "InvalidRequest", "cursor"},
		{xrpc + "getBacklinks?cursor=cgECAwAA&" + both, 400, "InvalidRequest", "cursor"},
		{xrpc + "getBacklinks?did=alice.example&" + both, 400, "InvalidRequest", `"alice.example", which is no DID`},
		{xrpc + "getBacklinks?did=" + post(1) + "&" + both, 400, "InvalidRequest", "which is no DID"},
		{xrpc + "getBacklinks?" + both + strings.Repeat("&did="+account(1), 1001), 400, "InvalidRequest", "did: 1001 values are more than 1000"},
		{xrpc + "getBacklinksCount?source=a:b&subject=https://example.com", 400, "UnsupportedSubject", `the subject: "https://example.com" is neither`},
		{xrpc + "getBacklinksCount?source=a:b&subject=", 400, "InvalidRequest", "subject: it is missing"},
		{xrpc + "getManyToMany?" + both, 400, "InvalidRequest", "pathToOther: it is missing"},
		{xrpc + "getManyToMany?pathToOther=.subject&" + both, 400, "InvalidRequest", `pathToOther: ".subject" begins with a dot`},
		{xrpc + "getManyToManyCounts?pathToOther=.subject&" + both, 400, "InvalidRequest", `pathToOther: ".subject" begins with a dot`},
		{xrpc + toMany + "&otherSubject=https://example.com", 400, "UnsupportedSubject", "a filter by other subjects"},
		{xrpc + toMany + "&linkDid=" + account(1) + "&otherSubject=" + account(2) + "&otherSubject=https://example.com", 400, "UnsupportedSubject", `subjects: "https://example.com"`},
		{xrpc + toMany + "&linkDid=nobody", 400, "InvalidRequest", `"nobody", which is no DID`},
		{"/links?target=" + post(1), 400, "InvalidRequest", "collection: it is missing"},
		{"/links?" + old + "&did=" + account(1) + "&from_dids=" + account(2), 400, "InvalidRequest", "from_dids: it cannot be combined with did"},
		{"/links/all", 400, "InvalidRequest", "target: it is missing"},
		{"/links/all?target=x", 400, "UnsupportedSubject", ""},
		{"/links/all?at=12&target=" + post(1), 400, "InvalidRequest", "at: position"},
		{"/links/all?at=000001-1-0&target=" + post(1), 400, "InvalidRequest", "at: the stream of 000001-1-0 is unknown"},
		{"/links/all?wait=10001&target=" + post(1), 400, "InvalidRequest", "wait: "},
		{"/links/all?at=abc001-8-0&target=" + post(1), 412, "PositionNotReached", "known up to abc001-7-4294967295, and not to abc001-8-0"},
	} {
		w := small()
		_, h := newTestAPI(t, w)
		checkError(t, tc.path, viewapitest.Get(h, tc.path), tc.status, tc.name, tc.message)
	}
	_, h := newTestAPI(t, small())
	posted := httptest.NewRecorder()
	h.ServeHTTP(posted, httptest.NewRequest("POST", xrpc+"getBacklinks?"+both, nil))
	if posted.Code != 405 {
		t.Errorf("POST: %d", posted.Code)
	}
	for _, edge := range []string{ // of each limit
		xrpc + "getBacklinks?limit=1000&" + both, xrpc + "getBacklinks?limit=1&" + both,
		xrpc + "getBacklinks?" + both + strings.Repeat("&did="+account(1), 1000),
		xrpc + toMany + strings.Repeat("&otherSubject="+account(1), 1000),
		"/links?" + old + "&from_dids=" + strings.Repeat(account(1)+",", 1000),
		"/links/all?wait=10000&target=" + post(1),
	} {
		if w := viewapitest.Get(h, edge); w.Code != 200 {
			t.Errorf("%.100s: %d %s", edge, w.Code, w.Body)
		}
	}
	if w := viewapitest.Get(h, "/links/all?at=abc001-7-3&target="+post(1)); w.Code != 200 {
		t.Errorf("at a position that is reached: %d %s", w.Code, w.Body)
	}
}

func checkError(t *testing.T, what string, w *httptest.ResponseRecorder, status int, name, message string) {
	t.Helper()
	var answer struct{ Error, Message string }
	err := json.Unmarshal(w.Body.Bytes(), &answer)
	if err != nil || w.Code != status || answer.Error != name || !strings.Contains(answer.Message, message) || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%.200s: %d %s (%v), want %d %s %q", what, w.Code, w.Body, err, status, name, message)
	}
	if retry := w.Header().Get("Retry-After"); (retry != "") != (status == 503) {
		t.Errorf("%.200s: %d with Retry-After %q", what, status, retry)
	}
}

func TestUnavailable(t *testing.T) {
	const path = "/links/all?target=did:web:example.com"
	w := small()
	a, h := newTestAPI(t, w)
	w.building = true
	checkError(t, "building", viewapitest.Get(h, path), 503, "LinksNotBuilt", "25.0 % built")
	w.building, w.Down = false, errDown
	checkError(t, "UID store down", viewapitest.Get(h, path), 503, "Unavailable", "the UID store does not answer")
	w.Down = nil
	var done []func()
	for range viewapi.RequestsAtOnce {
		_, end, err := a.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, end)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest("GET", path, nil).WithContext(gone))
	checkError(t, "all turns taken", answer, 503, "Unavailable", "too many requests")
	done[0]()
	for range 2 { // the first gives its turn back
		if answer := viewapitest.Get(h, path); answer.Code != 200 {
			t.Errorf("with a turn free: %d", answer.Code)
		}
	}
	for _, end := range done[1:] {
		end()
	}
}

func TestTooManyLinks(t *testing.T) {
	w := small()
	_, h := newTestAPI(t, w)
	w.large = true
	path := xrpc + "getManyToManyCounts?pathToOther=subject&source=" + listitem + ":list&subject=" + list(1)
	checkError(t, "too many to group", viewapitest.Get(h, path), 422, "TooManyLinks", "over a million links")
}

func TestWaitForPosition(t *testing.T) {
	for _, reached := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := small()
			w.inexact = 1700000000000000
			_, h := newTestAPI(t, w)
			begun := time.Now()
			time.AfterFunc(time.Second, func() {
				if reached {
					close(w.reached)
				}
			})
			answer := viewapitest.Get(h, "/links/all?wait=3000&at=abc001-9-4&target="+post(1))
			took := time.Since(begun)
			cursor, inexact := answer.Header().Get("Millrace-View-Cursor"), answer.Header().Get("Millrace-Inexact-Since")
			if reached && (answer.Code != 200 || took != time.Second || cursor != "abc001-9-4294967295" || inexact != "1700000000000000") {
				t.Errorf("reached: %d %s after %v, %v", answer.Code, answer.Body, took, answer.Header())
			}
			if !reached {
				checkError(t, "not reached", answer, http.StatusPreconditionFailed, "PositionNotReached", "abc001-7-4294967295")
				if took != 3*time.Second || cursor != "abc001-7-4294967295" || w.closed != 1 {
					t.Errorf("not reached: after %v, %s, %d views closed", took, cursor, w.closed)
				}
			}
			synctest.Wait()
		})
	}
	w := small()
	_, h := newTestAPI(t, w)
	w.Down = errDown
	close(w.reached)
	checkError(t, "the store failed", viewapitest.Get(h, "/links/all?wait=3000&at=abc001-9-4&target="+post(1)), 500, "InternalServerError", "")
	if (w.position != references.Position{Epoch: 1, Seq: 9}) {
		t.Errorf("waited for %v", w.position)
	}
}
