package references

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// model is what the store must hold: plain maps, one of records for each account.
type model struct {
	generation uint32
	arrival    uint64
	inexactUS  int64 // the first gap
	syncUS     int64 // the first #sync while there are accounts that are inexact
	accounts   map[uint64]*modelAccount
	purged     map[uint64]uint64
}

type modelAccount struct {
	rev, imported        uint64
	deletedUS, inexactUS int64
	statusUS             int64
	inactive             bool
	records              map[uint64]Row
}

func newModel() *model {
	return &model{accounts: make(map[uint64]*modelAccount), purged: make(map[uint64]uint64)}
}

func (m *model) begin() {
	m.generation++
	m.inexactUS, m.syncUS = 0, 0
	clear(m.accounts)
}

func (m *model) account(uid uint64) *modelAccount {
	a := m.accounts[uid]
	if a == nil {
		a = &modelAccount{rev: m.purged[uid], records: make(map[uint64]Row)}
		m.accounts[uid] = a
	}
	return a
}

// apply does what a batch says and returns its changes as Hydrate must fill them in.
func (m *model) apply(changes []Change) []Change {
	out := slices.Clone(changes)
	accepted := false
	for i := range out {
		c := &out[i]
		if c.Operation == Gap {
			if m.inexactUS == 0 {
				m.inexactUS = c.TimeUS
			}
			continue
		}
		a := m.account(c.Account)
		switch c.Operation {
		case DeleteAccount:
			if c.Repeated = c.TimeUS <= a.deletedUS; !c.Repeated {
				a.forget()
				a.deletedUS = c.TimeUS
				a.status(true, c.TimeUS)
			}
		case Deactivate, Activate:
			a.status(c.Operation == Deactivate, c.TimeUS)
		case Sync:
			if c.Repeated = c.Rev <= a.rev; !c.Repeated && a.rev+a.imported > 0 && a.inexactUS == 0 {
				a.inexactUS = c.TimeUS
				if m.syncUS == 0 {
					m.syncUS = c.TimeUS
				}
			}
		case Import:
			if c.Repeated = c.Rev <= m.purged[c.Account]; !c.Repeated {
				m.arrival++
				a.forget()
				a.rev, a.imported = c.Last, c.Rev
			}
		case Purge:
			rev := max(a.rev, a.imported, c.Rev)
			rev = max(rev, m.purged[c.Account])
			m.purged[c.Account] = rev
			m.arrival++
			a.forget()
			a.rev = rev
		default:
			switch {
			case c.Seq == 0 && a.imported == c.Rev:
				accepted = true
			case i == 0 || out[i-1].Seq != c.Seq || out[i-1].Rev != c.Rev || out[i-1].Operation > Delete:
				accepted = c.Rev > a.rev
				a.rev = max(a.rev, c.Rev)
			}
			if c.Repeated = !accepted; !c.Repeated {
				m.record(a, c)
			}
		}
		if m.inexact() == 0 {
			m.syncUS = 0
		}
	}
	return out
}

// inexact counts the accounts that a #sync has changed.
func (m *model) inexact() (n uint64) {
	for _, a := range m.accounts {
		if a.inexactUS != 0 {
			n++
		}
	}
	return n
}

func (a *modelAccount) forget() {
	a.imported, a.inexactUS, a.records = 0, 0, make(map[uint64]Row)
}

func (a *modelAccount) status(inactive bool, timeUS int64) {
	if timeUS >= a.statusUS && (inactive || a.statusUS != 0) {
		a.inactive, a.statusUS = inactive, timeUS
	}
}

func (m *model) record(a *modelAccount, c *Change) {
	c.Had = a.records[c.Record].References
	delete(a.records, c.Record)
	if c.Operation != Delete {
		m.arrival++
		c.Arrival = m.arrival
		a.records[c.Record] = Row{c.Account, c.Record, c.Arrival, slices.Clone(c.References)}
	}
}

