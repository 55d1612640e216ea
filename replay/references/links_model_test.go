package references_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/consume/relaysim/testwait"
	"millrace/replay/links"
	"millrace/replay/references"
)

// TestLinksModel compares all answers of links with what the rows say, after each step of the
// model. Steps are crashes, restarts, sweeps, generations, and links that are off for a while.
func TestLinksModel(t *testing.T) {
	seeds := []uint64{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}
	if v, err := strconv.ParseUint(os.Getenv("MILLRACE_TEST_SEED"), 10, 64); err == nil {
		seeds = []uint64{v}
	}
	if testwait.Race {
		seeds = seeds[:1]
	}
	compared, pages, recents := 0, 0, 0
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("MILLRACE_TEST_SEED=%d", seed)
			w := &linksWorld{t: t, rng: rand.New(rand.NewPCG(seed, 4))}
			references.RunLinksModel(t, seed, w.compare)
			compared, pages, recents = compared+w.compared, pages+w.pages, recents+w.recents
		})
	}
	if len(seeds) > 1 && (compared < 40 || pages < 400 || recents < 100) {
		t.Errorf("links were compared %d times, with %d pages, %d sets of recent links", compared, pages, recents)
	}
}

// linksWorld compares views with rows.
type linksWorld struct {
	t        *testing.T
	rng      *rand.Rand
	compared int
	pages    int
	recents  int // sets with recent links

	view links.View
	rows []references.Row // that are visible, by arrival number
}

func (w *linksWorld) compare(s *references.Store, visible, rows []references.Row) {
	index := links.New(s)
	v, err := index.View()
	if errors.Is(err, links.ErrBuilding) && !index.Progress().Complete {
		return
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer v.Close()
	if v.Position() != s.Position() {
		w.t.Fatalf("the view is at %v, the store at %v", v.Position(), s.Position())
	}
	w.view, w.rows = v, visible
	slices.SortFunc(w.rows, func(a, b references.Row) int { return cmp.Compare(a.Arrival, b.Arrival) })
	w.compared++
	all := make(map[links.Set]map[uint64]uint64) // accounts by arrival number
	for _, r := range rows {
		for _, ref := range r.References {
			set := links.Set{Path: ref.Path, Subject: ref.Subject}
			if all[set] == nil {
				all[set] = make(map[uint64]uint64)
			}
			all[set][r.Arrival] = r.Account
		}
	}
	w.counts(all)
	w.linked(rows)
	w.recent(all, s.Recent())
	if w.compared%8 == 0 {
		if report, err := links.Verify(w.t.Context(), s, nil); err != nil || !report.Sound() {
			w.t.Fatalf("verify: %+v, %v", report, err)
		}
	}
	sets := slices.SortedFunc(maps.Keys(all), func(a, b links.Set) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Subject, b.Subject))
	})
	sets = append(sets, links.Set{Path: 77, Subject: 1})
	for _, set := range sets {
		w.records(set, nil, len(all[set]))
		w.accounts(set, distinct(all[set]))
		w.others(set)
		var some []uint64
		total := 0
		for _, r := range rows {
			if w.rng.IntN(4) == 0 { // an account may be named twice
				some = append(some, r.Account)
			}
		}
		for _, account := range all[set] {
			if slices.Contains(some, account) {
				total++
			}
		}
		w.records(set, append([]uint64{}, some...), total)
	}
}

func distinct(accounts map[uint64]uint64) int {
	seen := make(map[uint64]bool)
	for _, a := range accounts {
		seen[a] = true
	}
	return len(seen)
}

