package ingest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/consume"
	"millrace/replay"
	"millrace/replay/references"
	"millrace/translate"
)

// inputLog keeps what it is given to seal, as it is.
type inputLog struct {
	fakeLog
	inputs []replay.Input
}

func (l *inputLog) Seal(in replay.Input) (*replay.Block, error) {
	l.inputs = append(l.inputs, in)
	return l.fakeLog.Seal(in)
}

// lostNames gives no UID to what is at a DID of lost.
type lostNames struct {
	*refNames
	lost string
}

func (n lostNames) Resolve(ctx context.Context, b *translate.Batch) error {
	err := n.refNames.Resolve(ctx, b)
	for i := range b.References {
		if string(b.Subject(i)) == n.lost {
			b.References[i].SubjectUID, b.References[i].AuthorityUID = 0, 0
		}
	}
	return err
}

func newRefNames() *refNames {
	return &refNames{numbers: make(map[string]uint64), names: make(map[uint64]string), rng: rand.New(rand.NewPCG(1, 1))}
}

func newReferenceStore(t *testing.T) *references.Store {
	t.Helper()
	store, err := references.Open(references.Config{Dir: "refs", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := store.Begin("", references.Position{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestLogReferences: the log gets each number of a reference in its place.
func TestLogReferences(t *testing.T) {
	for _, had := range []bool{false, true} {
		got := appendLogReferences(nil, []references.Reference{{Path: 1, Subject: 2, Authority: 3}}, had)
		if want := []replay.Reference{{Source: 1, Subject: 2, Authority: 3, Had: had}}; !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestSealReferences seals one job as several blocks. Each has its own frames, references and marks
// of what came again. The gap is before the first, and a reference without a UID is left out.
func TestSealReferences(t *testing.T) {
	const did = "did:web:a.example.com"
	log := &inputLog{}
	names := lostNames{newRefNames(), "did:web:lost"}
	p := newPipeline(t, Config{Log: log, InFlightBytes: 8 << 20, References: newReferenceStore(t),
		NewResolver: func() Resolver { return names }, hooks: testHooks{blockReferences: 3}})
	j := newJob()
	j.epoch, j.gap = 1, &replay.Gap{TimeUS: 7}
	for _, f := range []consume.Frame{
		commitFrame(t, 1, did, 101, []refOp{{"create", 1, []string{"did:web:one", "did:web:lost", "did:web:two"}}}),
		commitFrame(t, 2, did, 102, []refOp{{"update", 1, []string{"did:web:three"}}}),
		commitFrame(t, 3, did, 101, []refOp{{"create", 1, []string{"did:web:one"}}, {action: "delete", record: 1}}),
	} {
		j.add(f)
	}
	if err := j.translate(p.newTranslator(p.frameBytes), 1<<20, true); err != nil {
		t.Fatal(err)
	}
	if err := names.Resolve(t.Context(), &j.batch); err != nil {
		t.Fatal(err)
	}
	p.gatherChanges(j)
	if err := p.cfg.References.Hydrate(t.Context(), &j.changes.batch); err != nil {
		t.Fatal(err)
	}
	if err := p.sealReferences(j); err != nil {
		t.Fatal(err)
	}
	type block struct {
		First, Last int64
		Gap         bool
		Ends        []uint32
		References  []string
		Repeated    []bool
	}
	var got []block
	for _, in := range log.inputs {
		b := block{First: in.FirstSeq, Last: in.LastSeq, Gap: in.Gap != nil, Ends: in.References.Ends}
		for _, r := range in.References.List {
			name := names.names[r.Subject]
			if r.Had {
				name = "had " + name
			}
			b.References = append(b.References, name)
		}
		for i := range in.Batch.Events {
			b.Repeated = append(b.Repeated, in.References.Repeated != nil && in.References.Repeated[i])
		}
		got = append(got, b)
	}
	want := []block{
		{1, 1, true, []uint32{2}, []string{"did:web:one", "did:web:two"}, []bool{false}},
		{2, 2, false, []uint32{3}, []string{"did:web:three", "had did:web:one", "had did:web:two"}, []bool{false}},
		{3, 3, false, []uint32{1, 1}, []string{"did:web:one"}, []bool{true, true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestLoneGap: the reference store knows of a gap after which no event came, and of what follows.
func TestLoneGap(t *testing.T) {
	store, names := newReferenceStore(t), newRefNames()
	cfg := Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, References: store, NewResolver: func() Resolver { return names }}
	f := emptyFrame(t, 9)
	f.Gap = &consume.Gap{FromEpoch: 1, From: 1, ToEpoch: 1, To: 9}
	if err := runPipelineWith(t, cfg, send(f)); err != nil {
		t.Fatal(err)
	}
	if store.InexactSince() == 0 || store.Position().Seq != 9 {
		t.Errorf("inexact since %d, at %v", store.InexactSince(), store.Position())
	}
}

// TestApplyBehindEmptyJob applies jobs of which the first has neither events nor a gap.
func TestApplyBehindEmptyJob(t *testing.T) {
	store, names := newReferenceStore(t), newRefNames()
	p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, References: store, NewResolver: func() Resolver { return names }})
	empty, gap := newJob(), newJob()
	gap.gap = &replay.Gap{TimeUS: 7}
	gap.changes.batch = references.Batch{Position: references.Position{Epoch: 1, Seq: 5}, Changes: []references.Change{references.GapChange(gap.gap)}}
	if err := store.Hydrate(t.Context(), &gap.changes.batch); err != nil {
		t.Fatal(err)
	}
	if err := p.apply([]*job{empty, gap}); err != nil {
		t.Fatal(err)
	}
	if store.Position().Seq != 5 {
		t.Errorf("the store is at %v", store.Position())
	}
}

// TestChangesReset: changes that are used again are empty, and keep memory up to a bound.
func TestChangesReset(t *testing.T) {
	var c changes
	fill := func() {
		c.batch.Changes = append(c.batch.Changes, references.Change{Had: []references.Reference{{}}})
		c.refs = append(c.refs, make([]references.Reference, 100)...)
		c.events, c.numbered = append(c.events, 1), append(c.numbered, 100)
	}
	fill()
	c.reset(1 << 20)
	if len(c.batch.Changes)+len(c.refs)+len(c.events)+len(c.numbered) != 0 {
		t.Errorf("after a reset: %+v", c)
	}
	if cap(c.refs) == 0 || c.batch.Changes[:1][0].Had != nil {
		t.Error("a reset kept no memory, or what records had")
	}
	fill()
	c.reset(1000)
	if cap(c.refs)+cap(c.batch.Changes) != 0 {
		t.Error("a reset kept more than it may")
	}
}

// sinceStore notes Since of what is hydrated.
type sinceStore struct {
	mu    sync.Mutex
	since []uint64
	first chan struct{} // closed when the first batch is hydrated
}

func (s *sinceStore) Apply(*references.Batch) error { return nil }

func (s *sinceStore) Hydrated() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 7 + uint64(len(s.since))
}

func (s *sinceStore) Hydrate(_ context.Context, b *references.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since = append(s.since, b.Since); len(s.since) == 1 {
		close(s.first)
	}
	return nil
}

// lateResolver resolves the second block while the first one is, and ends when that is hydrated.
type lateResolver struct{ begun, first chan struct{} }

func (r lateResolver) Resolve(_ context.Context, b *translate.Batch) error {
	if b.Events[0].Seq == 1 {
		<-r.begun
		return nil
	}
	close(r.begun)
	<-r.first
	return nil
}

// TestSince: the store knows which batches were hydrated while a block got its UIDs, and so may
// have the same records.
func TestSince(t *testing.T) {
	store := &sinceStore{first: make(chan struct{})}
	r := lateResolver{make(chan struct{}), store.first}
	cfg := Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, References: store, NewResolver: func() Resolver { return r },
		hooks: testHooks{blockBytes: 1}}
	err := runPipelineWith(t, cfg, send(identityFrame(t, 1), identityFrame(t, 2)))
	if err != nil || !slices.Equal(store.since, []uint64{7, 7}) {
		t.Errorf("since %v, %v", store.since, err)
	}
}
