package replay

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/dict"
	"millrace/replay/internal/format"
)

// readOnly is what another process needs to read a log: its directory.
func readOnly(t testing.TB, dir string, fs vfs.FS) Config {
	t.Helper()
	reg, err := dict.NewRegistry(dict.BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reg.Close)
	return Config{Dir: dir, FS: fs, ReadOnly: true, Dictionaries: reg, PebbleBytes: 8 << 20}
}

// contents returns the files in dir with hashes of what is in them.
func contents(t testing.TB, dir string) map[string][32]byte {
	t.Helper()
	files := make(map[string][32]byte)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = sha256.Sum256(raw)
	}
	return files
}

// TestReadOnly: all of a log can be read without knowing whose it is, and nothing of it changes.
func TestReadOnly(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, nil, clock)
	cfg.Dir, cfg.UIDStore = filepath.Join(t.TempDir(), "log"), ""
	a := tenBlocks(t, cfg, clock)
	uses, held, at := a.l.Dictionaries(), a.l.Range(), a.l.Progress()
	if err := a.l.Close(); err != nil {
		t.Fatal(err)
	}
	before := contents(t, cfg.Dir)

	ro := readOnly(t, cfg.Dir, nil)
	other, err := dict.NewRegistry(withID(t, otherDictionaryID)) // not the stored one of the log
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ro.Dictionaries = other
	ro.UIDStore = "store-2" // the log has none, and gets none
	l := mustOpen(t, ro)
	held.Retention = 0
	if diff := cmp.Diff(held, l.Range()); diff != "" {
		t.Errorf("range: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(uses, l.Dictionaries()); diff != "" {
		t.Errorf("dictionaries: -want +got\n%s", diff)
	}
	if got := l.Progress(); got != at {
		t.Errorf("progress %+v, want %+v", got, at)
	}
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0)})
	b := &lines{t: t, l: l, clock: clock, stamp: a.stamp}
	if got := b.read(r); got != "1-1-0 1-2-0 1-3-0 1-4-0 1-5-0 1-6-0 1-7-0 1-8-0 1-9-0 1-10-0" {
		t.Errorf("got %q", got)
	}
	if err := l.Append(b.block(1, 11, 11, format.Place{Seq: 11}).seal(t, l)); !errors.Is(err, errReadOnly) {
		t.Errorf("append: %v", err)
	}
	if err := l.TrimTo(t.Context(), 0); err != nil || l.Range().Events != held.Events {
		t.Errorf("trim: %v, %d events left", err, l.Range().Events)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, contents(t, cfg.Dir)); diff != "" {
		t.Errorf("the directory changed: -before +after\n%s", diff)
	}
	// And it can be opened for writing again, by its own process.
	if err := mustOpen(t, cfg).Close(); err != nil {
		t.Error(err)
	}
}

// TestReadOnlyAfterACrash: what was committed is read, though the process that wrote it was killed.
func TestReadOnlyAfterACrash(t *testing.T) {
	clock := newTestClock()
	fs := vfs.NewCrashableMem()
	a := tenBlocks(t, testConfig(t, fs, clock), clock)
	l := mustOpen(t, readOnly(t, "log", fs.CrashClone(vfs.CrashCloneCfg{})))
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(a.l.Range().Newest.TimeUS - 2*time.Minute.Microseconds())})
	if got := (&lines{t: t, l: l}).read(r); got != "1-8-0 1-9-0 1-10-0" {
		t.Errorf("got %q", got)
	}
}

func TestReadOnlyRefuses(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, nil, clock)
	cfg.Dir = filepath.Join(t.TempDir(), "log")
	writer := tenBlocks(t, cfg, clock).l
	ro := readOnly(t, cfg.Dir, nil)
	refuse := func(what string, c Config, is error, says string) {
		t.Helper()
		l, err := Open(c)
		if err == nil {
			_ = l.Close()
			t.Errorf("%s is taken", what)
		} else if is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refuse("a log that is being written", ro, ErrInUse, "end the process")
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	reader := mustOpen(t, ro)
	refuse("a log that is being read", ro, ErrInUse, "end the process")
	refuse("a log that is being read, for writing", cfg, nil, "another process")
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}

	empty := t.TempDir()
	absent := filepath.Join(empty, "absent")
	for _, dir := range []string{empty, absent} {
		c := ro
		c.Dir = dir
		refuse(dir, c, ErrNoLog, dir)
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) != 0 {
		t.Errorf("opening what is not there left %v, error %v", entries, err)
	}
	for what, change := range map[string]func(*Config){
		"a new epoch": func(c *Config) { c.NewEpoch = true },
		"retention":   func(c *Config) { c.Retention = time.Hour },
		"bytes":       func(c *Config) { c.RetentionBytes = 1 },
	} {
		c := ro
		change(&c)
		refuse(what, c, nil, "replay: field ReadOnly: ")
	}
	c := ro
	c.Relay = "other.example.com"
	refuse("another relay", c, ErrRelayMismatch, "other.example.com")
	c.Relay = testRelay
	if err := mustOpen(t, c).Close(); err != nil {
		t.Error(err)
	}
}
