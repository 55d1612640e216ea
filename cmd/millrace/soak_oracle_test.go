package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/dict"
	"millrace/translate"
)

// numbering reports which of a soak's numberings a seq is of.
func numbering(seq int64) int64 { return seq / soakNumberings }

// check reads the log from its beginning, or takes what was seen of it where its beginning was
// trimmed, and holds it against the truth. It returns both, and the log's gaps.
func (r *round) check() (truth, log []truthEvent, gaps []soakGap) {
	t := r.t
	truth = slices.DeleteFunc(readTruth(t, r.sim.truth), func(e truthEvent) bool { return r.losses.abandoned[e.Epoch] })
	c, err := r.cursors()
	if err != nil {
		t.Fatal(err)
	}
	if r.plan.trims {
		log = r.watchers[0].seenThrough(t, c.Newest.Cursor)
	} else {
		log = r.readThrough(c.Newest.Cursor)
	}
	if r.plan.references {
		checkReferences(t, "the log", log)
	}
	checkLosses(t, log, truth, c.Gaps, r.losses)
	checkUIDs(t, log)
	r.total.add("events checked, the log against the truth", len(log))
	return truth, log, c.Gaps
}

// readThrough reads the log with cursor=0 through the newest event.
func (r *round) readThrough(newest string) []truthEvent {
	t := r.t
	t.Helper()
	s := subscribe(t, r.addr, "extended=true&cursor=0&wantedKinds="+allKinds+"&references="+strconv.FormatBool(r.plan.references))
	defer s.conn.Close()
	var out []truthEvent
	for {
		msg, err := s.next(patience)
		if err != nil {
			t.Fatalf("the log ends after %d events: %v", len(out), err)
		}
		if !isEvent(msg) {
			continue
		}
		out = append(out, r.seen.parse(t, string(msg)))
		if nextCursor(msg) == newest {
			break
		}
	}
	if msg, err := s.next(100 * time.Millisecond); err == nil && isEvent(msg) {
		t.Fatalf("an event after the newest one: %.300s", msg)
	}
	return out
}

// span is a run of the truth, [from, to), that may be missing according to a gap.
type span struct {
	from, to int
	renumber bool // it lies between two numberings
}

// checkLosses makes sure that the log is the truth but for what the relay lost, and that all of
// that lies in gaps. It also checks that nothing of what a gap spans is there.
func checkLosses(t *testing.T, log, truth []truthEvent, gaps []soakGap, lost losses) {
	t.Helper()
	spans := gapSpans(t, truth, gaps)
	epochOf, streamOf := map[int]int{}, map[int]int{}
	next, lastUS := 0, int64(0)
	for i, w := range truth {
		in := slices.IndexFunc(spans, func(s span) bool { return s.from <= i && i < s.to })
		if next < len(log) && log[next].Seq == w.Seq && log[next].Op == w.Op {
			g := log[next]
			if g.JSON != w.JSON {
				t.Fatalf("the log: %s is\n%s\nwant\n%s", g.place(), g.JSON, w.JSON)
			}
			if in >= 0 {
				t.Fatalf("the log: %s is there, though the gap %v spans it", g.place(), gaps[in])
			}
			if g.TimeUS <= lastUS {
				t.Fatalf("the log: %s has time_us %d after %d", g.place(), g.TimeUS, lastUS)
			}
			lastUS = g.TimeUS
			if e, ok := epochOf[g.Epoch]; ok && e != w.Epoch {
				t.Fatalf("the log: %s has the stream of truth's epoch %d, not %d", g.place(), e, w.Epoch)
			}
			if s, ok := streamOf[w.Epoch]; ok && s != g.Epoch {
				t.Fatalf("the log: truth's epoch %d is in two streams", w.Epoch)
			}
			epochOf[g.Epoch], streamOf[w.Epoch] = w.Epoch, g.Epoch
			next++
			continue
		}
		switch {
		case in < 0:
			t.Fatalf("the log: %s is missing, and no gap says so; the log goes on with %s", w.place(), placeAt(log, next))
		case !spans[in].renumber && w.Seq > lost.through[numbering(w.Seq)]:
			t.Fatalf("the log: %s is missing in the gap %v, but the relay still had it", w.place(), gaps[in])
		}
	}
	if next < len(log) {
		t.Fatalf("the log: %s is doubled, out of order or nowhere in the truth (after %s): %.300s",
			log[next].place(), placeAt(log, next-1), log[next].JSON)
	}
}

func placeAt(events []truthEvent, i int) string {
	if i < 0 || i >= len(events) {
		return "nothing"
	}
	return events[i].place()
}

