package main

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"millrace/consume/relaysim"
	"millrace/intern"
	"millrace/intern/kv/simkv"
	"millrace/replay/references"
	"millrace/translate"
)

// roomsWorld takes frames through the rooms that references go through, one after the other. They
// are the translator, the UID store and the reference store, which crashes now and then. A slice
// stands for the log.
type roomsWorld struct {
	t        *testing.T
	rng      *rand.Rand
	tr       *translate.Translator
	interner *intern.Interner
	sources  []string // by number - 1
	uids     map[uint64]string

	fs      *vfs.MemFS
	store   *references.Store
	pending []*references.Batch // hydrated, not applied

	log    []truthEvent
	blocks []roomsBlock
	at     int // blocks that were hydrated
}

// roomsBlock is what the log has of a block.
type roomsBlock struct {
	position references.Position
	changes  []references.Change
	events   []int // of the changes, in log
}

func newRoomsWorld(t *testing.T, seed uint64) *roomsWorld {
	t.Helper()
	tr, err := translate.New(translate.Config{References: true})
	if err != nil {
		t.Fatal(err)
	}
	in, err := intern.Open(t.Context(), intern.Config{Store: simkv.New(simkv.Config{Seed: seed}), CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	w := &roomsWorld{t: t, rng: rand.New(rand.NewPCG(seed, 5)), tr: tr, interner: in, uids: make(map[uint64]string), fs: vfs.NewCrashableMem()}
	w.open()
	if err := w.store.Begin("rooms", references.Position{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

func (w *roomsWorld) open() {
	w.t.Helper()
	store, err := references.Open(references.Config{Dir: "refs", FS: w.fs, PebbleBytes: 4 << 20})
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = store
}

// number returns the number of a source.
func (w *roomsWorld) number(source string) uint32 {
	i := slices.Index(w.sources, source)
	if i < 0 {
		i = len(w.sources)
		w.sources = append(w.sources, source)
	}
	return uint32(i + 1)
}

// append makes a block of frames.
func (w *roomsWorld) append(frames [][]byte) {
	w.t.Helper()
	var b translate.Batch
	for _, f := range frames {
		w.tr.AppendFrame(&b, f)
	}
	if err := (&batchResolver{interner: w.interner}).Resolve(w.t.Context(), &b); err != nil {
		w.t.Fatal(err)
	}
	if len(b.Events) == 0 {
		return
	}
	block := roomsBlock{position: references.Position{Epoch: 1, Seq: b.Events[len(b.Events)-1].Seq}}
	next := 0
	for i := range b.Events {
		e := &b.Events[i]
		b.Stamp(i, translate.MinTimeUS)
		c := references.Change{Seq: e.Seq, Account: e.DIDUID, Record: e.URIUID}
		json := strings.Replace(string(b.Payload(i)), `"time_us":`+strconv.Itoa(translate.MinTimeUS), `"time_us":0`, 1)
		for ; next < len(b.References) && int(b.References[next].Event) == i; next++ {
			r := &b.References[next]
			w.uids[r.SubjectUID] = string(b.Subject(next))
			c.References = append(c.References, references.Reference{
				Path: w.number(string(b.Collection(i)) + ":" + string(b.ReferencePath(next))), Subject: r.SubjectUID, Authority: r.AuthorityUID,
			})
		}
		w.uids[e.URIUID] = "at://" + string(b.DID(i)) + "/" + string(b.Collection(i)) + "/" + string(b.RecordKey(i))
		if w.fill(&c, e, json) {
			block.changes, block.events = append(block.changes, c), append(block.events, len(w.log))
		}
		w.log = append(w.log, truthEvent{Seq: e.Seq, Op: e.Op, JSON: json})
	}
	w.blocks = append(w.blocks, block)
}

// fill sets what a change has of the event's JSON. It returns false if the event changes nothing.
func (w *roomsWorld) fill(c *references.Change, e *translate.Event, event string) bool {
	w.t.Helper()
	var body struct {
		Commit  struct{ Rev string }
		Account struct{ Status, Time string }
	}
	if err := json.Unmarshal([]byte(event), &body); err != nil {
		w.t.Fatal(err)
	}
	switch {
	case e.Kind == translate.KindCommit:
		c.Operation, c.Rev = references.Operation(e.Operation), syntax.TID(body.Commit.Rev).Integer()
		return true
	case body.Account.Status == "deleted":
		at, err := time.Parse(time.RFC3339Nano, body.Account.Time)
		if err != nil {
			w.t.Fatal(err)
		}
		c.Operation, c.TimeUS = references.DeleteAccount, at.UnixMicro()
		return true
	}
	return false
}

// maxPending is how many batches are hydrated and not applied at once.
const maxPending = 50

// hydrate hydrates the next block, and keeps what its events say of references.
func (w *roomsWorld) hydrate() {
	w.t.Helper()
	if len(w.pending) == maxPending { // with many more Hydrate waits for an Apply
		w.apply()
	}
	block := &w.blocks[w.at]
	w.at++
	b := &references.Batch{Position: block.position, Changes: slices.Clone(block.changes)}
	if err := w.store.Hydrate(w.t.Context(), b); err != nil {
		w.t.Fatal(err)
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		says := referenceNames("", relaysim.LineReferences{References: w.names(c.References), Had: w.names(c.Had)})
		e := &w.log[block.events[i]]
		if e.References != "" && e.References != says {
			w.t.Fatalf("after a crash %s says of references\n%s\nbefore it said\n%s", e.place(), says, e.References)
		}
		e.References = says
	}
	w.pending = append(w.pending, b)
}

func (w *roomsWorld) apply() {
	w.t.Helper()
	if err := w.store.Apply(w.pending[0]); err != nil {
		w.t.Fatal(err)
	}
	w.pending = w.pending[1:]
}

// crash goes on with what a crash leaves of the reference store.
func (w *roomsWorld) crash() {
	w.t.Helper()
	left := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 6))})
	_ = w.store.Close()
	w.fs, w.pending = left, nil
	w.open()
	at := w.store.Position()
	w.at = slices.IndexFunc(w.blocks, func(b roomsBlock) bool { return at.Before(b.position) })
	if w.at < 0 {
		w.at = len(w.blocks)
	}
}

// names returns references by the names of their sources.
func (w *roomsWorld) names(refs []references.Reference) (named []relaysim.Reference) {
	for _, r := range refs {
		named = append(named, relaysim.Reference{w.sources[r.Path-1], w.uids[r.Subject]})
	}
	return named
}

// rows returns what the reference store has, as aliveNames does.
func (w *roomsWorld) rows() (records []string) {
	w.t.Helper()
	_, err := w.store.Rows(w.t.Context(), func(r *references.Row) error {
		records = append(records, w.uids[r.Record]+"\n"+referenceNames("", relaysim.LineReferences{References: w.names(r.References)}))
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Sort(records)
	return records
}

// readFrames returns the frames that a relay's next messages are. What a consumer drops before it
// looks into it is left out.
func readFrames(t *testing.T, relay string, messages int) (frames [][]byte) {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial(relay+"/xrpc/com.atproto.sync.subscribeRepos", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range messages {
		kind, data, err := conn.ReadMessage()
		if err != nil {
			t.Fatalf("after %d frames: %v", len(frames), err)
		}
		if kind == websocket.BinaryMessage && len(data) <= 5<<20 {
			frames = append(frames, data)
		}
	}
	return frames
}

// What deletes and updates had, and which records are alive, is what the relay's truth says,
// through crashes of the reference store at any moment. A crash changes nothing of it.
func TestReferencesOfRooms(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const messages = 20_000
	seed := testSeed(t)
	sim := startRelaysim(t, "--seed", strconv.FormatUint(seed, 10), "--frames", strconv.Itoa(messages), "--wait-for-consumer",
		"--churn-every", "3", "--hostile-every", "20", "--truth-references", "--truth-sync")
	w := newRoomsWorld(t, seed)
	crashes := 0
	for frames := readFrames(t, sim.url, messages); len(frames) > 0; {
		n := min(1+w.rng.IntN(20), len(frames))
		w.append(frames[:n])
		frames = frames[n:]
		for w.at < len(w.blocks) && w.rng.IntN(3) > 0 {
			w.hydrate()
		}
		for len(w.pending) > 0 && w.rng.IntN(3) > 0 {
			w.apply()
		}
		if w.rng.IntN(10) == 0 {
			if _, err := w.store.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if w.rng.IntN(30) == 0 || len(frames) == 0 { // at least once
			w.crash()
			crashes++
		}
	}
	for w.at < len(w.blocks) {
		w.hydrate()
	}
	for len(w.pending) > 0 {
		w.apply()
	}
	want := readTruth(t, sim.truth)
	for i := range min(len(want), len(w.log)) {
		if g := w.log[i]; g.Seq != want[i].Seq || g.Op != want[i].Op || g.JSON != want[i].JSON {
			t.Fatalf("event %d is %s %s\nwant %s %s", i, g.place(), g.JSON, want[i].place(), want[i].JSON)
		}
	}
	if len(w.log) != len(want) || crashes == 0 {
		t.Fatalf("%d events, want %d; %d crashes", len(w.log), len(want), crashes)
	}
	checkReferencesAre(t, "the rooms", w.log, want)
	table := checkReferences(t, "the rooms, by the table", w.log)
	if diff := cmp.Diff(aliveNames(table), w.rows()); diff != "" {
		t.Errorf("records (-truth +store):\n%.3000s", diff)
	}
}
