package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/syntax"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ipfs/go-cid"

	"millrace/consume"
	"millrace/consume/relaysim/cbor"
	"millrace/dict"
	"millrace/replay"
	"millrace/replay/references"
	"millrace/translate"
)

// refOp is an op of a test's commit. Its record points at these subjects, under the members p1, p2
// and so on.
type refOp struct {
	action   string
	record   int
	subjects []string
}

// commitFrame is a frame with a commit.
func commitFrame(t testing.TB, seq int64, did string, rev uint64, ops []refOp) consume.Frame {
	t.Helper()
	car := cbor.AppendCARHeader(nil, linkOf(t, nil).bytes)
	body := &comatproto.SyncSubscribeRepos_Commit{
		Repo: did, Rev: syntax.NewTIDFromInteger(rev).String(), Seq: seq, Time: "2026-11-20T00:00:00Z",
		Blobs: []lexutil.LexLink{}, Commit: linkOf(t, nil).link,
	}
	for _, o := range ops {
		op := &comatproto.SyncSubscribeRepos_RepoOp{Action: o.action, Path: fmt.Sprintf("a.b.c/r%d", o.record)}
		if o.action != "delete" {
			var record cbor.Map
			for i, s := range o.subjects {
				record = append(record, cbor.Pair{Key: fmt.Sprintf("p%d", i+1), Value: s})
			}
			data := cbor.Append(nil, record)
			id := linkOf(t, data)
			car = cbor.AppendCARSection(car, id.bytes, data)
			op.Cid = &id.link
		}
		body.Ops = append(body.Ops, op)
	}
	body.Blocks = car
	return frameOf(t, seq, "#commit", body)
}

type testLink struct {
	bytes []byte
	link  lexutil.LexLink
}

func linkOf(t testing.TB, data []byte) testLink {
	t.Helper()
	id := cbor.CID(data)
	parsed, err := cid.Cast(id)
	if err != nil {
		t.Fatal(err)
	}
	return testLink{id, lexutil.LexLink(parsed)}
}

func accountFrame(t testing.TB, seq int64, did, status string, at time.Time) consume.Frame {
	return frameOf(t, seq, "#account", &comatproto.SyncSubscribeRepos_Account{
		Did: did, Seq: seq, Status: &status, Time: at.Format(time.RFC3339),
	})
}

// syncFrame is a frame that says that a repository is at a rev.
func syncFrame(t testing.TB, seq int64, did string, rev uint64) consume.Frame {
	return frameOf(t, seq, "#sync", &comatproto.SyncSubscribeRepos_Sync{
		Did: did, Rev: syntax.NewTIDFromInteger(rev).String(), Seq: seq, Time: "2026-11-20T00:00:00Z", Blocks: cbor.AppendCARHeader(nil, linkOf(t, nil).bytes),
	})
}

// refEvent is what the log must have of an event.
type refEvent struct {
	Epoch    uint32
	Seq      int64
	Op       uint32
	Has, Had []string // subjects
	Repeated bool
}

// refAccount is what the model knows of an account.
type refAccount struct {
	rev     uint64
	deleted int64
	inexact bool // a #sync may have hidden deletes
	records map[int][]string
}

// refModel makes frames, and knows what the log must have of them: one frame after the other, with
// plain maps.
type refModel struct {
	t        testing.TB
	rng      *rand.Rand
	accounts map[string]*refAccount
	frames   []consume.Frame
	commits  []refCommit
	want     []refEvent
	epoch    uint32
	seq      int64
	gap      int64 // the last seq before a gap that comes; 0: none does
	rev      uint64
	at       time.Time
}

type refCommit struct {
	did string
	rev uint64
	ops []refOp
}

func (m *refModel) add(f consume.Frame) {
	f.Epoch = m.epoch
	if m.gap > 0 {
		f.Gap, m.gap = &consume.Gap{FromEpoch: m.epoch, From: m.gap, ToEpoch: m.epoch, To: f.Seq}, 0
	}
	m.frames = append(m.frames, f)
}

