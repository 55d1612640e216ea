package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/consume/relaysim/cbor"
	"millrace/intern"
	"millrace/replay"
	"millrace/replay/references"
	"millrace/translate"
)

// fakeUIDs numbers strings as they come.
type fakeUIDs map[string]uint64

func (f fakeUIDs) uid(s string) uint64 {
	if f[s] == 0 {
		f[s] = uint64(len(f) + 1)
	}
	return f[s]
}

func (f fakeUIDs) Lookup(_ context.Context, s string) (uint64, bool, error) {
	return f[s], f[s] != 0, nil
}

func (f fakeUIDs) Resolve(_ context.Context, reqs []intern.Request, out []intern.Result) error {
	for i, r := range reqs {
		switch did := string(r.DID); {
		case len(r.Name) > 0:
			out[i].DIDUID = f.uid(authority(string(r.Name)))
			if strings.HasPrefix(string(r.Name), "at://") {
				out[i].URIUID = f.uid(string(r.Name))
			}
		default:
			out[i].DIDUID = f.uid(did)
			if len(r.Collection) > 0 {
				out[i].URIUID = f.uid("at://" + did + "/" + string(r.Collection) + "/" + string(r.RecordKey))
			}
		}
	}
	return nil
}

func authority(subject string) string {
	did, _, _ := strings.Cut(strings.TrimPrefix(subject, "at://"), "/")
	return did
}

// fakeLog is a log of which the first events have no references, or were trimmed.
type fakeLog struct {
	events []replay.Change // each in a frame of its own
	begin  int64           // frames up to this one are not in it
	paths  []string
}

func (l *fakeLog) References() (replay.EpochEnd, bool) {
	return replay.EpochEnd{Epoch: 1, Seq: l.begin}, true
}

func (l *fakeLog) FindSource(source string) (uint32, bool) {
	i := slices.Index(l.paths, source)
	return uint32(i + 1), i >= 0
}

