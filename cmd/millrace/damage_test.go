package main

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/intern/kv/pebbleguard"
)

// servedDir leaves the stores of a server that had some hundreds of frames and was stopped twice.
// The log then has value files, and a write-ahead log with the second run's commits.
func servedDir(t *testing.T) string {
	t.Helper()
	sim := startRelaysim(t, "--frames", "500", "--wait-for-consumer")
	dir := t.TempDir()
	d := startDaemon(t, sim.url, dir, "--memory", "256MiB")
	sim.waitMade(t, 500)
	readAll(t, d.addr, "cursor=0", len(readTruth(t, sim.truth)))
	d.mustStop(t)
	relay := newTestRelay(t)
	d = startDaemon(t, relay.url, dir, "--memory", "256MiB", "--new-epoch")
	relay.send <- identityFrame(t, 7).Data
	waitFor(t, "an event", func() bool { return d.log.Progress().Seq == 7 })
	d.mustStop(t)
	return dir
}

// copyDir copies a data directory.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// hashesOf returns the files below dir with hashes of their bytes.
func hashesOf(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	sums := make(map[string][32]byte)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		sums[path] = sha256.Sum256(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// oneOf returns the last file that matches.
func oneOf(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no file %s: %v", pattern, err)
	}
	return found[len(found)-1]
}

// storeCommands are those that open a store of a data directory.
func storeCommands(t *testing.T, dir string) map[string][]string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	return map[string][]string{
		"serve": {"serve", "--relay", "127.0.0.1:1", "--data-dir", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "",
			"--memory", "256MiB", "--min-free-disk", "0", "--new-epoch"},
		"verify":        {"verify", "--data-dir", dir},
		"dict train":    {"dict", "train", "--data-dir", dir, "--out", out},
		"backup":        {"backup", "--data-dir", dir, "--to", out + "-copy"},
		"intern verify": {"intern", "verify", "--data-dir", dir},
		"intern export": {"intern", "export", "--data-dir", dir, out + "-uids"},
	}
}

// TestDamagedStores: what is wrong with the files of a store is said by name by each command that
// opens it, and nothing is changed. None of them panics.
func TestDamagedStores(t *testing.T) {
	t.Parallel()
	served := servedDir(t)
	logCommands := []string{"serve", "verify", "dict train", "backup"}
	uidCommands := []string{"intern verify", "intern export"}
	for name, tc := range map[string]struct {
		damage   func(dir string) error
		commands []string
		says     []string
	}{
		"manifest marker of the log": {func(dir string) error { return os.Remove(oneOf(t, dir+"/log/marker.manifest.*")) }, logCommands, []string{"marker.manifest", "nothing was changed"}},
		"format marker of the log":   {func(dir string) error { return os.Remove(oneOf(t, dir+"/log/marker.format-version.*")) }, logCommands, []string{"marker.format-version", "nothing was changed"}},
		"manifest marker of the UIDs": {func(dir string) error { return os.Remove(oneOf(t, dir+"/intern/marker.manifest.*")) }, append(uidCommands, "serve"),
			[]string{"marker.manifest", "nothing was changed"}},
		"missing value file": {func(dir string) error { return os.Remove(oneOf(t, dir+"/log/*.blob")) }, logCommands, []string{".blob", "it is missing"}},
		"short value file":   {func(dir string) error { return os.Truncate(oneOf(t, dir+"/log/*.blob"), 1000) }, logCommands, []string{".blob", "it has 1000 bytes"}},
		"missing table":      {func(dir string) error { return os.Remove(oneOf(t, dir+"/log/*.sst")) }, logCommands, []string{".sst", "it is missing"}},
		"missing UID table":  {func(dir string) error { return os.Remove(oneOf(t, dir+"/intern/*.sst")) }, append(uidCommands, "serve"), []string{".sst", "it is missing"}},
		"empty write-ahead log": {func(dir string) error { return os.Truncate(oneOf(t, dir+"/log/*.log"), 0) }, logCommands,
			[]string{"commits are lost", "it had come to seq 7", pebbleguard.MarkFile}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, served)
			if err := tc.damage(dir); err != nil {
				t.Fatal(err)
			}
			store := filepath.Join(dir, "log") // the damaged one
			if strings.Contains(name, "UID") {
				store = filepath.Join(dir, "intern")
			}
			before := hashesOf(t, store)
			for _, command := range tc.commands {
				code, out := millrace(t, storeCommands(t, dir)[command]...)
				if code != exitFailed {
					t.Errorf("%s: exit code %d", command, code)
				}
				for _, says := range append(tc.says, "restore") {
					if !strings.Contains(out, says) {
						t.Errorf("%s does not say %q:\n%s", command, says, out)
					}
				}
				if strings.Contains(out, "carrier") || strings.Contains(out, "panic") || strings.Contains(out, "another process") {
					t.Errorf("%s:\n%s", command, out)
				}
				if diff := cmp.Diff(before, hashesOf(t, store)); diff != "" {
					t.Errorf("%s has changed something: -before +after\n%s", command, diff)
				}
			}
			if name == "missing UID table" {
				if _, out := millrace(t, "intern", "verify", "--data-dir", dir); !strings.Contains(out, " problems\n") {
					t.Errorf("intern verify does not go on:\n%s", out)
				}
			}
			if strings.Contains(name, "value file") {
				if _, out := millrace(t, "verify", "--data-dir", dir); !strings.Contains(out, " events in ") || strings.Contains(out, "\n0 events") {
					t.Errorf("verify does not go on:\n%s", out)
				}
			}
		})
	}
	if _, err := os.Stat(filepath.Join(served, "log", "CREATING")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("CREATING is left: %v", err)
	}
}
