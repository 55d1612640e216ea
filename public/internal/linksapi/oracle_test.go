package linksapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The oracle: the same answers from the strings, whole instead of by the page. A list's element is
// its JSON.

type ask struct {
	subject, source, other string
	dids, others           []string // nil: all
	reverse                bool
}

// linking returns the records that answer q, the oldest first.
func (w *world) linking(q ask) (all []*linking) {
	collection, path, _ := strings.Cut(q.source, ":")
	for _, l := range w.records {
		if l.collection == collection && slices.Contains(l.refs, reference{path, q.subject}) && (q.dids == nil || slices.Contains(q.dids, l.did)) {
			all = append(all, l)
		}
	}
	return all
}

func (w *world) active(all []*linking) []*linking {
	return slices.DeleteFunc(slices.Clone(all), func(l *linking) bool { return w.inactive[l.did] })
}

func (l *linking) json() string {
	return `{"did":"` + l.did + `","collection":"` + l.collection + `","rkey":"` + l.rkey + `"}`
}

// element is one of a list.
type element struct {
	json string
	id
}

// id identifies an element in two answers, also if its counts in JSON differ.
type id struct {
	name    string
	arrival uint64 // of its record, or its first one
}

func (w *world) wantRecords(q ask) (all []element, total int) {
	found := w.linking(q)
	for _, l := range w.active(found) {
		all = append(all, element{l.json(), id{l.uri(), l.arrival}})
	}
	if !q.reverse {
		slices.Reverse(all)
	}
	return all, len(found)
}

func (w *world) wantDIDs(q ask) (all []element, total int) {
	seen := map[string]bool{}
	for _, l := range w.linking(q) {
		if !seen[l.did] && !w.inactive[l.did] {
			all = append(all, element{`"` + l.did + `"`, id{l.did, l.arrival}})
		}
		seen[l.did] = true
	}
	slices.Reverse(all)
	return all, len(seen)
}

// otherSubjects returns what a record refers to at the other path.
func (q *ask) otherSubjects(l *linking) (subjects []string) {
	for _, r := range l.refs {
		if r.path == q.other && (q.others == nil || slices.Contains(q.others, r.subject)) {
			subjects = append(subjects, r.subject)
		}
	}
	return subjects
}

func (w *world) wantItems(q ask) (all []element, total int) {
	for _, l := range w.active(w.linking(q)) {
		for _, s := range q.otherSubjects(l) {
			all = append(all, element{`{"linkRecord":` + l.json() + `,"otherSubject":"` + s + `"}`, id{l.uri() + s, l.arrival}})
		}
	}
	return all, 0
}

func (w *world) wantCounts(q ask) (all []element, total int) {
	groups := map[string][]*linking{}
	for _, l := range w.active(w.linking(q)) {
		if s := q.otherSubjects(l); len(s) > 0 {
			groups[s[0]] = append(groups[s[0]], l)
		}
	}
	for s, group := range groups {
		dids := map[string]bool{}
		for _, l := range group {
			dids[l.did] = true
		}
		json := fmt.Sprintf(`{"subject":"%s","total":%d,"distinct":%d}`, s, len(group), len(dids))
		all = append(all, element{json, id{s, group[0].arrival}})
	}
	slices.SortFunc(all, func(a, b element) int { return cmp.Compare(a.arrival, b.arrival) })
	return all, 0
}