func (m *model) clone() *model {
	c := *m
	c.purged = maps.Clone(m.purged)
	c.accounts = make(map[uint64]*modelAccount)
	for uid, a := range m.accounts {
		b := *a
		b.records = maps.Clone(a.records)
		c.accounts[uid] = &b
	}
	return &c
}

func (m *model) rows() (rows []Row) {
	for _, uid := range slices.Sorted(maps.Keys(m.accounts)) {
		records := m.accounts[uid].records
		for _, record := range slices.Sorted(maps.Keys(records)) {
			rows = append(rows, records[record])
		}
	}
	return rows
}

// step is a batch of the history, or the beginning of a generation.
type step struct {
	begins  bool
	at      Position
	changes []Change // as the log has them
	interns *interns // nil: its records have their UIDs, or it did not ask for them yet
	want    []Change // as Hydrate must fill them in
	after   *model
}

// modelWorld is a store beside its model. The log is a slice of steps.
type modelWorld struct {
	t     *testing.T
	rng   *rand.Rand
	fs    *vfs.MemFS
	cfg   Config
	store *Store
	m     *model

	log      []step
	hydrated int // of log
	applied  int
	durable  int // of log: these were applied, and a crash does not take them back
	batches  []*Batch

	at    Position
	clock uint64
	known map[recordID]bool // records that have UIDs
	sent  []Change          // of the relay, that may come again

	oneGeneration bool

	// Of TestLinksModel.
	paths, subjects uint64                            // few
	links           func(s *Store, alive, rows []Row) // compares them; rows: below the floor, too
}

var unordered = cmpopts.EquateEmpty()

