package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"millrace/replay"
)

// cursorEvery is how often at most the cursor file is written, and how long at most it lags.
const cursorEvery = 250 * time.Millisecond

// cursorFile keeps how far the output is written. It is safe for concurrent use.
type cursorFile struct {
	name string

	mu      sync.Mutex
	pending string // "": nothing to write
	timer   *time.Timer
	err     error // of a write; the file is then of no use
}

// readCursorFile returns the cursor that is kept there, "" if the file does not exist.
func readCursorFile(name string) (string, error) {
	info, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err == nil && !info.Mode().IsRegular() { // a device may have no end, and is not to be replaced
		err = fmt.Errorf("%s is no regular file", name)
	}
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile(name)
	}
	if err != nil {
		return "", fmt.Errorf("--cursor-file: %w", err)
	}
	s := strings.TrimSpace(string(raw))
	if _, err := replay.ParseCursor(s); err != nil {
		return "", fmt.Errorf("--cursor-file: %s holds no cursor: %.60q; remove it to start with --cursor or --since", name, s)
	}
	return s, nil
}

// checkCursorFile says why the file could not be replaced. It leaves nothing behind.
func checkCursorFile(name string) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return fmt.Errorf("--cursor-file %s cannot be written: %w; name a file in a directory that exists and takes new files", name, err)
	}
	return nil
}

// note says that the output is written up to the cursor. Its error is that of an earlier write.
func (f *cursorFile) note(cursor string) error {
	if cursor == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = cursor
	if f.timer == nil {
		f.timer = time.AfterFunc(cursorEvery, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.timer = nil
			f.writeLocked()
		})
	}
	return f.err
}

// close writes what is pending.
func (f *cursorFile) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	f.writeLocked()
	return f.err
}

// writeLocked replaces the file, so that it holds either the old cursor or the new one, come what
// may.
func (f *cursorFile) writeLocked() {
	if f.pending == "" || f.err != nil {
		return
	}
	f.err = replaceFile(f.name, 0o644, func(w io.Writer) error { _, err := fmt.Fprintln(w, f.pending); return err })
	if f.err != nil {
		f.err = fmt.Errorf("--cursor-file: %w", f.err)
	}
	f.pending = ""
}
