package replay

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/verify"
)

// TestVerifyUnreadable: a table that the disk gives back damaged is named, and what lies after it
// is checked.
func TestVerifyUnreadable(t *testing.T) {
	fs, keys := verifyLog(t)
	var broken string
	tamper(t, fs, func(db *pebble.DB) {
		e := &editor{t, db, keys}
		for n := range keys { // each block's plain part in a table of its own
			e.raw(format.RangePlain, n, func(b []byte) []byte { return b })
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		levels, err := db.SSTables()
		if err != nil {
			t.Fatal(err)
		}
		for _, level := range levels {
			for _, table := range level {
				if us, _ := format.ParseTimeKey(table.Smallest.UserKey); table.Smallest.UserKey[0] == byte(format.RangePlain) && us == keys[2] {
					broken = fmt.Sprintf("%s.sst", table.FileNum)
				}
			}
		}
	})
	breakFile(t, fs, fs.PathJoin("log", broken), 100)
	r := mustVerify(t, fs)
	if r.Blocks != int64(len(keys)) || !slices.ContainsFunc(r.Examples, func(p verify.Problem) bool {
		return p.Part == "plain" && strings.Contains(p.Text, "cannot be read: the event log is damaged: log/"+broken+": pebble: file") &&
			!strings.Contains(p.String(), "\n")
	}) {
		t.Errorf("%d blocks, %d problems:\n%v", r.Blocks, r.Problems, r.Examples)
	}
	for _, p := range r.Examples {
		if p.Block == keys[5] || p.Block == keys[0] {
			t.Errorf("of a block whose parts can be read: %s", p)
		}
	}
}

// TestVerifyUnreadableValue: of a blob file that the disk gives back damaged, all values are
// checked but the damaged ones, neighbours among them.
func TestVerifyUnreadableValue(t *testing.T) {
	for _, damaged := range []int64{1, 2} {
		t.Run(fmt.Sprint(damaged), func(t *testing.T) { testUnreadableValues(t, damaged) })
	}
}

func testUnreadableValues(t *testing.T, damaged int64) {
	t.Helper()
	fs, keys := verifyLog(t)
	tamper(t, fs, func(*pebble.DB) {}) // flushes what the log has: each value is in one file only
	names, err := fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	largest, size := "", int64(0)
	for _, name := range names {
		info, err := fs.Stat(fs.PathJoin("log", name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".blob") && info.Size() > size {
			largest, size = name, info.Size()
		}
	}
	for i := range damaged { // the values are a sixth of the file each, about
		breakFile(t, fs, fs.PathJoin("log", largest), size*(5+2*i)/12)
	}
	r := mustVerify(t, fs)
	if r.Blocks != int64(len(keys)) || r.Problems == 0 {
		t.Fatalf("%d blocks, %d problems", r.Blocks, r.Problems)
	}
	blocks := map[int64]bool{}
	for _, p := range r.Examples {
		if blocks[p.Block] = true; p.Part != "plain" || p.Block == keys[0] || p.Block == keys[len(keys)-1] {
			t.Errorf("%s", p)
		}
	}
	if int64(len(blocks)) != damaged {
		t.Errorf("problems with %d blocks, %d are damaged: %v", len(blocks), damaged, r.Examples)
	}
	if n := slices.Index(keys, r.Examples[0].Block); n < 1 || n == len(keys)-1 || !strings.Contains(r.Examples[0].Text, "checksum mismatch") {
		t.Errorf("block %d: %s", n, r.Examples[0])
	}
}

// TestVerifyTooManyFiles: a file that cannot be opened since too many are open is an error, and no
// damage, whichever file it is.
func TestVerifyTooManyFiles(t *testing.T) {
	fs, keys := verifyLog(t)
	tamper(t, fs, func(db *pebble.DB) {
		e := &editor{t, db, keys}
		for n := range keys {
			e.raw(format.RangePlain, n, func(b []byte) []byte { return b })
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	})
	opens := int64(1)
	for fails := int64(0); fails < opens; fails++ { // the first time none does
		var opened atomic.Int64
		faulty := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			isData := strings.HasSuffix(op.Path, ".sst") || strings.HasSuffix(op.Path, ".blob")
			if op.Kind == errorfs.OpOpen && isData && opened.Add(1) == fails {
				return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EMFILE}
			}
			return nil
		}))
		r, err := verify.Run(t.Context(), verify.Config{Dir: "log", FS: faulty, Workers: 2})
		switch {
		case fails == 0 && (err != nil || !r.Sound()):
			t.Fatalf("the log is not sound: %v, %v", r, err)
		case fails == 0:
			opens = opened.Load()
		case !pebbleguard.TooManyFiles(err):
			t.Errorf("open %d of %d fails: report %+v, error %v", fails, opens, r, err)
		}
	}
	if opens < int64(len(keys)) {
		t.Errorf("%d files were opened, and there are %d blocks", opens, len(keys))
	}
}

// breakFile flips a bit of a file.
func breakFile(t *testing.T, fs vfs.FS, path string, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{b[0] ^ 1}, at); err != nil {
		t.Fatal(err)
	}
}