func (w *modelWorld) open() {
	w.t.Helper()
	w.cfg.FS = w.fs
	store, err := Open(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = store
}

// uid returns a UID of one of few sequences.
func (w *modelWorld) uid(n uint64) uint64 {
	p := w.cfg.PrefixBits
	return (n*7919%3)<<(64-p) | n + 1
}

// record returns the UID of one of few records. They are others as time goes by.
func (w *modelWorld) record() uint64 { return w.uid(w.clock/8 + w.rng.Uint64N(12)) }

func (w *modelWorld) refs() (refs []Reference) {
	for range w.rng.IntN(4) {
		r := Reference{Path: uint32(w.rng.Uint64N(w.paths)), Subject: w.uid(w.rng.Uint64N(w.subjects)), Authority: w.uid(w.rng.Uint64N(5))}
		if w.rng.IntN(3) == 0 {
			r.Authority = r.Subject
		}
		refs = append(refs, r)
	}
	return refs
}

// frame makes the changes of the next frame.
func (w *modelWorld) frame() (changes []Change) {
	w.at.Seq += 1 + w.rng.Int64N(3)
	w.clock++
	account := w.uid(w.rng.Uint64N(4))
	one := func(c Change) []Change {
		c.Seq, c.Account = w.at.Seq, account
		return []Change{c}
	}
	switch w.rng.IntN(40) {
	case 0, 3, 4:
		op := []Operation{DeleteAccount, Deactivate, Activate}[w.rng.IntN(3)]
		return one(Change{Operation: op, TimeUS: int64(w.clock)})
	case 1:
		return one(Change{Operation: Sync, Rev: w.clock, TimeUS: int64(w.clock)})
	case 2:
		return []Change{{Operation: Gap, Seq: w.at.Seq, TimeUS: int64(w.clock)}}
	}
	for range 1 + w.rng.IntN(4) {
		c := Change{Operation: Operation(1 + w.rng.IntN(3)), Seq: w.at.Seq, Account: account, Record: w.record(), Rev: w.clock}
		if c.Operation != Delete {
			c.References = w.refs()
		}
		changes = append(changes, c)
	}
	return changes
}

// again makes a frame that was sent before, in an epoch that starts over.
func (w *modelWorld) again() (changes []Change) {
	i := w.rng.IntN(len(w.sent))
	seq := w.sent[i].Seq
	for i > 0 && w.sent[i-1].Seq == seq {
		i--
	}
	w.at.Seq++
	for ; i < len(w.sent) && w.sent[i].Seq == seq; i++ {
		c := w.sent[i]
		c.Seq = w.at.Seq
		changes = append(changes, c)
	}
	return changes
}

// ours makes changes that are not the relay's.
func (w *modelWorld) ours() (changes []Change) {
	w.clock++
	account := w.uid(w.rng.Uint64N(4))
	if w.rng.IntN(3) == 0 {
		return []Change{{Operation: Purge, Account: account, Rev: w.clock * w.rng.Uint64N(2)}}
	}
	rev := w.clock - w.rng.Uint64N(min(w.clock, 20))
	last := rev - w.rng.Uint64N(min(rev, 20))*w.rng.Uint64N(2)
	changes = append(changes, Change{Operation: Import, Account: account, Rev: rev, Last: last})
	for range w.rng.IntN(5) {
		changes = append(changes, Change{Operation: Create, Account: account, Record: w.record(), Rev: rev, References: w.refs()})
	}
	for i := range w.sent { // what the log has of it, that is above last
		if c := w.sent[i]; c.Account == account && c.Operation <= Delete && c.Rev > last && c.Rev != rev {
			c.Seq = 0
			changes = append(changes, c)
		}
	}
	return changes
}

// more adds a step to the log.
func (w *modelWorld) more() {
	s := step{}
	switch {
	case w.rng.IntN(25) == 0 && !w.oneGeneration:
		s.begins = true
		w.m.begin()
	case w.rng.IntN(6) == 0:
		s.changes = w.ours()
	default:
		if w.rng.IntN(30) == 0 {
			w.at = Position{Epoch: w.at.Epoch + 1}
		}
		w.at.Seq++ // a frame without changes
		for range w.rng.IntN(4) {
			var frame []Change
			if len(w.sent) > 0 && w.rng.IntN(6) == 0 {
				frame = w.again()
			} else {
				frame = w.frame()
				w.sent = append(w.sent, frame...)
			}
			s.changes = append(s.changes, frame...)
		}
	}
	s.at = w.at
	if !s.begins {
		s.want = w.m.apply(s.changes)
	}
	s.after = w.m.clone()
	w.log = append(w.log, s)
}

// hydrate hydrates the next step of the log, and compares.
func (w *modelWorld) hydrate() {
	s := &w.log[w.hydrated]
	w.hydrated++
	if s.begins {
		if err := w.store.Begin(fmt.Sprint(w.rng.Uint64()), s.at); err != nil {
			w.t.Fatal(err)
		}
		w.applied, w.durable = w.hydrated, w.hydrated
		return
	}
	b := w.batch(s)
	if err := w.store.Hydrate(w.t.Context(), b); err != nil {
		w.t.Fatal(err)
	}
	if d := cmp.Diff(s.want, b.Changes, cmpopts.IgnoreFields(Change{}, "New"), unordered); d != "" {
		w.t.Fatalf("step %d: hydrated (-want +got):\n%s", w.hydrated-1, d)
	}
	for i := range b.Changes { // borrowed until here
		clear(b.Changes[i].References)
	}
	w.batches = append(w.batches, b)
}

// apply applies the oldest batch that is hydrated.
func (w *modelWorld) apply() {
	if len(w.batches) == 0 {
		return
	}
	if err := w.store.Apply(w.batches[0]); err != nil {
		w.t.Fatal(err)
	}
	w.batches = w.batches[1:]
	w.applied++
	if w.rng.IntN(3) == 0 {
		leaveOverlay(w.store, w.rng.Int64N(20_000))
	}
	if !w.log[w.applied-1].relays() { // it does not come again
		w.flush()
	}
	w.check(w.store, w.log[w.applied-1].after)
}

// flush makes durable what was applied.
func (w *modelWorld) flush() {
	w.t.Helper()
	if at, err := w.store.Flush(); err != nil || at != w.store.Position() {
		w.t.Fatalf("flushed up to %v, %v; applied up to %v", at, err, w.store.Position())
	}
	w.durable = w.applied
}

// check compares the table with a model.
func (w *modelWorld) check(s *Store, m *model) {
	w.t.Helper()
	var rows []Row
	_, err := s.Rows(w.t.Context(), func(r *Row) error {
		row := *r
		row.References = slices.Clone(r.References)
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if d := cmp.Diff(m.rows(), rows, unordered); d != "" {
		w.t.Fatalf("step %d: rows (-want +got):\n%s", w.applied-1, d)
	}
	if got := s.commits.state.Load().arrival; got != m.arrival {
		w.t.Fatalf("step %d: arrival %d, not %d", w.applied-1, got, m.arrival)
	}
	since := min(m.inexactUS, m.syncUS)
	if since == 0 {
		since = m.inexactUS + m.syncUS
	}
	if s.InexactSince() != since || s.commits.state.Load().syncs.accounts != m.inexact() || s.Generation().Number != m.generation {
		w.t.Fatalf("step %d: inexact since %d, not %d, with %d accounts; generation %d", w.applied-1,
			s.InexactSince(), since, m.inexact(), s.Generation().Number)
	}
	for uid, want := range m.accounts {
		got, _, err := s.Account(uid)
		purged := m.purged[uid]
		if err != nil || got != (Account{want.rev, want.imported, purged, want.inexactUS, want.inactive}) && got != (Account{Purged: purged}) {
			w.t.Fatalf("step %d: account %x is %+v, %v, not %+v", w.applied-1, uid, got, err, *want)
		}
		n := 0
		_, err = s.RowsOf(w.t.Context(), uid, func(r *Row) error {
			if n++; r.Account != uid || want.records[r.Record].Arrival != r.Arrival {
				return fmt.Errorf("row %+v is not %+v", *r, want.records[r.Record])
			}
			return nil
		})
		if err != nil || n != len(want.records) {
			w.t.Fatalf("step %d: account %x has %d rows of its own, not %d: %v", w.applied-1, uid, n, len(want.records), err)
		}
	}
	if w.links != nil {
		w.links(s, m.visible(), w.stored(s))
	}
}

// visible returns the records of accounts that are active.
func (m *model) visible() []Row {
	return slices.DeleteFunc(m.rows(), func(r Row) bool { return m.accounts[r.Account].inactive })
}

// stored returns all rows, also those that wait for the sweep.
func (w *modelWorld) stored(s *Store) (rows []Row) {
	it, err := s.rangeIter(rangeRecord)
	if err != nil {
		w.t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		id, err := s.codec.parseRecordKey(it.Key())
		arrival, encoded, err2 := rowArrival(it.Value())
		refs, err3 := s.codec.appendReferences(nil, id.account, encoded)
		if err := errors.Join(err, err2, err3); err != nil {
			w.t.Fatal(err)
		}
		rows = append(rows, Row{id.account, id.record, arrival, refs})
	}
	return rows
}

// recover goes on with what a crash has left.
func (w *modelWorld) recover() {
	w.open()
	at := w.store.Position()
	// The store is where it was after some step that is not before the durable ones.
	i := len(w.log)
	for ; i > w.durable && (at.Before(w.log[i-1].at) || !w.log[i-1].relays()); i-- {
	}
	w.hydrated, w.applied, w.durable, w.batches = i, i, max(w.durable, 0), nil
	for n := range w.log {
		w.log[n].interns = nil
	}
	if i > 0 {
		if w.log[i-1].at != at {
			w.t.Fatalf("after a crash the store is at %v, which is not where step %d ends, %v", at, i-1, w.log[i-1].at)
		}
		w.check(w.store, w.log[i-1].after)
	}
}

func (s *step) relays() bool { return !s.begins && (len(s.changes) == 0 || s.changes[0].Seq > 0) }

func (w *modelWorld) crashClone() *vfs.MemFS {
	return w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 2))})
}

