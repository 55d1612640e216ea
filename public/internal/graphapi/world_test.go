package graphapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"millrace/public/internal/viewapi/viewapitest"
	"millrace/replay/graph"
	"millrace/replay/links"
	"millrace/replay/references"
	"millrace/translate"
)

func account(n int) string { return fmt.Sprintf("did:plc:%024d", n) }
func post(n int) string    { return fmt.Sprintf("at://%s/app.bsky.feed.post/%d", account(0), n) }
func list(n int) string    { return fmt.Sprintf("at://%s/app.bsky.graph.list/%d", account(n), n) }

// edge is what a plain model has: name is follows, blocks, liked, reposted or listed.
type edge struct{ name, from, to string }

// world is a graph and links, and the oracle of their answers. It is Queries of both, UIDs and Log.
type world struct {
	viewapitest.UIDs // given on demand

	t     *testing.T
	g     *graph.Graph
	edges map[edge]bool

	position  references.Position
	reached   chan struct{} // what Wait waits for
	building  bool
	noLinks   bool // they are being built
	noBlocks  bool
	noSource  string // has no number in the log
	inexact   int64
	linkWaits int              // of Wait of links
	linksDown error            // what it returns
	fails     map[string]error // what a call of a view returns, with its result
	closed    bool             // Graph returns one that is closed
	views     int              // that are open
	linksRead int
	linksAt   references.Position

	links.View // nil, for the methods that view does not have
}

