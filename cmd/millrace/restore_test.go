package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/intern"
	"millrace/intern/kv/simkv"
)

// savedBackup returns a backup that a stopped server's directory was copied to, and the directory.
func savedBackup(t *testing.T) (saved, dir string) {
	t.Helper()
	base := t.TempDir()
	dir, saved = filepath.Join(base, "data"), filepath.Join(base, "saved")
	giveUIDs(t, dir, "before", "--references=on")
	if code, out := millrace(t, "backup", "--data-dir", dir, "--to", saved); code != exitOK {
		t.Fatalf("millrace backup: exit code %d\n%s", code, out)
	}
	return saved, dir
}

// copyOf restores a backup to a directory of its own, as cp -a does.
func copyOf(t *testing.T, saved string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(saved)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// giveUIDs starts a server on dir, which gives UIDs to 200 new strings, and stops it. It returns
// them and the log.
func giveUIDs(t *testing.T, dir, name string, flags ...string) (uids []uint64, logged string) {
	t.Helper()
	cfg := serveConfig(t, serveArgs("", append([]string{"--data-dir", dir, "--uid-prefix-bits", "1"}, flags...)...)[1:])
	out := &lockedBuffer{}
	d := openDaemon(t, cfg, newLogger(cfg, out))
	defer d.close()
	if d.uids != nil {
		requests, results := make([]intern.Request, 200), make([]intern.Result, 200)
		for i := range requests {
			requests[i].DID = fmt.Appendf(nil, "did:web:%s%d.example.com", name, i)
		}
		if err := d.uids.interner.Resolve(t.Context(), requests, results); err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			uids = append(uids, r.DIDUID)
		}
	}
	return uids, out.String()
}

// isBackup reports whether a start on dir will skip UIDs.
func isBackup(t *testing.T, dir string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, manifestFile))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

// A backup that is restored twice, without a further command. No UID stands for two strings, those
// that the original server gave out after the backup included.
func TestRestoreSkipsUIDs(t *testing.T) {
	t.Parallel()
	saved, dir := savedBackup(t)
	first, second := copyOf(t, saved), copyOf(t, saved)
	const says = "UIDs are skipped"
	of := make(map[uint64]string)
	for _, tc := range []struct {
		name, dir string
		skips     bool
	}{
		{"original", dir, false},
		{"first", first, true},
		{"firstagain", first, false},
		{"second", second, true},
	} {
		uids, logged := giveUIDs(t, tc.dir, tc.name)
		if strings.Contains(logged, says) != tc.skips || isBackup(t, tc.dir) {
			t.Errorf("%s: skips %v, still a backup %v:\n%s", tc.name, !tc.skips, isBackup(t, tc.dir), logged)
		}
		for _, uid := range uids {
			if was, ok := of[uid]; ok {
				t.Fatalf("UID %d was given out by %s and by %s", uid, was, tc.name)
			}
			of[uid] = tc.name
		}
	}
	if _, err := os.Stat(filepath.Join(first, restoredFile)); err != nil {
		t.Error(err)
	}
	if !isBackup(t, saved) {
		t.Error("the backup itself changed")
	}
}

