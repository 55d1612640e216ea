package pebbleguard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

// TestMovedDirectory: a database whose directory was renamed or replaced fails at the next mark,
// write-ahead log, table, removal or copy. It changes nothing in what has the directory's name
// then.
func TestMovedDirectory(t *testing.T) {
	acts := map[string]func(db *DB) error{
		"mark":   func(db *DB) error { return db.Mark().Write([]byte("x")) },
		"flush":  func(db *DB) error { return db.Guard(db.Pebble().Flush) },
		"copy":   func(db *DB) error { return db.Checkpoint(db.cfg.Dir + ".copy") },
		"create": func(db *DB) error { return createAndClose(db.files(), db.cfg.Dir) },
		"remove": func(db *DB) error { return db.files().Remove(filepath.Join(db.cfg.Dir, MarkFile)) },
		"other":  func(db *DB) error { db.Fail(errors.New("a table is missing")); return db.Err() },
	}
	for name, act := range acts {
		for _, replaced := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				cfg := testConfig(nil)
				cfg.Dir = filepath.Join(t.TempDir(), "db")
				db := mustOpen(t, cfg) // a new one: nothing old is removed in the background
				mustSet(t, db, "a", valueOf("a"))
				if err := os.CopyFS(cfg.Dir+".backup", os.DirFS(cfg.Dir)); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(cfg.Dir, cfg.Dir+".broken"); err != nil {
					t.Fatal(err)
				}
				if replaced {
					if err := os.Rename(cfg.Dir+".backup", cfg.Dir); err != nil {
						t.Fatal(err)
					}
				}
				before := filesOf(cfg.Dir)
				if err := act(db); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), cfg.Dir+" was renamed, removed or replaced") {
					t.Errorf("replaced %v: %v", replaced, err)
				}
				if err := db.Close(); !errors.Is(err, ErrFailed) {
					t.Errorf("close: %v", err)
				}
				if diff := cmp.Diff(before, filesOf(cfg.Dir)); diff != "" {
					t.Errorf("replaced %v: -before +after\n%s", replaced, diff)
				}
			})
		}
	}
}

// TestDirectoryBack: a directory that was renamed for a moment is the one that is locked.
func TestDirectoryBack(t *testing.T) {
	cfg := testConfig(nil)
	cfg.Dir = filepath.Join(t.TempDir(), "db")
	db := mustOpen(t, cfg)
	if err := errors.Join(os.Rename(cfg.Dir, cfg.Dir+".x"), os.Rename(cfg.Dir+".x", cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	mustSet(t, db, "a", valueOf("a"))
	if err := errors.Join(db.Mark().Write([]byte("x")), db.Flush(), db.Checkpoint(cfg.Dir+".copy")); err != nil {
		t.Error(err)
	}
	mustClose(t, db)
}

// files is the file system as Pebble has it.
func (d *DB) files() vfs.FS {
	return &guardFS{FS: d.cfg.FS, db: d, dir: d.cfg.Dir}
}

func createAndClose(fs vfs.FS, dir string) error {
	f, err := fs.Create(fs.PathJoin(dir, "000999.sst"), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	return f.Close()
}

// filesOf returns the contents of dir by name; none if it is not there.
func filesOf(dir string) map[string]string {
	found := make(map[string]string)
	entries, _ := os.ReadDir(dir) //nolint:errcheck // it may not be there
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			b = []byte(err.Error())
		}
		found[e.Name()] = string(b)
	}
	return found
}
