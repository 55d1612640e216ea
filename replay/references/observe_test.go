package references

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/translate"
)

// TestObserve: an observer gets what each Apply changes of the edges of its sources, from the rows
// that it was given on.
func TestObserve(t *testing.T) {
	s := openTest(t, Config{})
	edge := func(path uint32, subject uint64) Reference { return Reference{path, subject, subject} }
	op := func(operation Operation, account, record, rev uint64, refs ...Reference) Change {
		return Change{Operation: operation, Account: account, Record: record, Rev: rev, References: refs}
	}
	do(t, s, 1, op(Create, 1, 10, 1, edge(5, 2)))
	var got *Observed
	before, err := s.Observe([]uint32{5, 6}, func(o *Observed) {
		got = &Observed{o.Position, slices.Clone(o.Forgotten), slices.Clone(o.Edges)}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name      string
		changes   []Change
		forgotten []uint64
		edges     []EdgeChange // path, account, record, subject, removed
	}{
		{"nothing", nil, nil, nil},
		{"a create", []Change{op(Create, 1, 11, 2, edge(5, 3), edge(7, 4), Reference{5, 200, 3}, edge(6, 3))},
			nil, []EdgeChange{{5, 1, 11, 3, false}, {6, 1, 11, 3, false}}},
		{"an update", []Change{op(Update, 1, 11, 3, edge(5, 8))},
			nil, []EdgeChange{{5, 1, 11, 3, true}, {6, 1, 11, 3, true}, {5, 1, 11, 8, false}}},
		{"a delete", []Change{op(Delete, 1, 10, 4)}, nil, []EdgeChange{{5, 1, 10, 2, true}}},
		{"a record that comes and goes", []Change{op(Create, 1, 12, 5, edge(5, 2)), op(Delete, 1, 12, 6)},
			nil, []EdgeChange{{5, 1, 12, 2, false}, {5, 1, 12, 2, true}}},
		{"an account that is hidden", []Change{{Operation: Deactivate, Account: 1, TimeUS: 1}}, nil, nil},
		{"a deleted account, with what it wrote before and after", []Change{
			op(Create, 9, 13, 7, edge(5, 1)), {Operation: DeleteAccount, Account: 9, TimeUS: 2}, op(Create, 9, 14, 8, edge(5, 2)),
		}, []uint64{9}, []EdgeChange{{5, 9, 14, 2, false}}},
		{"a deleted account, with its records", []Change{{Operation: DeleteAccount, Account: 1, TimeUS: 3}}, []uint64{1}, nil},
		{"a record below the floor again", []Change{op(Create, 1, 11, 9, edge(5, 3))}, nil, []EdgeChange{{5, 1, 11, 3, false}}},
	} {
		got = nil
		if do(t, s, s.Position().Seq+1, step.changes...); got == nil || got.Position != s.Position() {
			t.Fatalf("%s: observed %+v at %v", step.name, got, s.Position())
		}
		if !slices.Equal(got.Forgotten, step.forgotten) {
			t.Errorf("%s: forgotten %v, want %v", step.name, got.Forgotten, step.forgotten)
		}
		if diff := cmp.Diff(step.edges, append([]EdgeChange(nil), got.Edges...)); diff != "" {
			t.Errorf("%s: edges (-want +got):\n%s", step.name, diff)
		}
	}
	var records []uint64
	err = before.Each(t.Context(), func(r *Row) error { records = append(records, r.Record); return nil })
	if err != nil || !slices.Equal(records, []uint64{10}) || before.Close() != nil {
		t.Errorf("the rows before: %v, %v", records, err)
	}
	if err := s.Begin("again", Position{Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	got = nil
	b := &Batch{Position: Position{Epoch: 2, Seq: 1}, Changes: []Change{op(Create, 1, 10, 1, edge(5, 2))}}
	if err := s.Hydrate(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if apply(t, s, b); got != nil {
		t.Errorf("observed in the next generation: %+v", got)
	}
}

// TestEventChange: which change an event is, and which is none.
func TestEventChange(t *testing.T) {
	commit := []byte(`{"did":"did:web:a","time_us":1,"kind":"commit","commit":{"rev":"2222222222223"}}`)
	noRev := []byte(`{"did":"did:web:a","time_us":1,"kind":"commit","commit":{"rev":"2222222222222"}}`)
	account := func(status string) []byte {
		return []byte(`{"did":"did:web:a","time_us":7,"kind":"account","account":{` + status + `}}`)
	}
	sync := func(rev string) []byte {
		return []byte(`{"did":"did:web:a","time_us":8,"kind":"sync","sync":{"blocks":{"$bytes":"AA"},"did":"did:web:a","rev":"` + rev + `","seq":5,"time":"1970-01-01T00:00:01Z"}}`)
	}
	for _, tc := range []struct {
		name    string
		event   Event
		payload []byte
		want    Change
	}{
		{"a create", Event{translate.KindCommit, translate.OpCreate, 5, 2, 3}, commit, Change{Operation: Create, Seq: 5, Account: 2, Record: 3, Rev: 1}},
		{"an update", Event{translate.KindCommit, translate.OpUpdate, 5, 2, 3}, commit, Change{Operation: Update, Seq: 5, Account: 2, Record: 3, Rev: 1}},
		{"a delete", Event{translate.KindCommit, translate.OpDelete, 5, 2, 3}, commit, Change{Operation: Delete, Seq: 5, Account: 2, Record: 3, Rev: 1}},
		{"an op without the DID's UID", Event{translate.KindCommit, translate.OpCreate, 5, 0, 3}, commit, Change{}},
		{"an op without the record's UID", Event{translate.KindCommit, translate.OpCreate, 5, 2, 0}, commit, Change{}},
		{"the rev 0", Event{translate.KindCommit, translate.OpCreate, 5, 2, 3}, noRev, Change{}},
		{"no rev", Event{translate.KindCommit, translate.OpCreate, 5, 2, 3}, account(""), Change{}},
		{"an active account", Event{Kind: translate.KindAccount, Seq: 5, DIDUID: 2}, account(`"active":true,"time":"1970-01-01T00:00:01Z"`),
			Change{Operation: Activate, Seq: 5, Account: 2, TimeUS: 1_000_000}},
		{"an account that was deleted and is active", Event{Kind: translate.KindAccount, Seq: 5, DIDUID: 2}, account(`"active":true,"status":"deleted"`),
			Change{Operation: Activate, Seq: 5, Account: 2, TimeUS: 7}},
		{"a deleted account", Event{Kind: translate.KindAccount, Seq: 5, DIDUID: 2}, account(`"active":false,"status":"deleted"`),
			Change{Operation: DeleteAccount, Seq: 5, Account: 2, TimeUS: 7}},
		{"a suspended account", Event{Kind: translate.KindAccount, Seq: 5, DIDUID: 2}, account(`"active":false,"status":"suspended"`),
			Change{Operation: Deactivate, Seq: 5, Account: 2, TimeUS: 7}},
		{"an account without a status", Event{Kind: translate.KindAccount, Seq: 5, DIDUID: 2}, account(`"status":"deleted"`), Change{}},
		{"an account without a UID", Event{Kind: translate.KindAccount, Seq: 5}, account(`"active":true`), Change{}},
		{"a #sync", Event{Kind: translate.KindSync, Seq: 5, DIDUID: 2}, sync("2222222222223"), Change{Operation: Sync, Seq: 5, Account: 2, Rev: 1, TimeUS: 8}},
		{"a #sync of the rev 0", Event{Kind: translate.KindSync, Seq: 5, DIDUID: 2}, sync("2222222222222"), Change{}},
		{"a #sync without a UID", Event{Kind: translate.KindSync, Seq: 5}, sync("2222222222223"), Change{}},
		{"an identity", Event{Kind: translate.KindIdentity, Seq: 5, DIDUID: 2}, account(`"active":true`), Change{}},
	} {
		got, ok := EventChange(tc.event, tc.payload)
		if !ok {
			got = Change{}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || ok != (tc.want.Operation != 0) {
			t.Errorf("%s: %t (-want +got):\n%s", tc.name, ok, diff)
		}
	}
}