// What is in a directory that came from a backup decides whether UIDs are skipped, and when.
func TestRestoreVariants(t *testing.T) {
	t.Parallel()
	saved, _ := savedBackup(t)
	t.Run("without UIDs first", func(t *testing.T) {
		dir := copyOf(t, saved)
		giveUIDs(t, dir, "off", "--intern", "off")
		if !isBackup(t, dir) {
			t.Fatal("a server that gives out no UIDs takes the mark away")
		}
		if _, logged := giveUIDs(t, dir, "on"); !strings.Contains(logged, "UIDs are skipped") || isBackup(t, dir) {
			t.Errorf("with UIDs again: %s", logged)
		}
	})
	t.Run("skipped by hand", func(t *testing.T) {
		dir := copyOf(t, saved)
		if code, out := millrace(t, "intern", "skip-ahead", "--data-dir", dir); code != exitOK || !isBackup(t, dir) {
			t.Fatalf("exit code %d\n%s", code, out)
		}
		if _, logged := giveUIDs(t, dir, "on"); !strings.Contains(logged, "UIDs are skipped") || isBackup(t, dir) {
			t.Errorf("logged %s", logged)
		}
	})
	t.Run("other commands first", func(t *testing.T) {
		dir := copyOf(t, saved)
		file := filepath.Join(t.TempDir(), "edges.csv")
		writeFile(t, file, "actor,subject\ndid:web:a.example.com,did:web:b.example.com\n")
		for _, command := range [][]string{{"references", "import", "--as-of", "2026-11-24T12:00:00Z"}, {"graph", "import"}} {
			code, out := millrace(t, append(command, "--data-dir", dir, file)...)
			if code != exitFailed || !strings.Contains(out, "no server has started on it") {
				t.Errorf("%v: exit code %d\n%s", command, code, out)
			}
		}
		if code, out := millrace(t, "intern", "export", "--data-dir", dir, file+".dump"); code != exitOK || !strings.Contains(out, "run millrace intern skip-ahead") {
			t.Errorf("export: exit code %d\n%s", code, out)
		}
	})
	t.Run("shared UIDs", func(t *testing.T) {
		dir, file := copyOf(t, saved), filepath.Join(t.TempDir(), "uids.dump")
		if code, out := millrace(t, "intern", "export", "--data-dir", dir, file); code != exitOK {
			t.Fatalf("exit code %d\n%s", code, out)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		dump, err := intern.CheckDump(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		shared := simkv.New(simkv.Config{})
		if _, err := dump.Import(t.Context(), shared, nil); err != nil {
			t.Fatal(err)
		}
		d := startDaemonOn(t, testHooks{uids: &clusterStore{Store: shared}}, newTestRelay(t).url, dir, "--uid-prefix-bits", "1")
		if n, err := d.uids.interner.Skipped(t.Context()); n > 0 || err != nil {
			t.Errorf("%d UIDs are skipped in a store that was not restored: %v", n, err)
		}
		d.mustStop(t)
	})
	t.Run("a backup of a backup", func(t *testing.T) {
		again := filepath.Join(t.TempDir(), "again")
		if code, out := millrace(t, "backup", "--data-dir", copyOf(t, saved), "--to", again); code != exitOK {
			t.Fatalf("exit code %d\n%s", code, out)
		}
		if got, want := readManifest(t, again).Made, readManifest(t, saved).Made; !got.Equal(want) {
			t.Errorf("it is of %v, want %v", got, want)
		}
	})
	t.Run("broken manifest", func(t *testing.T) {
		dir := copyOf(t, saved)
		writeFile(t, filepath.Join(dir, manifestFile), "{")
		code, out := millrace(t, serveArgs("", "--data-dir", dir, "--uid-prefix-bits", "1")...)
		if code != exitFailed || !strings.Contains(out, "millrace intern skip-ahead --data-dir "+dir+",") {
			t.Errorf("exit code %d\n%s", code, out)
		}
		if code, out = millrace(t, "intern", "skip-ahead", "--data-dir", dir); code != exitOK || isBackup(t, dir) {
			t.Errorf("the advice: exit code %d\n%s", code, out)
		}
	})
	t.Run("in place", func(t *testing.T) {
		if _, logged := giveUIDs(t, saved, "on"); !strings.Contains(logged, "this is the backup itself") || isBackup(t, saved) {
			t.Errorf("logged %s", logged)
		}
	})
	t.Run("another UID store", func(t *testing.T) {
		base := t.TempDir()
		dir, to := copyOf(t, saved), filepath.Join(base, "saved")
		removeAll(t, filepath.Join(dir, "intern"))
		giveUIDs(t, filepath.Join(base, "other"), "other")
		if err := os.Rename(filepath.Join(base, "other", "intern"), filepath.Join(dir, "intern")); err != nil {
			t.Fatal(err)
		}
		if code, out := millrace(t, "backup", "--data-dir", dir, "--to", to); code != exitOK || !strings.Contains(out, "the log has UIDs of another than") {
			t.Fatalf("exit code %d\n%s", code, out)
		}
		if _, err := os.Stat(filepath.Join(to, "intern")); !os.IsNotExist(err) {
			t.Errorf("a UID store that is not the log's is in the backup: %v", err)
		}
	})
	t.Run("log only", func(t *testing.T) {
		base := t.TempDir()
		dir, to := filepath.Join(base, "data"), filepath.Join(base, "saved")
		giveUIDs(t, dir, "off", "--intern", "off")
		if code, out := millrace(t, "backup", "--data-dir", dir, "--to", to); code != exitOK {
			t.Fatalf("exit code %d\n%s", code, out)
		}
		if _, logged := giveUIDs(t, to, "on"); !strings.Contains(logged, "of the log only") || isBackup(t, to) {
			t.Errorf("logged %s", logged)
		}
	})
}

// A backup says where its log ends, also of a server that commits while the copy is made.
func TestBackupSaysWhereTheLogEnds(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--rate", "2000", "--wait-for-consumer")
	d := startDaemon(t, sim.url, t.TempDir(), "--metrics-listen", "127.0.0.1:0")
	waitFor(t, "events", func() bool { return d.log.Progress().Seq > 500 })
	saved := filepath.Join(t.TempDir(), "saved")
	code, out := millrace(t, "backup", "--data-dir", d.cfg.dataDir, "--to", saved)
	if err := d.stop(); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v\n%s", code, err, out)
	}
	cfg := serveConfig(t, serveArgs("", "--relay", sim.url, "--data-dir", saved)[1:])
	restored := openDaemon(t, cfg, newLogger(cfg, testWriter{t}))
	defer restored.close()
	if want := fmt.Sprintf("up to seq %d of epoch", restored.log.Progress().Seq); !strings.Contains(out, want) {
		t.Errorf("it does not say %q:\n%s", want, out)
	}
}

// checkRefused checks that no server starts on dir without a store's directory, nor with an empty
// one, and that the refused starts change nothing.
func checkRefused(t *testing.T, dir, store string, wants ...string) {
	t.Helper()
	store = filepath.Join(dir, store)
	removeAll(t, store)
	for _, empty := range []bool{false, true} {
		if empty {
			if err := os.Mkdir(store, 0o750); err != nil {
				t.Fatal(err)
			}
		}
		before := treeOf(t, dir)
		code, out := millrace(t, serveArgs("", "--data-dir", dir)...)
		for _, want := range wants {
			if code != exitFailed || !strings.Contains(out, want) {
				t.Errorf("exit code %d, want %q in\n%s", code, want, out)
			}
		}
		if diff := cmp.Diff(before, treeOf(t, dir)); diff != "" {
			t.Errorf("the refused start has changed the directory: -before +after\n%s", diff)
		}
	}
}

// TestRestoredWithoutLog: a copy of a backup that lacks the log is not begun anew, unless the
// operator says so.
func TestRestoredWithoutLog(t *testing.T) {
	t.Parallel()
	saved, _ := savedBackup(t)
	checkRefused(t, saved, "log", "restored from a backup, and the log that it had up to seq", "Copy the backup again", "skip-ahead, and remove backup.json")
	checkDoctor(t, saved, exitFailed, stateBackup, "the log that it had up to seq", "Copy the backup again")
	if code, out := millrace(t, "intern", "skip-ahead", "--data-dir", saved); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if err := os.Remove(filepath.Join(saved, manifestFile)); err != nil {
		t.Fatal(err)
	}
	giveUIDs(t, saved, "anew")
}

// TestRefusedUIDStoreIsNotMade: a start that is refused since the log has UIDs of a store that is
// not there makes no other in its place, also if a copy has left its directory empty.
func TestRefusedUIDStoreIsNotMade(t *testing.T) {
	t.Parallel()
	saved, _ := savedBackup(t)
	checkRefused(t, saved, "intern", "belongs to another UID store", "--intern=off")
	giveUIDs(t, saved, "off", "--intern=off")

	base := t.TempDir()
	runElsewhere(t, base, "--intern=off")
	if code, out := millrace(t, serveArgs(base)...); code != exitFailed || !strings.Contains(out, "in use by another process") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if _, err := os.Stat(filepath.Join(base, "data", "intern")); !os.IsNotExist(err) {
		t.Errorf("a UID store was made beside the log that a server has open: %v", err)
	}
}

// TestOlderUIDStore has an older copy of a UID store, which has no backup.json, come back below a
// log. It is refused, and millrace doctor says so, until UIDs are skipped.
func TestOlderUIDStore(t *testing.T) {
	t.Parallel()
	relay, dir := newTestRelay(t), t.TempDir()
	if err := startDaemon(t, relay.url, dir).stop(); err != nil {
		t.Fatal(err)
	}
	uids := filepath.Join(dir, "intern")
	older := copyDir(t, uids)
	d := startDaemon(t, relay.url, dir)
	s := subscribe(t, d.addr, "")
	relay.send <- identityFrame(t, 7).Data
	s.lines(t, 1)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(uids), os.Rename(older, uids)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{serveArgs("", "--data-dir", dir, "--relay", relay.url), {"doctor", dir}} {
		code, out := millrace(t, args...)
		if code != exitFailed || !strings.Contains(out, intern.ErrWentBack.Error()) || !strings.Contains(out, "run millrace intern skip-ahead") {
			t.Errorf("%s: exit code %d\n%s", args[0], code, out)
		}
	}
	if code, out := millrace(t, "intern", "skip-ahead", "--data-dir", dir); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if err := startDaemon(t, relay.url, dir).stop(); err != nil {
		t.Error(err)
	}
}
