package linksapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"millrace/public/internal/viewapi/viewapitest"

	"github.com/google/go-cmp/cmp"
)

func newTestAPI(t *testing.T, w *world) (*API, http.Handler) {
	t.Helper()
	a := New(Config{Links: w, UIDs: w, Log: w})
	mux := http.NewServeMux()
	a.Route(mux)
	return a, mux
}

const xrpc = "/xrpc/blue.microcosm.links."

// small is the world of the golden answers.
func small() *world {
	w := newWorld()
	w.put(account(1), like, "a", reference{"subject.uri", post(1)})
	w.put(account(1), like, "b", reference{"subject.uri", post(1)})
	w.put(account(2), like, "c", reference{"subject.uri", post(1)})
	w.put(account(3), like, "d", reference{"subject.uri", post(1)})
	w.put(account(2), listitem, "e", reference{"list", list(1)}, reference{"subject", account(1)})
	w.put(account(2), listitem, "f", reference{"list", list(1)}, reference{"subject", account(3)})
	w.put(account(3), listitem, "g", reference{"list", list(1)}, reference{"subject", account(1)})
	w.inactive[account(3)] = true
	return w
}

func TestGolden(t *testing.T) {
	const d1, d2, d3 = "did:plc:000000000000000000000001", "did:plc:000000000000000000000002", "did:plc:000000000000000000000003"
	record := func(did, collection, rkey string) string {
		return `{"did":"` + did + `","collection":"` + collection + `","rkey":"` + rkey + `"}`
	}
	newPost, oldPost := "subject="+url.QueryEscape(post(1))+"&source="+likeSource, "target="+url.QueryEscape(post(1))+"&collection="+like+"&path=.subject.uri"
	newList := "subject=" + url.QueryEscape(list(1)) + "&source=" + listitem + ":list&pathToOther=subject"
	records := `[` + record(d2, like, "c") + `,` + record(d1, like, "b") + `]`
	for _, tc := range []struct{ path, want string }{
		{xrpc + "getBacklinks?limit=2&" + newPost, `{"total":4,"records":` + records + `,"cursor":"cgECAgA"}`},
		{xrpc + "getBacklinks?cursor=cgECAgA&limit=2&" + newPost, `{"total":4,"records":[` + record(d1, like, "a") + `],"cursor":null}`},
		{xrpc + "getBacklinks?reverse=true&limit=1&" + newPost, `{"total":4,"records":[` + record(d1, like, "a") + `],"cursor":"cgECAQA"}`},
		{xrpc + "getBacklinks?did=&did=" + d2 + "&did=" + account(50) + "&" + newPost, `{"total":1,"records":[` + record(d2, like, "c") + `],"cursor":null}`},
		{xrpc + "getBacklinks?did=" + account(50) + "&" + newPost, `{"total":0,"records":[],"cursor":null}`},
		{xrpc + "getBacklinks?subject=did:web:nobody.example&source=" + likeSource, `{"total":0,"records":[],"cursor":null}`},
		{xrpc + "getBacklinks?source=a:b:c&subject=" + post(1), `{"total":0,"records":[],"cursor":null}`},
		{xrpc + "getBacklinksCount?" + newPost, `{"total":4}`},
		{xrpc + "getBacklinkDids?" + newPost, `{"total":3,"linking_dids":["` + d2 + `","` + d1 + `"],"cursor":null}`},
		{xrpc + "getBacklinkDids?limit=1&" + newPost, `{"total":3,"linking_dids":["` + d2 + `"],"cursor":"ZAECAwA"}`},
		{xrpc + "getManyToManyCounts?" + newList, `{"counts_by_other_subject":[{"subject":"` + d1 + `","total":1,"distinct":1},{"subject":"` + d3 + `","total":1,"distinct":1}],"cursor":null}`},
		{xrpc + "getManyToManyCounts?limit=1&" + newList, `{"counts_by_other_subject":[{"subject":"` + d1 + `","total":1,"distinct":1}],"cursor":"YwECBQA"}`},
		{xrpc + "getManyToManyCounts?otherSubject=" + d2 + "&" + newList, `{"counts_by_other_subject":[],"cursor":null}`},
		{xrpc + "getManyToMany?" + newList, `{"items":[{"linkRecord":` + record(d2, listitem, "e") + `,"otherSubject":"` + d1 + `"},{"linkRecord":` + record(d2, listitem, "f") + `,"otherSubject":"` + d3 + `"}],"cursor":null}`},
		{xrpc + "getManyToMany?linkDid=" + d2 + "&limit=1&" + newList, `{"items":[{"linkRecord":` + record(d2, listitem, "e") + `,"otherSubject":"` + d1 + `"}],"cursor":"bQECBQE"}`},
		{xrpc + "getManyToMany?linkDid=" + d2 + "&cursor=bQECBQE&" + newList, `{"items":[{"linkRecord":` + record(d2, listitem, "f") + `,"otherSubject":"` + d3 + `"}],"cursor":null}`},
		{xrpc + "getManyToMany?pathToOther=none&source=" + listitem + ":list&subject=" + list(1), `{"items":[],"cursor":null}`},
		{"/links?limit=2&" + oldPost, `{"total":4,"linking_records":` + records + `,"cursor":"cgECAgA"}`},
		{"/links?from_dids=" + d1 + "," + d2 + "&limit=1&" + oldPost, `{"total":3,"linking_records":[` + record(d2, like, "c") + `],"cursor":"cgECAwA"}`},
		{"/links/count?" + oldPost, `{"total":4}`},
		{"/links/count/distinct-dids?" + oldPost, `{"total":3}`},
		{"/links/distinct-dids?" + oldPost, `{"total":3,"linking_dids":["` + d2 + `","` + d1 + `"],"cursor":null}`},
		{"/links/all?target=" + d1, `{"links":{"` + listitem + `":{".subject":{"records":2,"distinct_dids":2}}}}`},
		{"/links/all?target=" + post(1), `{"links":{"` + like + `":{".subject.uri":{"records":4,"distinct_dids":3}}}}`},
		{"/links/all/count?target=" + post(1), `{"links":{"` + like + `":{".subject.uri":4}}}`},
		{"/links/all?target=" + post(2), `{"links":{}}`},
		{"/links/most-linked", `{"since_us":1234567,"subjects":[{"source":"` + listitem + `:list","subject":"` + list(1) + `","records":2},` +
			`{"source":"` + listitem + `:subject","subject":"` + d1 + `","records":1},{"source":"` + listitem + `:subject","subject":"` + d3 + `","records":1}],"others_at_most":1}`},
	} {
		w := small()
		_, h := newTestAPI(t, w)
		answer := viewapitest.Get(h, tc.path)
		if diff := cmp.Diff(tc.want+"\n", answer.Body.String()); diff != "" || answer.Code != 200 || answer.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s\n%s", tc.path, answer.Code, answer.Header(), diff)
		}
		since, cursor := answer.Header().Get("Millrace-View-Since"), answer.Header().Get("Millrace-View-Cursor")
		if since != "abc001-2-4294967295" || cursor != "abc001-7-4294967295" || w.closed != 1 {
			t.Errorf("%s: since %s, cursor %s, %d views closed", tc.path, since, cursor, w.closed)
		}
	}
}

