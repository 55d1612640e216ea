package graphapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/intern"
	"millrace/public/internal/setexpr"
	"millrace/public/internal/viewapi"
	"millrace/public/internal/viewapi/viewapitest"
	"millrace/replay/graph"
)

// small is the world of the golden answers: 1 follows 2, 3, 4; 2, 3 and 5 follow 9; 3 follows 1.
func small(t *testing.T) *world {
	w := newWorld(t)
	for _, e := range [][2]int{{1, 2}, {1, 3}, {1, 4}, {2, 9}, {3, 9}, {5, 9}, {3, 1}, {5, 1}} {
		w.set(edge{"follows", account(e[0]), account(e[1])}, true)
	}
	w.set(edge{"blocks", account(1), account(5)}, true)
	w.set(edge{"liked", account(2), post(1)}, true)
	w.set(edge{"listed", list(1), account(4)}, true)
	w.UID(account(1)) // all names are known
	w.UID(account99)
	w.UID(post(99))
	return w
}

func sets(path, expr string) string { return path + "?expr=" + url.QueryEscape(expr) }

func TestGolden(t *testing.T) {
	q := func(n ...int) string {
		var all []string
		for _, n := range n {
			all = append(all, `"`+account(n)+`"`)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	a1, a9 := account(1), account(9)
	for _, tc := range []struct{ path, want string }{
		{sets("/sets", "follows:"+a1), `{"count":3,"members":` + q(2, 3, 4) + `,"cursor":null,"complete":true}`},
		{sets("/sets", "follows:"+a1) + "&limit=2", `{"count":3,"members":` + q(2, 3) + `,"cursor":"CURSOR","complete":true}`},
		{sets("/sets", "follows:"+a1) + "&limit=2&cursor=CURSOR", `{"count":3,"members":` + q(4) + `,"cursor":null,"complete":true}`},
		{sets("/sets", "follows:"+account(77)), `{"count":0,"members":[],"cursor":null,"complete":true}`},
		{sets("/sets", "blockedBy:"+account(5)), `{"count":1,"members":` + q(1) + `,"cursor":null,"complete":true}`},
		{sets("/sets", "liked:"+account(2)), `{"count":1,"members":["` + post(1) + `"],"cursor":null,"complete":true}`},
		{sets("/sets", "follows:"+a1+" and likers:"+post(1)), `{"count":1,"members":` + q(2) + `,"cursor":null,"complete":true}`},
		{sets("/sets", "members:"+list(1)), `{"count":1,"members":` + q(4) + `,"cursor":null,"complete":true}`},
		{sets("/sets", "reposters:"+post(5)), `{"count":0,"members":[],"cursor":null,"complete":true}`},
		{sets("/sets/count", "follows:"+a1+" and followers:"+a9), `{"count":2,"complete":true}`},
		{sets("/sets/sample", "follows:"+a1), `{"count":3,"members":` + q(2, 3, 4) + `,"complete":true}`},
		{"/graph/follows-following?viewer=" + a1 + "&subject=" + a9 + "&subject=" + a1 + "&limit=1", `{"subjects":[{"did":` + q(9)[1:35] + `,"count":2,"members":` + q(2) + `},{"did":"` + a1 + `","count":1,"members":` + q(3) + `}],"complete":true}`},
		{"/graph/mutuals?did=" + a1, `{"count":1,"members":` + q(3) + `,"cursor":null,"complete":true}`},
		{"/graph/does-follow?actor=" + a1 + "&subject=" + account(2), `{"follows":true,"complete":true}`},
		{"/graph/does-follow?actor=" + account(2) + "&subject=" + a1, `{"follows":false,"complete":true}`},
		{"/graph/does-follow?actor=" + a1 + "&subject=" + account(77), `{"follows":false,"complete":true}`},
		{"/graph/common-follows?did=" + account(3) + "&did=" + account(5), `{"count":2,"members":` + q(1, 9) + `,"cursor":null,"complete":true}`},
		{"/graph/common-followers?did=" + a1 + "&did=" + a9, `{"count":2,"members":` + q(3, 5) + `,"cursor":null,"complete":true}`},
		{"/graph/followers-not-following?did=" + a1, `{"count":1,"members":` + q(5) + `,"cursor":null,"complete":true}`},
	} {
		w := small(t)
		_, h := newTestAPI(t, w)
		r, err := w.g.Eval(t.Context(), graph.Given(nil), graph.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		cursor := strings.NewReplacer("CURSOR", *encodeCursor(r.Build, 3))
		answer := viewapitest.Get(h, cursor.Replace(tc.path))
		if diff := cmp.Diff(cursor.Replace(tc.want)+"\n", answer.Body.String()); diff != "" || answer.Code != 200 || answer.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s\n%s", tc.path, answer.Code, answer.Header(), diff)
		}
		since, view := answer.Header().Get("Millrace-View-Since"), answer.Header().Get("Millrace-View-Cursor")
		at := fmt.Sprintf("abc001-%d-4294967295", w.position.Seq)
		if w.linksRead > 0 || strings.Contains(tc.path, "reposters") {
			at = "abc001-9-4294967295" // of the oldest set
		}
		if since != "abc001-2-4294967295" || view != at || w.views != 0 {
			t.Errorf("%s: since %s, cursor %s, want %s; %d views are open", tc.path, since, view, at, w.views)
		}
	}
}

func TestStatic(t *testing.T) {
	w := small(t)
	if err := w.g.Build([]graph.Change{{Edge: graph.Edge{Actor: w.UID(account(2)), Subject: w.UID(account(9))}}, {Edge: graph.Edge{Actor: w.UID(account(2)), Subject: w.UID(account(3))}}}); err != nil {
		t.Fatal(err)
	}
	_, h := newTestAPI(t, w)
	if got := viewapitest.Get(h, sets("/sets/count", "follows:"+account(2))).Body.String(); got != `{"count":2,"complete":false,"static":true}`+"\n" {
		t.Errorf("imported edges: %s", got)
	}
}

func checkError(t *testing.T, path string, h http.Handler, status int, name, message string) {
	t.Helper()
	w := viewapitest.Get(h, path)
	var answer struct{ Error, Message string }
	err := json.Unmarshal(w.Body.Bytes(), &answer)
	if err != nil || w.Code != status || answer.Error != name || !strings.Contains(answer.Message, message) {
		t.Errorf("%.200s: %d %s (%v), want %d %s %q", path, w.Code, w.Body, err, status, name, message)
	}
	if retry := w.Header().Get("Retry-After"); (retry != "") != (status == 503) {
		t.Errorf("%.200s: %d with Retry-After %q", path, status, retry)
	}
}

func TestErrors(t *testing.T) {
	a1 := account(1)
	fine := sets("/sets", "follows:"+a1)
	proof := "/graph/follows-following?viewer=" + a1
	for _, tc := range []struct {
		path    string
		status  int
		name    string
		message string // a part
	}{
		{"/sets", 400, "InvalidRequest", "expr: it is missing"},
		{sets("/sets", "follows:"+a1+" and"), 400, "InvalidRequest", "expr: at the end (byte 44): expected a set"},
		{sets("/sets/count", "not follows:"+a1), 400, "InvalidRequest", `at byte 0, "not": "not" may follow "and" only`},
		{sets("/sets/sample", "follows:"+a1+" or liked:"+a1), 400, "InvalidRequest", "accounts and records do not mix"},
		{sets("/sets", strings.Repeat("follows:"+a1+" or ", 8)+"follows:"+a1), 400, "InvalidRequest", "more than 8 sets"},
		{sets("/sets", "follows:a.example"), 400, "InvalidRequest", "expected follows:<did>"},
		{fine + "&limit=0", 400, "InvalidRequest", "limit: "},
		{fine + "&limit=1001", 400, "InvalidRequest", "limit: "},
		{fine + "&cursor=x", 400, "InvalidRequest", `cursor: "x" is no cursor`},
		{fine + "&cursor=cgED", 400, "InvalidRequest", "cursor"},
		{fine + "&cursor=cwED", 400, "InvalidRequest", "cursor: the graph was built anew since the cursor was made"},
		{fine + "&cursor=cwEA", 400, "InvalidRequest", "is no cursor"},
		{fine + "&cursor=cw", 400, "InvalidRequest", "is no cursor"},
		{fine + "&cursor=cwEDAA", 400, "InvalidRequest", "is no cursor"},
		{fine + "&wait=10001", 400, "InvalidRequest", "wait: "},
		{fine + "&at=x", 400, "InvalidRequest", "at: position"},
		{fine + "&at=000001-1-0", 400, "InvalidRequest", "is unknown to this server"},
		{fine + "&at=abc001-99-0", 412, "PositionNotReached", "the answer is known up to"},
		{proof, 400, "InvalidRequest", "subject: 0 values are fewer than 1"},
		{proof + "&subject=alice.example", 400, "InvalidRequest", `subject: "alice.example" is no DID`},
		{proof + "&subject=did:plc:", 400, "InvalidRequest", "neither a DID nor an AT URI"},
		{proof + strings.Repeat("&subject="+a1, 101), 400, "InvalidRequest", "101 values are more than 100"},
		{proof + "&limit=101&subject=" + a1, 400, "InvalidRequest", "limit: "},
		{"/graph/mutuals", 400, "InvalidRequest", "did: it is missing"},
		{"/graph/mutuals?did=" + post(1), 400, "InvalidRequest", "is no DID"},
		{"/graph/does-follow?actor=" + a1, 400, "InvalidRequest", "subject: it is missing"},
		{"/graph/common-follows?did=" + a1, 400, "InvalidRequest", "did: 1 values are fewer than 2"},
		{"/graph/common-followers?did=" + strings.Repeat("&did="+a1, 9), 400, "InvalidRequest", "did: 9 values are more than 8"},
		{sets("/sets", "likers:"+post(99)), 422, "TooCostly", "200001 records, 200000 are allowed"},
		{sets("/sets", "liked:"+account99), 422, "TooCostly", "200000 records are allowed"},
	} {
		_, h := newTestAPI(t, small(t))
		checkError(t, tc.path, h, tc.status, tc.name, tc.message)
	}
	_, h := newTestAPI(t, small(t))
	for _, edge := range []string{ // of each limit
		fine + "&limit=1000", fine + "&limit=1", fine + "&at=abc001-1-0", proof + strings.Repeat("&subject="+a1, 100), proof + "&limit=100&subject=" + a1,
		"/graph/common-followers?did=" + strings.Repeat("&did="+a1, 8), sets("/sets", strings.Repeat("follows:"+a1+" or ", 7)+"follows:"+a1),
	} {
		if w := viewapitest.Get(h, edge); w.Code != 200 {
			t.Errorf("%.100s: %d %s", edge, w.Code, w.Body)
		}
	}
}

func TestWaitForPosition(t *testing.T) {
	w := small(t)
	_, h := newTestAPI(t, w)
	at := fmt.Sprintf("&wait=10000&at=abc001-%d-0", w.position.Seq+1)
	close(w.reached)
	path := sets("/sets/count", "follows:"+account(1)+" and likers:"+post(1)) + at
	if got := viewapitest.Get(h, path); got.Code != 200 || got.Header().Get("Millrace-View-Cursor") != fmt.Sprintf("abc001-%d-4294967295", w.position.Seq) {
		t.Errorf("%s: %d %s %v", path, got.Code, got.Body, got.Header())
	}
	// Links are waited for if there are sets of them.
	w.linksDown = errors.New("down")
	checkError(t, sets("/sets/count", "likers:"+post(1)+" and follows:"+account(1))+"&wait=10000&at=abc001-99-0", h, 500, "InternalServerError", "")
	if got := viewapitest.Get(h, sets("/sets/count", "follows:"+account(1))+fmt.Sprintf("&wait=10000&at=abc001-%d-0", w.position.Seq+1)); got.Code != 200 || w.linkWaits != 2 {
		t.Errorf("without links: %d %s; links were waited for %d times", got.Code, got.Body, w.linkWaits)
	}
}

// TestFailures: whatever fails below, the answer is no success, and each view is closed.
func TestFailures(t *testing.T) {
	for call, set := range map[string]string{
		"": "members:" + list(1), "view": "members:" + list(1), "close": "members:" + list(1), "count": "members:" + list(1), "others": "members:" + list(1),
		"accounts": "likers:" + post(1), "linked": "liked:" + account(2), "names": "liked:" + account(2),
		"graph": "follows:" + account(1), "wait": "likers:" + post(1),
	} {
		w := small(t)
		close(w.reached)
		w.fails = map[string]error{call: errors.New("down")}
		_, h := newTestAPI(t, w)
		if got := viewapitest.Get(h, sets("/sets", set)+fmt.Sprintf("&wait=10000&at=abc001-%d-0", w.position.Seq+1)); (got.Code == 200) != (call == "") || got.Code != 200 && got.Code < 500 || w.views > 0 && call != "view" {
			t.Errorf("%q fails: %d %s; %d views are open", call, got.Code, got.Body, w.views)
		}
	}
}

// TestComplete: an answer is complete if each of its sets is, and no static edge affects it.
func TestComplete(t *testing.T) {
	whole, part, static := graph.Result{Complete: true}, graph.Result{}, graph.Result{Complete: true, Static: true}
	for _, tc := range []struct {
		results []graph.Result
		want    completeness
	}{
		{[]graph.Result{whole, whole}, completeness{Complete: true}}, {[]graph.Result{part, whole}, completeness{}}, {[]graph.Result{whole, part}, completeness{}},
		{[]graph.Result{static, whole}, completeness{Static: true}}, {[]graph.Result{part, static}, completeness{Static: true}},
	} {
		if got := (&request{results: tc.results}).completeness(); got != tc.want {
			t.Errorf("%+v: %+v, want %+v", tc.results, got, tc.want)
		}
	}
}

// TestInexact: answers say since when deletes may be missing.
func TestInexact(t *testing.T) {
	w := small(t)
	_, h := newTestAPI(t, w)
	for inexact, want := range map[int64]string{0: "", 77: "77"} {
		w.inexact = inexact
		if got := viewapitest.Get(h, sets("/sets", "follows:"+account(1))).Header().Get("Millrace-Inexact-Since"); got != want {
			t.Errorf("since %d: %q", inexact, got)
		}
	}
}

// TestDefaultLimits: a request that names no limit gets the documented one.
func TestDefaultLimits(t *testing.T) {
	for query, want := range map[string]struct {
		parse func(*params) request
		limit int
	}{
		"expr=follows:" + account(1): {parsePage, 100}, "expr=follows:" + account(2): {parseSample, 100}, "did=did:a": {parseBoth(setexpr.Follows, graph.And, setexpr.Followers), 100}, "did=did:b": {parseBoth(setexpr.Followers, graph.AndNot, setexpr.Follows), 100},
		"did=did:a&did=did:b": {parseCommon(setexpr.Follows), 100}, "did=did:a&did=did:c": {parseCommon(setexpr.Followers), 100}, "viewer=did:a&subject=did:b": {parseFollowsFollowing, 10},
	} {
		p := &params{viewapi.NewParams(query)}
		if q := want.parse(p); q.limits.Limit != want.limit || p.Err() != nil {
			t.Errorf("%s: %d, %v", query, q.limits.Limit, p.Err())
		}
	}
}

func TestCost(t *testing.T) {
	w := small(t)
	for cost, status := range map[int64]int{2: 422, 3: 200} {
		a, h := newTestAPI(t, w)
		a.cfg.MaxCost = cost
		if got := viewapitest.Get(h, sets("/sets/count", "follows:"+account(1))); got.Code != status || status == 422 && !strings.Contains(got.Body.String(), "3 members, and 2 are allowed") {
			t.Errorf("a limit of %d: %d %s", cost, got.Code, got.Body)
		}
	}
}

func TestUnavailable(t *testing.T) {
	w := small(t)
	a, h := newTestAPI(t, w)
	path := sets("/sets", "follows:"+account(1))
	w.building = true
	checkError(t, path, h, 503, "GraphNotBuilt", "25.0 % built, 7 edges")
	w.building, w.closed = false, true
	checkError(t, path, h, 503, "Unavailable", "the server is stopping")
	w.closed, w.noLinks = false, true
	checkError(t, sets("/sets", "likers:"+post(1)), h, 503, "LinksNotBuilt", "50.0 % built")
	w.noLinks, w.noBlocks = false, true
	checkError(t, sets("/sets", "blocks:"+account(1)), h, 400, "UnsupportedSet", "has no app.bsky.graph.block:subject")
	a.cfg.Links = nil
	checkError(t, sets("/sets", "likers:"+post(1)), h, 400, "UnsupportedSet", "likers: sets of links need a server with --links")
	w.Down = fmt.Errorf("down")
	checkError(t, path, h, 503, "Unavailable", "the UID store does not answer")
}

// lateUIDs looks strings up, and then lets something happen before it returns what was found.
type lateUIDs struct {
	*world
	meanwhile func()
}

func (u lateUIDs) LookupStrings(ctx context.Context, names []string, uids []uint64) error {
	defer u.meanwhile()
	return u.world.LookupStrings(ctx, names, uids)
}

// TestUnknownMeanwhile: an account gets its UID, and a follower, behind the look-up. The answer
// without them does not state a position that has them.
func TestUnknownMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.set(edge{"follows", account(1), account(2)}, true)
	follow := func() { w.set(edge{"follows", account(1), account(7)}, true) }
	mux := http.NewServeMux()
	New(Config{Graph: w, UIDs: lateUIDs{w, follow}, Log: w, MaxCost: 1000}).Route(mux)
	before := w.position.Seq
	got := viewapitest.Get(mux, sets("/sets/count", "followers:"+account(7)))
	if want := fmt.Sprintf("-%d-", before); got.Code != 200 || !strings.Contains(got.Header().Get("Millrace-View-Cursor"), want) {
		t.Errorf("%d %s at %s, want %s", got.Code, got.Body, got.Header().Get("Millrace-View-Cursor"), want)
	}
}

// TestLinksAreKept asks for a set of links several times. It is read once, and again when a later
// position is asked for or it is old.
func TestLinksAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := small(t)
		_, h := newTestAPI(t, w)
		path := sets("/sets/count", "likers:"+post(1))
		for range 3 {
			if got := viewapitest.Get(h, path); got.Code != 200 || w.linksRead != 1 {
				t.Fatalf("%d %s, read %d times", got.Code, got.Body, w.linksRead)
			}
		}
		w.linksAt.Seq = 12
		for _, sets := range []string{"reposters:" + post(1) + " or likers:" + post(1), "likers:" + post(1) + " or reposters:" + post(2)} {
			if got := viewapitest.Get(h, "/sets/count?expr="+url.QueryEscape(sets)).Header().Get("Millrace-View-Cursor"); got != "abc001-9-4294967295" {
				t.Errorf("%s, of which one set is older: up to %s", sets, got)
			}
		}
		w.linksRead = 1
		if got := viewapitest.Get(h, path+"&at=abc001-12-0"); got.Code != 200 || w.linksRead != 2 || got.Header().Get("Millrace-View-Cursor") != "abc001-12-4294967295" {
			t.Errorf("a later position: %d %s, read %d times", got.Code, got.Body, w.linksRead)
		}
		for i, wait := range []time.Duration{5 * time.Second, 1} {
			time.Sleep(wait)
			if got := viewapitest.Get(h, path); got.Code != 200 || w.linksRead != 2+i {
				t.Errorf("%v later: %d %s, read %d times", wait, got.Code, got.Body, w.linksRead)
			}
		}
	})
}

