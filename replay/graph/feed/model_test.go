package feed

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"millrace/replay"
	"millrace/replay/graph"
	"millrace/replay/references"
	"millrace/translate"
)

const (
	testAccounts = 5
	testRecords  = 4 // of an account
	otherPath    = 9
)

// numberOf is the log's number of a source of the tests.
func numberOf(source []byte) (uint32, bool) {
	return map[string]uint32{graph.SourceFollow: 3, graph.SourceBlock: 5}[string(source)], true
}

// model is the references of the records that are alive, by account and record.
type model map[uint64]map[uint64][]references.Reference

func (m model) clone() model {
	c := model{}
	for account, records := range m {
		c[account] = maps.Clone(records)
	}
	return c
}

func (m model) apply(changes []references.Change) {
	for i := range changes {
		c := &changes[i]
		switch c.Operation {
		case references.Create, references.Update:
			if m[c.Account] == nil {
				m[c.Account] = map[uint64][]references.Reference{}
			}
			m[c.Account][c.Record] = c.References
		case references.Delete:
			delete(m[c.Account], c.Record)
		case references.DeleteAccount, references.Import, references.Purge:
			delete(m, c.Account)
		}
	}
}

// set is the members of a graph's set.
func (m model) set(s graph.Set) []uint64 {
	members := map[uint64]bool{}
	for account, records := range m {
		for _, refs := range records {
			for _, r := range refs {
				if r.Path != []uint32{3, 5}[s.Source] || r.Subject != r.Authority {
					continue
				}
				if s.Direction == graph.Out && account == s.UID {
					members[r.Subject] = true
				}
				if s.Direction == graph.In && r.Subject == s.UID {
					members[account] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(members))
}

// step is a batch, and what is alive after it.
type step struct {
	batch references.Batch
	after model
	ours  bool // not of the log
}

// world is a store and its feed beside a model.
type world struct {
	t     *testing.T
	r     *rand.Rand
	fs    *vfs.MemFS
	file  string
	store *references.Store
	stop  func() // ends its sweep
	feed  *Feed
	with  func(*Config) // of the next feed; nil: nothing

	at       references.Position
	clock    uint64
	alive    model // after the last step
	log      []step
	hydrated []*references.Batch // not applied
	applied  int                 // of log
	durable  int                 // of log: what is not of the log is flushed
	begun    model               // before the log
	static   model               // the static edges, as records

	builds, loads, goesOn int
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Logf("MILLRACE_TEST_SEED=%d", seed)
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 9)), fs: vfs.NewCrashableMem(), file: filepath.Join(t.TempDir(), "graph"),
		at: references.Position{Epoch: 1}, alive: model{}, begun: model{}, static: model{}}
	w.open()
	if err := w.store.Begin("test", w.at); err != nil {
		t.Fatal(err)
	}
	w.newFeed()
	t.Cleanup(func() {
		w.stop()
		w.feed.Close()
		w.store.Close()
	})
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	links := []references.Links{references.LinksOn, references.LinksOff}[w.r.IntN(2)]
	if w.store, err = references.Open(references.Config{Dir: "refs", FS: w.fs, Links: links}); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var sweep errgroup.Group
	sweep.Go(func() error { return w.store.Run(ctx) })
	w.stop = func() {
		cancel()
		_ = sweep.Wait() // its error is the store's
	}
}

func (w *world) newFeed() {
	w.t.Helper()
	var err error
	if w.feed, err = New(w.t.Context(), w.config()); err != nil {
		w.t.Fatal(err)
	}
	if w.feed.rows == nil {
		w.loads++
	}
	if w.feed.touched != nil {
		w.goesOn++
	}
}

func (w *world) config() Config {
	cfg := Config{Store: w.store, Log: worldLog{w}, SourceNumber: numberOf, StoreID: "uids", File: w.file, Static: w.file + ".static", Memory: MinMemory}
	if w.with != nil {
		w.with(&cfg)
	}
	return cfg
}

// reopen begins anew with another configuration.
func (w *world) reopen(with func(*Config)) {
	w.t.Helper()
	w.with = with
	w.closeAll()
	w.open()
	w.newFeed()
}

func (w *world) account() uint64 { return 1 + w.r.Uint64N(testAccounts) }

func (w *world) references() (refs []references.Reference) {
	for range w.r.IntN(3) {
		r := references.Reference{Path: []uint32{3, 3, 5, otherPath}[w.r.IntN(4)], Subject: w.account()}
		if r.Authority = r.Subject; w.r.IntN(5) == 0 { // a record
			r.Subject = 1000 + r.Subject
		}
		if !slices.Contains(refs, r) {
			refs = append(refs, r)
		}
	}
	return refs
}

