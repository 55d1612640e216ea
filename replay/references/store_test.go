package references

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// openTest opens a store, in memory unless cfg says otherwise, and begins a generation if there is
// none.
func openTest(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.FS == nil {
		cfg.FS = vfs.NewMem()
	}
	if cfg.Dir == "" {
		cfg.Dir = "refs"
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if !cfg.ReadOnly && s.Generation().Number == 0 {
		if err := s.Begin("test", Position{Epoch: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// hydrate hydrates changes of one frame each, from seq on, which it sets in those before an Import
// or Purge.
func hydrate(t testing.TB, s *Store, seq int64, changes ...Change) *Batch {
	t.Helper()
	b := &Batch{Changes: changes, Since: s.Hydrated()}
	for i := range changes {
		c := &changes[i]
		if c.Operation >= Import {
			break
		}
		if c.Seq == 0 {
			c.Seq = seq + int64(i)
		}
	}
	b.Position = Position{Epoch: 1, Seq: seq + int64(len(changes))}
	if err := s.Hydrate(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return b
}

// apply applies batches, and has them leave the overlay: what follows reads the database.
func apply(t testing.TB, s *Store, batches ...*Batch) {
	t.Helper()
	for _, b := range batches {
		if err := s.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	leaveOverlay(s, 0)
}

// leaveOverlay has applied batches leave the overlay, until most bytes are left.
func leaveOverlay(s *Store, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overlay.makeRoom(0, most)
}

// do hydrates and applies, and returns the changes as they were filled in.
func do(t testing.TB, s *Store, seq int64, changes ...Change) []Change {
	t.Helper()
	b := hydrate(t, s, seq, changes...)
	apply(t, s, b)
	return b.Changes
}

func like(account, record, rev, subject uint64) Change {
	return Change{Operation: Create, Account: account, Record: record, Rev: rev,
		References: []Reference{{Path: 1, Subject: subject, Authority: 9}}}
}

func unlike(account, record, rev uint64) Change {
	return Change{Operation: Delete, Account: account, Record: record, Rev: rev}
}

func rows(t testing.TB, s *Store) (records []uint64) {
	t.Helper()
	if _, err := s.Rows(t.Context(), func(r *Row) error { records = append(records, r.Record); return nil }); err != nil {
		t.Fatal(err)
	}
	return records
}

// TestHydration: an op has what the record said at its place. That is in the batch, in a batch that
// is in flight, in the table. A create says so too: the delete before it was lost.
func TestHydration(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := openTest(t, Config{Registerer: registry})
	a := hydrate(t, s, 1, like(1, 10, 1, 100), unlike(1, 10, 2), like(1, 10, 3, 101), like(1, 11, 4, 102))
	up := like(1, 11, 6, 103)
	up.Operation = Update
	b := hydrate(t, s, 10, unlike(1, 10, 5), up, unlike(1, 12, 7), like(1, 11, 8, 104))
	apply(t, s, a, b)
	c := do(t, s, 20, unlike(1, 11, 9))
	had := func(subject uint64) []Reference { return []Reference{{1, subject, 9}} }
	got := [][]Reference{a.Changes[1].Had, b.Changes[0].Had, b.Changes[1].Had, b.Changes[2].Had, b.Changes[3].Had, c[0].Had}
	if d := cmp.Diff([][]Reference{had(100), had(101), had(102), nil, had(103), had(104)}, got); d != "" {
		t.Errorf("had (-want +got):\n%s", d)
	}
	before := lookUps(t, s)
	fresh := like(1, 13, 10, 105)
	fresh.New = true
	do(t, s, 30, fresh)
	if n := lookUps(t, s) - before; n != 0 {
		t.Errorf("%d look-ups for a new record of an account that was seen before", n)
	}
	do(t, s, 40, unlike(1, 13, 11))
	arrivals := []uint64{a.Changes[0].Arrival, a.Changes[2].Arrival, a.Changes[3].Arrival, b.Changes[1].Arrival}
	if !slices.Equal(arrivals, []uint64{1, 2, 3, 4}) {
		t.Errorf("arrival numbers %v", arrivals)
	}
	if got := rows(t, s); len(got) > 0 {
		t.Errorf("rows %v", got)
	}
	if n := testutil.ToFloat64(s.metrics.found) - testutil.ToFloat64(s.metrics.unknown); n != 4 {
		t.Errorf("found less unknown: %v", n)
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n < 20 {
		t.Errorf("%d metrics, %v", n, err)
	}
}

// lookUps returns how many there were in the database.
func lookUps(t *testing.T, s *Store) uint64 {
	t.Helper()
	var m dto.Metric
	if err := s.metrics.lookupSeconds.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram().GetSampleCount()
}

// TestFrames: all changes of a commit are repeated, or none is, in whatever batch they come again.
func TestFrames(t *testing.T) {
	s := openTest(t, Config{})
	frame := func(seq int64) []Change {
		a, b := like(1, 10, 5, 100), like(1, 11, 5, 101)
		a.Seq, b.Seq = seq, seq
		return []Change{a, b}
	}
	repeated := func(changes []Change) (is []bool) {
		for i := range changes {
			is = append(is, changes[i].Repeated)
		}
		return is
	}
	var got []bool
	got = append(got, repeated(do(t, s, 1, append(frame(1), frame(2)...)...))...)
	got = append(got, repeated(do(t, s, 10, append(frame(11), unlike(1, 10, 6), unlike(1, 11, 6))...))...)
	if want := []bool{false, false, true, true, true, true, false, true}; !slices.Equal(got, want) {
		t.Errorf("repeated: %v, not %v", got, want)
	}
}

// TestApplyWithinHydrate: what reaches the table while Hydrate reads is seen all the same.
func TestApplyWithinHydrate(t *testing.T) {
	between := func() {}
	cfg := Config{}
	cfg.hooks.gathered = func() { between() }
	s := openTest(t, cfg)
	a := hydrate(t, s, 1, like(1, 10, 5, 100))
	between = func() {
		if err := s.Apply(a); err != nil {
			t.Fatal(err)
		}
	}
	b := hydrate(t, s, 10, unlike(1, 10, 5), unlike(1, 10, 6))
	if !b.Changes[0].Repeated || len(b.Changes[1].Had) != 1 {
		t.Errorf("filled in: %+v", b.Changes)
	}
}

// TestApplyBelowLaterChanges: a batch that is applied takes nothing of later ones out of the
// overlay.
func TestApplyBelowLaterChanges(t *testing.T) {
	s := openTest(t, Config{})
	up := like(1, 10, 6, 101)
	up.Operation = Update
	a, b := hydrate(t, s, 1, like(1, 10, 5, 100)), hydrate(t, s, 10, up)
	apply(t, s, a)
	c := hydrate(t, s, 20, unlike(1, 10, 6), unlike(1, 10, 7))
	if had := c.Changes[1].Had; !c.Changes[0].Repeated || len(had) != 1 || had[0].Subject != 101 {
		t.Errorf("filled in: %+v", c.Changes)
	}
	apply(t, s, b, c)
}

// TestAccountsInUse: the cache forgets no account whose change is in flight, however full it is,
// and finds in the table those that it forgets.
func TestAccountsInUse(t *testing.T) {
	s := openTest(t, Config{AccountBytes: 1})
	others := func(first uint64) (changes []Change) {
		for i := range uint64(500) {
			changes = append(changes, like(first+i, 10, 5, 100))
		}
		return changes
	}
	a, b := hydrate(t, s, 1, like(1, 10, 5, 100)), hydrate(t, s, 10, others(1_000)...)
	c := hydrate(t, s, 1_000, append(others(2_000), unlike(1, 10, 5))...)
	if last := c.Changes[len(c.Changes)-1]; !last.Repeated {
		t.Errorf("filled in, in flight: %+v", last)
	}
	apply(t, s, a, b, c)
	d := hydrate(t, s, 2_000, append(others(3_000), unlike(1, 10, 5), unlike(1, 10, 6))...)
	if n := len(d.Changes); !d.Changes[n-2].Repeated || len(d.Changes[n-1].Had) != 1 {
		t.Errorf("filled in, applied: %+v", d.Changes[n-2:])
	}
	if n := len(s.hydration.accounts.young) + len(s.hydration.accounts.old); n > 1_500 {
		t.Errorf("%d accounts are cached", n)
	}
	apply(t, s, d)
}

// TestBackPressure: Hydrate waits while the overlay is full, until Apply makes room, its context
// ends, or the store fails. A batch that is larger than the overlay goes alone.
func TestBackPressure(t *testing.T) {
	waiting := make(chan struct{})
	cfg := Config{OverlayBytes: 1}
	cfg.hooks.waiting = func() { waiting <- struct{}{} }
	s := openTest(t, cfg)
	first := hydrate(t, s, 1, like(1, 10, 1, 100))
	begin := func(ctx context.Context, b *Batch) chan error {
		done := make(chan error, 1)
		go func() { done <- s.Hydrate(ctx, b) }()
		select {
		case <-waiting:
		case <-time.After(patience):
			t.Fatal("Hydrate does not wait")
		}
		return done
	}
	end := func(done chan error) error {
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			t.Fatal("Hydrate waits for ever")
			return nil
		}
	}
	delete := unlike(1, 10, 2)
	delete.Seq = 3
	second := &Batch{Position: Position{Epoch: 1, Seq: 3}, Changes: []Change{delete}}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := begin(ctx, second)
	cause := errors.New("enough")
	cancel(cause)
	if err := end(done); !errors.Is(err, cause) {
		t.Errorf("a wait that was ended: %v", err)
	}
	waited := testutil.ToFloat64(s.metrics.waitSeconds)
	done = begin(t.Context(), second)
	apply(t, s, first)
	if err := end(done); err != nil {
		t.Fatal(err)
	}
	if len(second.Changes[0].Had) != 1 {
		t.Errorf("had %v", second.Changes[0].Had)
	}
	if testutil.ToFloat64(s.metrics.waitSeconds) <= waited {
		t.Error("the wait for room is not counted")
	}
	done = begin(t.Context(), &Batch{Position: Position{Epoch: 1, Seq: 4}, Changes: []Change{{Operation: Gap, Seq: 4}}})
	s.db.Fail(errors.New("the disk said no"))
	if err := end(done); !errors.Is(err, ErrFailed) {
		t.Errorf("a wait when the store fails: %v", err)
	}
}

// TestRefusedBatches: what does not follow is refused, and changes nothing.
func TestRefusedBatches(t *testing.T) {
	s := openTest(t, Config{})
	do(t, s, 1, like(1, 10, 1, 100))
	at := func(epoch uint32, seq int64, c Change) *Batch {
		c.Seq = seq
		return &Batch{Position: Position{Epoch: epoch, Seq: seq}, Changes: []Change{c}}
	}
	again := hydrate(t, s, 3, like(1, 11, 2, 100))
	for want, b := range map[string]*Batch{
		"is before":             {Position: Position{Epoch: 1, Seq: 1}},
		"seq 4 is not 5":        at(1, 4, like(1, 12, 3, 1)),
		"seq 9 is not 0 to 8":   {Position: Position{Epoch: 2, Seq: 8}, Changes: []Change{{Operation: Gap, Seq: 9}}},
		"was hydrated before":   again,
		"no account":            at(1, 9, like(0, 12, 3, 1)),
		"no record":             at(1, 9, like(1, 0, 3, 1)),
		"change 0: no record":   at(1, 9, unlike(1, 0, 3)),
		"no rev":                at(1, 9, like(1, 12, 0, 1)),
		"change 0: no rev":      at(1, 9, Change{Operation: Import, Account: 1}),
		"unknown operation 77":  at(1, 9, Change{Operation: 77}),
		"seq -1 is negative":    at(1, -1, Change{Operation: Gap}),
		"unknown operation 0":   at(2, 9, Change{}),
		"change 1: seq 9 is no": {Position: Position{Epoch: 1, Seq: 12}, Changes: []Change{{Operation: Gap, Seq: 10}, {Operation: Gap, Seq: 9}}},
	} {
		if want == "seq -1 is negative" {
			b.Position.Seq = 9
		}
		if err := s.Hydrate(t.Context(), b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	next := hydrate(t, s, 5, unlike(1, 11, 3))
	if err := s.Apply(next); err == nil || !strings.Contains(err.Error(), "comes after batch") {
		t.Errorf("wrong order: %v", err)
	}
	if err := s.Apply(&Batch{}); err == nil {
		t.Error("a batch that was not hydrated is applied")
	}
	if err := s.Begin("other", Position{Epoch: 1, Seq: 9}); err == nil || !strings.Contains(err.Error(), "2 batches") {
		t.Errorf("a generation between: %v", err)
	}
	apply(t, s, again, next)
	if len(next.Changes[0].Had) != 1 || !slices.Equal(rows(t, s), []uint64{10}) {
		t.Errorf("had %v, rows %v", next.Changes[0].Had, rows(t, s))
	}
	fresh, err := Open(Config{Dir: "fresh", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if err := fresh.Hydrate(t.Context(), &Batch{}); err == nil || !strings.Contains(err.Error(), "no generation") {
		t.Errorf("without a generation: %v", err)
	}
}

// TestDeletedAccount: the records of a deleted account are gone at once, those after its return are
// there, and Run sweeps the others. The deletion that comes again changes nothing.
func TestDeletedAccount(t *testing.T) {
	idle := make(chan struct{}, 100)
	cfg := Config{}
	cfg.hooks.idle = func() { idle <- struct{}{} }
	cfg.hooks.sweepRows = 40 // enough for range deletions
	var s *Store
	cfg.hooks.sweeping = func() {
		if s.commits.mu.TryLock() {
			t.Error("a row may come between looking and deleting")
			s.commits.mu.Unlock()
		}
	}
	s = openTest(t, cfg)
	var many []Change
	for i := range uint64(100) {
		many = append(many, like(2, 10+i, 1+i, 100), like(1, 10+i, 1+i, 100)) // the last is of the first
	}
	do(t, s, 1, many...)
	deleted := Change{Operation: DeleteAccount, Account: 1, TimeUS: 500}
	got := do(t, s, 300, deleted, unlike(1, 10, 300), like(1, 11, 301, 7), deleted)
	if got[0].Repeated || got[1].Had != nil || !got[3].Repeated {
		t.Errorf("filled in: %+v", got)
	}
	check := func() {
		t.Helper()
		if n := len(rows(t, s)); n != 101 {
			t.Errorf("%d rows", n)
		}
		if row, ok, err := s.Row(1, 11); err != nil || !ok || row.Arrival != got[2].Arrival {
			t.Errorf("the row after the return: %+v, %v, %v", row, ok, err)
		}
		if _, ok, err := s.Row(1, 12); err != nil || ok {
			t.Errorf("the row before: %v, %v", ok, err)
		}
	}
	check()
	report, err := s.Verify(t.Context(), nil)
	if err != nil || !report.Sound() || report.Below != 99 || report.Sweeps != 1 {
		t.Errorf("before the sweep: %+v, %v", report, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	swept := func(want uint64) {
		t.Helper()
		for deadline := time.After(patience); ; {
			select {
			case <-idle:
			case <-deadline:
				t.Fatalf("it is not swept: %+v", report)
			}
			if report, err = s.Verify(t.Context(), nil); err != nil || !report.Sound() {
				t.Fatalf("verify: %+v, %v", report, err)
			}
			if report.Below == 0 && report.Sweeps == 0 && report.Rows == want {
				return
			}
		}
	}
	swept(101)
	check()
	do(t, s, 400, Change{Operation: Purge, Account: 2})
	swept(1)
	do(t, s, 500, Change{Operation: DeleteAccount, Account: 1, TimeUS: 600})
	swept(0)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSweepGoesOn: a sweep comes to the rows that go, although more than a step looks at stay
// before them.
func TestSweepGoesOn(t *testing.T) {
	cfg := Config{}
	cfg.hooks.sweepRows = 2
	s := openTest(t, cfg)
	do(t, s, 1, like(1, 50, 1, 100))
	do(t, s, 300, Change{Operation: DeleteAccount, Account: 1, TimeUS: 500},
		like(1, 10, 300, 100), like(1, 11, 301, 100), like(1, 12, 302, 100))
	for range 3 { // two steps with rows, and one that finds nothing to do
		if _, err := s.sweep(); err != nil {
			t.Fatal(err)
		}
	}
	report, err := s.Verify(t.Context(), nil)
	if err != nil || !report.Sound() || report.Below != 0 || report.Sweeps != 0 || report.Rows != 3 {
		t.Errorf("after three steps: %+v, %v", report, err)
	}
}

// TestPurgeOutlivesGenerations: what was purged comes back neither by the log nor by an import.
func TestPurgeOutlivesGenerations(t *testing.T) {
	fs := vfs.NewMem()
	s := openTest(t, Config{FS: fs})
	do(t, s, 1, like(1, 10, 5, 100), like(2, 10, 5, 100))
	do(t, s, 9, Change{Operation: Purge, Account: 1}, Change{Operation: Deactivate, Account: 1, TimeUS: 9})
	if err := s.Begin("another", Position{Epoch: 1, Seq: 20}); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, s); len(got) > 0 {
		t.Errorf("rows of the generation before: %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Config{FS: fs})
	imported := func(account, rev uint64) []Change {
		return []Change{{Operation: Import, Account: account, Rev: rev}, like(account, 30, rev, 100)}
	}
	got := do(t, s, 21, like(1, 10, 5, 100), like(1, 11, 6, 100), like(2, 10, 5, 100))
	got = append(got, do(t, s, 30, append(imported(1, 5), imported(2, 5)...)...)...)
	var repeated []bool
	for i := range got {
		repeated = append(repeated, got[i].Repeated)
	}
	if want := []bool{true, false, false, true, true, false, false}; !slices.Equal(repeated, want) {
		t.Errorf("repeated: %v, not %v", repeated, want)
	}
	if got := rows(t, s); !slices.Equal(got, []uint64{11, 30}) {
		t.Errorf("rows %v", got)
	}
	want := Generation{Number: 2, Basis: "another", From: Position{Epoch: 1, Seq: 20}}
	if d := cmp.Diff(want, s.Generation(), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("generation (-want +got):\n%s", d)
	}
}

// TestImportAfterPurge: an import finds a purge that is in its batch, in flight, or applied.
func TestImportAfterPurge(t *testing.T) {
	for name, applied := range map[string]bool{"in flight": false, "applied": true} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, Config{})
			purge := Change{Operation: Purge, Account: 1, Rev: 5}
			old, young := Change{Operation: Import, Account: 1, Rev: 5}, Change{Operation: Import, Account: 1, Rev: 6}
			a := hydrate(t, s, 1, purge, old)
			if applied {
				apply(t, s, a)
			}
			b := hydrate(t, s, 1, old, young, old)
			if !a.Changes[1].Repeated || !b.Changes[0].Repeated || b.Changes[1].Repeated || !b.Changes[2].Repeated {
				t.Errorf("filled in: %+v, %+v", a.Changes, b.Changes)
			}
		})
	}
}

// TestPurgeOfImport: a purge holds for what was imported, though the account's commits are older.
func TestPurgeOfImport(t *testing.T) {
	s := openTest(t, Config{})
	again, later := Change{Operation: Import, Account: 1, Rev: 9}, Change{Operation: Import, Account: 1, Rev: 10}
	got := do(t, s, 1, Change{Operation: Import, Account: 1, Rev: 9, Last: 3}, like(1, 10, 4, 100), Change{Operation: Purge, Account: 1},
		again, like(1, 11, 9, 100), later)
	var repeated []bool
	for i := range got {
		repeated = append(repeated, got[i].Repeated)
	}
	if want := []bool{false, false, false, true, true, false}; !slices.Equal(repeated, want) {
		t.Errorf("repeated: %v, not %v", repeated, want)
	}
}

// TestHadIsCharged: what records had counts against the overlay's limit, until it is applied.
func TestHadIsCharged(t *testing.T) {
	waiting := make(chan struct{}, 1)
	cfg := Config{OverlayBytes: recordBytes + accountBytes + 100*referenceBytes}
	cfg.hooks.waiting = func() { waiting <- struct{}{} }
	s := openTest(t, cfg)
	full := like(1, 10, 1, 100)
	for i := range uint64(99) {
		full.References = append(full.References, Reference{Path: 1, Subject: 200 + i, Authority: 9})
	}
	do(t, s, 1, full)
	gone := hydrate(t, s, 10, unlike(1, 10, 2))
	next := &Batch{Position: Position{Epoch: 1, Seq: 20}, Changes: []Change{unlike(1, 11, 3)}}
	next.Changes[0].Seq = 20
	ended := make(chan error, 1)
	go func() { ended <- s.Hydrate(t.Context(), next) }()
	select {
	case <-waiting:
	case err := <-ended:
		t.Fatalf("it did not wait: %v", err)
	}
	apply(t, s, gone)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	apply(t, s, next)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overlay.bytes != 0 {
		t.Errorf("%d bytes are charged for nothing", s.overlay.bytes)
	}
}

// TestFractionBefore: the estimate grows with the accounts, from nothing to all rows.
func TestFractionBefore(t *testing.T) {
	s := openTest(t, Config{})
	const accounts = 4000
	rng := rand.New(rand.NewPCG(28, 0))
	var changes []Change
	for account := range uint64(accounts) {
		changes = append(changes, like(account+1, rng.Uint64(), 1, rng.Uint64()|1))
	}
	do(t, s, 1, changes...)
	if err := s.db.Pebble().Flush(); err != nil {
		t.Fatal(err)
	}
	for quarter := range 5 {
		want := float64(quarter) / 4
		if got, err := s.FractionBefore(uint64(quarter*accounts/4) + 1); err != nil || math.Abs(got-want) > 0.2 {
			t.Errorf("%v of the rows are estimated as %v, %v", want, got, err)
		}
	}
}
