package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// writeDataFile replaces a small JSON file of a data directory, whole or not at all.
func writeDataFile(dataDir, name string, v any, mode os.FileMode) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dataDir, name), mode, func(w io.Writer) error { _, err := w.Write(append(raw, '\n')); return err })
}

// replaceFile lets fill write a file, which gets its name when it is whole and on disk. It removes
// what a process that was killed left of it. A link stays one, and a file that others may not read
// stays so. Of two calls at once the first fails.
func replaceFile(name string, mode os.FileMode, fill func(w io.Writer) error) (err error) {
	if info, err := os.Stat(name); err == nil {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("write %s: it is there, and no regular file", name)
		}
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return err
		}
		mode &= info.Mode()
	}
	temp := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".tmp")
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil && isNamed(f, temp) {
			err = errors.Join(err, os.Remove(temp))
		}
		f.Close() // it is synced, or of no use
	}()
	b := bufio.NewWriterSize(f, 1<<16)
	if err := fill(b); err != nil {
		return err
	}
	if err := errors.Join(b.Flush(), f.Sync()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if !isNamed(f, temp) {
		return fmt.Errorf("write %s: another process writes it, too", name)
	}
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// isNamed says whether the open file has that name.
func isNamed(f *os.File, name string) bool {
	open, err := f.Stat()
	named, nameErr := os.Lstat(name)
	return errors.Join(err, nameErr) == nil && os.SameFile(open, named)
}

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// readDataFile reads a small JSON file of a data directory. It returns nil if there is none, or no
// directory ("").
func readDataFile[T any](dataDir, name string) (*T, error) {
	if dataDir == "" {
		return nil, nil
	}
	path := filepath.Join(dataDir, name)
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	v := new(T)
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}