// gapSpans finds what of the truth each gap spans.
func gapSpans(t *testing.T, truth []truthEvent, gaps []soakGap) []span {
	t.Helper()
	runs := map[int64][]int{} // the truth's events of each numbering
	for i, e := range truth {
		runs[numbering(e.Seq)] = append(runs[numbering(e.Seq)], i)
	}
	var spans []span
	for _, g := range gaps {
		from, err1 := translate.ParsePosition(g.From)
		to, err2 := translate.ParsePosition(g.To)
		if err1 != nil || err2 != nil {
			t.Fatalf("gap %v: %v, %v", g, err1, err2)
		}
		s := span{renumber: from.Stream != to.Stream}
		a, b := runs[numbering(from.Seq)], runs[numbering(to.Seq)]
		if n := sort.Search(len(a), func(i int) bool { return truth[a[i]].Seq > from.Seq }); n < len(a) {
			s.from = a[n]
		} else if len(a) > 0 {
			s.from = a[len(a)-1] + 1
		}
		if n := sort.Search(len(b), func(i int) bool { return truth[b[i]].Seq >= to.Seq }); n < len(b) {
			s.to = b[n]
		} else if len(b) > 0 {
			s.to = b[len(b)-1] + 1
		}
		spans = append(spans, s)
	}
	return spans
}

// eventFacts are what filters look at.
type eventFacts struct {
	DID    string
	Kind   string
	Commit struct{ Collection string }
}

func factsOf(t *testing.T, events []truthEvent) []eventFacts {
	t.Helper()
	facts := make([]eventFacts, len(events))
	for i, e := range events {
		fromJSON(t, e.JSON, &facts[i])
	}
	return facts
}

// wants is a subscriber's filter, as the v1 contract has it.
type soakFilter struct {
	collections []string
	dids        []string
	kinds       []string
}

func (f soakFilter) values() url.Values {
	q := url.Values{"wantedCollections": f.collections, "wantedDids": f.dids}
	if f.kinds != nil {
		q.Set("wantedKinds", strings.Join(f.kinds, ","))
	}
	return q
}

func (f soakFilter) match(e eventFacts) bool {
	if f.kinds == nil && e.Kind == "sync" {
		return false
	}
	if len(f.kinds) > 0 && !slices.Contains(f.kinds, e.Kind) || len(f.dids) > 0 && !slices.Contains(f.dids, e.DID) {
		return false
	}
	if e.Kind != "commit" || len(f.collections) == 0 {
		return true
	}
	return slices.ContainsFunc(f.collections, func(c string) bool {
		if prefix, ok := strings.CutSuffix(c, "*"); ok {
			return strings.HasPrefix(e.Commit.Collection, prefix)
		}
		return c == e.Commit.Collection
	})
}

// apply returns the events that pass.
func (f soakFilter) apply(events []truthEvent, facts []eventFacts) []truthEvent {
	out := make([]truthEvent, 0, len(events))
	for i, e := range events {
		if f.match(facts[i]) {
			out = append(out, e)
		}
	}
	return out
}

// asServed is how an event without the extensions compares: it has no place and no UIDs.
func asServed(events []truthEvent, extended bool) []truthEvent {
	if extended {
		return events
	}
	plain := make([]truthEvent, len(events))
	for i, e := range events {
		plain[i] = truthEvent{TimeUS: e.TimeUS, JSON: e.JSON}
	}
	return plain
}

// sameEvents is nil if got is want; it names the first difference otherwise.
func sameEvents(got, want []truthEvent) error {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("event %d of %d is\n%+v\nwant\n%+v", i, len(want), got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d events, want %d", len(got), len(want))
	}
	return nil
}

// soakDecode decompresses what subscribers get.
func soakDecode(t *testing.T) func([]byte) ([]byte, error) {
	t.Helper()
	d, err := dict.NewDecoder(16<<20, append(dict.Shipped(), soakDictionary(t), jetstreams(t))...)
	if err != nil {
		t.Fatal(err)
	}
	return func(b []byte) ([]byte, error) { return d.Append(nil, b) }
}

// soakReplays is how many replays of each log are checked.
const soakReplays = 24

