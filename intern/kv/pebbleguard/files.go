package pebbleguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The end of a value file, as Pebble writes it:
//
//	masked CRC-32C of the rest:u32 | index offset:u64 | index length:u64 | checksum:u8 |
//	format:u8 | number of the file that it was first:u64 | magic
const (
	footerBytes = 38
	footerMagic = "\xf0\x9f\xaa\xb3\xf0\x9f\xa6\x80"
)

// checkers is how many files are looked at together: on a cold disk each look waits for it.
const checkers = 16

// dataFile is a table or value file of the manifest.
type dataFile struct {
	path string
	size int64
}

// dataFiles lists the files of a database that is open for reading only. In one that is open for
// writing Pebble may replace the version meanwhile.
func (c *Config) dataFiles(db *pebble.DB) []dataFile {
	version := db.DebugCurrentVersion()
	var files []dataFile
	add := func(name string, size uint64) {
		files = append(files, dataFile{c.FS.PathJoin(c.Dir, name), int64(size)})
	}
	seen := make(map[string]bool)
	for i := range version.Levels {
		for t := range version.Levels[i].All() {
			if name := t.TableBacking.DiskFileNum.String() + ".sst"; !seen[name] {
				seen[name] = true
				add(name, t.TableBacking.Size)
			}
		}
	}
	for b := range version.BlobFiles.All() {
		add(b.Physical.FileNum.String()+".blob", b.Physical.Size)
	}
	return files
}

// checkFiles returns what is wrong with the files, in their order.
func (c *Config) checkFiles(files []dataFile) []error {
	problems := make([]error, len(files))
	var wg sync.WaitGroup
	for first := range min(checkers, len(files)) {
		wg.Go(func() {
			for i := first; i < len(files); i += checkers {
				problems[i] = c.checkFile(files[i])
			}
		})
	}
	wg.Wait()
	var found []error
	for _, err := range problems {
		if err != nil {
			found = append(found, err)
		}
	}
	return found
}

func (c *Config) checkFile(f dataFile) error {
	info, err := c.FS.Stat(f.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return c.missing(f.path)
	case err != nil:
		return fmt.Errorf("look at %s: %w", f.path, err)
	case info.Size() != f.size:
		return c.corrupt(f.path, fmt.Errorf("it has %d bytes, not %d", info.Size(), f.size))
	}
	if !strings.HasSuffix(f.path, ".blob") {
		return nil
	}
	file, err := c.FS.Open(f.path, vfs.RandomReadsOption)
	if err != nil {
		return fmt.Errorf("look at %s: %w", f.path, err)
	}
	return errors.Join(c.checkFooter(f.path, file), file.Close())
}

func (c *Config) missing(path string) error { return c.corrupt(path, errMissing) }

// checkFooter says whether a value file ends as it must. Pebble panics on one that does not.
func (c *Config) checkFooter(path string, file vfs.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	var footer [footerBytes]byte
	if info.Size() < footerBytes {
		return c.corrupt(path, fmt.Errorf("it has only %d bytes, too few for a value file", info.Size()))
	}
	if _, err := file.ReadAt(footer[:], info.Size()-footerBytes); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", path, err)
	}
	sum := crc32.Checksum(footer[4:], crc32.MakeTable(crc32.Castagnoli))
	if masked := sum>>15 | sum<<17; binary.LittleEndian.Uint32(footer[:]) != masked+0xa282ead8 || string(footer[30:]) != footerMagic {
		return c.corrupt(path, errors.New("its footer is damaged"))
	}
	name := strings.TrimSuffix(c.FS.PathBase(path), ".blob")
	if n, err := strconv.ParseUint(name, 10, 64); err != nil || n != binary.LittleEndian.Uint64(footer[22:]) {
		return c.corrupt(path, fmt.Errorf("it is value file %06d under another name", binary.LittleEndian.Uint64(footer[22:])))
	}
	return nil
}