// frame is the changes of one frame.
func (w *world) frame() (changes []references.Change) {
	w.at.Seq++
	w.clock++
	account := w.account()
	if w.r.IntN(8) == 0 {
		operation := []references.Operation{references.DeleteAccount, references.Deactivate, references.Activate}[w.r.IntN(3)]
		return []references.Change{{Operation: operation, Seq: w.at.Seq, Account: account, TimeUS: int64(w.clock)}}
	}
	for range 1 + w.r.IntN(3) {
		changes = append(changes, w.record(account, references.Operation(1+w.r.IntN(3)), w.clock))
		changes[len(changes)-1].Seq = w.at.Seq
	}
	return changes
}

func (w *world) record(account uint64, operation references.Operation, rev uint64) references.Change {
	c := references.Change{Operation: operation, Account: account, Record: 100*account + w.r.Uint64N(testRecords), Rev: rev}
	if operation != references.Delete {
		c.References = w.references()
	}
	return c
}

// ours is changes that are not of the log.
func (w *world) ours() (changes []references.Change) {
	w.clock++
	account := w.account()
	if w.r.IntN(2) == 0 {
		return []references.Change{{Operation: references.Purge, Account: account, Rev: w.clock}}
	}
	changes = []references.Change{{Operation: references.Import, Account: account, Rev: w.clock}}
	for range w.r.IntN(4) {
		changes = append(changes, w.record(account, references.Create, w.clock))
	}
	return changes
}

// hydrate makes a step and hydrates it.
func (w *world) hydrate() {
	w.t.Helper()
	s := step{ours: w.r.IntN(8) == 0}
	if s.ours {
		s.batch.Changes = w.ours()
	} else {
		w.at.Seq++ // a frame without changes
		for range w.r.IntN(4) {
			s.batch.Changes = append(s.batch.Changes, w.frame()...)
		}
	}
	s.batch.Position = w.at
	w.alive.apply(s.batch.Changes)
	s.after = w.alive.clone()
	w.log = append(w.log, s)
	w.hydrateStep(len(w.log) - 1)
}

func (w *world) hydrateStep(i int) {
	w.t.Helper()
	b := &references.Batch{Position: w.log[i].batch.Position, Changes: slices.Clone(w.log[i].batch.Changes)}
	if err := w.store.Hydrate(w.t.Context(), b); err != nil {
		w.t.Fatal(err)
	}
	w.hydrated = append(w.hydrated, b)
}