// TestUnknownSource: a set of links is empty if the log has never seen its source.
func TestUnknownSource(t *testing.T) {
	for i, set := range []string{"liked:" + account(2), "likers:" + post(1), "reposters:" + post(1), "members:" + list(1), "members:" + list(1)} {
		for _, source := range []string{"", sources[max(i-1, 0)]} {
			w := small(t)
			w.set(edge{"reposted", account(3), post(1)}, true)
			w.noSource = source
			_, h := newTestAPI(t, w)
			want := `{"count":1,"complete":true}`
			if source != "" {
				want = `{"count":0,"complete":true}`
			}
			if got := viewapitest.Get(h, sets("/sets/count", set)); got.Code != 200 || got.Body.String() != want+"\n" {
				t.Errorf("%s without %q: %d %s", set, source, got.Code, got.Body)
			}
		}
	}
}

func TestCacheBound(t *testing.T) {
	c := newCache()
	for n := range uint64(200) {
		c.put(linkKey{uid: n % 150}, &linkSet{uids: make([]uint64, 10_000*(1+n%7))})
		if bytes := 0; c.bytes > cacheBytes {
			t.Fatalf("%d bytes are kept", c.bytes)
		} else {
			for s := range maps.Values(c.sets) {
				bytes += s.bytes()
			}
			if bytes != c.bytes || c.get(linkKey{uid: n % 150}) == nil {
				t.Fatalf("%d bytes are kept, %d are counted; or the last set is not", bytes, c.bytes)
			}
		}
	}
}