// step makes a frame.
func (m *refModel) step() {
	m.seq++
	did := fmt.Sprintf("did:web:a%d.example.com", m.rng.IntN(4))
	switch k := m.rng.IntN(40); {
	case k == 7 && m.seq > 1 && len(m.frames) > 100 && m.frames[len(m.frames)-1].Epoch == m.epoch:
		m.gap = m.frames[len(m.frames)-1].Seq
	case k == 0 && m.epoch < 4 && m.gap == 0:
		m.epoch, m.seq = m.epoch+1, 1+m.rng.Int64N(5)
	case k < 3 && len(m.commits) > 0: // a commit that comes again
		m.commit(m.commits[m.rng.IntN(len(m.commits))])
	case k < 5:
		m.at = m.at.Add(time.Duration(m.rng.IntN(3)-1) * time.Minute)
		status := []string{"deleted", "deactivated"}[m.rng.IntN(2)]
		m.add(accountFrame(m.t, m.seq, did, status, m.at))
		m.want = append(m.want, refEvent{Epoch: m.epoch, Seq: m.seq})
		if a := m.account(did); status == "deleted" && m.at.Unix() > a.deleted {
			a.deleted, a.inexact = m.at.Unix(), false
			clear(a.records)
		}
	case k < 6:
		rev := m.rev - min(m.rev, m.rng.Uint64N(4)) + 1
		m.add(syncFrame(m.t, m.seq, did, rev))
		m.want = append(m.want, refEvent{Epoch: m.epoch, Seq: m.seq})
		a := m.account(did)
		a.inexact = a.inexact || a.rev > 0 && rev > a.rev
	case k < 7:
		m.add(identityFrame(m.t, m.seq))
		m.want = append(m.want, refEvent{Epoch: m.epoch, Seq: m.seq})
	default:
		m.rev += 1 + m.rng.Uint64N(3)
		c := refCommit{did: did, rev: m.rev}
		for range 1 + m.rng.IntN(4) {
			o := refOp{action: []string{"create", "update", "delete", "delete"}[m.rng.IntN(4)], record: m.rng.IntN(5)}
			for range m.rng.IntN(4) {
				o.subjects = append(o.subjects, fmt.Sprintf("did:web:s%d.example.com", m.rng.IntN(50)))
			}
			c.ops = append(c.ops, o)
		}
		m.commits = append(m.commits, c)
		m.commit(c)
	}
}

func (m *refModel) account(did string) *refAccount {
	if m.accounts[did] == nil {
		m.accounts[did] = &refAccount{records: make(map[int][]string)}
	}
	return m.accounts[did]
}

func (m *refModel) commit(c refCommit) {
	m.add(commitFrame(m.t, m.seq, c.did, c.rev, c.ops))
	a := m.account(c.did)
	repeated := c.rev <= a.rev
	a.rev = max(a.rev, c.rev)
	for i, o := range c.ops {
		e := refEvent{Epoch: m.epoch, Seq: m.seq, Op: uint32(i), Repeated: repeated}
		if o.action != "delete" {
			e.Has = o.subjects
		}
		if !repeated {
			e.Had = a.records[o.record]
			delete(a.records, o.record)
			if o.action != "delete" {
				a.records[o.record] = o.subjects
			}
		}
		m.want = append(m.want, e)
	}
}

