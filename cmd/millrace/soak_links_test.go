package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/consume/relaysim"
	"millrace/consume/relaysim/testwait"
	"millrace/translate"
)

// linkRequest asks for a list or for counts of links.
type linkRequest struct {
	path    string
	set     linkSet
	other   string   // path of the other subject; many-to-many only
	dids    []string // nil: no filter
	reverse bool
	limit   int
}

// The endpoints, by what their answers have.
const (
	xrpcLinks       = "/xrpc/blue.microcosm.links."
	pathRecords     = xrpcLinks + "getBacklinks"
	pathOldRecords  = "/links"
	pathDIDs        = xrpcLinks + "getBacklinkDids"
	pathOldDIDs     = "/links/distinct-dids"
	pathItems       = xrpcLinks + "getManyToMany"
	pathOtherCounts = xrpcLinks + "getManyToManyCounts"
	pathCount       = xrpcLinks + "getBacklinksCount"
	pathOldCount    = "/links/count"
	pathDIDCount    = "/links/count/distinct-dids"
	pathAll         = "/links/all"
	pathAllCounts   = "/links/all/count"
)

var linkPaths = []string{
	pathRecords, pathOldRecords, pathDIDs, pathOldDIDs, pathItems, pathOtherCounts,
	pathCount, pathOldCount, pathDIDCount, pathAll, pathAllCounts,
}

// lists says whether the answer is a list, in pages.
func (q *linkRequest) lists() bool { return slices.Contains(linkPaths[:6], q.path) }

func (q *linkRequest) values() url.Values {
	v := url.Values{}
	if collection, path, _ := strings.Cut(q.set.source, ":"); strings.HasPrefix(q.path, xrpcLinks) {
		v.Set("subject", q.set.subject)
		v.Set("source", q.set.source)
	} else {
		v.Set("target", q.set.subject)
		v.Set("collection", collection)
		v.Set("path", "."+path)
	}
	if q.other != "" {
		v.Set("pathToOther", q.other)
	}
	if q.reverse {
		v.Set("reverse", "true")
	}
	if q.lists() {
		v.Set("limit", strconv.Itoa(q.limit))
	}
	name := "did"
	if q.path == pathItems {
		name = "linkDid"
	}
	if q.dids != nil {
		v[name] = q.dids
	}
	return v
}

// linkPage is an answer, and where in the log the server was.
type linkPage struct {
	*linkRequest
	before *linkPage // nil: it is the first of its list
	view   translate.Position
	body   []byte
	answer linkAnswer
	last   linkPosition // of its last element; set when it was compared
}

// linkAnswer is any endpoint's.
type linkAnswer struct {
	Total   *int
	Records []json.RawMessage `json:"records"`
	Old     []json.RawMessage `json:"linking_records"`
	DIDs    []json.RawMessage `json:"linking_dids"`
	Items   []json.RawMessage `json:"items"`
	Counts  []json.RawMessage `json:"counts_by_other_subject"`
	Cursor  *string
	Links   map[string]map[string]json.RawMessage
}

func (a *linkAnswer) list() (list []string) {
	for _, raw := range slices.Concat(a.Records, a.Old, a.DIDs, a.Items, a.Counts) {
		list = append(list, string(raw))
	}
	return list
}

// linkClient asks a server for links.
type linkClient struct {
	addr string
	rng  *rand.Rand
	dids []string // for filters; nil: for this request none
	// again says whether a request that no server answered, or one that was not ready, is sent
	// again.
	again func() bool
}

// linkPages is how many pages of a list are read.
const linkPages = 40

// walk reads the pages of a list, or the one answer that there is.
func (c *linkClient) walk(q *linkRequest) (pages []*linkPage, err error) {
	var before *linkPage
	values := q.values()
	for range linkPages {
		p := &linkPage{linkRequest: q, before: before}
		for {
			answered, err := c.get(p, values)
			if err != nil {
				return pages, err
			}
			if answered {
				break
			}
			if !c.again() {
				return pages, nil
			}
		}
		pages = append(pages, p)
		if p.answer.Cursor == nil {
			break
		}
		values.Set("cursor", *p.answer.Cursor)
		before = p
	}
	return pages, nil
}