func (w *world) apply() {
	w.t.Helper()
	if len(w.hydrated) == 0 {
		return
	}
	if w.log[w.applied].ours { // as millrace references import and purge do
		if err := Forget(w.file); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.store.Apply(w.hydrated[0]); err != nil {
		w.t.Fatal(err)
	}
	w.hydrated = w.hydrated[1:]
	if w.applied++; w.log[w.applied-1].ours {
		if _, err := w.store.Flush(); err != nil {
			w.t.Fatal(err)
		}
		w.durable = w.applied
	}
}

// check lets the feed take what waits, and compares.
func (w *world) check() {
	w.t.Helper()
	if w.feed.rows != nil {
		if w.feed.touched == nil {
			w.builds++
		}
		if err := w.feed.build(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.feed.take(); err != nil {
		w.t.Fatal(err)
	}
	want := w.begun
	if w.applied > 0 {
		want = w.log[w.applied-1].after
	}
	g, err := w.feed.Graph()
	if err != nil {
		w.t.Fatal(err)
	}
	if g.Position() != w.store.Position() {
		w.t.Fatalf("the graph is at %v, the store at %v", g.Position(), w.store.Position())
	}
	compare(w.t, g, want, w.static)
}

func compare(t *testing.T, g *graph.Graph, records, static model) {
	t.Helper()
	for source := range 2 {
		for uid := range uint64(testAccounts) {
			for _, direction := range []graph.Direction{graph.Out, graph.In} {
				set := graph.Set{Source: source, Direction: direction, UID: uid + 1}
				r, err := g.Eval(context.Background(), graph.Of(source, direction, uid+1), graph.Limits{})
				imported := static.set(set)
				if err != nil || !r.Complete || r.Static != (len(imported) > 0) {
					t.Fatalf("%+v: %+v, %v", set, r, err)
				}
				slices.Sort(r.UIDs)
				want := append(records.set(set), imported...)
				slices.Sort(want)
				want = slices.Compact(want)
				if diff := cmp.Diff(want, r.UIDs); diff != "" && len(want)+len(r.UIDs) > 0 {
					t.Fatalf("%+v (-want +got):\n%s", set, diff)
				}
			}
		}
	}
}

// restart closes everything, as a clean stop does.
func (w *world) restart() {
	w.t.Helper()
	for len(w.hydrated) > 0 {
		w.apply()
	}
	w.check()
	w.feed.saved = references.Position{} // so that it saves: apply may have removed the file
	w.feed.save(w.t.Context())
	w.closeAll()
	w.durable = w.applied
	w.open()
	w.newFeed()
	if w.feed.rows != nil {
		w.t.Fatal("a graph that was saved is built")
	}
}

// importStatic stops, and begins anew with more static edges, or with none.
func (w *world) importStatic() {
	w.t.Helper()
	for len(w.hydrated) > 0 {
		w.apply()
	}
	w.check()
	w.closeAll()
	w.durable = w.applied
	if err := Forget(w.file); err != nil { // as millrace graph import does
		w.t.Fatal(err)
	}
	if w.r.IntN(3) == 0 {
		if err := os.Remove(w.file + ".static"); err != nil && !os.IsNotExist(err) {
			w.t.Fatal(err)
		}
		clear(w.static)
	} else {
		w.addStatic()
	}
	w.open()
	w.newFeed()
}

// addStatic adds static edges to the file.
func (w *world) addStatic() {
	w.t.Helper()
	s, err := graph.OpenStatic(w.file+".static", graph.Config{Sources: graph.DefaultSources(), StoreID: "uids"})
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	for range 1 + w.r.IntN(4) {
		source, e := w.r.IntN(2), graph.Edge{Actor: w.account(), Subject: w.account()}
		if err := s.Add(source, []graph.Edge{e}); err != nil {
			w.t.Fatal(err)
		}
		if w.static[e.Actor] == nil {
			w.static[e.Actor] = map[uint64][]references.Reference{}
		}
		w.static[e.Actor][uint64(len(w.static[e.Actor]))] = []references.Reference{{Path: []uint32{3, 5}[source], Subject: e.Subject, Authority: e.Subject}}
	}
	if _, err := s.Save(w.t.Context(), w.file+".static"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) closeAll() {
	w.t.Helper()
	w.stop()
	if err := w.feed.Close(); err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// crash takes the store back to what is flushed, and rolls it forward as the daemon does.
func (w *world) crash() {
	w.t.Helper()
	crashed := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.r.IntN(101), RNG: w.r})
	w.feed.queue.close()
	w.closeAll()
	w.fs, w.hydrated = crashed, nil
	w.open()
	at := w.store.Position()
	last := len(w.log)
	for w.applied = w.durable; w.applied < last && !at.Before(w.log[w.applied].batch.Position); w.applied++ {
		if w.log[w.applied].ours {
			last = w.applied // it is not the relay's, and did not come so far
			break
		}
	}
	for i := w.applied; i < last; i++ {
		if w.log[i].ours {
			last = i
			break
		}
		w.hydrateStep(i)
		w.apply()
	}
	w.log = w.log[:last]
	if w.alive = w.begun.clone(); last > 0 {
		w.alive = w.log[last-1].after.clone()
		w.at = w.log[last-1].batch.Position
	}
	w.newFeed()
}

// worldLog is the log of a world, as far as the store has it.
type worldLog struct{ *world }

// Changes implements references.Log. Each event names a collection of the graph's.
func (w worldLog) Changes(_ context.Context, after replay.EpochEnd, f func(*replay.Changes) error) error {
	for _, s := range w.log[:w.applied] {
		if s.ours || !after.Before(s.batch.Position) {
			continue
		}
		c := replay.Changes{Through: s.batch.Position}
		for i := range s.batch.Changes {
			e := replay.Change{Kind: translate.KindCommit, DIDUID: s.batch.Changes[i].Account, Payload: []byte(`"app.bsky.graph.block"`)}
			if s.batch.Changes[i].Operation == references.DeleteAccount {
				e.Kind, e.Payload = translate.KindAccount, nil
			}
			c.Events = append(c.Events, e)
		}
		if err := f(&c); err != nil {
			return err
		}
	}
	return nil
}

// TestModel compares the graph with plain maps over random changes, sweeps, crashes and restarts.
func TestModel(t *testing.T) {
	seeds := []uint64{rand.Uint64(), rand.Uint64(), rand.Uint64()}
	if v, err := strconv.ParseUint(os.Getenv("MILLRACE_TEST_SEED"), 10, 64); err == nil {
		seeds = []uint64{v}
	}
	builds, loads, goesOn := 0, 0, 0
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 500 {
				switch n := w.r.IntN(100); {
				case n < 35:
					if len(w.hydrated) < 4 {
						w.hydrate()
					}
				case n < 70:
					w.apply()
				case n < 91:
					w.check()
				case n < 95:
					w.check()
					w.feed.save(t.Context())
				case n < 96:
					w.restart()
				case n < 97:
					w.importStatic()
				default:
					w.crash()
				}
			}
			w.check()
			builds, loads, goesOn = builds+w.builds, loads+w.loads, goesOn+w.goesOn
		})
	}
	if builds < 3 || loads < 3 || goesOn < 3 {
		t.Errorf("the graph was built %d times, loaded %d times, and went on from a snapshot %d times", builds, loads, goesOn)
	}
}