func (w *linksWorld) equal(what string, want, got any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		w.t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func (w *linksWorld) counts(all map[links.Set]map[uint64]uint64) {
	w.t.Helper()
	sources := make(map[uint64][]links.Source)
	for path := range uint32(4) {
		for set, accounts := range all {
			c := links.Counts{Records: uint64(len(accounts)), Accounts: uint64(distinct(accounts))}
			if set.Path == path {
				sources[set.Subject] = append(sources[set.Subject], links.Source{Path: path, Counts: c})
				got, err := w.view.Count(w.t.Context(), set)
				w.equal(fmt.Sprint("count of ", set), c, got, err)
				records, err := w.view.CountRecords(w.t.Context(), set)
				w.equal(fmt.Sprint("records of ", set), c.Records, records, err)
			}
		}
	}
	for subject, want := range sources {
		got, err := w.view.Sources(w.t.Context(), subject)
		w.equal(fmt.Sprintf("sources of %x", subject), want, got, err)
	}
}

// linked compares the AT URIs that each account links to.
func (w *linksWorld) linked(rows []references.Row) {
	w.t.Helper()
	of := make(map[uint64]int) // rows, of each account
	for _, r := range rows {
		of[r.Account]++
	}
	of[1<<40]++ // an account without rows
	for account, most := range of {
		for path := range uint32(4) {
			var want []uint64
			for _, r := range w.rows {
				for _, ref := range r.References {
					if r.Account == account && ref.Path == path && ref.Subject != ref.Authority {
						want = append(want, ref.Subject)
					}
				}
			}
			got, err := w.view.Linked(w.t.Context(), account, path, most)
			slices.Sort(want)
			slices.Sort(got)
			w.equal(fmt.Sprintf("what %x links to from %d", account, path), want, got, err)
		}
		if _, err := w.view.Linked(w.t.Context(), account, 0, most-1); len(w.rows) > 0 && most > 1 &&
			slices.ContainsFunc(w.rows, func(r references.Row) bool { return r.Account == account }) && !errors.Is(err, links.ErrTooLarge) {
			w.t.Fatalf("%d rows, of which %d are allowed: %v", most, most-1, err)
		}
	}
}

// recent compares the sets with most recent links.
func (w *linksWorld) recent(all map[links.Set]map[uint64]uint64, recent references.Recent) {
	w.t.Helper()
	var want []links.RecentCount
	for set, accounts := range all {
		c := links.RecentCount{Set: set}
		for arrival := range accounts {
			if recent.From > 0 && arrival >= recent.From {
				c.Records++
			}
		}
		if c.Records > 0 {
			want = append(want, c)
		}
	}
	slices.SortFunc(want, func(a, b links.RecentCount) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Path, b.Path))
	})
	for _, c := range want {
		most := recent.Others
		for _, r := range recent.Sets {
			if c.Path == r.Path && c.Subject == r.Subject {
				most = r.AtMost
			}
		}
		if c.Records > most {
			w.t.Fatalf("%+v is in %+v", c, recent)
		}
	}
	limit := 1 + w.rng.IntN(4)
	got, err := w.view.MostLinked(w.t.Context(), limit)
	least := uint64(0)
	if len(want) > limit {
		least = want[limit].Records
		want = want[:limit]
	}
	counts := func(all []links.RecentCount) (n []uint64) { // of sets with as many links any may be left out
		for _, c := range all {
			n = append(n, c.Records)
		}
		return n
	}
	w.equal("most linked", counts(want), counts(got.Sets), err)
	if got.Others < least || len(want) == limit && got.Others > want[limit-1].Records || got.Since != recent.Since {
		w.t.Fatalf("most linked: %+v; others have %d", got, least)
	}
	w.recents += len(want)
	for _, c := range got.Sets {
		n := uint64(0)
		for arrival := range all[c.Set] {
			if arrival >= recent.From {
				n++
			}
		}
		if n != c.Records {
			w.t.Fatalf("%+v has %d recent links", c, n)
		}
	}
}

// has says whether a row is in a set.
func has(r *references.Row, set links.Set) bool {
	return slices.ContainsFunc(r.References, func(ref references.Reference) bool { return ref.Path == set.Path && ref.Subject == set.Subject })
}

// records compares the pages of a set, of some accounts or of all.
func (w *linksWorld) records(set links.Set, accounts []uint64, total int) {
	w.t.Helper()
	var want []links.Link
	for i := range w.rows {
		if r := &w.rows[i]; has(r, set) && (accounts == nil || slices.Contains(accounts, r.Account)) {
			want = append(want, links.Link{Arrival: r.Arrival, Account: r.Account, Record: r.Record})
		}
	}
	page := links.Page{Accounts: accounts, Limit: 1 + w.rng.IntN(5), Reverse: w.rng.IntN(2) == 0}
	if !page.Reverse {
		slices.Reverse(want)
	}
	var got []links.Link
	for first := true; first || page.Cursor != 0; first = false {
		r, err := w.view.Records(w.t.Context(), set, page)
		if err != nil || r.Total != uint64(total) || len(r.Links) > page.Limit || r.Next != 0 && len(r.Links) < page.Limit {
			w.t.Fatalf("page %+v of %v: %+v, %v; want a total of %d", page, set, r, err, total)
		}
		got = append(got, r.Links...)
		page.Cursor = r.Next
		w.pages++
	}
	w.equal(fmt.Sprintf("records of %v with %+v", set, page), want, got, nil)
}