// get asks once. A server that is not there, or not ready, does not answer.
func (c *linkClient) get(p *linkPage, values url.Values) (answered bool, err error) {
	resp, err := http.Get("http://" + c.addr + p.path + "?" + values.Encode())
	if err != nil {
		return false, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusServiceUnavailable {
		return false, nil
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s?%s: %s: %.500s", p.path, values.Encode(), resp.Status, body)
	}
	if p.view, err = translate.ParsePosition(resp.Header.Get("Millrace-View-Cursor")); err == nil {
		err = json.Unmarshal(body, &p.answer)
	}
	p.body = body
	if err != nil {
		return false, fmt.Errorf("%s?%s: %w: %.500s", p.path, values.Encode(), err, body)
	}
	return true, nil
}

// request draws what to ask of a set. among are sets of the same log.
func (c *linkClient) request(set linkSet, among []linkSet) *linkRequest {
	q := &linkRequest{path: linkPaths[c.rng.IntN(len(linkPaths))], set: set, limit: []int{1, 2, 5, 20, 100}[c.rng.IntN(5)]}
	return c.fill(q, among)
}

// fill draws the parameters that only some endpoints have.
func (c *linkClient) fill(q *linkRequest, among []linkSet) *linkRequest {
	collection, path, _ := strings.Cut(q.set.source, ":")
	switch q.path {
	case pathItems, pathOtherCounts:
		q.other = path
		var others []string
		for _, s := range among {
			if other, ok := strings.CutPrefix(s.source, collection+":"); ok && other != path {
				others = append(others, other)
			}
		}
		if len(others) > 0 {
			q.other = others[c.rng.IntN(len(others))]
		}
	case pathRecords:
		q.reverse = c.rng.IntN(2) == 0
	}
	filters := slices.Contains([]string{pathRecords, pathOldRecords, pathItems, pathOtherCounts}, q.path)
	for _, did := range c.dids {
		if filters && len(q.dids) < 100 && c.rng.IntN(2) == 0 {
			q.dids = append(q.dids, did)
		}
	}
	return q
}

// linkObserver asks for links while servers come and go, and keeps the answers.
type linkObserver struct {
	r     *round
	pages []*linkPage
	err   error
}

// maxObserved is how many pages are kept of a round.
const maxObserved = 3000

// run asks until ctx ends.
func (o *linkObserver) run(ctx context.Context) {
	pause := func(d time.Duration) bool {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
		return ctx.Err() == nil
	}
	c := &linkClient{addr: o.r.addr, rng: rand.New(rand.NewPCG(o.r.plan.seed, 5)), again: func() bool { return pause(30 * time.Millisecond) }}
	for pause(time.Duration(c.rng.ExpFloat64()*float64(60*time.Millisecond))) && len(o.pages) < maxObserved {
		sets, dids, err := lateSets(o.r.sim.truth)
		if c.dids = nil; c.rng.IntN(4) == 0 {
			c.dids = dids
		}
		if len(sets) > 0 {
			var pages []*linkPage
			pages, err = c.walk(c.request(sets[c.rng.IntN(len(sets))], sets))
			o.pages = append(o.pages, pages...)
		}
		if err != nil && !o.r.plan.writeLimit && !o.r.plan.diskFull { // a store that cannot write may not read either
			o.err = err
			return
		}
	}
}

// lateSets returns the sets of what the truth file has last, and whose records these are.
func lateSets(truth string) (sets []linkSet, dids []string, err error) {
	f, err := os.Open(truth)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, nil, err
	}
	const late = 128 << 10
	raw, err := io.ReadAll(io.NewSectionReader(f, max(0, end-late), late))
	if err != nil {
		return nil, nil, err
	}
	_, raw, _ = bytes.Cut(raw, []byte("\n"))
	raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	table := relaysim.NewTable()
	for text := range bytes.Lines(raw) {
		var l relaysim.Line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, nil, err
		}
		var e linkEvent
		if err := json.Unmarshal(l.Event, &e); err != nil {
			return nil, nil, err
		}
		r, err := table.Apply(&l)
		if err != nil {
			return nil, nil, err
		}
		for _, ref := range r.References {
			sets = append(sets, linkSet{e.Commit.Collection + ":" + ref.Path(), ref.Subject()})
			dids = append(dids, e.DID)
		}
	}
	return sets, dids, nil
}

