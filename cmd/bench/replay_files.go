package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// bytesIn is how much the files under dir hold whose names counts takes.
func bytesIn(dir string, counts func(name string) bool) (total int64, err error) {
	err = eachFile(dir, func(file *os.File) error {
		info, err := file.Stat()
		if err == nil && counts(file.Name()) {
			total += info.Size()
		}
		return err
	})
	return total, err
}

// isTable leaves out write-ahead logs: those that are kept to be used again say nothing.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

// awaitRest waits until the tables under dir have not changed their size for a second, for half a
// minute at most, and returns it.
func awaitRest(dir string) (bytes int64, err error) {
	for quiet, round := 0, 0; quiet < 5 && round < 150; round++ {
		time.Sleep(200 * time.Millisecond)
		now, err := bytesIn(dir, isTable)
		if err != nil {
			return 0, err
		}
		if quiet++; now != bytes {
			quiet, bytes = 0, now
		}
	}
	return bytes, nil
}

// eachFile calls f with every file under dir. One that a compaction takes away meanwhile is left
// out.
func eachFile(dir string, f func(file *os.File) error) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer file.Close()
		return f(file)
	})
}

// readCached reads the files under dir, so that they are in the kernel's page cache.
func readCached(dir string) error {
	return eachFile(dir, func(file *os.File) error {
		_, err := io.Copy(io.Discard, struct{ io.Reader }{file})
		return err
	})
}

// forgetCached drops the pages of the files under dir from the kernel's cache. What is read next
// then comes from the disk, as far as a server does not have it in its own caches.
func forgetCached(dir string) error {
	return eachFile(dir, func(file *os.File) error {
		return errors.Join(file.Sync(), dropPages(file)) // only clean pages can be dropped
	})
}