// checkTable compares the table of what is alive with the model, and the first gap with the log's.
func (m *refModel) checkTable(store *references.Store, log *replay.Log, names *refNames) {
	m.t.Helper()
	want, got := make(map[string][]string), make(map[string][]string)
	for did, a := range m.accounts {
		for record, subjects := range a.records {
			want[fmt.Sprintf("at://%s/a.b.c/r%d", did, record)] = subjects
		}
	}
	_, err := store.Rows(m.t.Context(), func(r *references.Row) error {
		uri := names.names[r.Record]
		got[uri] = []string{}
		for _, ref := range r.References {
			got[uri] = append(got[uri], names.names[ref.Subject])
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		m.t.Errorf("the table (-want +got):\n%s", diff)
	}
	gaps := log.Range().Gaps
	if len(gaps) == 0 {
		m.t.Fatal("there is no gap")
	}
	since := gaps[0].TimeUS
	for did, a := range m.accounts {
		got, _, err := store.Account(names.numbers[did])
		if err != nil || got.InexactUS != 0 != a.inexact {
			m.t.Errorf("%s is inexact since %d, %v; want %t", did, got.InexactUS, err, a.inexact)
		}
		if a.inexact {
			since = min(since, got.InexactUS)
		}
	}
	if got := store.InexactSince(); got == 0 || got > since {
		m.t.Errorf("inexact since %d, later than %d", got, since)
	}
}

// refNames gives strings their UIDs, and is what is durable of them. Its answers come out of order.
type refNames struct {
	mu      sync.Mutex
	numbers map[string]uint64
	names   map[uint64]string
	rng     *rand.Rand
}

func (n *refNames) number(name string) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.numbers[name] == 0 {
		u := uint64(len(n.numbers)+1) | uint64(n.rng.IntN(1<<14))<<50
		n.numbers[name], n.names[u] = u, name
	}
	return n.numbers[name]
}

func (n *refNames) Resolve(_ context.Context, b *translate.Batch) error {
	n.mu.Lock()
	known := uint64(len(n.numbers))
	n.mu.Unlock()
	n.yield()
	for i := range b.Events {
		e := &b.Events[i]
		if e.DIDUID = n.number(string(b.DID(i))); e.Kind == translate.KindCommit {
			e.URIUID = n.number(fmt.Sprintf("at://%s/%s/%s", b.DID(i), b.Collection(i), b.RecordKey(i)))
			e.NewURI = e.URIUID&(1<<50-1) > known
		}
	}
	for i := range b.References {
		u := n.number(string(b.Subject(i)))
		b.References[i].SubjectUID, b.References[i].AuthorityUID = u, u
	}
	n.yield()
	return nil
}

// yield lets other resolvers overtake this one.
func (n *refNames) yield() {
	n.mu.Lock()
	yields := n.rng.IntN(1000)
	n.mu.Unlock()
	for range yields {
		runtime.Gosched()
	}
}

// refLog is a log that notes the references of the events that are appended.
type refLog struct{ notedLog[refEvent] }

// newRefLog makes one in which a block of several frames has so many references at most.
func newRefLog(log *replay.Log, names *refNames, most int, fail func() error) *refLog {
	note := func(in replay.Input) (events []refEvent, err error) {
		if e := in.Batch.Events; len(e) > 0 && len(in.References.List) > most && e[0].Seq != e[len(e)-1].Seq {
			err = fmt.Errorf("frames %d to %d: %d references, at most %d fit", e[0].Seq, e[len(e)-1].Seq, len(in.References.List), most)
		}
		names.mu.Lock()
		defer names.mu.Unlock()
		var from uint32
		for i := range in.Batch.Events {
			e := refEvent{Epoch: in.Epoch, Seq: in.Batch.Events[i].Seq, Op: in.Batch.Events[i].Op}
			r := in.References
			for _, ref := range r.List[from:r.Ends[i]] {
				name := names.names[ref.Subject]
				if ref.Had {
					e.Had = append(e.Had, name)
				} else {
					e.Has = append(e.Has, name)
				}
			}
			from = r.Ends[i]
			e.Repeated = r.Repeated != nil && r.Repeated[i]
			events = append(events, e)
		}
		return events, err
	}
	return &refLog{notedLog[refEvent]{Log: log, note: note, fail: fail}}
}

// failingStore is a reference store whose Apply fails when it is asked to, before it does anything.
type failingStore struct {
	*references.Store
	fail func() error
}

func (s failingStore) Apply(b *references.Batch) error {
	if err := s.fail(); err != nil {
		return err
	}
	return s.Store.Apply(b)
}

var errCut = errors.New("the power is gone")

// TestReferencesModel takes random frames through the pipeline, while the power goes now and then
// before an Append, or between it and an Apply. Each event in the log has the references that a
// model has for it, which looks at one frame after the other. So have deletes whose records were
// made in the same frame, or in a block that was in flight.
func TestReferencesModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := &refModel{t: t, rng: rng, accounts: make(map[string]*refAccount), epoch: 1, rev: 1 << 20, at: time.Unix(1_700_000_000, 0)}
	for range 1500 {
		m.step()
	}
	dicts, err := dict.NewRegistry(dict.BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer dicts.Close()
	names := &refNames{numbers: make(map[string]uint64), names: make(map[uint64]string), rng: rand.New(rand.NewPCG(seed, 1))}
	fs := vfs.NewCrashableMem()
	var got []refEvent
	rolled := 0
	for life := 0; ; life++ {
		log, err := replay.Open(replay.Config{Dir: "log", FS: fs, Relay: "relay.example.com", UIDStore: "store-1", Retention: time.Hour,
			References: true, TailBytes: 1 << uint(10+rng.IntN(10)), Dictionaries: dicts})
		if err != nil {
			t.Fatal(err)
		}
		store, err := references.Open(references.Config{Dir: "refs", FS: fs, OverlayBytes: 1 << uint(8+rng.IntN(12)), AccountBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		if store.Generation().Number == 0 {
			if err := store.Begin("basis", references.Position{Epoch: 1}); err != nil {
				t.Fatal(err)
			}
		}
		before := store.Position()
		if err := store.Follow(t.Context(), log, nil); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		at := log.Progress()
		if reached := store.Position(); reached != (references.Position{Epoch: at.Epoch, Seq: at.Seq}) {
			t.Fatalf("life %d: the store is at %v, the log at %v", life, reached, at)
		}
		if before.Before(store.Position()) {
			rolled++
		}
		left := rng.IntN(60) // commits until the power goes
		var mu sync.Mutex
		fail := func() error {
			mu.Lock()
			defer mu.Unlock()
			if left--; left < 0 && life < 12 {
				return errCut
			}
			return nil
		}
		most := 1 << uint(rng.IntN(10))
		l := newRefLog(log, names, most, fail)
		cfg := Config{Log: l, References: failingStore{store, fail}, InFlightBytes: 8 << 20, NewResolver: func() Resolver { return names },
			hooks: testHooks{blockBytes: 1 << uint(rng.IntN(13)), blockReferences: most}}
		err = runPipelineWith(t, cfg, func(ctx context.Context, p *Pipeline) error {
			for _, f := range m.frames {
				if f.Epoch < at.Epoch || f.Epoch == at.Epoch && f.Seq <= at.Seq {
					continue
				}
				if err := p.Handle(ctx, f); err != nil {
					return nil // Run says why
				}
			}
			return nil
		})
		got = append(got, l.got...)
		if err == nil {
			m.checkTable(store, log, names)
		}
		next := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(3) * 50, RNG: rand.New(rand.NewPCG(seed, uint64(life)))})
		_ = log.Close()
		_ = store.Close()
		if err == nil {
			break
		}
		if !errors.Is(err, errCut) && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		fs = next
	}
	if rolled == 0 {
		t.Error("the store was never behind the log")
	}
	if diff := cmp.Diff(m.want, got, cmpopts.EquateEmpty(), cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Fatalf("-want +got\n%.4000s", diff)
	}
}

// TestReferencesInFlight: an op has what its record had before. That was made in the same frame,
// in the same block, or in one before that is not in the log yet. All are in flight.
func TestReferencesInFlight(t *testing.T) {
	const did = "did:web:a.example.com"
	create := func(record int, subject string) refOp { return refOp{"create", record, []string{subject}} }
	remove := func(record int) refOp { return refOp{action: "delete", record: record} }
	frames := []consume.Frame{
		commitFrame(t, 1, did, 101, []refOp{create(1, "did:web:one"), create(2, "did:web:two"), remove(1)}),
		commitFrame(t, 2, did, 102, []refOp{remove(2), create(3, "did:web:three")}),
		commitFrame(t, 3, did, 103, []refOp{create(4, "did:web:four")}),
		commitFrame(t, 4, did, 104, []refOp{remove(3), {"update", 4, []string{"did:web:five"}}}),
		commitFrame(t, 5, did, 105, []refOp{remove(4), remove(9), create(2, "did:web:six"), create(2, "did:web:seven")}),
	}
	want := map[string][]string{"1-2": {"did:web:one"}, "2-0": {"did:web:two"}, "4-0": {"did:web:three"}, "4-1": {"did:web:four"}, "5-0": {"did:web:five"}, "5-3": {"did:web:six"}}
	for name, blockBytes := range map[string]int{"block a frame": 1, "one block": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			dicts, err := dict.NewRegistry(dict.BuiltIn())
			if err != nil {
				t.Fatal(err)
			}
			defer dicts.Close()
			fs := vfs.NewMem()
			log, err := replay.Open(replay.Config{Dir: "log", FS: fs, Relay: "relay.example.com", Retention: time.Hour, References: true, Dictionaries: dicts})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			store, err := references.Open(references.Config{Dir: "refs", FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if err := store.Begin("", references.Position{Epoch: 1}); err != nil {
				t.Fatal(err)
			}
			names := &refNames{numbers: make(map[string]uint64), names: make(map[uint64]string), rng: rand.New(rand.NewPCG(1, 1))}
			allSealed := make(chan struct{})
			l := newRefLog(log, names, 1000, func() error { <-allSealed; return nil })
			sealed := 0
			cfg := Config{Log: countSeals{l, func(events int) {
				if sealed += events; sealed == 12 {
					close(allSealed)
				}
			}}, References: store, InFlightBytes: 8 << 20, NewResolver: func() Resolver { return names }, hooks: testHooks{blockBytes: blockBytes}}
			if err := runPipelineWith(t, cfg, send(frames...)); err != nil {
				t.Fatal(err)
			}
			had := make(map[string][]string)
			for _, e := range l.got {
				if len(e.Had) > 0 {
					had[fmt.Sprintf("%d-%d", e.Seq, e.Op)] = e.Had
				}
			}
			if !maps.EqualFunc(had, want, slices.Equal) {
				t.Errorf("records had %v, want %v", had, want)
			}
		})
	}
}

// countSeals calls sealed, one call at a time, with the number of events of each block that is
// sealed.
type countSeals struct {
	*refLog
	sealed func(events int)
}

func (c countSeals) Seal(in replay.Input) (*replay.Block, error) {
	b, err := c.refLog.Seal(in)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed(len(in.Batch.Events))
	return b, err
}

// SourceNumber refuses one path.
func (l *refLog) SourceNumber(source []byte) (uint32, bool) {
	if bytes.HasSuffix(source, []byte(":refused")) {
		return 0, false
	}
	return l.Log.SourceNumber(source)
}
