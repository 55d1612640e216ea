package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"millrace/dict"
)

// smallDisk is a disk that can be full. A nil one is never.
type smallDisk struct {
	dir  string
	full bool
}

// smallDiskBytes is far more than a round's log.
const smallDiskBytes = 1 << 30

// mountDisk mounts one at dir until the test ends; nil if that is not allowed here.
func mountDisk(t *testing.T, dir string) *smallDisk {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+strconv.Itoa(smallDiskBytes), "none", dir).CombinedOutput(); err != nil {
		t.Logf("no disk of our own to fill, so files get a size limit instead: mount: %v: %s", err, out)
		return nil
	}
	t.Cleanup(func() {
		if t.Failed() {
			_ = exec.Command("cp", "-a", dir, dir+".kept").Run()
		}
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
		if !t.Failed() {
			_ = os.RemoveAll(filepath.Dir(dir))
		}
	})
	return &smallDisk{dir: dir}
}

func (d *smallDisk) isFull() bool { return d != nil && d.full }

func (d *smallDisk) filler() string { return filepath.Join(d.dir, "filler") }

// fillOrEmpty leaves the disk with little room, or with plenty, at random.
func (d *smallDisk) fillOrEmpty(r *round) {
	if d == nil {
		return
	}
	d.empty(r.t)
	if r.rng.IntN(2) == 0 {
		return
	}
	free, err := freeBytes(d.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	left := r.rng.Int64N(4 << 20)
	if out, err := exec.Command("fallocate", "-l", strconv.FormatInt(max(free-left, 1), 10), d.filler()).CombinedOutput(); err != nil {
		r.t.Fatalf("fill the disk: %v: %s", err, out)
	}
	d.full = true
	r.total.add("processes on a disk that is nearly full", 1)
}

func (d *smallDisk) empty(t *testing.T) {
	t.Helper()
	if d == nil {
		return
	}
	if err := os.Remove(d.filler()); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	d.full = false
}

// soakDictionaryID is that of the operator's dictionary, which is the built-in one under another
// name.
const soakDictionaryID = 40_001

func soakDictionary(t *testing.T) *dict.Dictionary {
	t.Helper()
	d, err := dict.WithID(dict.BuiltIn().Bytes(), soakDictionaryID)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func writeSoakDictionary(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "operator.zdict")
	if err := os.WriteFile(name, soakDictionary(t).Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}