// TestModel compares the store with plain maps over random changes, crashes, restarts and sweeps.
// What Hydrate fills in is compared too, and the same after a crash.
func TestModel(t *testing.T) {
	seeds := []uint64{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}
	if v, err := strconv.ParseUint(os.Getenv("MILLRACE_TEST_SEED"), 10, 64); err == nil {
		seeds = []uint64{v}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("MILLRACE_TEST_SEED=%d", seed)
			newModelWorld(t, seed).run(400)
		})
	}
}

func newModelWorld(t *testing.T, seed uint64) *modelWorld {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &modelWorld{t: t, rng: rng, fs: vfs.NewCrashableMem(), m: newModel(), at: Position{Epoch: 1}, clock: 1, paths: 40, subjects: 100_000_000,
		known: make(map[recordID]bool)}
	w.cfg = Config{Dir: "refs", PrefixBits: 1 + rng.IntN(32), PebbleBytes: minPebbleBytes, AccountBytes: int64(rng.IntN(3)) * 10_000}
	w.cfg.hooks.sweepRows = 1 + rng.IntN(5)
	return w
}

func (w *modelWorld) run(steps int) {
	t, rng := w.t, w.rng
	w.open()
	defer func() { _ = w.store.Close() }()
	w.log = append(w.log, step{begins: true, at: w.at})
	w.m.begin()
	w.log[0].after = w.m.clone()
	for range steps {
		switch n := rng.IntN(100); {
		case n < 35 || w.hydrated == 0 && len(w.log) < 2:
			w.more()
		case n < 40:
			w.intern()
		case n < 65:
			if w.hydrated < len(w.log) && (len(w.batches) == 0 || !w.log[w.hydrated].begins) {
				w.hydrate()
			}
		case n < 90:
			w.apply()
		case n < 95:
			if _, err := w.store.sweep(); err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.buildLinks(); err != nil {
				t.Fatal(err)
			}
			if w.applied > 0 {
				w.check(w.store, w.log[w.applied-1].after)
			}
		case n < 96:
			w.flush()
		case n < 97: // a crash may come during it
			if _, err := w.store.db.Pebble().AsyncFlush(); err != nil {
				t.Fatal(err)
			}
		case n < 98: // a clean restart: what was hydrated and not applied comes again
			if err := w.store.Close(); err != nil {
				t.Fatal(err)
			}
			w.durable = w.applied
			if w.links != nil {
				w.cfg.Links = []Links{LinksOn, LinksOn, LinksOff, LinksAsStored}[rng.IntN(4)]
			}
			w.recover()
		default:
			crashed := w.crashClone()
			_ = w.store.Close()
			w.fs = crashed
			w.recover()
		}
	}
	for w.applied < len(w.log) {
		if len(w.batches) == 0 {
			w.hydrate()
		}
		w.apply()
	}
	w.end()
}

// end sweeps, and verifies what is left.
func (w *modelWorld) end() {
	w.t.Helper()
	for _, step := range []func() (bool, error){w.store.sweep, w.store.buildLinks} {
		for more := true; more; {
			var err error
			if more, err = step(); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.check(w.store, w.m)
	report, err := w.store.Verify(context.Background(), nil)
	if err != nil || !report.Sound() || report.Below > 0 || report.Sweeps > 0 || report.Rows != uint64(len(w.m.rows())) {
		w.t.Fatalf("verify: %+v, %v", report, err)
	}
	leaveOverlay(w.store, 0)
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if o := &w.store.overlay; o.bytes != 0 || len(o.records) > 0 {
		w.t.Errorf("the overlay holds %d bytes, %d records", o.bytes, len(o.records))
	}
}