func TestConfig(t *testing.T) {
	w := newWorld(t)
	if a := New(Config{Graph: w, UIDs: w, Log: w}); a.cfg.MaxCost != 100_000_000 {
		t.Error("the default of MaxCost is not 100 million")
	}
	if max(viewapi.MaxLimit, maxSubjects*maxShownOfOne) > intern.MaxLookup {
		t.Error("an answer has more members than one look-up of names takes")
	}
}

// generator makes expressions, and the members that the model gives them.
type generator struct {
	*rand.Rand
	w       *world
	records bool
	sets    int // that may still be named
}

func (g *generator) set() string {
	g.sets--
	if g.records {
		return "liked:" + account(g.IntN(7))
	}
	switch name := []string{"follows", "followers", "blocks", "blockedBy", "likers", "reposters", "members"}[g.IntN(7)]; name {
	case "likers", "reposters":
		return name + ":" + post(g.IntN(4))
	case "members":
		return name + ":" + list(g.IntN(3))
	default:
		return name + ":" + account(g.IntN(7))
	}
}

func (g *generator) expr(depth int) (string, map[string]bool) {
	if depth == 0 || g.sets < 2 || g.IntN(4) == 0 {
		set := g.set()
		return set, g.w.members(set)
	}
	left, a := g.expr(depth - 1)
	if g.sets < 1 {
		return left, a
	}
	right, b := g.expr(depth - 1)
	op := []string{" and ", " or ", " and not "}[g.IntN(3)]
	found := map[string]bool{}
	for name := range a {
		if op == " or " || b[name] == (op == " and ") {
			found[name] = true
		}
	}
	if op == " or " {
		maps.Copy(found, b)
	}
	return "(" + left + ")" + op + "(" + right + ")", found
}

