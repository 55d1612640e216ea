package linksapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"testing"

	"millrace/public/internal/viewapi/viewapitest"
	"millrace/replay/links"
	"millrace/replay/references"
)

// broken is a world of which a part fails after a request's own names were found. What fails gives
// its results all the same, so that a lost error shows.
type broken struct {
	*world
	view, name, close error
	names             func(string) string // nil: as they are
	noSources         bool
}

func (b *broken) View() (links.View, error) {
	v, err := b.world.View()
	return brokenView{v, b}, err
}

func (b *broken) SourceOf(number uint32) (string, bool) {
	source, ok := b.world.SourceOf(number)
	return source, ok && !b.noSources
}

func (b *broken) LookupUIDs(ctx context.Context, uids []uint64, names []string) error {
	err := b.world.LookupUIDs(ctx, uids, names)
	for i := range names {
		if b.names != nil {
			names[i] = b.names(names[i])
		}
	}
	return cmp.Or(err, b.name)
}

type brokenView struct {
	links.View
	b *broken
}

func (v brokenView) Close() error { _ = v.View.Close(); return v.b.close }

func (v brokenView) Count(ctx context.Context, set links.Set) (links.Counts, error) {
	c, _ := v.View.Count(ctx, set)
	return c, v.b.view
}

func (v brokenView) CountRecords(ctx context.Context, set links.Set) (uint64, error) {
	n, _ := v.View.CountRecords(ctx, set)
	return n, v.b.view
}

func (v brokenView) Records(ctx context.Context, set links.Set, page links.Page) (links.Records, error) {
	r, _ := v.View.Records(ctx, set, page)
	return r, v.b.view
}

func (v brokenView) Accounts(ctx context.Context, set links.Set, page links.Page) (links.Accounts, error) {
	a, _ := v.View.Accounts(ctx, set, page)
	return a, v.b.view
}

func (v brokenView) Sources(ctx context.Context, subject uint64) ([]links.Source, error) {
	s, _ := v.View.Sources(ctx, subject)
	return s, v.b.view
}

func (v brokenView) Others(ctx context.Context, q links.OthersQuery) (links.Others, error) {
	o, _ := v.View.Others(ctx, q)
	return o, v.b.view
}

func (v brokenView) OtherCounts(ctx context.Context, q links.OthersQuery) (links.OtherCounts, error) {
	o, _ := v.View.OtherCounts(ctx, q)
	return o, v.b.view
}

func (v brokenView) MostLinked(ctx context.Context, limit int) (links.MostLinked, error) {
	m, _ := v.View.MostLinked(ctx, limit)
	return m, v.b.view
}

// TestFailures: whatever fails below an endpoint, the answer is no success; and what cannot be
// linked is answered without a look at the links.
func TestFailures(t *testing.T) {
	const names, records, sources = 1, 2, 4 // what an endpoint asks for
	newPost, newList := "source="+likeSource+"&subject=", "source="+listitem+":list&pathToOther=subject&subject="
	oldPost := "collection=" + like + "&path=.subject.uri&target="
	for _, e := range []struct {
		path, subject string
		asks          int
	}{
		{xrpc + "getBacklinks?" + newPost, post(1), names | records},
		{xrpc + "getBacklinksCount?" + newPost, post(1), 0},
		{xrpc + "getBacklinkDids?" + newPost, post(1), names},
		{xrpc + "getManyToManyCounts?" + newList, list(1), names},
		{xrpc + "getManyToMany?" + newList, list(1), names | records},
		{"/links?" + oldPost, post(1), names | records},
		{"/links/count?" + oldPost, post(1), 0},
		{"/links/count/distinct-dids?" + oldPost, post(1), 0},
		{"/links/distinct-dids?" + oldPost, post(1), names},
		{"/links/all?target=", post(1), sources},
		{"/links/all/count?target=", post(1), sources},
		{"/links/most-linked", "", names | sources},
	} {
		ask := func(b broken, subject string) int {
			b.world = small()
			mux := http.NewServeMux()
			New(Config{Links: &b, UIDs: &b, Log: &b}).Route(mux)
			code := viewapitest.Get(mux, e.path+url.QueryEscape(subject)).Code
			if b.closed != 1 {
				t.Errorf("%s: %d views are closed", e.path, b.closed)
			}
			return code
		}
		for _, tc := range []struct {
			name  string
			b     broken
			fails bool
		}{
			{"nothing", broken{}, false},
			{"the links", broken{view: errDown}, true},
			{"the end of the view", broken{close: errDown}, true},
			{"names", broken{name: errDown}, e.asks&names != 0},
			{"a record without a key", broken{names: func(string) string { return "at://" + account(1) + "/" + like }}, e.asks&records != 0},
			{"a record without a collection", broken{names: func(string) string { return "at://" + account(1) }}, e.asks&records != 0},
			{"the number of a source", broken{noSources: true}, e.asks&sources != 0},
		} {
			if code := ask(tc.b, e.subject); (code >= 500) != tc.fails || !tc.fails && code != 200 {
				t.Errorf("%s: %s fails: %d, want a failure: %t", e.path, tc.name, code, tc.fails)
			}
		}
		if e.subject != "" {
			if code := ask(broken{view: errDown, noSources: true}, "did:web:nobody.example"); code != 200 {
				t.Errorf("%s: of what nobody links to: %d", e.path, code)
			}
		}
	}
}

// TestCursors: a cursor has one spelling, of one kind, and is not the beginning.
func TestCursors(t *testing.T) {
	since := references.Position{Epoch: 1, Seq: 2}
	for _, after := range []links.OthersCursor{{Arrival: 1}, {Arrival: 1 << 63}, {Index: 1}, {Arrival: 300, Index: 1<<32 - 1}} {
		c := cursor{since, after}
		s := encodeCursor(c, ofItems)
		if got, ok := parseCursor(*s, ofItems); !ok || got != c {
			t.Errorf("%+v: %s, read as %+v, %t", c, *s, got, ok)
		}
		if _, ok := parseCursor(*s, ofDIDs); ok {
			t.Errorf("%s is a cursor of another kind", *s)
		}
	}
	for s, what := range map[string]string{
		"":                    "nothing",
		"cg":                  "a kind alone",
		"cgEC":                "no place",
		"cgECAg":              "no index",
		"cgECAg!":             "another alphabet",
		"cgECAAA":             "the beginning",
		"cgECAgAA":            "one that goes on",
		"cgECggAA":            "a long spelling",
		"cgECAoCAgIAQ":        "an index of 33 bits",
		"coCAgIAQAgIA":        "an epoch of 33 bits",
		"cgEC____________fwA": "an arrival of 70 bits",
		"cgEC////////////AQA": "standard base64",
		"cgECAv___________wE": "an index of 64 bits",
		"cgECAgA=":            "padding",
		"cgECAgE\n":           "a line break",
		"cgECAgByAQICAA":      "several",
	} {
		if c, ok := parseCursor(s, ofRecords); ok {
			t.Errorf("%s, %q: read as %+v", what, s, c)
		}
	}
	if s := encodeCursor(cursor{since: since}, ofItems); s != nil {
		t.Errorf("the beginning: %q", *s)
	}
}
