package references_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/links"
	"millrace/replay/references"
)

// viewOf applies a batch, and returns a view of what the store then has.
func viewOf(t *testing.T, s *references.Store, b *references.Batch) links.View {
	t.Helper()
	if err := errors.Join(s.Hydrate(t.Context(), b), s.Apply(b)); err != nil {
		t.Fatal(err)
	}
	v, err := links.New(s).View()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v
}

// TestListedAtFirstLink: an account comes at its first link to a subject, the newest first.
func TestListedAtFirstLink(t *testing.T) {
	s := emptyIn(t, vfs.NewMem())
	b := references.Batch{Position: references.Position{Epoch: 1, Seq: 3}}
	for i, account := range []uint64{1, 2, 1} {
		b.Changes = append(b.Changes, references.Change{Operation: references.Create, Seq: int64(i) + 1, Rev: uint64(i) + 1,
			Account: account, Record: 10 + uint64(i), References: []references.Reference{{Path: 1, Subject: 7, Authority: 7}}})
	}
	v := viewOf(t, s, &b)
	for reverse, want := range map[bool][]uint64{false: {2, 1}, true: {1, 2}} {
		a, err := v.Accounts(t.Context(), links.Set{Path: 1, Subject: 7}, links.Page{Limit: 5, Reverse: reverse})
		if err != nil || !slices.Equal(a.Accounts, want) {
			t.Errorf("reverse %t: %v, %v; want %v", reverse, a.Accounts, err, want)
		}
	}
}

// TestPagesAreBounded: a page looks at 10,000 links, and what is listed after them is on the next.
// So that they count and are not listed, account 2 makes 10,001 links after that of account 1.
func TestPagesAreBounded(t *testing.T) {
	const looked = 10_000
	s := emptyIn(t, vfs.NewMem())
	seq := int64(0)
	apply := func(changes ...references.Change) {
		for i := range changes {
			seq++
			changes[i].Seq, changes[i].Rev, changes[i].TimeUS = seq, uint64(seq), seq
		}
		b := references.Batch{Position: references.Position{Epoch: 1, Seq: seq}, Changes: changes}
		if err := s.Hydrate(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(&b); err != nil {
			t.Fatal(err)
		}
	}
	create := func(account, record, other uint64) references.Change {
		return references.Change{Operation: references.Create, Account: account, Record: record, References: []references.Reference{
			{Path: 1, Subject: 7, Authority: 7}, {Path: 2, Subject: other, Authority: other}}}
	}
	apply(create(1, 100, 8))
	var many []references.Change
	for i := range uint64(looked) {
		many = append(many, create(2, 1000+i, 8))
	}
	apply(many...)
	apply(create(2, 99, 9))
	set := links.Set{Path: 1, Subject: 7}
	view := func() links.View {
		v, err := links.New(s).View()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = v.Close() })
		return v
	}

	v := view()
	first, err := v.Accounts(t.Context(), set, links.Page{Limit: 5})
	if err != nil || first.Total != 2 || len(first.Accounts) != 0 || first.Next == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := v.Accounts(t.Context(), set, links.Page{Limit: 5, Cursor: first.Next})
	if err != nil || !slices.Equal(second.Accounts, []uint64{2, 1}) || second.Next != 0 {
		t.Errorf("after %d: %+v, %v", first.Next, second, err)
	}
	whole, err := v.Accounts(t.Context(), set, links.Page{Limit: 2 * looked})
	if err != nil || !slices.Equal(whole.Accounts, []uint64{2, 1}) || whole.Next != 0 {
		t.Errorf("a page that may be longer: %+v, %v", whole, err)
	}

	q := links.OthersQuery{Set: set, OtherPath: 2, Others: []uint64{9}, Limit: 5}
	others, err := v.Others(t.Context(), q)
	if err != nil || len(others.Items) != 0 || others.Next.Arrival != looked {
		t.Fatalf("%+v, %v", others, err)
	}
	q.Cursor = others.Next
	others, err = v.Others(t.Context(), q)
	if err != nil || len(others.Items) != 1 || others.Items[0].Record != 99 || others.Next != (links.OthersCursor{}) {
		t.Errorf("%+v, %v", others, err)
	}

	apply(references.Change{Operation: references.Deactivate, Account: 2})
	v = view()
	records, err := v.Records(t.Context(), set, links.Page{Limit: 5})
	if err != nil || records.Total != looked+2 || len(records.Links) != 0 || records.Next == 0 {
		t.Fatalf("%+v, %v", records, err)
	}
	records, err = v.Records(t.Context(), set, links.Page{Limit: 5, Cursor: records.Next})
	if err != nil || len(records.Links) != 1 || records.Links[0].Record != 100 || records.Next != 0 {
		t.Errorf("%+v, %v", records, err)
	}
}

// TestChunkIsReadOnce: a page of one account's links to a large set reads a chunk once, not for
// each link. Reading one allocates.
func TestChunkIsReadOnce(t *testing.T) {
	const all = 2_500
	s := emptyIn(t, vfs.NewMem())
	b := references.Batch{Position: references.Position{Epoch: 1, Seq: all}}
	for i := range uint64(all) {
		b.Changes = append(b.Changes, references.Change{Operation: references.Create, Seq: int64(i) + 1, Rev: i + 1, Account: 1 + i%2,
			Record: 10 + i, References: []references.Reference{{Path: 1, Subject: 7, Authority: 7}}})
	}
	v := viewOf(t, s, &b)
	for _, reverse := range []bool{false, true} {
		page := links.Page{Accounts: []uint64{2}, Limit: all, Reverse: reverse}
		allocs := testing.AllocsPerRun(1, func() {
			r, err := v.Records(t.Context(), links.Set{Path: 1, Subject: 7}, page)
			if err != nil || len(r.Links) != all/2 {
				t.Fatalf("%d links, %v", len(r.Links), err)
			}
		})
		if allocs > all/4 {
			t.Errorf("reverse %t: %v allocations for %d links", reverse, allocs, all/2)
		}
	}
}
