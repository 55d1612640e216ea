package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"millrace/consume/relaysim"
	"millrace/translate"
)

// linkEvent is what links depend on of an event.
type linkEvent struct {
	DID     string
	Commit  *struct{ Operation, Collection, RKey string }
	Account *struct {
		Active bool
		Status string
		Time   time.Time
	}
}

// linkPosition is where an element of a list is. It is the event that made its record what it is,
// counted from 1, and which of the record's references it is.
type linkPosition struct{ event, index int }

func (p linkPosition) compare(q linkPosition) int {
	return cmp.Or(cmp.Compare(p.event, q.event), cmp.Compare(p.index, q.index))
}

// linkRow is a record that is alive.
type linkRow struct {
	did, collection, rkey string
	event                 int
	refs                  []relaysim.Reference
}

func (row *linkRow) has(set linkSet) bool {
	path, ok := strings.CutPrefix(set.source, row.collection+":")
	return ok && slices.Contains(row.refs, relaysim.Reference{path, set.subject})
}

// linkWorld is the records after some events, in plain maps.
type linkWorld struct {
	table   *relaysim.Table // says what comes again and changes nothing
	rows    map[string]*linkRow
	swept   map[string]*linkRow        // of deleted accounts: in counts until they are swept
	naming  map[string]map[string]bool // by subject the records that named it at some time
	account map[string]accountStatus
}

type accountStatus struct {
	at       time.Time
	inactive bool
}

func newLinkWorld() *linkWorld {
	return &linkWorld{table: relaysim.NewTable(), rows: map[string]*linkRow{}, swept: map[string]*linkRow{},
		naming: map[string]map[string]bool{}, account: map[string]accountStatus{}}
}

// apply takes in the n-th event of a log.
func (w *linkWorld) apply(t *testing.T, log []truthEvent, n int) {
	t.Helper()
	var e linkEvent
	fromJSON(t, log[n].JSON, &e)
	r, err := w.table.Apply(&relaysim.Line{Epoch: uint32(log[n].Epoch), Seq: log[n].Seq, Op: log[n].Op, Event: json.RawMessage(log[n].JSON)})
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case r.Repeated:
	case e.Account != nil:
		if e.Account.Status == "deleted" {
			for uri, row := range w.rows {
				if row.did == e.DID {
					delete(w.rows, uri)
					w.swept[uri] = row
				}
			}
		}
		if a := w.account[e.DID]; !e.Account.Time.Before(a.at) {
			w.account[e.DID] = accountStatus{e.Account.Time, !e.Account.Active}
		}
	case e.Commit != nil:
		uri := "at://" + e.DID + "/" + e.Commit.Collection + "/" + e.Commit.RKey
		delete(w.rows, uri)
		if e.Commit.Operation == "delete" {
			return
		}
		delete(w.swept, uri) // its place is taken
		w.rows[uri] = &linkRow{e.DID, e.Commit.Collection, e.Commit.RKey, n + 1, r.References}
		for _, ref := range r.References {
			if w.naming[ref.Subject()] == nil {
				w.naming[ref.Subject()] = map[string]bool{}
			}
			w.naming[ref.Subject()][uri] = true
		}
	}
}

// linking returns those of rows that are in a set, and, unless dids is nil, of these accounts; the
// oldest first.
func (w *linkWorld) linking(rows map[string]*linkRow, set linkSet, dids []string) (all []*linkRow) {
	for uri := range w.naming[set.subject] {
		if row := rows[uri]; row != nil && row.has(set) && (dids == nil || slices.Contains(dids, row.did)) {
			all = append(all, row)
		}
	}
	slices.SortFunc(all, func(a, b *linkRow) int { return a.event - b.event })
	return all
}

func (w *linkWorld) size(set linkSet) int { return len(w.linking(w.rows, set, nil)) }

// accounts returns those that link, with others.
func (w *linkWorld) accounts(set linkSet) (dids []string) {
	for _, row := range w.linking(w.rows, set, nil) {
		dids = append(dids, row.did)
	}
	return append(slices.Compact(slices.Sorted(slices.Values(dids))), "did:web:nobody.example")
}

