package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReplaceFile: what is no file is neither replaced nor found out when all is written.
func TestReplaceFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	device := filepath.Join(dir, "device")
	if err := os.Symlink(os.DevNull, device); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, device} {
		err := replaceFile(name, 0o644, func(io.Writer) error {
			t.Errorf("%s is written to", name)
			return nil
		})
		if err == nil {
			t.Errorf("%s is replaced", name)
		}
	}
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(filepath.Join(dir, ".file.tmp"), []byte("of a process that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b"} {
		if err := replaceFile(name, 0o644, func(w io.Writer) error { _, err := io.WriteString(w, want); return err }); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("the file has %q, %v; want %q", got, err, want)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("left over: %v, %v", files, err)
	}
}

// TestReplaceFileTwice: what another process has begun to write does not get the name.
func TestReplaceFileTwice(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	temp := filepath.Join(filepath.Dir(name), ".file.tmp")
	err := replaceFile(name, 0o644, func(io.Writer) error {
		return errors.Join(os.Remove(temp), os.WriteFile(temp, []byte("of another"), 0o600))
	})
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
	if _, err := os.Lstat(temp); err != nil {
		t.Errorf("the other's is removed: %v", err)
	}
}

// TestWriteWholeFails: that standard output takes nothing is said once.
func TestWriteWholeFails(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int{1, 1 << 20} {
		err := writeWhole("", fullWriter{syscall.ENOSPC}, func(w io.Writer) error { _, err := w.Write(make([]byte, bytes)); return err })
		if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
}