func (g *generator) change() {
	names := []string{"follows", "blocks", "liked", "reposted", "listed"}
	e := edge{names[g.IntN(5)], account(g.IntN(6)), account(g.IntN(6))}
	switch e.name {
	case "liked", "reposted":
		e.to = post(g.IntN(3))
	case "listed":
		e.from = list(g.IntN(2))
		g.w.UID(strings.Split(e.from, "/")[2])
	}
	g.w.set(e, g.IntN(3) > 0)
}

type answer struct {
	Count    int      `json:"count"`
	Members  []string `json:"members"`
	Cursor   *string  `json:"cursor"`
	Complete bool     `json:"complete"`
}

func ask(t *testing.T, h http.Handler, path string) (a answer) {
	t.Helper()
	w := viewapitest.Get(h, path)
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 || !a.Complete {
		t.Fatalf("%s: %d %s, %v", path, w.Code, w.Body, err)
	}
	return a
}

// checkModel compares a random expression's answers with the model's.
func checkModel(t *testing.T, seed uint64, changes int) {
	t.Helper()
	w := newWorld(t)
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), w: w}
	for range changes {
		g.change()
	}
	_, h := newTestAPI(t, w)
	for range 4 {
		g.sets, g.records = 8, g.IntN(4) == 0
		expr, members := g.expr(3)
		want := slices.Sorted(maps.Keys(members))
		limit := 1 + g.IntN(4)
		var got []string
		for cursor := ""; ; {
			a := ask(t, h, sets("/sets", expr)+fmt.Sprintf("&limit=%d&cursor=%s", limit, cursor))
			if got = append(got, a.Members...); a.Count != len(want) || len(a.Members) > limit || len(got) > len(want) {
				t.Fatalf("seed %d: %s: %+v, want %v", seed, expr, a, want)
			}
			if a.Cursor == nil {
				break
			}
			cursor = *a.Cursor
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %s: %v, want %v", seed, expr, got, want)
		}
		count := ask(t, h, sets("/sets/count", expr)).Count
		sample := ask(t, h, sets("/sets/sample", expr)+fmt.Sprint("&limit=", limit))
		slices.Sort(sample.Members)
		if count != len(want) || sample.Count != count || len(slices.Compact(sample.Members)) != min(limit, count) ||
			slices.ContainsFunc(sample.Members, func(s string) bool { return !members[s] }) {
			t.Fatalf("seed %d: %s: count %d, sample %+v, want of %v", seed, expr, count, sample, want)
		}
	}
}

