package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/intern/kv/pebblekv"
	"millrace/replay/references"
)

// treeOf returns what is below dir, itself included: kind, time and bytes of each name.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		sum := [32]byte{}
		if info.Mode().IsRegular() {
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = sha256.Sum256(raw)
		}
		tree[path] = fmt.Sprintf("%v %d %x", info.Mode(), info.ModTime().UnixNano(), sum)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// doctor runs millrace doctor in a process of its own, as JSON and as text.
func doctor(t *testing.T, dir string) (code int, text string, c checkup) {
	t.Helper()
	bin := binaries(t)
	for _, form := range []string{"--json", "--json=false"} {
		cmd := exec.CommandContext(t.Context(), bin["millrace"], "doctor", form, dir)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		asJSON := code
		code, text = cmd.ProcessState.ExitCode(), string(out)
		if form != "--json" && code != asJSON {
			t.Errorf("exit code %d, as JSON %d", code, asJSON)
		}
		if form == "--json" && json.Unmarshal(out, &c) != nil {
			t.Errorf("no JSON: %s", out)
		}
	}
	return code, text, c
}

// unchanged is doctor, of a directory that must not change.
func unchanged(t *testing.T, dir string) (code int, text string, c checkup) {
	t.Helper()
	before := treeOf(t, dir)
	code, text, c = doctor(t, dir)
	if diff := cmp.Diff(before, treeOf(t, dir)); diff != "" {
		t.Errorf("millrace doctor has changed the directory: -before +after\n%s", diff)
	}
	return code, text, c
}

// checkDoctor compares what millrace doctor says of dir.
func checkDoctor(t *testing.T, dir string, wantCode int, state string, says ...string) checkup {
	t.Helper()
	code, text, c := unchanged(t, dir)
	if code != wantCode || c.State != state || (len(c.Trouble) > 0) != (wantCode == exitFailed) {
		t.Errorf("exit code %d, state %q, want %d, %q; trouble %q", code, c.State, wantCode, state, c.Trouble)
	}
	for _, s := range says {
		if !strings.Contains(text, s) {
			t.Errorf("does not say %q:\n%s", s, text)
		}
	}
	return c
}

// serving starts a server that has one event, of seq 7.
func serving(t *testing.T, relay *testRelay) (dir string, p *millraceProcess, s *subscriber) {
	t.Helper()
	dir = t.TempDir()
	p = startMillrace(t, relay.url, dir, freeAddr(t))
	waitServing(t, p.addr)
	s = subscribe(t, p.addr, "")
	relay.send <- identityFrame(t, 7).Data
	s.lines(t, 1)
	return dir, p, s
}