// checkLinks compares what was observed with the log, and then a sample of sets as the server has
// them now.
func (r *round) checkLinks(o *linkObserver, log []truthEvent) {
	t := r.t
	t.Helper()
	if o.err != nil {
		t.Fatalf("links: %v", o.err)
	}
	world := newLinkWorld()
	at := logPlaces(log, &r.seen)
	type observed struct {
		*linkPage
		events int
	}
	var all []observed
	events := make(map[*linkPage]int)
	for _, p := range o.pages {
		n, ok := at(p.view)
		if events[p] = n; ok && (p.before == nil || events[p.before] <= n) {
			all = append(all, observed{p, n})
		}
	}
	slices.SortStableFunc(all, func(a, b observed) int { return cmp.Compare(a.events, b.events) })
	next := 0
	for _, p := range all {
		for ; next < p.events; next++ {
			world.apply(t, log, next)
		}
		if p.before != nil && p.before.last == (linkPosition{}) {
			continue // it was not compared
		}
		if err := world.compare(p.linkPage, false); err != nil {
			t.Fatalf("links at %v, after %d events: %v", p.view, p.events, err)
		}
		r.total.add("answers about links, at random moments", 1)
	}
	for ; next < len(log); next++ {
		world.apply(t, log, next)
	}
	r.checkLinksNow(world)
}

// checkLinksNow compares all answers about a sample of sets, once deleted accounts are swept.
func (r *round) checkLinksNow(world *linkWorld) {
	t := r.t
	t.Helper()
	const largest, others = 8, 60
	rng := rand.New(rand.NewPCG(r.plan.seed, 6))
	sets := world.sets()
	if len(sets) == 0 {
		t.Fatal("nothing links to anything")
	}
	sample := slices.Clone(sets[:min(len(sets), largest)])
	for range others {
		sample = append(sample, sets[rng.IntN(len(sets))])
	}
	c := &linkClient{addr: r.addr, rng: rng, again: func() bool { return r.process.running() }}
	for i, set := range sample {
		for _, path := range linkPaths {
			if c.dids = nil; i%4 == 0 {
				c.dids = world.accounts(set)
			}
			q := c.fill(&linkRequest{path: path, set: set, limit: 1 + (i*7+len(path))%50}, sets[:min(len(sets), 500)])
			var err error
			var pages []*linkPage
			exact := testwait.Becomes(patience, func() bool {
				if pages, err = c.walk(q); err != nil {
					return true
				}
				err = nil
				for _, p := range pages {
					if err = world.compare(p, true); err != nil {
						return false // a sweep may be under way
					}
				}
				return len(pages) > 0
			})
			if err != nil || !exact {
				t.Fatalf("links at the end: %v", err)
			}
			r.total.add("answers about links, at the end of rounds", len(pages))
		}
	}
	r.total.add("rounds with links", 1)
	r.total.add("links of the largest set, added up", world.size(sets[0]))
}

// running says whether the process has not ended.
func (p *millraceProcess) running() bool {
	select {
	case <-p.exited:
		return false
	case <-time.After(30 * time.Millisecond):
		return true
	}
}
