package pebbleguard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestNewMark: a new file has its blocks on disk before the database is used.
func TestNewMark(t *testing.T) {
	fs := vfs.NewCrashableMem()
	db := mustOpen(t, testConfig(fs))
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, db)
	if n := len(readFile(t, crashed, MarkFile)); n != 2*markSlotBytes {
		t.Errorf("after a power loss the file has %d bytes", n)
	}
}

// TestMark: the mark that is read is the last that was written whole, whatever happened to the
// other slot.
func TestMark(t *testing.T) {
	fs := vfs.NewMem()
	db := mustOpen(t, testConfig(fs))
	if v := db.Mark().Value(); v != nil {
		t.Errorf("a new database has mark %x", v)
	}
	want := ""
	for i := range 5 {
		if _, _, err := readMark(fs, "db"); err != nil {
			t.Fatal(err)
		}
		want = fmt.Sprintf("mark %d", i)
		if err := db.Mark().Write([]byte(want)); err != nil {
			t.Fatal(err)
		}
		if v, ok, err := readMark(fs, "db"); string(v) != want || !ok || err != nil {
			t.Fatalf("%q, %v, %v, want %q", v, ok, err, want)
		}
	}
	mustClose(t, db)
	whole := readFile(t, fs, MarkFile)
	for at := range whole { // slot 1 has mark 4, slot 0 mark 3
		b := append([]byte(nil), whole...)
		b[at] ^= 8
		writeFile(t, fs, MarkFile, b)
		wants := "mark 4"
		if slot := at - markSlotBytes; slot >= 0 && slot < len(appendSlot(nil, 0, []byte(want))) {
			wants = "mark 3"
		}
		if v, ok, err := readMark(fs, "db"); string(v) != wants || !ok || err != nil {
			t.Fatalf("byte %d: %q, %v, %v, want %q", at, v, ok, err, wants)
		}
	}
	writeFile(t, fs, MarkFile, whole)
	db = mustOpen(t, testConfig(fs))
	if v := db.Mark().Value(); string(v) != want {
		t.Errorf("opened again it has %q", v)
	}
	if err := db.Mark().Write([]byte("next")); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", maxMarkValue)
	for _, value := range []string{long + "x", long} {
		if err := db.Mark().Write([]byte(value)); (err == nil) != (value == long) {
			t.Errorf("%d bytes: %v", len(value), err)
		}
	}
	mustClose(t, db)
	if v, _, _ := readMark(fs, "db"); string(v) != long {
		t.Errorf("after that %q", v)
	}
	// a crash while it was made
	for _, b := range [][]byte{nil, make([]byte, 100), make([]byte, 2*markSlotBytes)} {
		writeFile(t, fs, MarkFile, b)
		if v, ok, err := readMark(fs, "db"); ok || err != nil {
			t.Errorf("%d bytes: %q, %v", len(b), v, err)
		}
	}
}

// TestMarkDue: one caller at a time writes it, once a markInterval.
func TestMarkDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("db", 0o755); err != nil {
			t.Fatal(err)
		}
		m, err := (&DB{cfg: testConfig(fs)}).openMark()
		if err != nil {
			t.Fatal(err)
		}
		defer m.close()
		for range 3 {
			if !m.Due() {
				t.Fatal("it is not due")
			}
			if m.Due() {
				t.Error("it is due to a second caller")
			}
			if err := m.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if m.Due() {
				t.Error("it is due at once")
			}
			<-time.After(markInterval)
		}
	})
}

// TestMarkIsCompared: before anything changes.
func TestMarkIsCompared(t *testing.T) {
	fs := makeDB(t)
	cfg := testConfig(fs)
	db := mustOpen(t, cfg)
	if err := db.Mark().Write([]byte("f")); err != nil { // the newest key, as far as the mark knows
		t.Fatal(err)
	}
	mustClose(t, db)
	cfg.CheckMark = func(db *DB, mark []byte) error {
		_, ok, err := db.Value(mark)
		if err == nil && !ok {
			err = fmt.Errorf("%w: of %s", ErrLost, mark)
		}
		return err
	}
	before := hashes(t, fs)
	for _, readOnly := range []bool{false, true} {
		cfg.ReadOnly = readOnly
		if _, err := Open(cfg); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "of f") {
			t.Errorf("read only %v: %v", readOnly, err)
		}
	}
	for name, sum := range hashes(t, fs) {
		if before[name] != sum {
			t.Errorf("%s has changed", name)
		}
	}
	checker := cfg
	checker.KeepGoing = true
	db = mustOpen(t, checker)
	if len(db.Damage) != 1 || !errors.Is(db.Damage[0], ErrLost) {
		t.Errorf("damage: %v", db.Damage)
	}
	mustClose(t, db)
	accepts := cfg
	accepts.ReadOnly, accepts.AnyMark = false, true
	db = mustOpen(t, accepts)
	mustSet(t, db, "f", valueOf("f"))
	mustClose(t, db)
	mustClose(t, mustOpen(t, cfg))
}