// TestDoctor: what a directory holds and in what state it is, in every state. No byte, name or time
// in it changes.
func TestDoctor(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--frames", "500", "--wait-for-consumer")
	dir := t.TempDir()
	flags := []string{"--memory", "256MiB", "--references=on", "--links", "--graph", "--graph-memory", "64MiB"}
	d := startDaemon(t, sim.url, dir, flags...)
	sim.waitMade(t, 500)
	want := readTruth(t, sim.truth)
	readAll(t, d.addr, "cursor=0", len(want))
	d.mustStop(t)
	d = startDaemon(t, sim.url, dir, flags...) // puts what write-ahead logs have into tables
	d.mustStop(t)
	saved := filepath.Join(t.TempDir(), "saved")
	if code, out := millrace(t, "backup", "--data-dir", dir, "--to", saved); code != exitOK {
		t.Fatalf("backup: exit code %d\n%s", code, out)
	}
	held, at := d.log.Range(), d.log.Progress()

	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		c := checkDoctor(t, dir, exitOK, stateStopped, "stopped in order", "event log", "It can be started.")
		if c.Log == nil || c.UIDs == nil || c.References == nil || c.Graph == nil || c.LastRun == nil {
			t.Fatalf("found %+v", c)
		}
		if l := c.Log; l.Events != held.Events || l.Events == 0 || l.Oldest.Cursor != held.Oldest.Position.String() ||
			l.Newest.Cursor != held.Newest.Position.String() || l.Seq != at.Seq || l.Epoch != 1 || l.Version != 8 ||
			l.Stream != at.Stream.String() || l.UIDStore != c.UIDs.ID || len(l.Dictionaries) != 1 {
			t.Errorf("log %+v, want %+v at %+v", l, held, at)
		}
		if c.UIDs.ID != d.uids.storeID() || c.UIDs.UIDs == 0 || c.LastRun.Version != thisBuild().version || c.LastRun.Stopped.Before(c.LastRun.Started) {
			t.Errorf("UIDs %+v, last run %+v", c.UIDs, c.LastRun)
		}
		if (references.Position{Epoch: c.References.Epoch, Seq: c.References.Seq}) != d.refs.Position() || !c.References.Links || c.References.LinksBuilt != 1 ||
			c.Graph.Seq != c.References.Seq || c.References.Version != 3 {
			t.Errorf("references %+v, graph %+v, want %+v", c.References, c.Graph, d.refs.Position())
		}
		for _, e := range c.Contents {
			if e.Is == "" || e.Bytes == 0 || (e.Pebble > 0) != (e.Name == "log" || e.Name == "intern" || e.Name == "refs") {
				t.Errorf("content %+v", e)
			}
		}
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		p := startMillrace(t, newTestRelay(t).url, data, freeAddr(t), "--references=on")
		waitServing(t, p.addr)
		p.kill()
		checkDoctor(t, data, exitOK, stateKilled, "killed", "what was committed is safe")
		// by a build that wrote no run.json
		copied := copyDir(t, data)
		if err := os.Remove(filepath.Join(copied, lastRunFile)); err != nil {
			t.Fatal(err)
		}
		checkDoctor(t, copied, exitOK, stateUnknown, "stopped or killed")
		writeFile(t, filepath.Join(copied, controlFile), "{}")
		checkDoctor(t, copied, exitOK, stateKilled, "killed\n")
		last := lastRun{Version: "1", Stopped: time.Now()} // of a newer build, before
		if err := last.write(copied); err != nil {
			t.Fatal(err)
		}
		checkDoctor(t, copied, exitOK, stateKilled, "killed\n")
	})
	t.Run("killed with commits in write-ahead logs", func(t *testing.T) {
		t.Parallel()
		data, p, _ := serving(t, newTestRelay(t))
		p.kill()
		if c := checkDoctor(t, data, exitOK, stateKilled); c.Log == nil || c.Log.Seq != 7 || c.Log.Newest == nil {
			t.Errorf("log %+v, want it at seq 7", c.Log)
		}
	})
	t.Run("in use", func(t *testing.T) {
		t.Parallel()
		relay := newTestRelay(t)
		data, p, s := serving(t, relay)
		by := fmt.Sprintf("in use by process %d", p.cmd.Process.Pid)
		var code int
		var text string
		var c checkup
		waitFor(t, "the server's answer", func() bool { code, text, c = doctor(t, data); return c.Log != nil })
		if code != exitOK || c.State != stateRunning || c.Process != p.cmd.Process.Pid || !strings.Contains(text, by) ||
			c.Log.Newest == nil || !strings.HasSuffix(c.Log.Newest.Cursor, "-7-0") {
			t.Errorf("exit code %d, want what the server says\n%s", code, text)
		}
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		checkDoctor(t, data, exitOK, stateRunning, by, "/readyz")
		if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		relay.send <- identityFrame(t, 8).Data
		s.lines(t, 1) // it was not disturbed
	})
	t.Run("in use by another command", func(t *testing.T) {
		t.Parallel()
		relay := newTestRelay(t)
		_, elsewhere, _ := serving(t, relay)
		copied := copyDir(t, dir)
		last := lastRun{Version: "1", Listen: elsewhere.addr, Stopped: time.Now()}
		err := last.write(copied)
		held, openErr := pebblekv.Open(pebblekv.Config{Dir: filepath.Join(copied, "intern")})
		if err := errors.Join(err, openErr); err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		by := fmt.Sprintf("in use by process %d\n", os.Getpid())
		if code, text, c := doctor(t, copied); code != exitOK || c.State != stateRunning || c.Log == nil || c.Log.Events == 0 || !strings.Contains(text, by) {
			t.Errorf("exit code %d, want %q and its own log\n%s", code, by, text)
		}
	})
	t.Run("an import", func(t *testing.T) {
		t.Parallel()
		bin := binaries(t)
		copied := copyDir(t, dir)
		p := exec.CommandContext(t.Context(), bin["millrace"], "references", "import", "--data-dir", copied, "--as-of", "2026-11-24T12:00:00Z", "-")
		input, err := p.StdinPipe() // it waits for that
		if err := errors.Join(err, p.Start()); err != nil {
			t.Fatal(err)
		}
		defer input.Close()
		waitFor(t, "the import's stores", func() bool {
			r, err := readDataFile[lastRun](copied, lastRunFile)
			return err == nil && r != nil && r.Stopped.IsZero() // no longer the server's
		})
		const by = ", by millrace references import of version "
		if code, text, c := doctor(t, copied); code != exitOK || c.State != stateRunning || c.Process != p.Process.Pid || !strings.Contains(text, by) || !strings.Contains(text, "Wait until") {
			t.Errorf("exit code %d\n%s", code, text)
		}
		_ = p.Process.Kill()
		_ = p.Wait()
		checkDoctor(t, copied, exitOK, stateKilled, "killed"+by, "what was committed is safe")
		if code, text := millrace(t, "references", "purge", "--data-dir", copied, "did:web:unknown.test"); code != exitFailed || !strings.Contains(text, "not known") {
			t.Errorf("purge: exit code %d\n%s", code, text)
		}
		checkDoctor(t, copied, exitOK, stateStopped, "stopped in order at ", ", by millrace references purge of version ", "It can be started.")
		if code, text := millrace(t, "intern", "compact", "--data-dir", copied); code != exitOK {
			t.Errorf("compact: exit code %d\n%s", code, text)
		}
		checkDoctor(t, copied, exitOK, stateStopped, ", by millrace intern compact of version ")
	})
	t.Run("a backup", func(t *testing.T) {
		t.Parallel()
		checkDoctor(t, saved, exitOK, stateBackup, "a backup of", "raises every sequence")
		used := copyDir(t, saved)
		giveUIDs(t, used, "off", "--relay", sim.url, "--intern=off")
		checkDoctor(t, used, exitOK, stateStopped, "stopped in order", "It can be started.", "raises every sequence")
		giveUIDs(t, used, "on", "--relay", sim.url, "--uid-prefix-bits", "14")
		if c := checkDoctor(t, used, exitOK, stateStopped); len(c.Advice) != 1 {
			t.Errorf("after a start with UIDs the advice is %q", c.Advice)
		}
		with := copyDir(t, dir)
		if err := os.CopyFS(filepath.Join(with, "backup-1"), os.DirFS(saved)); err != nil {
			t.Fatal(err)
		}
		checkDoctor(t, with, exitOK, stateStopped, "files  a backup")
	})
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		checkDoctor(t, t.TempDir(), exitOK, stateEmpty, "begins here")
	})
	t.Run("foreign", func(t *testing.T) {
		t.Parallel()
		foreign := t.TempDir()
		writeFile(t, filepath.Join(foreign, "letter.txt"), "x")
		for i := range maxPrinted {
			writeFile(t, filepath.Join(foreign, fmt.Sprintf("z%d.txt", i)), "x")
		}
		checkDoctor(t, foreign, exitFailed, stateForeign, "letter.txt", "not millrace's", "and 1 more")
		checkDoctor(t, filepath.Join(dir, "log"), exitFailed, stateForeign, "not log itself")
	})
	t.Run("damaged", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			of   string // the file, by a pattern
			keep int64  // bytes of it; -1: it is missing
			says string
		}{
			{"log/*.sst", -1, "it is missing"},
			{"log/marker.manifest.*", -1, "marker.manifest"},
			{"refs/*.sst", -1, "it is missing"},
			{"intern/*.sst", -1, "it is missing"},
			{"intern/marker.format-version.*", -1, "marker.format-version"},
			{"log/*.sst", 100, "it has 100 bytes"},
			{"run.json", 10, "run.json"},
		} {
			damaged := copyDir(t, dir)
			file := oneOf(t, filepath.Join(damaged, tc.of))
			err := os.Remove(file)
			if tc.keep >= 0 {
				err = errors.Join(err, os.WriteFile(file, []byte("{         "), 0o644), os.Truncate(file, tc.keep))
			}
			if err != nil {
				t.Fatal(err)
			}
			code, text, c := unchanged(t, damaged)
			if code != exitFailed || strings.Contains(text, "can be started") || !strings.Contains(text, "trouble: ") || !strings.Contains(text, tc.says) || strings.Contains(text, "panic") {
				t.Errorf("%s: exit code %d, trouble %q\n%s", tc.of, code, c.Trouble, text)
			}
		}
	})
	t.Run("a disk that is not there", func(t *testing.T) {
		t.Parallel()
		for _, store := range []string{"log", "intern", "refs"} {
			copied := copyDir(t, dir)
			file := filepath.Join(copied, store)
			if err := errors.Join(os.RemoveAll(file), os.Symlink(file+".disk", file)); err != nil {
				t.Fatal(err)
			}
			checkDoctor(t, copied, exitFailed, stateStopped, "trouble: open", "Copy the directory")
		}
	})
	t.Run("another UID store", func(t *testing.T) {
		t.Parallel()
		mixed, other := copyDir(t, dir), t.TempDir()
		madeLog(t, other)
		removeAll(t, filepath.Join(mixed, "intern"))
		checkDoctor(t, mixed, exitOK, stateStopped, "which is not here", "--intern=fdb", "skip-ahead")
		if err := os.CopyFS(filepath.Join(mixed, "intern"), os.DirFS(filepath.Join(other, "data", "intern"))); err != nil {
			t.Fatal(err)
		}
		checkDoctor(t, mixed, exitFailed, stateStopped, "the log has UIDs of store "+d.uids.storeID(), "no server starts with --intern=pebble")
	})
	t.Run("a snapshot of no use", func(t *testing.T) {
		t.Parallel()
		copied := copyDir(t, dir)
		writeFile(t, filepath.Join(copied, "graph.snapshot"), "millrace graph 5\n")
		checkDoctor(t, copied, exitOK, stateStopped, `version "5"`, "builds the graph anew")
	})
	t.Run("static edges", func(t *testing.T) {
		t.Parallel()
		copied := copyDir(t, dir)
		static := filepath.Join(copied, "graph.static")
		saveStaticOf(t, static, d.uids.storeID())
		checkDoctor(t, copied, exitOK, stateStopped, "It can be started.")
		saveStaticOf(t, static, "another")
		checkDoctor(t, copied, exitFailed, stateStopped, "UIDs of store another", "millrace graph remove")
		writeFile(t, static, "millrace graph 5\n")
		checkDoctor(t, copied, exitFailed, stateStopped, `version "5"`, "no server with --graph starts")
	})
}