// replays reads the log in every variant, through filters of every kind, from cursors of both kinds
// at random places. It compares each with the log.
func (r *round) replays(log []truthEvent) {
	facts, decode := factsOf(r.t, log), soakDecode(r.t)
	dictionaries := []string{"", strconv.Itoa(dict.JetstreamID), strconv.Itoa(dict.BuiltInID)}
	if r.plan.dictionary {
		dictionaries = append(dictionaries, strconv.Itoa(soakDictionaryID))
	}
	for range soakReplays {
		at := r.rng.IntN(len(log))
		cursor, from := soakCursor(r.rng, &r.seen, log, at)
		extended, dictionary := r.rng.IntN(2) == 0, dictionaries[r.rng.IntN(len(dictionaries))]
		filter := soakFilterAt(r.rng, facts)
		q := filter.values()
		q.Set("cursor", cursor)
		q.Set("extended", strconv.FormatBool(extended))
		if r.plan.references && extended {
			q.Set("references", "true")
		}
		// the stored one, or one that blocks are compressed with on demand
		q.Set("zstdDictionary", dictionary)
		s := subscribe(r.t, r.addr, q.Encode())
		if dictionary != "" {
			s.decode = decode
		}
		want := asServed(filter.apply(log[from:], facts[from:]), extended)
		var got []truthEvent
		for {
			wait := patience
			if len(got) >= len(want) {
				wait = 30 * time.Millisecond
			}
			msg, err := s.next(wait)
			if err != nil {
				break
			}
			if isEvent(msg) {
				got = append(got, r.seen.parse(r.t, string(msg)))
			}
		}
		s.conn.Close()
		if err := sameEvents(got, want); err != nil {
			r.t.Fatalf("replay %.300s (event %d of the log): %v", q.Encode(), from, err)
		}
		r.total.add("replays checked", 1)
		r.total.add("events checked, replayed", len(got))
	}
	r.lookUps(log)
}

// soakCursor returns a cursor at or just beside event at, and the index of the event that comes
// first.
func soakCursor(rng *rand.Rand, seen *streams, log []truthEvent, at int) (cursor string, from int) {
	e := log[at]
	switch rng.IntN(6) {
	case 0:
		return "0", 0
	case 1: // inclusive
		return strconv.FormatInt(e.TimeUS, 10), at
	case 2: // between two events
		cursor, from = strconv.FormatInt(e.TimeUS-1, 10), at
		if at > 0 && log[at-1].TimeUS == e.TimeUS-1 {
			from = at - 1
		}
		return cursor, from
	case 3: // the whole frame and more of it than there is
		for from = at; from < len(log) && log[from].Epoch == e.Epoch && log[from].Seq == e.Seq; from++ {
		}
		return translate.Position{Stream: seen.tag(e.Epoch), Seq: e.Seq, Op: 1 << 20}.String(), from
	default: // exclusive
		return e.position(seen).String(), at + 1
	}
}

// tag is the stream that has that number.
func (s *streams) tag(n int) translate.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tag, have := range s.tags {
		if have == n {
			return tag
		}
	}
	return 0
}

// soakFilterAt draws a filter that something passes.
func soakFilterAt(rng *rand.Rand, facts []eventFacts) (f soakFilter) {
	some := func() eventFacts { return facts[rng.IntN(len(facts))] }
	if rng.IntN(2) == 0 {
		for range 1 + rng.IntN(3) {
			switch c := some().Commit.Collection; {
			case c == "":
			case rng.IntN(3) == 0:
				f.collections = append(f.collections, c[:strings.LastIndexByte(c, '.')]+".*")
			default:
				f.collections = append(f.collections, c)
			}
		}
	}
	if rng.IntN(3) == 0 {
		for range 1 + rng.IntN(50) {
			f.dids = append(f.dids, some().DID)
		}
	}
	if rng.IntN(3) == 0 {
		f.kinds = [][]string{{"commit"}, {"identity", "account"}, {"account"}, {"commit", "identity"}, {"sync"}, strings.Split(allKinds, ",")}[rng.IntN(6)]
	}
	return f
}

// lookUps asks for UIDs both ways and compares them with the log's.
func (r *round) lookUps(log []truthEvent) {
	facts := factsOf(r.t, log)
	for range 10 {
		i := r.rng.IntN(len(log))
		for _, path := range []string{"/uid?did=" + url.QueryEscape(facts[i].DID), "/uid/" + log[i].DID} {
			resp, err := http.Get("http://" + r.addr + path)
			if err != nil {
				r.t.Fatal(err)
			}
			var answer struct{ UID, DID string }
			err = json.NewDecoder(resp.Body).Decode(&answer)
			resp.Body.Close()
			if err != nil || answer.UID != log[i].DID || answer.DID != facts[i].DID {
				r.t.Fatalf("%s: %s, %+v, %v; the log has %s for %s", path, resp.Status, answer, err, log[i].DID, facts[i].DID)
			}
		}
	}
}
