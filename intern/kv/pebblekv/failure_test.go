package pebblekv

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/intern/kv"
	"millrace/intern/kv/pebbleguard"
)

var errDisk = errors.New("the disk said no")

func set(t *testing.T, s *Store, key string) error {
	t.Helper()
	return kv.Run(t.Context(), s, func(txn kv.Txn) error { txn.Set([]byte(key), []byte("value")); return nil })
}

// TestFailedDisk: a write, a sync or a flush that fails ends the store: it says why, takes nothing
// more, and closes. What was committed is there after a restart.
func TestFailedDisk(t *testing.T) {
	for name, fails := range map[string]func(op errorfs.Op) bool{
		"write": func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileWrite },
		"sync":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData },
		"flush": func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpCreate },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			var armed atomic.Bool
			s, err := Open(Config{Dir: "uids", FS: errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if armed.Load() && fails(op) {
					return errDisk
				}
				return nil
			}))})
			if err != nil {
				t.Fatal(err)
			}
			if err := set(t, s, "a"); err != nil {
				t.Fatal(err)
			}
			armed.Store(true)
			if name == "flush" {
				if _, err := s.db.Pebble().AsyncFlush(); err != nil {
					t.Fatal(err)
				}
			} else if err := set(t, s, "b"); !errors.Is(err, pebbleguard.ErrFailed) || !errors.Is(err, errDisk) {
				t.Errorf("commit: %v", err)
			}
			select {
			case <-s.Failed():
			case <-time.After(time.Minute):
				t.Fatal("nothing is reported")
			}
			if err := s.Err(); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "check the disk") {
				t.Errorf("failure: %v", err)
			}
			crashed := fs.CrashClone(vfs.CrashCloneCfg{})
			armed.Store(false)
			if err := set(t, s, "c"); !errors.Is(err, pebbleguard.ErrFailed) {
				t.Errorf("a commit after it: %v", err)
			}
			if err := s.Close(); !errors.Is(err, pebbleguard.ErrFailed) {
				t.Errorf("close: %v", err)
			}
			again := open(t, crashed)
			if got := get(t, again, "a"); got != "value" {
				t.Errorf("what was committed is %q", got)
			}
		})
	}
}

func get(t *testing.T, s *Store, key string) string {
	t.Helper()
	values := make([][]byte, 1)
	err := kv.Run(t.Context(), s, func(txn kv.Txn) error { return txn.Get(t.Context(), [][]byte{[]byte(key)}, values) })
	if err != nil {
		t.Fatal(err)
	}
	return string(values[0])
}

// TestReadOnly: nothing changes, and commits fail.
func TestReadOnly(t *testing.T) {
	fs := vfs.NewMem()
	if _, err := Open(Config{Dir: "uids", FS: fs, ReadOnly: true}); !errors.Is(err, pebbleguard.ErrNoStore) {
		t.Errorf("no store: %v", err)
	}
	s := open(t, fs)
	if err := set(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, _ := fs.List("uids")
	r, err := Open(Config{Dir: "uids", FS: fs, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t, r, "a"); got != "value" {
		t.Errorf("got %q", got)
	}
	if err := set(t, r, "b"); err == nil || !strings.Contains(err.Error(), "reading only") {
		t.Errorf("commit: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	after, _ := fs.List("uids")
	slices.Sort(names)
	slices.Sort(after)
	if !slices.Equal(names, after) {
		t.Errorf("before %v, after %v", names, after)
	}
}

// TestLostCommits: a store whose write-ahead log is damaged is refused until UIDs were skipped.
func TestLostCommits(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	if err := set(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{}) // with a live log, which Close would flush
	_ = s.Close()
	whole := fs.CrashClone(vfs.CrashCloneCfg{})
	names, err := crashed.List("uids")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			f, err := crashed.Create("uids/"+name, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
		}
	}
	for _, cfg := range []Config{{}, {ReadOnly: true}} {
		cfg.Dir, cfg.FS = "uids", crashed
		if _, err := Open(cfg); !errors.Is(err, pebbleguard.ErrLost) || !strings.Contains(err.Error(), "intern skip-ahead") {
			t.Errorf("open: %v", err)
		}
	}
	for _, skipped := range []bool{false, true} {
		s, err := Open(Config{Dir: "uids", FS: crashed, AcceptLoss: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := set(t, s, "b"); err != nil {
			t.Error(err)
		}
		if skipped {
			if err := s.RaiseMark(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s, err = Open(Config{Dir: "uids", FS: crashed})
		if errors.Is(err, pebbleguard.ErrLost) == skipped {
			t.Errorf("skipped %v: %v", skipped, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
	if got := get(t, open(t, whole), "a"); got != "value" {
		t.Errorf("the whole store has %q", got)
	}
}
