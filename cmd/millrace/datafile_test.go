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
	device, toDevice := filepath.Join(dir, "device"), filepath.Join(dir, "todevice")
	if err := errors.Join(syscall.Mkfifo(device, 0o600), os.Symlink(device, toDevice)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, device, toDevice} {
		err := replaceFile(name, 0o644, func(io.Writer) error {
			t.Errorf("%s is written to", name)
			return nil
		})
		if err == nil {
			t.Errorf("%s is replaced", name)
		}
	}
	name := filepath.Join(dir, "file")
	writeFile(t, filepath.Join(dir, ".file.tmp"), "of a process that was killed")
	for _, want := range []string{"a", "b"} {
		if err := replaceFile(name, 0o644, func(w io.Writer) error { _, err := io.WriteString(w, want); return err }); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("the file has %q, %v; want %q", got, err, want)
		}
	}
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Symlink("file", link), os.Chmod(name, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(link, 0o644, func(w io.Writer) error { _, err := io.WriteString(w, "c"); return err }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(name); err != nil || info.Mode() != 0o600 {
		t.Errorf("what the link leads to: %v, %v", info, err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "c" {
		t.Errorf("what the link leads to has %q, %v", got, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 4 {
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
	for name, bytes := range map[string]int{"": 1, "-": 1 << 20} {
		err := writeWhole(name, fullWriter{syscall.ENOSPC}, func(w io.Writer) error { _, err := w.Write(make([]byte, bytes)); return err })
		if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
}