func newWorld(t *testing.T) *world {
	t.Helper()
	g, err := graph.New(graph.Config{Sources: []string{graph.SourceFollow, graph.SourceBlock}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	w := &world{t: t, g: g, edges: map[edge]bool{}, position: references.Position{Epoch: 1, Seq: 6}, reached: make(chan struct{})}
	w.linksAt = references.Position{Epoch: 1, Seq: 9}
	w.apply()
	return w
}

// apply makes the changes of one position.
func (w *world) apply(changes ...graph.Change) {
	w.position.Seq++
	if err := w.g.Apply(w.position, changes); err != nil {
		w.t.Fatal(err)
	}
}

// set makes an edge, or removes it.
func (w *world) set(e edge, there bool) {
	if w.edges[e] == there {
		return
	}
	if w.edges[e] = there; !there {
		delete(w.edges, e)
	}
	source, ok := map[string]int{"follows": 0, "blocks": 1}[e.name]
	from, to := w.UID(e.from), w.UID(e.to)
	if ok {
		w.apply(graph.Change{Source: source, Edge: graph.Edge{Actor: from, Subject: to, Record: 1}, Remove: !there})
	}
}

// members is the oracle of a set.
func (w *world) members(set string) map[string]bool {
	name, argument, _ := strings.Cut(set, ":")
	found := map[string]bool{}
	for e := range w.edges {
		of, in, member := map[string]string{
			"follows": "follows", "followers": "follows", "blocks": "blocks", "blockedBy": "blocks",
			"liked": "liked", "likers": "liked", "reposters": "reposted", "members": "listed",
		}[name], e.from, e.to
		if slices.Contains([]string{"followers", "blockedBy", "likers", "reposters"}, name) {
			in, member = e.to, e.from
		}
		if e.name == of && in == argument {
			found[member] = true
		}
	}
	return found
}

func (w *world) sorted(set string) []string { return slices.Sorted(maps.Keys(w.members(set))) }

// Log.

var sources = []string{"app.bsky.feed.like:subject.uri", "app.bsky.feed.repost:subject.uri", "app.bsky.graph.listitem:list", "app.bsky.graph.listitem:subject"}

func (w *world) FindSource(source string) (uint32, bool) {
	i := slices.Index(sources, source)
	return uint32(i + 1), i >= 0 && source != w.noSource
}

func (w *world) StreamOfEpoch(epoch uint32) translate.Stream {
	return translate.Stream(0xabc000 + epoch)
}

func (w *world) LastChange(frame references.Position) references.Position { return frame }

func (w *world) EpochOfStream(s translate.Stream) (uint32, bool) {
	return uint32(s) - 0xabc000, uint32(s)>>12 == 0xabc
}

// LookupUIDs implements viewapi.UIDs.
func (w *world) LookupUIDs(ctx context.Context, uids []uint64, names []string) error {
	return errors.Join(w.UIDs.LookupUIDs(ctx, uids, names), w.fails["names"])
}

// graph.Queries.

func (w *world) Graph() (*graph.Graph, error) {
	if w.building {
		return nil, graph.ErrBuilding
	}
	if w.closed {
		gone, err := graph.New(graph.Config{Sources: []string{graph.SourceFollow, graph.SourceBlock}})
		if err == nil {
			err = gone.Close()
		}
		return gone, err
	}
	return w.g, w.fails["graph"]
}

func (w *world) Source(name string) (int, bool) {
	i := slices.Index([]string{graph.SourceFollow, graph.SourceBlock}, name)
	return i, i >= 0 && (i == 0 || !w.noBlocks)
}

func (w *world) Progress() graph.Progress   { return graph.Progress{Done: .25, Edges: 7} }
func (w *world) Since() references.Position { return references.Position{Epoch: 1, Seq: 2} }
func (w *world) InexactSince() int64        { return w.inexact }

func (w *world) Wait(ctx context.Context, at references.Position) error {
	select {
	case <-w.reached:
		w.apply()
		w.linksAt = at
		return w.fails["wait"]
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// worldLinks is links.Queries.
type worldLinks struct{ *world }

func (w worldLinks) Progress() links.Progress { return links.Progress{Done: .5} }

func (w worldLinks) Wait(context.Context, references.Position) error {
	w.linkWaits++
	return w.linksDown
}

func (w worldLinks) View() (links.View, error) {
	if w.noLinks {
		return nil, links.ErrBuilding
	}
	w.views++
	return view(w), w.fails["view"]
}

// view answers from the plain model.
type view struct{ *world }

func (v view) Position() references.Position { return v.linksAt }
func (v view) Close() error                  { v.views--; return v.fails["close"] }

func (v view) name(uid uint64) string { return v.Names[uid-1] }

func (v view) uids(set string) (uids []uint64) {
	v.linksRead++
	for _, name := range v.sorted(set) {
		uids = append(uids, v.UID(name))
	}
	return uids
}

func (v view) CountRecords(_ context.Context, set links.Set) (uint64, error) {
	if v.name(set.Subject) == post(99) {
		return maxLinks + 1, nil
	}
	return maxLinks, v.fails["count"]
}

func (v view) Accounts(_ context.Context, set links.Set, page links.Page) (links.Accounts, error) {
	if page.Limit != maxLinks || page.Cursor != 0 || len(page.Accounts) > 0 {
		v.t.Errorf("asked for the page %+v", page)
	}
	return links.Accounts{Accounts: v.uids([]string{"", "likers:", "reposters:"}[set.Path] + v.name(set.Subject))}, v.fails["accounts"]
}

func (v view) Linked(_ context.Context, account uint64, path uint32, most int) ([]uint64, error) {
	if most != maxLinks {
		v.t.Errorf("asked for at most %d", most)
	}
	if v.name(account) == account99 {
		return nil, fmt.Errorf("read: %w", links.ErrTooLarge)
	}
	return v.uids("liked:" + v.name(account)), v.fails["linked"]
}

const account99 = "did:plc:000000000000000000000099"

func (v view) Others(_ context.Context, q links.OthersQuery) (o links.Others, _ error) {
	if q.Set.Path != 3 || q.OtherPath != 4 || q.Limit != maxLinks || len(q.Accounts) != 1 || !strings.HasPrefix(v.name(q.Set.Subject), "at://"+v.name(q.Accounts[0])+"/") {
		v.t.Errorf("asked for %+v", q)
	}
	for _, uid := range v.uids("members:" + v.name(q.Set.Subject)) {
		o.Items = append(o.Items, links.Other{Subject: uid, IsDID: true})
	}
	o.Items = append(o.Items, links.Other{Subject: v.UID(post(1))}) // a list may have any subject
	return o, v.fails["others"]
}

func newTestAPI(t *testing.T, w *world) (*API, http.Handler) {
	t.Helper()
	a := New(Config{Graph: w, Links: worldLinks{w}, UIDs: w, Log: w, MaxCost: 1000})
	mux := http.NewServeMux()
	a.Route(mux)
	return a, mux
}
