package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/intern"
	"millrace/replay"
	"millrace/replay/graph"
	"millrace/replay/references"
	"millrace/translate"
)

var errTest = errors.New("no more")

// failingWriter takes so many bytes.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errTest
	}
	return len(p), nil
}

// fewNames knows UIDs below a number.
type fewNames struct {
	numberNames
	below uint64
	err   error
}

func (n *fewNames) LookupUIDs(ctx context.Context, uids []uint64, names []string) error {
	err := errors.Join(n.err, n.numberNames.LookupUIDs(ctx, uids, names))
	for i, uid := range uids {
		if uid >= n.below {
			names[i] = ""
		}
	}
	return err
}

// TestExportFails: an export ends with what it cannot name or write.
func TestExportFails(t *testing.T) {
	store := exportStore(t, 2)
	whole := bytes.Buffer{}
	reported := uint64(0)
	e := Export{Store: store, Names: &numberNames{}, Table: twoPaths{}, Progress: func(rows uint64) { reported = rows }}
	if rows, err := e.Run(t.Context(), NewRowWriter(&whole, "csv")); err != nil || rows != 12 || reported != rows {
		t.Fatalf("%d rows, %d reported, %v", rows, reported, err)
	}
	for says, change := range map[string]func(e *Export){
		"UID 10000 is not in the UID store":     func(e *Export) { e.Names = &fewNames{below: 10_000} },
		"UID 900 stands for \"did:web:900.exam": func(e *Export) { e.Store = storeOfRecord(t, 900, 1) },
		"a reference with source 3":             func(e *Export) { e.Store = storeOfRecord(t, 10_000, 3) },
		errTest.Error():                         func(e *Export) { e.Names = &fewNames{below: 1 << 40, err: errTest} },
	} {
		failing := e
		if change(&failing); !fails(failing.Run(t.Context(), NewRowWriter(io.Discard, "csv")))(says) {
			t.Errorf("%q is not the error", says)
		}
	}
	for _, format := range []string{"csv", "ndjson"} {
		var file bytes.Buffer
		if _, err := e.Run(t.Context(), NewRowWriter(&file, format)); err != nil {
			t.Fatal(err)
		}
		for left := range file.Len() {
			if _, err := e.Run(t.Context(), NewRowWriter(&failingWriter{left}, format)); !errors.Is(err, errTest) {
				t.Errorf("%s of %d bytes, of which %d are written: %v", format, file.Len(), left, err)
			}
		}
	}
	empty := e
	empty.Accounts = []uint64{}
	if _, err := empty.Run(t.Context(), NewRowWriter(&failingWriter{}, "csv")); !errors.Is(err, errTest) {
		t.Errorf("the names of the columns alone: %v", err)
	}
}

// fails returns whether an error says something.
func fails(_ uint64, err error) func(says string) bool {
	return func(says string) bool { return err != nil && strings.Contains(err.Error(), says) }
}