// sets returns all sets, the largest first.
func (w *linkWorld) sets() []linkSet {
	sizes := map[linkSet]int{}
	for _, row := range w.rows {
		for _, ref := range row.refs {
			sizes[linkSet{row.collection + ":" + ref.Path(), ref.Subject()}]++
		}
	}
	return slices.SortedFunc(maps.Keys(sizes), func(a, b linkSet) int {
		return cmp.Or(sizes[b]-sizes[a], strings.Compare(a.source+a.subject, b.source+b.subject))
	})
}

// linkElement is one of a list.
type linkElement struct {
	json     string
	position linkPosition
}

func (row *linkRow) json() string {
	return fmt.Sprintf(`{"did":%q,"collection":%q,"rkey":%q}`, row.did, row.collection, row.rkey)
}

// elements returns the whole list that is asked for.
func (w *linkWorld) elements(q *linkRequest) (all []linkElement) {
	visible := slices.DeleteFunc(w.linking(w.rows, q.set, q.dids), func(row *linkRow) bool { return w.account[row.did].inactive })
	switch q.path {
	case pathRecords, pathOldRecords:
		for _, row := range visible {
			all = append(all, linkElement{row.json(), linkPosition{row.event, 0}})
		}
	case pathDIDs, pathOldDIDs:
		seen := map[string]bool{}
		for _, row := range visible {
			if !seen[row.did] {
				all = append(all, linkElement{fmt.Sprintf("%q", row.did), linkPosition{row.event, 0}})
			}
			seen[row.did] = true
		}
	case pathItems:
		for _, row := range visible {
			for i, ref := range row.refs {
				if ref.Path() == q.other {
					all = append(all, linkElement{fmt.Sprintf(`{"linkRecord":%s,"otherSubject":%q}`, row.json(), ref.Subject()), linkPosition{row.event, i}})
				}
			}
		}
	case pathOtherCounts:
		all = groupLinks(visible, q.other)
	}
	if q.newestFirst() {
		slices.Reverse(all)
	}
	return all
}

// groupLinks groups rows by the first subject that they have at a path.
func groupLinks(rows []*linkRow, path string) (all []linkElement) {
	groups := map[string][]*linkRow{}
	for _, row := range rows {
		if i := slices.IndexFunc(row.refs, func(ref relaysim.Reference) bool { return ref.Path() == path }); i >= 0 {
			groups[row.refs[i].Subject()] = append(groups[row.refs[i].Subject()], row)
		}
	}
	for subject, group := range groups {
		all = append(all, linkElement{fmt.Sprintf(`{"subject":%q,"total":%d,"distinct":%d}`, subject, len(group), distinctDIDs(group)),
			linkPosition{group[0].event, 0}})
	}
	slices.SortFunc(all, func(a, b linkElement) int { return a.position.compare(b.position) })
	return all
}

func distinctDIDs(rows []*linkRow) int {
	seen := map[string]bool{}
	for _, row := range rows {
		seen[row.did] = true
	}
	return len(seen)
}

// between is what a count may be: deleted accounts leave it when they are swept.
type between struct{ least, most int }

func (b between) has(n int) bool { return b.least <= n && n <= b.most }

// counts returns how many records and accounts link.
func (w *linkWorld) counts(set linkSet, dids []string, exact bool) (records, accounts between) {
	rows := w.linking(w.rows, set, dids)
	records, accounts = between{len(rows), len(rows)}, between{distinctDIDs(rows), distinctDIDs(rows)}
	if !exact {
		rows = append(rows, w.linking(w.swept, set, dids)...)
		records.most, accounts.most = len(rows), distinctDIDs(rows)
	}
	return records, accounts
}

// compare compares an answer with what must be answered after the events so far, and notes where
// its list ends. exact says that deleted accounts are swept.
func (w *linkWorld) compare(p *linkPage, exact bool) error {
	if err := w.differs(p, exact); err != nil {
		return fmt.Errorf("%s?%s, page after %+v: %w\n%.3000s", p.path, p.values().Encode(), p.before.end(), err, p.body)
	}
	return nil
}