// TestNothingIsLinked: before the first link there is no time that it was made at.
func TestNothingIsLinked(t *testing.T) {
	_, h := newTestAPI(t, newWorld())
	if got := viewapitest.Get(h, "/links/most-linked").Body.String(); got != `{"since_us":null,"subjects":[],"others_at_most":0}`+"\n" {
		t.Error(got)
	}
}

// page is any page of the API.
type page struct {
	Total   int               `json:"total"`
	Records []json.RawMessage `json:"records"`
	Linking []json.RawMessage `json:"linking_records"`
	DIDs    []json.RawMessage `json:"linking_dids"`
	Items   []json.RawMessage `json:"items"`
	Counts  []json.RawMessage `json:"counts_by_other_subject"`
	Cursor  *string           `json:"cursor"`
}

// walk is an endpoint with a list, and its oracle.
type walk struct {
	path string // with all but limit and cursor
	want func(*world) (all []element, total int)
}

// randomWalk chooses an endpoint and what it is asked.
func randomWalk(rng *rand.Rand) walk {
	v := url.Values{}
	q := ask{subject: post(rng.IntN(2)), source: likeSource}
	name := []string{"getBacklinks", "getBacklinkDids", "getManyToManyCounts", "getManyToMany", "/links", "/links/distinct-dids"}[rng.IntN(6)]
	toMany := strings.HasPrefix(name, "getMany")
	if toMany || rng.IntN(3) == 0 {
		q.subject, q.source, q.other = list(rng.IntN(2)), listitem+":list", "subject"
	}
	chooses := func(n int, name func(int) string) (chosen []string) {
		for range rng.IntN(3) {
			chosen = append(chosen, name(rng.IntN(n+1))) // the last is unknown
		}
		return chosen
	}
	filtered := !strings.HasSuffix(strings.ToLower(name), "dids")
	if filtered {
		q.dids = chooses(6, account)
	}
	if toMany {
		q.others = chooses(4, account)
		v.Set("pathToOther", q.other)
		v["otherSubject"] = q.others
	}
	path := xrpc + name
	if strings.HasPrefix(name, "/") {
		path = name
		collection, at, _ := strings.Cut(q.source, ":")
		v.Set("target", q.subject)
		v.Set("collection", collection)
		v.Set("path", "."+at)
	} else {
		v.Set("subject", q.subject)
		v.Set("source", q.source)
	}
	v["did"] = q.dids
	want := (*world).wantRecords
	switch name {
	case "getBacklinks":
		if q.reverse = rng.IntN(2) == 0; q.reverse {
			v.Set("reverse", "true")
		}
	case "getBacklinkDids", "/links/distinct-dids":
		want = (*world).wantDIDs
	case "getManyToManyCounts":
		want = (*world).wantCounts
	case "getManyToMany":
		v["linkDid"] = q.dids
		v.Del("did")
		want = (*world).wantItems
	}
	return walk{path + "?" + v.Encode(), func(w *world) ([]element, int) { return want(w, q) }}
}

