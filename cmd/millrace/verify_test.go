package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// TestVerifyCommand: the log that a server wrote is whole. Beside the running server, without a
// log, and with a damaged one, the command says so and its exit code is 1.
func TestVerifyCommand(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--frames", "500", "--wait-for-consumer")
	dir := t.TempDir()
	d := startDaemon(t, sim.url, dir)
	sim.waitMade(t, 500)
	events := readAll(t, d.addr, "cursor=0", len(readTruth(t, sim.truth)))
	if code, out := millrace(t, "verify", "--data-dir", dir); code != exitFailed || !strings.Contains(out, "stop the server") {
		t.Errorf("beside a running server: exit code %d\n%s", code, out)
	}
	d.mustStop(t)
	code, out := millrace(t, "verify", "--data-dir", dir)
	if code != exitOK || !strings.Contains(out, " 0 problems") || len(events) == 0 || strings.HasPrefix(out, "0 events") {
		t.Errorf("a whole log: exit code %d\n%s", code, out)
	}
	if code, out = millrace(t, "verify", "--data-dir", t.TempDir()); code != exitFailed || !strings.Contains(out, "there is no log") {
		t.Errorf("no log: exit code %d\n%s", code, out)
	}
	damageLog(t, filepath.Join(dir, "log"))
	if code, out = millrace(t, "verify", "--data-dir", dir, "--problems", "1"); code != exitFailed ||
		!strings.HasPrefix(out, "plain ") || !strings.Contains(out, "checksum") || !strings.Contains(out, "the log is damaged") {
		t.Errorf("a damaged log: exit code %d\n%s", code, out)
	}
	for _, args := range [][]string{{"--problems", "0"}, {"extra"}, {"--nope"}} {
		if code, out = millrace(t, append([]string{"verify"}, args...)...); code != exitUsage {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}
	if code, out = millrace(t, "verify", "--help"); code != exitOK || !strings.Contains(out, "--data-dir") {
		t.Errorf("help: exit code %d\n%s", code, out)
	}
}

// damageLog changes a byte of the first value in the range of plain parts (replay/doc.go).
func damageLog(t *testing.T, dir string) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest})
	if err != nil {
		t.Fatal(err)
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{0x11}, UpperBound: []byte{0x12}})
	if err != nil {
		t.Fatal(err)
	}
	if !it.First() {
		t.Fatal("there is no block")
	}
	key, value := bytes.Clone(it.Key()), bytes.Clone(it.Value())
	value[len(value)/2] ^= 1
	if err := errors.Join(it.Close(), db.Set(key, value, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}
