package linksapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"millrace/public/internal/viewapi/viewapitest"
	"millrace/replay/links"
	"millrace/replay/references"
	"millrace/translate"
)

// reference is what a record points at.
type reference struct{ path, subject string }

// linking is a record that is alive.
type linking struct {
	arrival               uint64
	did, collection, rkey string
	refs                  []reference
}

func (l *linking) uri() string { return "at://" + l.did + "/" + l.collection + "/" + l.rkey }

// world is links as plain slices: what the API reads, and the oracle of its answers. It is Queries,
// UIDs and Log, and, as it has no state of its own between calls, View.
type world struct {
	viewapitest.UIDs // given on demand

	records  []*linking // by arrival
	inactive map[string]bool
	arrivals uint64

	sources []string // by number - 1

	position references.Position
	reached  chan struct{} // what Wait waits for
	building bool
	inexact  int64
	large    bool // OtherCounts has too much to group
	closed   int  // views

	links.Queries // nil, for the methods that world does not have
}

func newWorld() *world {
	return &world{inactive: map[string]bool{}, position: references.Position{Epoch: 1, Seq: 7}, reached: make(chan struct{})}
}

// put creates a record, or updates it: it becomes the newest.
func (w *world) put(did, collection, rkey string, refs ...reference) {
	w.remove(did, collection, rkey)
	w.arrivals++
	w.records = append(w.records, &linking{w.arrivals, did, collection, rkey, refs})
	w.UID(did)
	w.UID(w.records[len(w.records)-1].uri())
	for _, r := range refs {
		w.UID(r.subject)
		if source := collection + ":" + r.path; !slices.Contains(w.sources, source) {
			w.sources = append(w.sources, source)
		}
	}
}

func (w *world) remove(did, collection, rkey string) {
	w.records = slices.DeleteFunc(w.records, func(l *linking) bool {
		return l.did == did && l.collection == collection && l.rkey == rkey
	})
}

// Log.

func (w *world) FindSource(source string) (uint32, bool) {
	i := slices.Index(w.sources, source)
	return uint32(i + 1), i >= 0
}

func (w *world) SourceOf(number uint32) (string, bool) { return w.sources[number-1], true }

func (w *world) StreamOfEpoch(epoch uint32) translate.Stream {
	return translate.Stream(0xabc000 + epoch)
}

func (w *world) LastChange(frame references.Position) references.Position { return frame }

func (w *world) EpochOfStream(s translate.Stream) (uint32, bool) {
	return uint32(s) - 0xabc000, uint32(s)>>12 == 0xabc
}

// Queries.

func (w *world) View() (links.View, error) {
	if w.building {
		return nil, links.ErrBuilding
	}
	return view{w: w}, nil
}

func (w *world) Progress() links.Progress   { return links.Progress{Done: .25} }
func (w *world) Since() references.Position { return references.Position{Epoch: 1, Seq: 2} }
func (w *world) InexactSince() int64        { return w.inexact }