func TestModel(t *testing.T) {
	seed := rand.Uint64()
	for n := range uint64(300) {
		checkModel(t, seed+n, int(n%60))
	}
}

func FuzzExpressions(f *testing.F) {
	f.Add(uint64(1), uint8(30))
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8) { checkModel(t, seed, int(changes)) })
}

// TestPagesWhileChanging changes edges between the pages: a member that stays comes once.
func TestPagesWhileChanging(t *testing.T) {
	seed := rand.Uint64()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	for round := range 200 {
		g.w = newWorld(t)
		for range 60 {
			g.change()
		}
		a, h := newTestAPI(t, g.w)
		set := g.set()
		throughout := g.w.sorted(set)
		got := map[string]int{}
		for cursor := ""; ; {
			page := ask(t, h, sets("/sets", set)+"&limit=1&cursor="+cursor)
			for _, name := range page.Members {
				if got[name]++; got[name] > 1 {
					t.Fatalf("seed %d, round %d: %s: %s came twice", seed, round, set, name)
				}
			}
			if page.Cursor == nil {
				break
			}
			cursor = *page.Cursor
			for range g.IntN(6) {
				g.change()
			}
			a.cache = newCache()
			now := g.w.members(set)
			throughout = slices.DeleteFunc(throughout, func(name string) bool { return !now[name] })
		}
		for _, name := range throughout {
			if got[name] != 1 {
				t.Fatalf("seed %d, round %d: %s: %s was there throughout and came %d times", seed, round, set, name, got[name])
			}
		}
	}
}