func (l *fakeLog) Changes(ctx context.Context, after replay.EpochEnd, f func(*replay.Changes) error) error {
	if after.Seq < l.begin {
		return replay.ErrTrimmed
	}
	for i := range l.events {
		e := l.events[i]
		if e.Seq <= after.Seq {
			continue
		}
		c := replay.Changes{Through: replay.EpochEnd{Epoch: 1, Seq: e.Seq}, Events: []replay.Change{e}}
		if err := f(&c); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// importWorld is a network of some accounts, its log, and what is known of it.
type importWorld struct {
	t      *testing.T
	rng    *rand.Rand
	uids   fakeUIDs
	log    *fakeLog
	fs     *vfs.MemFS
	store  *references.Store
	at     time.Time
	lag    time.Duration                  // of revs behind stamps
	states []map[string]map[string]string // after each frame: by account and record, its subject
	revs   []map[string]uint64            // likewise by account
}

const worldPath = "app.bsky.feed.like:subject.uri"

// newImportWorld returns one with an empty log and an open store.
func newImportWorld(t *testing.T, seed uint64) *importWorld {
	w := &importWorld{t: t, rng: rand.New(rand.NewPCG(seed, 1)), uids: make(fakeUIDs), log: &fakeLog{paths: []string{worldPath}},
		fs: vfs.NewCrashableMem(), at: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
	w.open()
	return w
}

func (w *importWorld) open() {
	w.t.Helper()
	var err error
	if w.store, err = references.Open(references.Config{Dir: "refs", FS: w.fs}); err != nil {
		w.t.Fatal(err)
	}
}

// step makes the next frame.
func (w *importWorld) step() {
	w.at = w.at.Add(time.Minute)
	state, revs := make(map[string]map[string]string), make(map[string]uint64)
	if n := len(w.states); n > 0 {
		for did, records := range w.states[n-1] {
			state[did] = maps.Clone(records)
		}
		revs = maps.Clone(w.revs[n-1])
	}
	did := fmt.Sprintf("did:web:%d.example.com", w.rng.IntN(4))
	if state[did] == nil {
		state[did] = make(map[string]string)
	}
	e := replay.Change{Seq: int64(len(w.states) + 1), TimeUS: w.at.UnixMicro(), DIDUID: w.uids.uid(did), Kind: translate.KindCommit}
	if len(w.states) > 4 && w.rng.IntN(12) == 0 {
		e.Kind = translate.KindAccount
		e.Payload = fmt.Appendf(nil, `{"did":%q,"time_us":%d,"kind":"account","account":{"active":false,"did":%q,"seq":1,"status":"deleted","time":%q}}`,
			did, e.TimeUS, did, w.at.Format(time.RFC3339Nano))
		clear(state[did])
	} else {
		rev := syntax.NewTID(e.TimeUS-w.lag.Microseconds(), 0)
		revs[did] = rev.Integer()
		e.Payload = fmt.Appendf(nil, `{"did":%q,"time_us":%d,"kind":"commit","commit":{"rev":%q}}`, did, e.TimeUS, rev)
		key := fmt.Sprintf("app.bsky.feed.like/%d", w.rng.IntN(6))
		e.URIUID = w.uids.uid("at://" + did + "/" + key)
		_, alive := state[did][key]
		switch {
		case alive && w.rng.IntN(2) == 0:
			e.Operation = translate.OpDelete
			delete(state[did], key)
		default:
			e.Operation = translate.OpCreate
			if alive {
				e.Operation = translate.OpUpdate
			}
			subject := fmt.Sprintf("at://did:web:%d.net/a.b.c/%d", w.rng.IntN(3), w.rng.IntN(9))
			state[did][key] = subject
			e.References = []replay.Reference{{Source: 1, Subject: w.uids.uid(subject), Authority: w.uids.uid(authority(subject))}}
		}
	}
	w.log.events = append(w.log.events, e)
	w.states, w.revs = append(w.states, state), append(w.revs, revs)
}

// rows returns what the table has of an account: subjects by record.
func (w *importWorld) rows(did string) map[string]string {
	w.t.Helper()
	names := make(map[uint64]string)
	for s, uid := range w.uids {
		names[uid] = s
	}
	rows := make(map[string]string)
	_, err := w.store.RowsOf(w.t.Context(), w.uids.uid(did), func(r *references.Row) error {
		key := strings.TrimPrefix(names[r.Record], "at://"+did+"/")
		for _, ref := range r.References {
			rows[key] = names[ref.Subject]
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// file is what an account was after frame n: a repository, or rows.
func (w *importWorld) file(did string, n int, rows bool) []byte {
	state := w.states[n][did]
	if !rows {
		records := make(map[string]cbor.Map)
		for key, subject := range state {
			records[key] = like(subject)
		}
		return buildCAR(w.t, did, syntax.NewTIDFromInteger(w.revs[n][did]).String(), records).bytes()
	}
	var buf bytes.Buffer
	out := NewRowWriter(&buf, "csv")
	for key, subject := range state {
		_, rkey, _ := strings.Cut(key, "/")
		_ = out.Write(&Row{did, "app.bsky.feed.like", rkey, "subject.uri", subject})
	}
	_ = out.Flush()
	return buf.Bytes()
}

// run imports files, and ends after so many batches; -1: never.
func (w *importWorld) run(files [][]byte, asOf time.Time, batches int) (done ImportCounts, err error) {
	w.t.Helper()
	ctx, stop := context.WithCancelCause(w.t.Context())
	defer stop(nil)
	imp, err := NewImport(ctx, ImportConfig{
		Store: w.store, UIDs: w.uids, Log: w.log, AsOf: asOf,
		NumberSources: func(sources []string) (Log, error) {
			w.log.paths = append(w.log.paths, sources...)
			return w.log, nil
		},
		Refused: func(did string, reason error) {
			if !errors.Is(reason, errTooOld) {
				w.t.Errorf("%s was refused: %v", did, reason)
			}
		},
		Progress: func() {
			if batches--; batches == 0 {
				stop(errKilled)
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	imp.groupChanges, imp.batchChanges = 1+w.rng.IntN(12), 1+w.rng.IntN(8)
	for _, f := range files {
		var r Reader
		if err := r.Read(ctx, bytes.NewReader(f), imp); err != nil {
			return imp.Done, err
		}
	}
	err = imp.Finish()
	return imp.Done, err
}

var errKilled = errors.New("killed")

// TestFinishIsDurable: a power loss after Finish takes nothing back.
func TestFinishIsDurable(t *testing.T) {
	w := newImportWorld(t, 6)
	w.log.begin = 39
	for range 40 {
		w.step()
	}
	if err := errors.Join(w.store.Begin("", references.Position{Epoch: 1, Seq: 39}), w.store.Follow(t.Context(), w.log, nil)); err != nil {
		t.Fatal(err)
	}
	var files [][]byte
	for did := range w.states[39] {
		files = append(files, w.file(did, 39, false))
	}
	if done, err := w.run(files, time.UnixMicro(w.log.events[39].TimeUS), -1); err != nil || done.Imported == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	crashed := w.fs.CrashClone(vfs.CrashCloneCfg{})
	_ = w.store.Close()
	w.fs = crashed
	w.open()
	defer func() { _ = w.store.Close() }()
	for did, want := range w.states[39] {
		if diff := cmp.Diff(want, w.rows(did), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s -want +got\n%s", did, diff)
		}
	}
}

// TestImportModel: after an import over a log an account has what the network had at the log's end.
// Else it is refused and has what it had. So it is after kills, a second import, and more events.
func TestImportModel(t *testing.T) {
	seeds := []uint64{}
	for range 60 {
		seeds = append(seeds, rand.Uint64())
	}
	if v, err := strconv.ParseUint(os.Getenv("MILLRACE_TEST_SEED"), 10, 64); err == nil {
		seeds = []uint64{v}
	}
	sum := make(map[string]int)
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { importOnce(t, seed, sum) })
	}
	for _, what := range []string{"imported", "refused", "laid", "killed"} {
		if sum[what] == 0 && len(seeds) > 1 {
			t.Errorf("nothing was %s", what)
		}
	}
	t.Log(sum)
}

func importOnce(t *testing.T, seed uint64, sum map[string]int) {
	w := newImportWorld(t, seed)
	defer func() { _ = w.store.Close() }()
	w.lag = time.Duration(w.rng.IntN(2)) * 3 * time.Hour
	for range 60 {
		w.step()
	}
	w.log.begin = int64(w.rng.IntN(30)) // references were off
	if err := w.store.Begin("", references.Position{Epoch: 1, Seq: w.log.begin}); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Follow(t.Context(), w.log, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Flush(); err != nil {
		t.Fatal(err)
	}
	w.log.begin += int64(w.rng.IntN(20)) // trimmed
	n := w.rng.IntN(60)                  // the files are of then
	rows, asOf := w.rng.IntN(3) == 0, time.UnixMicro(w.log.events[n].TimeUS)
	var files [][]byte
	before, want := make(map[string]map[string]string), make(map[string]map[string]string)
	for did := range w.states[n] {
		if before[did] = w.rows(did); w.revs[n][did] == 0 || rows && len(w.states[n][did]) == 0 {
			continue
		}
		files = append(files, w.file(did, n, rows))
		if want[did] = w.states[59][did]; int64(n) < w.log.begin {
			if known, _, err := w.store.Account(w.uids.uid(did)); err != nil || rows || known.Rev != w.revs[n][did] {
				want[did] = before[did]
			}
		}
	}
	for kills := 0; ; kills++ {
		batches := w.rng.IntN(3)
		if kills == 20 {
			batches = -1 // is not killed, so that chance cannot go on for ever
		}
		done, err := w.run(files, asOf, batches)
		sum["imported"] += int(done.Imported)
		sum["refused"] += int(done.Refused)
		sum["laid"] += int(done.Laid)
		if err == nil {
			break
		}
		if !errors.Is(err, errKilled) || kills == 20 {
			t.Fatalf("MILLRACE_TEST_SEED=%d: %v", seed, err)
		}
		sum["killed"]++
		crashed := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: rand.New(rand.NewPCG(seed, 2))})
		_ = w.store.Close()
		w.fs = crashed
		w.open()
	}
	compare := func(what string) {
		t.Helper()
		for did := range want {
			if diff := cmp.Diff(want[did], w.rows(did)); diff != "" {
				t.Fatalf("MILLRACE_TEST_SEED=%d: files of frame %d, log from %d, rows %t: %s: %s -want +got\n%s",
					seed, n+1, w.log.begin+1, rows, what, did, diff)
			}
		}
	}
	compare("after the import")
	if done, err := w.run(files, asOf, -1); err != nil || done.Imported > 0 {
		t.Fatalf("MILLRACE_TEST_SEED=%d: again: %+v, %v", seed, done, err)
	}
	compare("after the second import")
	for range 20 {
		w.step()
	}
	if err := w.store.Follow(t.Context(), w.log, nil); err != nil {
		t.Fatal(err)
	}
	for did := range want {
		if maps.Equal(want[did], w.states[59][did]) {
			want[did] = w.states[79][did]
		} else {
			delete(want, did)
		}
	}
	compare("after more events")
	report, err := w.store.Verify(t.Context(), nil)
	if err != nil || !report.Sound() {
		t.Errorf("MILLRACE_TEST_SEED=%d: %+v, %v", seed, report, err)
	}
	check := Check{Store: w.store, Log: w.log}
	compared, err := check.Run(t.Context())
	if err != nil || compared.Problems > 0 || compared.Events == 0 || compared.Records == 0 && w.lag == 0 {
		t.Errorf("MILLRACE_TEST_SEED=%d: %+v, %v", seed, compared, err)
	}
}

// TestCheck: a row that the log does not have, one that is missing, and one with other references
// are found. What the store has not read yet is not compared.
func TestCheck(t *testing.T) {
	w := followedWorld(t, 1, 60, references.Position{Epoch: 1})
	for range 20 {
		w.step()
	}
	run := func() *CheckReport {
		t.Helper()
		c := Check{Store: w.store, Log: w.log}
		r, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := run(); r.Problems > 0 || r.Events != 60 || r.Records < 10 {
		t.Fatalf("a sound table: %+v", r)
	}
	rev := uint64(w.at.UnixMicro()) << 10
	problems := uint64(0)
	for did, state := range w.states[59] {
		for n := range 6 {
			key := fmt.Sprintf("app.bsky.feed.like/%d", n)
			c := references.Change{Operation: references.Create, Account: w.uids.uid(did), Record: w.uids["at://"+did+"/"+key], Rev: rev + problems}
			says := "was deleted, and has a row"
			switch _, alive := state[key]; {
			case c.Record == 0:
				continue
			case alive && n%2 == 0:
				c.Operation, says = references.Delete, "is alive, and has no row"
			case alive:
				c.References, says = []references.Reference{{Path: 1, Subject: 12345, Authority: 12345}}, "other references"
			}
			b := references.Batch{Position: w.store.Position(), Changes: []references.Change{c}}
			if err := errors.Join(w.store.Hydrate(t.Context(), &b), w.store.Apply(&b)); err != nil {
				t.Fatal(err)
			}
			problems++
			want := fmt.Sprintf("record %d of account %d", c.Record, c.Account)
			r := run()
			if i := slices.IndexFunc(r.Examples, func(e string) bool { return strings.HasPrefix(e, want) && strings.Contains(e, says) }); r.Problems != problems || i < 0 {
				t.Fatalf("%s %s: %+v", want, says, r)
			}
		}
	}
	if problems < 10 {
		t.Errorf("only %d rows were changed", problems)
	}
}

// TestImportedReferences: a reference has the UIDs of its subject and of the subject's DID.
func TestImportedReferences(t *testing.T) {
	const other = "did:web:s.example.com"
	w := followedWorld(t, 11, 30, references.Position{Epoch: 1})
	for key, subject := range map[string]string{"1": other, "2": "at://" + other + "/a.b.c/1"} {
		account := "did:web:new" + key + ".example.com"
		row := fmt.Sprintf("%s,app.bsky.feed.like,%s,subject.uri,%s\n", account, key, subject)
		if done, err := w.run([][]byte{[]byte(row)}, w.at, -1); err != nil || done.References != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		got, _, err := w.store.Row(w.uids.uid(account), w.uids.uid("at://"+account+"/app.bsky.feed.like/"+key))
		if err != nil || len(got.References) != 1 || got.References[0].Subject != w.uids.uid(subject) || got.References[0].Authority != w.uids.uid(other) {
			t.Errorf("%s: %+v, %v", subject, got, err)
		}
	}
}

// TestRowsTwice: a row that comes twice is one reference.
func TestRowsTwice(t *testing.T) {
	w := followedWorld(t, 6, 1, references.Position{Epoch: 1})
	row := "did:web:9.example.com,app.bsky.feed.like,a,subject.uri,did:web:s.example.com\n"
	done, err := w.run([][]byte{[]byte(row + row)}, w.at.Add(time.Hour), -1)
	if err != nil || done.Records != 1 || done.References != 1 || done.Excess != 0 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestClockSlack: what the log has of the ten minutes before --as-of is laid over rows, and of what
// came before that nothing is.
func TestClockSlack(t *testing.T) {
	for before, want := range map[time.Duration]int{9*time.Minute + 59*time.Second: 0, 10*time.Minute + time.Second: 1} {
		w := newImportWorld(t, 7)
		asOf := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
		const did, key, subject = "did:web:9.example.com", "app.bsky.feed.like/a", "did:web:s.example.com"
		event := func(at time.Time, did, key string) {
			e := replay.Change{Seq: int64(len(w.log.events) + 1), TimeUS: at.UnixMicro(), DIDUID: w.uids.uid(did), URIUID: w.uids.uid("at://" + did + "/" + key),
				Kind: translate.KindCommit, Operation: translate.OpDelete}
			e.Payload = fmt.Appendf(nil, `{"did":%q,"time_us":%d,"kind":"commit","commit":{"rev":%q}}`, did, e.TimeUS, syntax.NewTID(e.TimeUS, 0))
			w.log.events = append(w.log.events, e)
		}
		event(asOf.Add(-time.Hour), "did:web:1.example.com", key)
		event(asOf.Add(-before), did, key)
		event(asOf.Add(time.Minute), "did:web:1.example.com", key)
		if err := errors.Join(w.store.Begin("", references.Position{Epoch: 1}), w.store.Follow(t.Context(), w.log, nil)); err != nil {
			t.Fatal(err)
		}
		row := fmt.Sprintf("%s,app.bsky.feed.like,a,subject.uri,%s\n", did, subject)
		done, err := w.run([][]byte{[]byte(row)}, asOf, -1)
		if got := len(w.rows(did)); err != nil || done.Imported != 1 || got != want {
			t.Errorf("deleted %v before: %d rows, want %d; %+v, %v", before, got, want, done, err)
		}
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPurged: what was purged is no problem of a check, and a repository of the rev up to which its
// account was purged is refused.
func TestPurged(t *testing.T) {
	w := followedWorld(t, 5, 40, references.Position{Epoch: 1})
	const did = "did:web:1.example.com"
	rev := w.revs[39][did]
	b := references.Batch{Position: w.store.Position(), Changes: []references.Change{{Operation: references.Purge, Account: w.uids.uid(did), Rev: rev}}}
	if err := errors.Join(w.store.Hydrate(t.Context(), &b), w.store.Apply(&b)); err != nil {
		t.Fatal(err)
	}
	c := Check{Store: w.store, Log: w.log}
	if r, err := c.Run(t.Context()); err != nil || r.Problems > 0 || r.Records == 0 {
		t.Errorf("a check: %+v, %v", r, err)
	}
	refused := 0
	imp, err := NewImport(t.Context(), ImportConfig{
		Store: w.store, UIDs: w.uids, Log: w.log, AsOf: w.at, Progress: func() {},
		Refused: func(string, error) { refused++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	var r Reader
	err = r.Read(t.Context(), bytes.NewReader(w.file(did, 39, false)), imp)
	if err = errors.Join(err, imp.Finish()); err != nil || refused != 1 || imp.Done.Refused != 1 || imp.Done.Imported != 0 {
		t.Errorf("an import: %v, %d refused, %+v", err, refused, imp.Done)
	}
}
