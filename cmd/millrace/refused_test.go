package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/replay"
	"millrace/replay/references"
)

// keptState is what no refused start may change.
type keptState struct {
	Log        replay.Progress
	Range      replay.Range
	Generation references.Generation
	Links      bool
}

// keptStateOf reads it in a data directory that no process has open.
func keptStateOf(t *testing.T, data string) (s keptState) {
	t.Helper()
	dicts := shippedDictionaries()
	defer dicts.Close()
	log, err := replay.Open(replay.Config{Dir: filepath.Join(data, "log"), ReadOnly: true, Dictionaries: dicts})
	if err != nil {
		t.Fatal(err)
	}
	store, err := references.Open(references.Config{Dir: filepath.Join(data, "refs"), ReadOnly: true})
	if err != nil {
		t.Fatal(errors.Join(err, log.Close()))
	}
	s = keptState{Log: log.Progress(), Range: log.Range(), Generation: store.Generation()}
	s.Links, _, err = store.LinksProgress()
	if err := errors.Join(err, store.Close(), log.Close()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRefusedStartsChangeNothing: a start that is refused, though late, begins no epoch and no
// generation, switches nothing off, and drops no event.
func TestRefusedStartsChangeNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	relay := madeLog(t, dir, "--references=on", "--links")
	data := filepath.Join(dir, "data")
	before := keptStateOf(t, data)
	if before.Generation.Number != 1 || !before.Links || before.Range.References == nil {
		t.Fatalf("the first start: %+v", before)
	}
	keys := writeFile(t, filepath.Join(data, "identities"), "no directory")
	for _, asks := range [][]string{
		{"--new-epoch", "--references=on", "--links"},
		{"--references=off"},
		{"--references=on"},
		{"--references=on", "--links", "--collections=a.b.c"},
		{"--retention=0"},
	} {
		for _, refused := range []struct {
			flags []string
			code  int
			says  string
		}{
			{[]string{"--verify=flag"}, exitFailed, keys}, // the last store that is opened
			{[]string{"--verify=flag", "--plc-export", "/nowhere/export"}, exitFailed, "/nowhere/export"},
			{[]string{"--relay-cursor=5"}, exitUsage, "is below the log's position 7"},
		} {
			if refused.code == exitUsage && asks[0] == "--new-epoch" {
				continue
			}
			args := append(serveArgs(dir, append(asks, "--relay", relay)...), refused.flags...)
			if code, out := millrace(t, args...); code != refused.code || !strings.Contains(out, refused.says) {
				t.Errorf("%v: exit code %d\n%s", args, code, out)
			}
			if diff := cmp.Diff(before, keptStateOf(t, data)); diff != "" {
				t.Errorf("%v: -before +after\n%s", args, diff)
			}
		}
	}
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	if err := startDaemon(t, relay, data, "--references=on", "--links", "--new-epoch").stop(); err != nil {
		t.Fatal(err)
	}
	if after := keptStateOf(t, data); after.Log.Epoch != 2 || after.Generation != before.Generation || !after.Links {
		t.Errorf("a start that is not refused: %+v", after)
	}
}

// TestRefusedFirstStart: a first start that is refused leaves no trouble behind.
func TestRefusedFirstStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o750); err != nil {
		t.Fatal(err)
	}
	keys := writeFile(t, filepath.Join(data, "identities"), "no directory")
	if code, out := millrace(t, serveArgs(dir, "--references=on", "--verify=flag")...); code != exitFailed || !strings.Contains(out, keys) {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	checkDoctor(t, data, exitFailed, stateStopped, keys)
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	checkDoctor(t, data, exitOK, stateStopped)
	if code, out := millrace(t, serveArgs(data, "--verify=flag", "--plc-export", dir)...); code != exitFailed || !strings.Contains(out, "no regular file\n  Give --plc-export") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if _, err := os.Lstat(filepath.Join(data, "data")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it makes a data directory: %v", err)
	}
	if err := startDaemon(t, "127.0.0.1:1", data, "--references=on", "--verify=flag").stop(); err != nil {
		t.Error(err)
	}
}