// storeOfRecord returns a store of one record.
func storeOfRecord(t *testing.T, record uint64, path uint32) *references.Store {
	t.Helper()
	s := exportStore(t, 0)
	b := references.Batch{Position: references.Position{Epoch: 1, Seq: 4}, Changes: []references.Change{{
		Operation: references.Create, Seq: 4, Account: 1, Record: record, Rev: 2, References: []references.Reference{{Path: path, Subject: 500, Authority: 500}}}}}
	if err := errors.Join(s.Hydrate(t.Context(), &b), s.Apply(&b)); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEdgeExport writes more edges than are looked up at once: those of the source that is asked
// for, each once. It ends with what it cannot name or write.
func TestEdgeExport(t *testing.T) {
	const many = exportLookup
	file := filepath.Join(t.TempDir(), "static")
	static, err := graph.OpenStatic(file, graph.Config{Sources: graph.DefaultSources(), StoreID: "uids"})
	if err != nil {
		t.Fatal(err)
	}
	defer static.Close()
	want := []string{"actor,subject\n"}
	var edges []graph.Edge
	for n := range uint64(many) {
		e := graph.Edge{Actor: 1 + n%3, Subject: 10 + n/3}
		edges, want = append(edges, e), append(want, fmt.Sprintf("did:web:%d.example.com,did:web:%d.example.com\n", e.Actor, e.Subject))
	}
	if err := errors.Join(static.Add(0, edges), static.Add(1, []graph.Edge{{Actor: 7, Subject: 8}})); err != nil {
		t.Fatal(err)
	}
	if _, err := static.Save(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	progress := 0
	run := func(names Names, source int, isStatic bool, w io.Writer) (uint64, error) {
		x := EdgeExport{Names: names, Source: source, Static: isStatic, Progress: func() { progress++ }}
		err := x.Run(t.Context(), file, w)
		return x.Edges, err
	}
	const small = "actor,subject\ndid:web:7.example.com,did:web:8.example.com\n"
	wide := &wideNames{}
	var got bytes.Buffer
	n, err := run(wide, 0, true, &got)
	lines := slices.Collect(strings.Lines(got.String()))
	if err != nil || n != many || lines[0] != want[0] || progress != 3 {
		t.Errorf("%d edges; progress %d times; %v", n, progress, err)
	}
	slices.Sort(lines)
	if slices.Sort(want); !slices.Equal(lines, want) {
		t.Errorf("%d lines are not the %d that they should be", len(lines), len(want))
	}
	for _, tc := range []struct {
		source   int
		isStatic bool
		want     string
	}{{1, true, small}, {0, false, "actor,subject\n"}} {
		got.Reset()
		if _, err := run(wide, tc.source, tc.isStatic, &got); err != nil || got.String() != tc.want {
			t.Errorf("%+v: %q, %v", tc, &got, err)
		}
	}
	for left := range len(small) {
		if _, err := run(wide, 1, true, &failingWriter{left}); !errors.Is(err, errTest) {
			t.Errorf("of which %d bytes are written: %v", left, err)
		}
	}
	for _, below := range []uint64{7, 8} {
		if _, err := run(&fewNames{below: below}, 1, true, io.Discard); err == nil || !strings.Contains(err.Error(), "an edge has UIDs 7 and 8") {
			t.Errorf("UIDs below %d are known: %v", below, err)
		}
	}
	if _, err := run(&fewNames{below: 99, err: errTest}, 1, true, io.Discard); !errors.Is(err, errTest) {
		t.Errorf("a UID store that fails: %v", err)
	}
	if _, err := run(&fewNames{below: 9, err: errTest}, 0, true, io.Discard); !errors.Is(err, errTest) {
		t.Errorf("a UID store that fails before the end: %v", err)
	}
	if _, err := run(wide, 0, false, &failingWriter{}); !errors.Is(err, errTest) {
		t.Errorf("the names of the columns alone: %v", err)
	}
	if err := (&EdgeExport{}).Run(t.Context(), file+"x", io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// wideNames names all UIDs as accounts.
type wideNames struct{ numberNames }

func (n *wideNames) LookupUIDs(ctx context.Context, uids []uint64, names []string) error {
	err := n.numberNames.LookupUIDs(ctx, uids, names)
	for i, uid := range uids {
		names[i] = fmt.Sprintf("did:web:%d.example.com", uid)
	}
	return err
}

// TestReadFails: what no file can be is said so, and an error of reading is returned.
func TestReadFails(t *testing.T) {
	for _, tc := range []struct {
		in   io.Reader
		says string
	}{
		{strings.NewReader(""), "the file is empty"},
		{strings.NewReader("letter"), "it is neither a CAR file"},
		{iotest.ErrReader(errTest), "read: no more"},
		{strings.NewReader("\x1f\x8b\x00\x00"), "read gzip: "},
		{strings.NewReader("\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "read: "},
		{io.MultiReader(strings.NewReader(`{"did":`), iotest.ErrReader(errTest)), "line 1: no more"},
		{io.MultiReader(strings.NewReader("{\"did\":\"\xc3"), iotest.ErrReader(errTest)), "line 1: no more"},
		{io.MultiReader(strings.NewReader("\n"), iotest.ErrReader(errTest)), "line 2: no more"},
		{io.MultiReader(strings.NewReader("did:web:example.com,"), iotest.ErrReader(errTest)), "no more"},
	} {
		if err := (&Reader{}).Read(t.Context(), tc.in, &gathered{}); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%v, want %q", err, tc.says)
		}
	}
	if _, err := IsRepository(strings.NewReader("\x1f\x8b\x00\x00")); err == nil {
		t.Error("what is no gzip is a file")
	}
	if err := (&Reader{Collections: []string{"x"}}).Read(t.Context(), strings.NewReader("{}"), &gathered{}); err == nil {
		t.Error("a collection that is none")
	}
}

// refusing is a sink that refuses an account, or a record.
type refusing struct{ begin, add error }

func (r refusing) Begin(string, uint64) error { return r.begin }
func (r refusing) Add(*Record) error          { return r.add }

// TestSinkEndsRows: an error of the sink, and the end of the context, end the reading.
func TestSinkEndsRows(t *testing.T) {
	row := fmt.Sprintf(`{"did":%q,"collection":"a.b.c","rkey":"1","path":"a","subject":%q}`, testDID, subject)
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	for name, tc := range map[string]struct {
		ctx  context.Context
		sink refusing
	}{"the account": {t.Context(), refusing{begin: errTest}}, "the record": {t.Context(), refusing{add: errTest}}, "the context": {ended, refusing{}}} {
		if err := (&Reader{}).Read(tc.ctx, strings.NewReader(row), tc.sink); !errors.Is(err, errTest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Rows of collections that are not kept are counted.
	r := Reader{Collections: []string{"x.y.z"}}
	if err := r.Read(t.Context(), strings.NewReader(row), refusing{add: errTest}); err != nil || r.Counts.Filtered != 1 {
		t.Errorf("%+v, %v", r.Counts, err)
	}
	// A line may be as long as the limit, and the file may end without a new line.
	long := row + strings.Repeat(" ", maxRowBytes-len(row))
	for n, ok := range map[int]bool{maxRowBytes: false, maxRowBytes - 1: true} {
		if err := (&Reader{}).Read(t.Context(), strings.NewReader(long[:n]), &gathered{}); (err == nil) != ok {
			t.Errorf("a line of %d bytes: %v", n, err)
		}
	}
}

// TestSpool: what was read once can be read from the beginning, and the file has no name.
func TestSpool(t *testing.T) {
	dir := t.TempDir()
	f, err := Spool(strings.NewReader("text"), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	left, dirErr := os.ReadDir(dir)
	if err := errors.Join(err, dirErr, f.Close()); err != nil || string(text) != "text" || len(left) > 0 {
		t.Errorf("%q, %v is left, %v", text, left, err)
	}
	if _, err := Spool(iotest.ErrReader(errTest), dir); !errors.Is(err, errTest) {
		t.Errorf("an error of reading: %v", err)
	}
	if _, err := Spool(strings.NewReader("text"), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// emptyLog has no references.
type emptyLog struct{ fakeLog }

func (*emptyLog) References() (after replay.EpochEnd, ok bool) { return after, false }

// TestImportNeedsALog: an import needs a log with events that are not stamped ahead.
func TestImportNeedsALog(t *testing.T) {
	if _, err := NewImport(t.Context(), ImportConfig{Log: &fakeLog{}}); err == nil || !strings.Contains(err.Error(), "the log has no events with references yet") {
		t.Errorf("a log without events: %v", err)
	}
	if _, err := NewImport(t.Context(), ImportConfig{Log: &fakeLog{begin: -1, events: []replay.Change{{Seq: 1}}}}); err != nil {
		t.Error(err)
	}
	ahead := []replay.Change{{Seq: 1, TimeUS: time.Now().Add(time.Hour).UnixMicro()}}
	if _, err := NewImport(t.Context(), ImportConfig{Log: &fakeLog{events: ahead}}); err == nil || !strings.Contains(err.Error(), "ahead of the clock") {
		t.Errorf("a log that was begun while the clock was ahead: %v", err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if _, err := NewImport(ended, ImportConfig{Log: &fakeLog{}}); !errors.Is(err, errTest) {
		t.Errorf("%v", err)
	}
}

// failingUIDs fails a look-up, or to resolve.
type failingUIDs struct {
	fakeUIDs
	lookup, resolve error
}

func (f failingUIDs) Lookup(ctx context.Context, s string) (uint64, bool, error) {
	uid, ok, err := f.fakeUIDs.Lookup(ctx, s)
	return uid, ok, errors.Join(err, f.lookup)
}

func (f failingUIDs) Resolve(ctx context.Context, reqs []intern.Request, out []intern.Result) error {
	return errors.Join(f.resolve, f.fakeUIDs.Resolve(ctx, reqs, out))
}

// followedWorld returns one of a seed whose store has read its log.
func followedWorld(t *testing.T, seed uint64, steps int, from references.Position) *importWorld {
	t.Helper()
	w := newImportWorld(t, seed)
	t.Cleanup(func() { _ = w.store.Close() })
	for range steps {
		w.step()
	}
	if err := errors.Join(w.store.Begin("", from), w.store.Follow(t.Context(), w.log, nil)); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestImportFails: what the UID store or the log fails with ends the import.
func TestImportFails(t *testing.T) {
	w := followedWorld(t, 11, 30, references.Position{Epoch: 1})
	const did = "did:web:1.example.com"
	rows := func(n int, path string) string {
		text := ""
		for i := range n {
			text += fmt.Sprintf("did:web:new.example.com,app.bsky.feed.like,%d,%s,did:web:s.example.com\n", i, path)
		}
		return text
	}
	number := func([]string) (Log, error) { return w.log, nil }
	for name, tc := range map[string]struct {
		uids   UIDs
		number func([]string) (Log, error)
		file   string
	}{
		"a look-up":           {failingUIDs{fakeUIDs: w.uids, lookup: errTest}, number, string(w.file(did, 29, false))},
		"UIDs at the end":     {failingUIDs{fakeUIDs: w.uids, resolve: errTest}, number, rows(1, "subject.uri")},
		"UIDs before the end": {failingUIDs{fakeUIDs: w.uids, resolve: errTest}, number, rows(maxRequests, "subject.uri")},
		"numbers of sources":  {w.uids, func([]string) (Log, error) { return nil, errTest }, rows(1, "new")},
	} {
		i, err := NewImport(t.Context(), ImportConfig{Store: w.store, UIDs: tc.uids, Log: w.log, NumberSources: tc.number, AsOf: w.at, Progress: func() {}, Refused: func(string, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		read := (&Reader{}).Read(t.Context(), strings.NewReader(tc.file), i)
		if early := name != "UIDs at the end"; errors.Is(read, errTest) != early || !early && !errors.Is(i.Finish(), errTest) || i.Done.Imported > 0 {
			t.Errorf("%s: %v, %+v", name, read, i.Done)
		}
	}
}

// TestImportLimits: more records than UIDs are asked for at once are imported; references over the
// limits are counted.
func TestImportLimits(t *testing.T) {
	w := followedWorld(t, 11, 30, references.Position{Epoch: 1})
	many, wide := "", ""
	for n := range maxRequests {
		many += fmt.Sprintf("did:web:many.example.com,app.bsky.feed.like,%d,subject.uri,did:web:s.example.com\n", n)
	}
	for n := range translate.MaxReferences + 3 {
		wide += fmt.Sprintf("did:web:wide.example.com,app.bsky.feed.like,1,subject.uri,did:web:%d.example.com\n", n)
	}
	done, err := w.run([][]byte{[]byte(many), []byte(wide)}, w.at, -1)
	if err != nil || done.Imported != 2 || done.Records != maxRequests+1 || done.References != maxRequests+translate.MaxReferences || done.Excess != 3 || len(w.rows("did:web:many.example.com")) != maxRequests {
		t.Errorf("%+v, %v", done, err)
	}
	// The log takes no more sources.
	i, err := NewImport(t.Context(), ImportConfig{Store: w.store, UIDs: w.uids, Log: w.log, NumberSources: func([]string) (Log, error) { return w.log, nil }, AsOf: w.at,
		Progress: func() {}, Refused: func(string, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	file := "did:web:new.example.com,app.bsky.feed.like,1,new,did:web:s.example.com\n"
	if err := errors.Join((&Reader{}).Read(t.Context(), strings.NewReader(file), i), i.Finish()); err != nil || i.Done.Excess != 1 || i.Done.Records != 1 || i.Done.References != 0 {
		t.Errorf("%+v, %v", i.Done, err)
	}
}

// TestImportByRev: without a time a repository is as old as its rev, and the log from there on is
// laid over it.
func TestImportByRev(t *testing.T) {
	w := followedWorld(t, 11, 40, references.Position{Epoch: 1})
	const did = "did:web:1.example.com"
	done, err := w.run([][]byte{w.file(did, 20, false)}, time.Time{}, -1)
	if diff := cmp.Diff(w.states[39][did], w.rows(did), cmpopts.EquateEmpty()); err != nil || done.Imported != 1 || done.Refused != 0 || diff != "" {
		t.Errorf("%+v, %v, -want +got\n%s", done, err, diff)
	}
}

// TestCheckBegins compares what the log has from the beginning of the table on, and says how far it
// is; without references there is nothing to compare.
func TestCheckBegins(t *testing.T) {
	w := followedWorld(t, 11, 30, references.Position{Epoch: 1, Seq: 8})
	seen := uint64(0)
	c := Check{Store: w.store, Log: w.log, Progress: func(n uint64) { seen = n }}
	if r, err := c.Run(t.Context()); err != nil || r.Events != 22 || seen != 22 || r.Records == 0 || r.Problems > 0 {
		t.Errorf("%+v, %d seen, %v", r, seen, err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if r, err := c.Run(ended); !errors.Is(err, errTest) || !strings.HasPrefix(err.Error(), "compare the table with the log: ") {
		t.Errorf("%+v, %v", r, err)
	}
	c.Log = &emptyLog{}
	if r, err := c.Run(t.Context()); err != nil || r.Events != 0 || r.Records != 0 {
		t.Errorf("without references: %+v, %v", r, err)
	}
}

// TestCheckRepeated: operations that come again, from an epoch that started over, are no problem.
func TestCheckRepeated(t *testing.T) {
	w := followedWorld(t, 11, 40, references.Position{Epoch: 1})
	for _, e := range w.log.events[:20] {
		e.Repeated, e.Seq, e.TimeUS = true, e.Seq+40, e.TimeUS+40*time.Minute.Microseconds()
		w.log.events = append(w.log.events, e)
	}
	if err := w.store.Follow(t.Context(), w.log, nil); err != nil {
		t.Fatal(err)
	}
	c := Check{Store: w.store, Log: w.log}
	if r, err := c.Run(t.Context()); err != nil || r.Events != 60 || r.Records == 0 || r.Problems > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRowsPassRepeated: what came again after --as-of, from an epoch that started over, is not laid
// over rows.
func TestRowsPassRepeated(t *testing.T) {
	w := followedWorld(t, 11, 40, references.Position{Epoch: 1})
	asOf := w.at.Add(30 * time.Minute)
	for _, e := range w.log.events[:20] {
		e.Repeated, e.Seq, e.TimeUS = true, e.Seq+40, e.TimeUS+80*time.Minute.Microseconds()
		w.log.events = append(w.log.events, e)
	}
	if err := w.store.Follow(t.Context(), w.log, nil); err != nil {
		t.Fatal(err)
	}
	for did := range w.states[39] {
		if len(w.states[39][did]) == 0 {
			continue
		}
		done, err := w.run([][]byte{w.file(did, 39, true)}, asOf, -1)
		if diff := cmp.Diff(w.states[39][did], w.rows(did)); err != nil || done.Imported != 1 || diff != "" {
			t.Errorf("%s: %+v, %v, -want +got\n%s", did, done, err, diff)
		}
	}
}
