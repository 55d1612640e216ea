package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"millrace/intern/kv/pebbleguard"
	"millrace/intern/kv/pebblekv"
	"millrace/public/client"
	"millrace/replay/chain"
	"millrace/translate/verify/identity"
)

// TestCheckupText: all that was found is printed, in these words; what was not found is left out.
func TestCheckupText(t *testing.T) {
	at := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	c := &checkup{Dir: "data", State: stateStopped, LastRun: &lastRun{Version: "1.2", Started: at, Stopped: at.Add(time.Hour)}, FreeBytes: 3 << 20}
	for i := range maxPrinted + 2 {
		c.Contents = append(c.Contents, content{Name: fmt.Sprintf("file%d", i), Files: i, Bytes: int64(i) << 19})
	}
	c.Contents[1].Is, c.Contents[1].Pebble = "event log", 24
	l := &logFound{Version: 10, Relay: "relay.test", Stream: "x.1", Epoch: 1, Seq: 9, Events: 8, UIDStore: "ab", References: "x.1-3-4294967295", Dictionaries: []uint32{7, 8},
		Oldest: &client.Point{TimeUS: at.UnixMicro(), Cursor: "x.1-2-0"}, Newest: &client.Point{TimeUS: at.Add(time.Minute).UnixMicro(), Cursor: "x.1-9-0"}}
	for i := range maxPrinted + 3 {
		l.Gaps = append(l.Gaps, client.Gap{From: fmt.Sprint("from", i), To: fmt.Sprint("to", i), TimeUS: at.UnixMicro()})
	}
	c.storesFound = storesFound{Log: l, UIDs: &uidsFound{1, "ab", 14, 77}, References: &refsFound{2, 3, 1, 9, true, 0.5}, Graph: &graphFound{1, 8, 66}}
	c.Trouble, c.Advice = []string{"one", "two"}, []string{"three"}
	want := "data: stopped in order at 2026-11-26T09:00:00Z, by millrace 1.2\n"
	for i := range maxPrinted {
		is := "not millrace's"
		if i == 1 {
			is = "event log, Pebble format 24"
		}
		want += fmt.Sprintf("  %-16s %10.1f MiB  %6d files  %s\n", fmt.Sprint("file", i), float64(i)/2, i, is)
	}
	want += "  and 2 more\n" + fmt.Sprintf("  %-16s %10.1f MiB\n", "free disk", 3.0) +
		"event log: format 10, relay relay.test, stream x.1, at seq 9 of epoch 1, 8 events\n  UID store ab, dictionaries [7 8], references after x.1-3\n" +
		"  oldest event x.1-2-0 of 2026-11-26T08:00:00Z\n  newest event x.1-9-0 of 2026-11-26T08:01:00Z\n  3 older gaps\n"
	for i := 3; i < maxPrinted+3; i++ {
		want += fmt.Sprintf("  gap from from%d to to%d, 2026-11-26T08:00:00Z\n", i, i)
	}
	want += "UID store: format 1, store ID ab, 14 prefix bits, 77 UIDs\nreference store: format 2, generation 3, at seq 9 of epoch 1, links, 50 % built\n" +
		"graph: snapshot at seq 8 of epoch 1, 66 accounts\ntrouble: one\ntrouble: two\nadvice: three\n"
	compare := func(want string) {
		t.Helper()
		var text strings.Builder
		c.print(&text)
		if diff := cmp.Diff(want, text.String()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	compare(want)
	c = &checkup{Dir: "data", State: stateEmpty}
	empty := "data: empty\n" + fmt.Sprintf("  %-16s %10.1f MiB\n", "free disk", 0.0)
	compare(empty)
	c.Log, c.References = &logFound{Gaps: l.Gaps[:1]}, &refsFound{Version: 2}
	compare(empty + "event log, as its server says:\n  gap from from0 to to0, 2026-11-26T08:00:00Z\n" +
		"reference store: format 2, generation 0, at seq 0 of epoch 0, no links\n")
	c.Log, c.References = &logFound{Version: 10, Gaps: make([]client.Gap, maxPrinted)}, nil
	text := strings.Builder{}
	if c.print(&text); !strings.Contains(text.String(), "UID store none, dictionaries [], references after none\n") || strings.Contains(text.String(), "older") {
		t.Errorf("of a log without UIDs, with gaps that are just printed: %s", &text)
	}
}

// TestHistory: what is said of each state, with what is known of the last run.
func TestHistory(t *testing.T) {
	at := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	const started, stopped = ", by millrace 1, which started at 2026-11-26T08:00:00Z", " at 2026-11-26T08:00:00Z, by millrace 1"
	runs := &lastRun{Version: "1", Started: at}
	ran := &lastRun{Version: "1", Started: at.Add(-time.Hour), Stopped: at}
	for _, tc := range []struct {
		state   string
		process int
		last    *lastRun
		want    string
	}{
		{stateRunning, 7, runs, "in use by process 7" + started},
		{stateRunning, 7, ran, "in use by process 7"},
		{stateRunning, 0, runs, "in use" + started},
		{stateRunning, 0, nil, "in use"},
		{stateStopped, 0, ran, "stopped in order" + stopped},
		{stateKilled, 0, runs, "killed" + started},
		{stateKilled, 0, ran, "killed"},
		{stateKilled, 0, nil, "killed"},
		{stateBackup, 0, nil, "a backup of 2026-11-26T08:00:00Z, by millrace 2"},
		{stateUnknown, 0, nil, "stopped or killed, by a millrace that did not write which"},
		{stateForeign, 0, nil, "no data directory"},
		{stateEmpty, 0, nil, "empty"},
	} {
		c := checkup{State: tc.state, Process: tc.process, LastRun: tc.last, Backup: &backupManifest{Made: at, Version: "2"}}
		if got := c.history(); got != tc.want {
			t.Errorf("%s, process %d, %+v: %q, want %q", tc.state, tc.process, tc.last, got, tc.want)
		}
	}
}

// TestJudge: what does not fit together is trouble; each state has its advice, unless there is
// trouble.
func TestJudge(t *testing.T) {
	log, uids, other := &logFound{UIDStore: "a"}, &uidsFound{ID: "a"}, &uidsFound{ID: "b"}
	past := &logFound{Newest: &client.Point{TimeUS: time.Now().UnixMicro()}}
	ahead := &logFound{Newest: &client.Point{TimeUS: time.Now().Add(time.Hour).UnixMicro()}}
	intern := []content{{Name: "intern"}}
	for _, tc := range []struct {
		c       checkup
		trouble string // of which is part; "": there is none
		advice  []string
	}{
		{checkup{State: stateRunning}, "", []string{"Ask the server"}},
		{checkup{State: stateRunning, storesFound: storesFound{Log: log, UIDs: other}}, "", []string{"Nothing needs to be done"}},
		{checkup{State: stateStopped, storesFound: storesFound{Log: log, UIDs: uids}}, "", []string{"It can be started."}},
		{checkup{State: stateStopped, storesFound: storesFound{Log: log, UIDs: other}}, "UIDs of store a, but store b", []string{"Put the UID store back"}},
		{checkup{State: stateStopped, storesFound: storesFound{Log: &logFound{}, UIDs: other}}, "", []string{"It can be started."}},
		{checkup{State: stateStopped, storesFound: storesFound{Log: log}}, "", []string{"The log has UIDs of store a, which is not here", "It can be started with --intern=fdb or --intern=off."}},
		{checkup{State: stateKilled, storesFound: storesFound{Log: log}}, "", []string{"The log has UIDs of store a", "It can be started with --intern=fdb or --intern=off: what"}},
		{checkup{State: stateStopped, storesFound: storesFound{Log: &logFound{}}}, "", []string{"It can be started."}},
		{checkup{State: stateStopped, Contents: intern, storesFound: storesFound{Log: log}}, "", []string{"It can be started."}},
		{checkup{State: stateStopped, storesFound: storesFound{Log: ahead}}, "", []string{"It can be started.", "The newest event is stamped ahead"}},
		{checkup{State: stateStopped, storesFound: storesFound{Log: past}}, "", []string{"It can be started."}},
		{checkup{State: stateKilled}, "", []string{"It can be started: what was committed"}},
		{checkup{State: stateUnknown}, "", []string{"It can be started: what was committed"}},
		{checkup{State: stateBackup}, "", []string{"Copy it and start"}},
		{checkup{State: stateKilled, Backup: &backupManifest{UIDStore: "a"}}, "", []string{"It can be started", "It was restored from a backup"}},
		{checkup{State: stateKilled, Backup: &backupManifest{}}, "", []string{"It can be started"}},
		{checkup{State: stateBackup, Trouble: []string{"x"}}, "x", nil},
	} {
		c := tc.c
		c.judge()
		ok := len(c.Advice) == len(tc.advice) && (len(c.Trouble) > 0) == (tc.trouble != "") && strings.Contains(strings.Join(c.Trouble, "\n"), tc.trouble)
		for i := range min(len(c.Advice), len(tc.advice)) {
			ok = ok && strings.HasPrefix(c.Advice[i], tc.advice[i])
		}
		if !ok {
			t.Errorf("%+v: trouble %q, advice %q", tc.c, c.Trouble, c.Advice)
		}
	}
}

// TestFault: an error is trouble on one line, and brings the advice for its kind.
func TestFault(t *testing.T) {
	for _, tc := range []struct {
		err           error
		says, advises string
	}{
		{advise(errors.New("a\n  b"), "Do this."), "a b", "Do this."},
		{fmt.Errorf("read: %w", os.ErrPermission), "read: permission denied", runAsServer},
		{fmt.Errorf("open a: %w", syscall.EMFILE), "open a: too many open files", "Raise it"},
		{errors.New("torn"), "torn", "Copy the directory before you change it."},
	} {
		c := &checkup{}
		if c.fault(tc.err); len(c.Trouble) != 1 || c.Trouble[0] != tc.says || len(c.Advice) != 1 || !strings.HasPrefix(c.Advice[0], tc.advises) {
			t.Errorf("%v: trouble %q, advice %q", tc.err, c.Trouble, c.Advice)
		}
	}
	c := &checkup{}
	if c.fault(nil); c.Trouble != nil || c.Advice != nil {
		t.Errorf("no error: trouble %q, advice %q", c.Trouble, c.Advice)
	}
}

// TestMeasure counts files and bytes, through a link to the directory, and knows a store of
// Pebble's and a backup.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "store", "sub")
	if err := errors.Join(os.MkdirAll(sub, 0o755), os.Symlink(filepath.Join(dir, "store"), filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(sub, "a"), "12345")
	writeFile(t, filepath.Join(dir, "store", "marker.format-version.000012.024"), "")
	writeFile(t, filepath.Join(dir, "store", manifestFile), "{}")
	for _, name := range []string{"store", "link"} {
		got := content{Name: name}
		if got.measure(filepath.Join(dir, name)); got != (content{Name: name, Is: "a backup", Files: 3, Bytes: 7, Pebble: 24}) {
			t.Errorf("%+v", got)
		}
	}
	got := content{Is: "event log"}
	if got.measure(sub); got != (content{Is: "event log", Files: 1, Bytes: 5}) {
		t.Errorf("%+v", got)
	}
	if got.measure(filepath.Join(dir, "gone")); got.Files != 1 {
		t.Errorf("what is not there has files: %+v", got)
	}
	c := &checkup{Contents: []content{{Name: "log"}}}
	if !c.has("log") || c.has("lo") {
		t.Error("names")
	}
}

// TestLookFS: a file system to look at stores changes nothing.
func TestLookFS(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "file"), "x")
	f := &lookFS{FS: vfs.Default}
	_, create := f.Create(filepath.Join(dir, "new"), "")
	_, write := f.OpenReadWrite(file, "")
	_, reuse := f.ReuseForWrite(file, filepath.Join(dir, "new"), "")
	for i, err := range []error{create, write, reuse, f.Link(file, filepath.Join(dir, "new")), f.Remove(file), f.RemoveAll(dir), f.Rename(file, filepath.Join(dir, "new")),
		f.MkdirAll(filepath.Join(dir, "new"), 0o755)} {
		if !errors.Is(err, errLookOnly) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if f.Unwrap() != nil {
		t.Error("there is a way around it")
	}
	for _, name := range []string{file, filepath.Join(dir, "LOCK")} {
		if lock, err := f.Lock(name); err != nil || lock.Close() != nil {
			t.Errorf("lock %s: %v", name, err)
		}
	}
	if _, err := f.Lock(filepath.Join(file, "LOCK")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a lock that cannot be opened: %v", err)
	}
	if found := treeOf(t, dir); len(found) != 2 || f.holder != 0 {
		t.Errorf("%v", found)
	}
}

// TestDoctorOfUnmadeStore: a store that a process was making when it was killed is no trouble.
func TestDoctorOfUnmadeStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "intern"), 0o755); err != nil {
		t.Fatal(err)
	}
	checkDoctor(t, dir, exitFailed, stateUnknown, "there is no store") // a disk that is not mounted
	killed := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.Contains(op.Path, "MANIFEST") {
			return errors.New("killed")
		}
		return nil
	}))
	if _, err := pebblekv.Open(pebblekv.Config{Dir: filepath.Join(dir, "intern"), FS: killed}); err == nil {
		t.Fatal("the store is made")
	}
	checkDoctor(t, dir, exitOK, stateUnknown, "It can be started")
	// Here it was killed before it wrote the first value.
	for _, name := range []string{"log", "intern", "refs"} {
		db, err := pebbleguard.Open(pebbleguard.Config{Dir: filepath.Join(dir, name), Store: name, Advice: name, Options: &pebble.Options{FormatMajorVersion: pebble.FormatNewest}})
		if err != nil || db.Close() != nil {
			t.Fatal(err)
		}
	}
	checkDoctor(t, dir, exitOK, stateUnknown, "It can be started")
}