// next returns a page's elements.
func (wk *walk) next(t *testing.T, h http.Handler, limit int, cursor *string) (elements []string, p page) {
	t.Helper()
	path := fmt.Sprintf("%s&limit=%d", wk.path, limit)
	if cursor != nil {
		path += "&cursor=" + *cursor
	}
	w := viewapitest.Get(h, path)
	d := json.NewDecoder(w.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil || w.Code != 200 || bytes.Contains(w.Body.Bytes(), []byte("[null")) {
		t.Fatalf("%s: %d, %v", path, w.Code, err)
	}
	for _, list := range [][]json.RawMessage{p.Records, p.Linking, p.DIDs, p.Items, p.Counts} {
		for _, e := range list {
			elements = append(elements, string(e))
		}
	}
	return elements, p
}

func TestWalks(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 600 {
		w := newWorld()
		for range 10 + rng.IntN(120) {
			w.change(rng)
		}
		_, h := newTestAPI(t, w)
		wk := randomWalk(rng)
		want, total := wk.want(w)
		limit := 1 + rng.IntN(7)
		var got []string
		var cursor *string
		for pages := 0; ; pages++ {
			elements, p := wk.next(t, h, limit, cursor)
			if got = append(got, elements...); len(elements) > limit || p.Cursor != nil && len(elements) < limit || p.Total != total {
				t.Fatalf("seed %d, round %d: %s: page of %d, limit %d; total %d, want %d", seed, round, wk.path, len(elements), limit, p.Total, total)
			}
			if cursor = p.Cursor; cursor == nil || pages > len(want) {
				break
			}
		}
		if diff := cmp.Diff(jsonOf(want), got); diff != "" {
			t.Fatalf("seed %d, round %d: %s: -want +got\n%s", seed, round, wk.path, diff)
		}
	}
}

func jsonOf(all []element) (list []string) {
	for _, e := range all {
		list = append(list, e.json)
	}
	return list
}

// Links come and go between the pages: what is there throughout comes once, and nothing twice that
// arrived once.
func TestWalksWhileLinksChange(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 600 {
		w := newWorld()
		for range 20 + rng.IntN(120) {
			w.change(rng)
		}
		_, h := newTestAPI(t, w)
		wk := randomWalk(rng)
		limit := 1 + rng.IntN(5)
		throughout, _ := wk.want(w)
		got := map[id]int{}
		for cursor, pages := (*string)(nil), 0; pages < 200; pages++ {
			now, _ := wk.want(w)
			elements, p := wk.next(t, h, limit, cursor)
			for _, json := range elements {
				i := slices.IndexFunc(now, func(e element) bool { return e.json == json })
				if i < 0 {
					t.Fatalf("seed %d, round %d: %s: %s is not there", seed, round, wk.path, json)
				}
				if got[now[i].id]++; got[now[i].id] > 1 {
					t.Fatalf("seed %d, round %d: %s: %s came twice", seed, round, wk.path, json)
				}
			}
			if cursor = p.Cursor; cursor == nil {
				break
			}
			for range rng.IntN(4) {
				w.change(rng)
			}
			now, _ = wk.want(w)
			throughout = common(throughout, now)
		}
		for _, e := range throughout {
			if got[e.id] != 1 {
				t.Fatalf("seed %d, round %d: %s: %v was there throughout and came %d times", seed, round, wk.path, e, got[e.id])
			}
		}
	}
}

// common returns what is in both.
func common(a, b []element) (both []element) {
	in := map[id]bool{}
	for _, e := range b {
		in[e.id] = true
	}
	for _, e := range a {
		if in[e.id] {
			both = append(both, e)
		}
	}
	return both
}

func TestCountsOfAll(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld()
	_, h := newTestAPI(t, w)
	for range 300 {
		w.change(rng)
		q := ask{subject: list(rng.IntN(2)), source: listitem + ":list"}
		_, total := w.wantRecords(q)
		_, dids := w.wantDIDs(q)
		for path, want := range map[string]int{
			xrpc + "getBacklinksCount?source=" + q.source + "&subject=" + q.subject:                 total,
			"/links/count?collection=" + listitem + "&path=.list&target=" + q.subject:               total,
			"/links/count/distinct-dids?collection=" + listitem + "&path=.list&target=" + q.subject: dids,
		} {
			if got := strings.TrimSpace(viewapitest.Get(h, path).Body.String()); got != fmt.Sprintf(`{"total":%d}`, want) {
				t.Fatalf("seed %d: %s: %s, want %d", seed, path, got, want)
			}
		}
		want := `{"links":{}}`
		if total > 0 {
			want = fmt.Sprintf(`{"links":{"%s":{".list":{"records":%d,"distinct_dids":%d}}}}`, listitem, total, dids)
		}
		if got := strings.TrimSpace(viewapitest.Get(h, "/links/all?target="+q.subject).Body.String()); got != want {
			t.Fatalf("seed %d: %s, want %s", seed, got, want)
		}
	}
}
