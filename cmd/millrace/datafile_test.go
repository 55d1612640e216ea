package main

import (
	"io"
	"os"
	"path/filepath"
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
		err := replaceFile(name, func(io.Writer) error {
			t.Errorf("%s is written to", name)
			return nil
		})
		if err == nil {
			t.Errorf("%s is replaced", name)
		}
	}
	name := filepath.Join(dir, "file")
	for _, want := range []string{"a", "b"} {
		if err := replaceFile(name, func(w io.Writer) error { _, err := io.WriteString(w, want); return err }); err != nil {
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