// TestDoctorOfVerification: a server with --verify refuses to start on damaged chains or keys.
func TestDoctorOfVerification(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"chains", "identities"} {
		store := filepath.Join(dir, name)
		var err error
		if name == "chains" {
			var s *chain.Store
			if s, err = chain.Open(chain.Config{Dir: store, Sample: 1}); err == nil {
				err = s.Close()
			}
		} else {
			var d *identity.Directory
			if d, err = identity.Open(identity.Config{Dir: store, PLC: "http://127.0.0.1:1"}); err == nil {
				err = d.Close()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		checkDoctor(t, dir, exitOK, stateUnknown, "It can be started")
		manifests, err := filepath.Glob(filepath.Join(store, "MANIFEST-*"))
		if err != nil || len(manifests) != 1 || os.Rename(manifests[0], manifests[0]+".saved") != nil {
			t.Fatal(manifests, err)
		}
		checkDoctor(t, dir, exitFailed, stateUnknown, manifests[0]+": it is missing", "move the directory away")
		// It may be removed, with its directory or without.
		if err := errors.Join(os.RemoveAll(store), os.Mkdir(store, 0o755)); err != nil {
			t.Fatal(err)
		}
		checkDoctor(t, dir, exitOK, stateUnknown, "It can be started")
	}
}