// Gaps are listed; an advice is given once, and none to use what is damaged.
func TestDoctorFindings(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--rate", "1000", "--wait-for-consumer")
	dir := t.TempDir()
	d := startDaemon(t, sim.url, dir)
	sim.waitMade(t, 100)
	waitFor(t, "something in the log", func() bool { return d.log.Progress().Seq > 0 })
	d.mustStop(t)
	sim.waitMade(t, sim.messages(t)+300)
	sim.do(t, "forget?keep=50")
	d = startDaemon(t, sim.url, dir)
	waitFor(t, "the gap", func() bool { return len(d.log.Range().Gaps) == 1 })
	d.mustStop(t)
	gap := d.log.Range().Gaps[0]
	checkDoctor(t, dir, exitOK, stateStopped, fmt.Sprintf("gap from %s to %s", gap.From, gap.To))

	c := &checkup{State: stateBackup}
	c.fault(os.ErrPermission)
	c.fault(os.ErrPermission)
	if c.judge(); len(c.Trouble) != 2 || len(c.Advice) != 1 || c.Advice[0] != runAsServer {
		t.Errorf("%q, %q", c.Trouble, c.Advice)
	}
}

// TestDoctorInterrupted: a signal is no damage.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := pebblekv.Open(pebblekv.Config{Dir: filepath.Join(dir, "intern")})
	if err == nil {
		err = store.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	errSignal := errors.New("a signal")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSignal)
	var out bytes.Buffer
	if err := runDoctor(ctx, dir, false, &out); !errors.Is(err, errSignal) || out.Len() > 0 {
		t.Errorf("error %v, and it says\n%s", err, &out)
	}
}

// Wrong usage, and directories that cannot be looked at.
func TestDoctorUsage(t *testing.T) {
	t.Parallel()
	file := writeFile(t, filepath.Join(t.TempDir(), "file"), "x")
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "usage: millrace doctor [FLAGS] DIR"},
		{[]string{"a", "b"}, exitUsage, "usage"},
		{[]string{"--nope", "a"}, exitUsage, "--nope"},
		{[]string{"--help"}, exitOK, "--json"},
		{[]string{file + "x"}, exitFailed, "Name the server's --data-dir"},
		{[]string{file}, exitFailed, "not a directory"},
	} {
		if code, out := millrace(t, append([]string{"doctor"}, tc.args...)...); code != tc.code || !strings.Contains(out, tc.says) {
			t.Errorf("%q: exit code %d\n%s", tc.args, code, out)
		}
	}
}
