package pebbleguard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// creatingFile says that a database is being made: without it a directory that has a database's
// files must have its markers too.
const creatingFile = "CREATING"

// contents is what a directory holds.
type contents struct {
	exists   bool // a database
	creating bool // one that is not ready, and was never used

	manifest, options string // paths; the options need not be there: ""
}

// inspect looks at the directory and changes nothing in it.
func (c *Config) inspect() (contents, error) {
	names, err := c.FS.List(c.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return contents{}, nil
	}
	if err != nil {
		return contents{}, fmt.Errorf("look into %s: %w", c.Dir, err)
	}
	found := contents{creating: slices.Contains(names, creatingFile)}
	desc, err := pebble.Peek(c.Dir, c.FS)
	if err != nil {
		return found, fmt.Errorf("look into %s: %w", c.Dir, err)
	}
	found.exists, found.manifest, found.options = desc.Exists, desc.ManifestFilename, desc.OptionsFilename
	if found.creating {
		return found, nil
	}
	missing := ""
	if desc.FormatMajorVersion == pebble.FormatDefault {
		missing = "marker.format-version.*"
	}
	if !desc.Exists {
		missing = "marker.manifest.*"
	}
	if i := slices.IndexFunc(names, isData); i >= 0 && missing != "" {
		e := c.corrupt(c.Dir, fmt.Errorf("it holds %s of a database, but no file %s: copy tools may skip empty files", names[i], missing))
		e.Advice = "nothing was changed; copy the directory again with its empty files, or " + c.Advice
		return found, e
	}
	return found, nil
}

// checkNamed says whether the manifest of an existing database is there, and Pebble's record of its
// options can be read. Pebble reads that at an open and writes another. The lock is held.
func (c *Config) checkNamed(found contents) error {
	if _, err := c.FS.Stat(found.manifest); errors.Is(err, os.ErrNotExist) {
		return c.missing(found.manifest)
	}
	if found.options == "" {
		return nil
	}
	f, err := c.FS.Open(found.options)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	opts := c.Options.Clone()
	opts.EnsureDefaults()
	if err := opts.CheckCompatibility(c.Dir, string(text)); pebble.IsCorruptionError(err) {
		e := c.corrupt(found.options, err)
		e.Advice = "nothing was changed; remove this file: it is not needed, and is written anew"
		return e
	}
	return nil
}

// isData says whether a file of that name may hold what was written to a database.
func isData(name string) bool {
	return strings.HasPrefix(name, "MANIFEST-") || strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob") ||
		strings.HasSuffix(name, ".log") || name == MarkFile
}

// beginCreating notes that a database is being made.
func (c *Config) beginCreating() error {
	f, err := c.FS.Create(c.FS.PathJoin(c.Dir, creatingFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), syncDir(c.FS, c.Dir))
}

// endCreating notes that it is ready.
func (c *Config) endCreating() error {
	if err := c.FS.Remove(c.FS.PathJoin(c.Dir, creatingFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(c.FS, c.Dir)
}

func syncDir(fs vfs.FS, name string) error {
	d, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MakeDir makes the directory and what is missing above it, durably. A directory's name is in the
// one above it, so that each of those is synced.
func MakeDir(fs vfs.FS, dir string) error {
	var above []string // directories that get a new name
	for at := dir; ; {
		if _, err := fs.Stat(at); err == nil {
			break
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		parent := fs.PathDir(at)
		if parent == at {
			break
		}
		above, at = append(above, parent), parent
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, dir := range slices.Backward(above) {
		if err := syncDir(fs, dir); err != nil {
			return err
		}
	}
	return nil
}