func (w *world) Wait(ctx context.Context, at references.Position) error {
	select {
	case <-w.reached:
		if w.position = at; w.Down != nil {
			return w.Down
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// view answers by looking at every record.
type view struct {
	w          *world
	links.View // nil: a method that view does not override panics
}

func (v view) Position() references.Position { return v.w.position }

func (v view) Close() error { v.w.closed++; return nil }

// checkFilter panics if a filter has a UID twice, or one that is none.
func checkFilter(uids []uint64) {
	for i, uid := range uids {
		if uid == 0 || slices.Contains(uids[:i], uid) {
			panic(fmt.Sprintf("filter %v", uids))
		}
	}
}

// edge is a link of a set, in UIDs.
type edge struct {
	links.Link
	active bool
	refs   []references.Reference
}

// edges returns the links of a set from these accounts, the oldest first.
func (v view) edges(set links.Set, accounts []uint64) (all []edge) {
	checkFilter(accounts)
	for _, r := range v.w.records {
		e := edge{Link: links.Link{Arrival: r.arrival, Account: v.w.UID(r.did), Record: v.w.UID(r.uri())}, active: !v.w.inactive[r.did]}
		links := false
		for _, ref := range r.refs {
			path, _ := v.w.FindSource(r.collection + ":" + ref.path)
			to := references.Reference{Path: path, Subject: v.w.UID(ref.subject)}
			links = links || to.Path == set.Path && to.Subject == set.Subject
			e.refs = append(e.refs, to)
		}
		if links && (accounts == nil || slices.Contains(accounts, e.Account)) {
			all = append(all, e)
		}
	}
	return all
}

func countEdges(all []edge) (c links.Counts) {
	accounts := map[uint64]bool{}
	for _, e := range all {
		accounts[e.Account] = true
	}
	return links.Counts{Records: uint64(len(all)), Accounts: uint64(len(accounts))}
}

func (v view) Count(_ context.Context, set links.Set) (links.Counts, error) {
	return countEdges(v.edges(set, nil)), nil
}

func (v view) CountRecords(ctx context.Context, set links.Set) (uint64, error) {
	c, err := v.Count(ctx, set)
	return c.Records, err
}

// pageOf returns the edges of a page, of active accounts only, and where the next page begins.
func pageOf(all []edge, page links.Page) (part []edge, next uint64) {
	if !page.Reverse {
		slices.Reverse(all)
	}
	for _, e := range all {
		behind := page.Cursor == 0 || e.Arrival < page.Cursor
		if page.Reverse {
			behind = e.Arrival > page.Cursor
		}
		if !e.active || !behind {
			continue
		}
		if len(part) == page.Limit {
			return part, part[len(part)-1].Arrival
		}
		part = append(part, e)
	}
	return part, 0
}

func (v view) Records(_ context.Context, set links.Set, page links.Page) (r links.Records, _ error) {
	all := v.edges(set, page.Accounts)
	r.Total = uint64(len(all))
	part, next := pageOf(all, page)
	for _, e := range part {
		r.Links = append(r.Links, e.Link)
	}
	r.Next = next
	return r, nil
}

func (v view) Accounts(_ context.Context, set links.Set, page links.Page) (a links.Accounts, _ error) {
	var firsts []edge
	for _, e := range v.edges(set, nil) {
		if !slices.ContainsFunc(firsts, func(f edge) bool { return f.Account == e.Account }) {
			firsts = append(firsts, e)
		}
	}
	a.Total = uint64(len(firsts))
	part, next := pageOf(firsts, page)
	for _, e := range part {
		a.Accounts = append(a.Accounts, e.Account)
	}
	a.Next = next
	return a, nil
}

func (v view) Sources(_ context.Context, subject uint64) (all []links.Source, _ error) {
	for i := range v.w.sources {
		s := links.Source{Path: uint32(i + 1)}
		s.Counts = countEdges(v.edges(links.Set{Path: s.Path, Subject: subject}, nil))
		if s.Records > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

// MostLinked takes the last two records for those of the last hour.
func (v view) MostLinked(_ context.Context, limit int) (m links.MostLinked, _ error) {
	if len(v.w.records) == 0 {
		return m, nil
	}
	m.Since = time.UnixMicro(1234567)
	for i := range v.w.sources {
		for uid := range v.w.Names {
			set := links.Set{Path: uint32(i + 1), Subject: uint64(uid + 1)}
			n := uint64(0)
			for _, e := range v.edges(set, nil) {
				if e.Arrival+2 > v.w.arrivals {
					n++
				}
			}
			if n > 0 {
				m.Sets = append(m.Sets, links.RecentCount{Set: set, Records: n})
			}
		}
	}
	slices.SortStableFunc(m.Sets, func(a, b links.RecentCount) int { return cmp.Compare(b.Records, a.Records) })
	m.Sets, m.Others = m.Sets[:min(limit, len(m.Sets))], 1
	return m, nil
}

// others returns the active links of a set with, of each, the places of its other references.
func (v view) others(q links.OthersQuery, each func(e edge, index uint32, subject uint64)) {
	checkFilter(q.Others)
	for _, e := range v.edges(q.Set, q.Accounts) {
		for i, ref := range e.refs {
			if e.active && ref.Path == q.OtherPath && (q.Others == nil || slices.Contains(q.Others, ref.Subject)) {
				each(e, uint32(i), ref.Subject)
			}
		}
	}
}

func (v view) Others(_ context.Context, q links.OthersQuery) (o links.Others, _ error) {
	var last links.OthersCursor
	v.others(q, func(e edge, index uint32, subject uint64) {
		at := links.OthersCursor{Arrival: e.Arrival, Index: index}
		after := cmp.Or(cmp.Compare(at.Arrival, q.Cursor.Arrival), cmp.Compare(at.Index, q.Cursor.Index)) > 0
		switch {
		case !after && q.Cursor != links.OthersCursor{}:
		case len(o.Items) == q.Limit:
			o.Next = last
		default:
			o.Items, last = append(o.Items, links.Other{Link: e.Link, Subject: subject}), at
		}
	})
	return o, nil
}

func (v view) OtherCounts(_ context.Context, q links.OthersQuery) (o links.OtherCounts, _ error) {
	if v.w.large {
		return o, fmt.Errorf("group: %w", links.ErrTooLarge)
	}
	first := map[uint64]uint64{} // of each subject, the oldest record's arrival
	seen := map[uint64]bool{}
	of := map[uint64][]edge{}
	v.others(q, func(e edge, _ uint32, subject uint64) {
		if seen[e.Arrival] {
			return
		}
		seen[e.Arrival] = true
		if of[subject] = append(of[subject], e); len(of[subject]) == 1 {
			first[subject] = e.Arrival
		}
	})
	subjects := slices.SortedFunc(maps.Keys(first), func(a, b uint64) int { return cmp.Compare(first[a], first[b]) })
	for _, subject := range subjects {
		switch n := len(o.Counts); {
		case first[subject] <= q.Cursor.Arrival:
		case n == q.Limit:
			o.Next = links.OthersCursor{Arrival: first[o.Counts[n-1].Subject]}
			return o, nil
		default:
			o.Counts = append(o.Counts, links.OtherCount{Subject: subject, Counts: countEdges(of[subject])})
		}
	}
	return o, nil
}

var errDown = errors.New("down")

// Names of the random world.

const (
	like, listitem = "app.bsky.feed.like", "app.bsky.graph.listitem"
	likeSource     = like + ":subject.uri"
)

func account(i int) string { return fmt.Sprintf("did:plc:%024d", i) }
func post(i int) string    { return fmt.Sprintf("at://%s/app.bsky.feed.post/%d", account(99), i) }
func list(i int) string    { return fmt.Sprintf("at://%s/app.bsky.graph.list/%d", account(98), i) }

// change does something to the world.
func (w *world) change(rng *rand.Rand) {
	did := account(rng.IntN(6))
	switch rng.IntN(8) {
	case 0, 1, 2:
		w.put(did, like, fmt.Sprint(rng.IntN(30)), reference{"subject.uri", post(rng.IntN(2))})
	case 3, 4:
		var refs []reference
		for range 1 + rng.IntN(3) {
			refs = append(refs, reference{"subject", account(rng.IntN(4))})
		}
		slices.SortFunc(refs, func(a, b reference) int { return cmp.Compare(a.subject, b.subject) })
		refs = append(slices.Compact(refs), reference{"list", list(rng.IntN(2))})
		w.put(did, listitem, fmt.Sprint(rng.IntN(30)), refs...)
	case 5, 6:
		if n := len(w.records); n > 0 {
			l := w.records[rng.IntN(n)]
			w.remove(l.did, l.collection, l.rkey)
		}
	case 7:
		w.inactive[did] = !w.inactive[did]
	}
}