// end is where the next page begins.
func (p *linkPage) end() linkPosition {
	if p == nil {
		return linkPosition{}
	}
	return p.last
}

func (w *linkWorld) differs(p *linkPage, exact bool) error {
	if p.path == pathAll || p.path == pathAllCounts {
		return w.differAll(p, exact)
	}
	records, accounts := w.counts(p.set, p.dids, exact)
	total := records
	switch p.path {
	case pathDIDs, pathOldDIDs, pathDIDCount:
		total = accounts
	case pathItems, pathOtherCounts:
		total = between{0, -1} // it has none
	}
	if hasTotal := p.answer.Total != nil; hasTotal != (total.most >= 0) || hasTotal && !total.has(*p.answer.Total) {
		return fmt.Errorf("the total is not %+v", total)
	}
	if !p.lists() {
		return nil
	}
	all := w.elements(p.linkRequest)
	if p.before != nil {
		at, newest := p.before.last, p.newestFirst()
		all = slices.DeleteFunc(all, func(e linkElement) bool {
			c := e.position.compare(at)
			return newest && c >= 0 || !newest && c <= 0
		})
	}
	page := all[:min(len(all), p.limit)]
	got := p.answer.list()
	for i, e := range page {
		if i == len(got) || got[i] != e.json {
			return fmt.Errorf("element %d is not %s", i, e.json)
		}
	}
	if len(got) > len(page) || (p.answer.Cursor != nil) != (len(all) > len(page)) {
		return fmt.Errorf("%d elements are not %d of %d", len(got), len(page), len(all))
	}
	if p.last = p.before.end(); len(page) > 0 {
		p.last = page[len(page)-1].position
	}
	return nil
}

// newestFirst says in which order the list is.
func (q *linkRequest) newestFirst() bool {
	return !q.reverse && q.path != pathItems && q.path != pathOtherCounts
}

// differAll compares the counts of all sources of a subject.
func (w *linkWorld) differAll(p *linkPage, exact bool) error {
	sources := map[string]bool{}
	for uri := range w.naming[p.set.subject] {
		for _, rows := range []map[string]*linkRow{w.rows, w.swept} {
			if row := rows[uri]; row != nil {
				for _, ref := range row.refs {
					sources[row.collection+":"+ref.Path()] = true
				}
			}
		}
	}
	answered := 0
	for source := range sources {
		records, accounts := w.counts(linkSet{source, p.set.subject}, nil, exact)
		collection, path, _ := strings.Cut(source, ":")
		raw := p.answer.Links[collection]["."+path]
		if raw != nil {
			answered++
		}
		var both struct {
			Records int
			DIDs    int `json:"distinct_dids"`
		}
		if raw != nil && p.path == pathAllCounts {
			if err := json.Unmarshal(raw, &both.Records); err != nil {
				return err
			}
			both.DIDs = max(accounts.least, min(both.Records, accounts.most)) // not answered
		} else if raw != nil {
			if err := json.Unmarshal(raw, &both); err != nil {
				return err
			}
		}
		if !records.has(both.Records) || !accounts.has(both.DIDs) || raw != nil && both.Records == 0 {
			return fmt.Errorf("%s: counts are not %+v, %+v", source, records, accounts)
		}
	}
	for _, paths := range p.answer.Links {
		answered -= len(paths)
	}
	if answered != 0 {
		return fmt.Errorf("%d sources link that should not", -answered)
	}
	return nil
}

// logPlaces returns what says how many events of a log are up to a position. ok is false if the log
// has none of its stream.
func logPlaces(log []truthEvent, seen *streams) func(translate.Position) (events int, ok bool) {
	type run struct{ from, to int }
	runs := map[translate.Stream]run{}
	for i := range log {
		tag := seen.tag(log[i].Epoch)
		r, ok := runs[tag]
		if !ok {
			r.from = i
		}
		r.to = i + 1
		runs[tag] = r
	}
	return func(p translate.Position) (int, bool) {
		r, ok := runs[p.Stream]
		return r.from + sort.Search(r.to-r.from, func(i int) bool { return log[r.from+i].Seq > p.Seq }), ok
	}
}
