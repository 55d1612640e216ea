package replay

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
)

// liveWAL returns the write-ahead log of the closed log: the newest.
func liveWAL(t *testing.T, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") && name > newest {
			newest = name
		}
	}
	return fs.PathJoin("log", newest)
}

// TestLostCommits: what a damaged or missing write-ahead log takes away is noticed at the next
// open, before anything changes, and by Verify. Without its mark the log goes on with what there
// is.
func TestLostCommits(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, fs vfs.FS){
		"a bit at the start": func(t *testing.T, fs vfs.FS) { breakFile(t, fs, liveWAL(t, fs), 40) },
		"a bit in the middle": func(t *testing.T, fs vfs.FS) {
			info, err := fs.Stat(liveWAL(t, fs))
			if err != nil {
				t.Fatal(err)
			}
			breakFile(t, fs, liveWAL(t, fs), info.Size()/3)
		},
		"missing": func(t *testing.T, fs vfs.FS) {
			if err := fs.Remove(liveWAL(t, fs)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, flushed := range []bool{false, true} {
			t.Run(name+map[bool]string{true: "/flushed", false: "/fresh"}[flushed], func(t *testing.T) {
				clock := newTestClock()
				cfg := testConfig(t, vfs.NewMem(), clock)
				a := tenBlocks(t, cfg, clock)
				if flushed {
					if err := a.l.store.Pebble().Flush(); err != nil {
						t.Fatal(err)
					}
				}
				for seq := int64(11); seq < 30; seq++ {
					a.append(a.block(1, seq, seq, format.Place{Seq: seq}))
				}
				if err := a.l.Close(); err != nil {
					t.Fatal(err)
				}
				damage(t, cfg.FS)
				before := contentsOf(t, cfg.FS)
				_, err := Open(cfg)
				if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "it had come to seq 29 of epoch 1") || !strings.Contains(err.Error(), "events further") ||
					!strings.Contains(err.Error(), pebbleguard.MarkFile) {
					t.Errorf("open: %v", err)
				}
				if after := contentsOf(t, cfg.FS); before != after {
					t.Error("the refusal has changed the log")
				}
				r := mustVerify(t, cfg.FS)
				if r.Problems == 0 || !strings.Contains(r.Examples[0].Text, "it had come to seq 29") {
					t.Errorf("verify: %d problems: %v", r.Problems, r.Examples)
				}
				if err := cfg.FS.Remove(cfg.FS.PathJoin("log", pebbleguard.MarkFile)); err != nil {
					t.Fatal(err)
				}
				l := mustOpen(t, cfg)
				if seq := l.Progress().Seq; seq >= 29 || flushed && seq < 10 {
					t.Errorf("it goes on after %d", seq)
				}
			})
		}
	}
}

// contentsOf is the log's files and their bytes.
func contentsOf(t *testing.T, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var all strings.Builder
	for _, name := range names {
		f, err := fs.Open(fs.PathJoin("log", name))
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, info.Size())
		if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
			t.Fatal(err)
		}
		all.WriteString(name + "\n" + string(b))
		_ = f.Close()
	}
	return all.String()
}

// TestMarkBehind: a mark that is older than the log, as a crash leaves it, or that is not there, is
// no loss.
func TestMarkBehind(t *testing.T) {
	clock := newTestClock()
	fs := vfs.NewCrashableMem()
	cfg := testConfig(t, fs, clock)
	a := tenBlocks(t, cfg, clock)
	for seq := int64(11); seq < 30; seq++ {
		a.append(a.block(1, seq, seq, format.Place{Seq: seq}))
		cfg.FS = fs.CrashClone(vfs.CrashCloneCfg{})
		l := mustOpen(t, cfg)
		if got := l.Progress().Seq; got != seq {
			t.Errorf("after %d it is at %d", seq, got)
		}
		_ = l.Close()
	}
}

// TestDamagedValueFiles: a log with a damaged value file is refused by name. Verify names it and
// checks the rest. A reader that meets one later gets a CorruptionError, and the log fails.
func TestDamagedValueFiles(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, fs vfs.FS, path string, size int64){
		"footer":  func(t *testing.T, fs vfs.FS, path string, size int64) { breakFile(t, fs, path, size-20) },
		"missing": func(t *testing.T, fs vfs.FS, path string, _ int64) { must0(t, fs.Remove(path)) },
		"empty":   func(t *testing.T, fs vfs.FS, path string, _ int64) { emptyFile(t, fs, path) },
	} {
		t.Run(name, func(t *testing.T) {
			clock := newTestClock()
			cfg := testConfig(t, vfs.NewMem(), clock)
			cfg.hooks.blobValue, cfg.Retention = 1, 2*time.Hour
			a := tenBlocks(t, cfg, clock)
			if err := a.l.store.Pebble().Flush(); err != nil {
				t.Fatal(err)
			}
			position := a.l.Range().Newest.Position
			position.Seq = 5
			_ = a.l.Close()
			path, size := largestBlob(t, cfg.FS)

			l := mustOpen(t, cfg)
			damage(t, cfg.FS, path, size)
			err := readAllOf(l, cfg, position)
			var c *CorruptionError
			if !errors.As(err, &c) || c.File != path || !strings.Contains(err.Error(), "restore") || strings.Contains(err.Error(), "carrier") {
				t.Errorf("read: %v", err)
			}
			if !errors.Is(l.store.Err(), ErrFailed) {
				t.Error("the log has not failed")
			}
			_ = l.Close()

			clone := cfg // the lock of a log that failed is kept
			clone.FS = cloneFS(t, cfg.FS)
			_, err = Open(clone)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore") {
				t.Errorf("open: %v", err)
			}
			r := mustVerify(t, clone.FS)
			if r.Blocks != 10 || r.Problems < 2 || !strings.Contains(r.Examples[0].Text, path) {
				t.Errorf("verify: %d blocks, %d problems: %v", r.Blocks, r.Problems, r.Examples)
			}
			for _, p := range r.Examples {
				if strings.Contains(p.Text, "carrier") || strings.Contains(p.Text, "panic") {
					t.Errorf("verify: %s", p)
				}
			}
		})
	}
}

func must0(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func emptyFile(t *testing.T, fs vfs.FS, path string) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	must0(t, err)
	must0(t, f.Close())
}

func largestBlob(t *testing.T, fs vfs.FS) (path string, size int64) {
	t.Helper()
	names, err := fs.List("log")
	must0(t, err)
	for _, name := range names {
		info, err := fs.Stat(fs.PathJoin("log", name))
		must0(t, err)
		if strings.HasSuffix(name, ".blob") && info.Size() > size {
			path, size = fs.PathJoin("log", name), info.Size()
		}
	}
	if path == "" {
		t.Fatal("there is no value file")
	}
	return path, size
}

// cloneFS copies the log to a file system of its own.
func cloneFS(t *testing.T, from vfs.FS) vfs.FS {
	t.Helper()
	to := vfs.NewMem()
	_, err := vfs.Clone(from, to, "log", "log")
	must0(t, err)
	return to
}