// accounts compares the pages of accounts.
func (w *linksWorld) accounts(set links.Set, total int) {
	w.t.Helper()
	var want []uint64
	for i := range w.rows {
		if r := &w.rows[i]; has(r, set) && !slices.Contains(want, r.Account) {
			want = append(want, r.Account)
		}
	}
	page := links.Page{Limit: 1 + w.rng.IntN(3), Reverse: w.rng.IntN(2) == 0}
	if !page.Reverse {
		slices.Reverse(want)
	}
	var got []uint64
	for first := true; first || page.Cursor != 0; first = false {
		a, err := w.view.Accounts(w.t.Context(), set, page)
		if err != nil || a.Total != uint64(total) || len(a.Accounts) > page.Limit {
			w.t.Fatalf("accounts %+v of %v: %+v, %v; want a total of %d", page, set, a, err, total)
		}
		got = append(got, a.Accounts...)
		page.Cursor = a.Next
	}
	w.equal(fmt.Sprintf("accounts of %v with %+v", set, page), want, got, nil)
}

// others compares what records have beside a subject, and its counts.
func (w *linksWorld) others(set links.Set) {
	w.t.Helper()
	q := links.OthersQuery{Set: set, OtherPath: w.rng.Uint32N(3), Limit: 1 + w.rng.IntN(4)}
	if w.rng.IntN(3) == 0 && len(w.rows) > 0 {
		q.Accounts = []uint64{w.rows[0].Account}
	}
	if w.rng.IntN(3) == 0 {
		q.Others = []uint64{set.Subject}
	}
	var want []links.Other
	var counts []links.OtherCount
	linking := make(map[uint64]map[uint64]bool)
	for i := range w.rows {
		r := &w.rows[i]
		if !has(r, set) || q.Accounts != nil && !slices.Contains(q.Accounts, r.Account) {
			continue
		}
		first := true
		for _, ref := range r.References {
			if ref.Path != q.OtherPath || q.Others != nil && !slices.Contains(q.Others, ref.Subject) {
				continue
			}
			want = append(want, links.Other{Link: links.Link{Arrival: r.Arrival, Account: r.Account, Record: r.Record}, Subject: ref.Subject, IsDID: ref.Subject == ref.Authority})
			if !first {
				continue
			}
			first = false
			at := slices.IndexFunc(counts, func(c links.OtherCount) bool { return c.Subject == ref.Subject })
			if at < 0 {
				at = len(counts)
				counts = append(counts, links.OtherCount{Subject: ref.Subject})
				linking[ref.Subject] = make(map[uint64]bool)
			}
			linking[ref.Subject][r.Account] = true
			counts[at].Records++
			counts[at].Counts.Accounts = uint64(len(linking[ref.Subject]))
		}
	}
	var items []links.Other
	var groups []links.OtherCount
	for first := true; first || q.Cursor != (links.OthersCursor{}); first = false {
		o, err := w.view.Others(w.t.Context(), q)
		if err != nil || len(o.Items) > q.Limit {
			w.t.Fatalf("%+v: %+v, %v", q, o, err)
		}
		items = append(items, o.Items...)
		q.Cursor = o.Next
	}
	for first := true; first || q.Cursor != (links.OthersCursor{}); first = false {
		o, err := w.view.OtherCounts(w.t.Context(), q)
		if err != nil || len(o.Counts) > q.Limit {
			w.t.Fatalf("%+v: %+v, %v", q, o, err)
		}
		groups = append(groups, o.Counts...)
		q.Cursor = o.Next
	}
	w.equal(fmt.Sprintf("others with %+v", q), want, items, nil)
	w.equal(fmt.Sprintf("counts of others with %+v", q), counts, groups, nil)
}
