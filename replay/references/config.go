package references

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of Config.
const (
	defaultPrefixBits   = 14
	maxPrefixBits       = 32
	defaultPebbleBytes  = 64 << 20
	defaultOverlayBytes = 16 << 20
	defaultAccountBytes = 16 << 20
	defaultOpenFiles    = 1000
	minPebbleBytes      = 3 << 20
)

// Config is what Open needs. Dir must be set. Zero fields take their defaults.
type Config struct {
	Dir string // the store's own directory, made if absent
	FS  vfs.FS // nil: the real file system

	ReadOnly  bool // there must be a store: errNoStore; nothing in it changes
	KeepGoing bool // with ReadOnly, for Verify: damaged files fail nothing

	// PrefixBits is the UID store's: a UID's uppermost bits that name its sequence. 0: 14 in a new
	// store. A store that exists must have been made with the same number, unless this is 0.
	PrefixBits int

	PebbleBytes  int64 // memtables and block cache; 0: 64 MiB
	OverlayBytes int64 // the changes hydrated last; 0: 16 MiB
	AccountBytes int64 // cached states of accounts; 0: 16 MiB
	OpenFiles    int   // tables that are kept open; 0: 1,000

	Links Links // ReadOnly leaves them as they are

	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: no metrics

	hooks testHooks
}

// testHooks changes what only tests may change. The zero value changes nothing.
type testHooks struct {
	sweepRows  int    // rows of a step of the sweep; 0: maxSweepRows
	buildRows  int    // of a step of the build of links; 0: maxBuildRows
	chunkLinks int    // of a chunk; 0: maxChunkLinks
	checkLinks uint64 // additions for a look at their chunk; 0: checkLinks
	cacheBytes int64  // block cache and memtables; 0: PebbleBytes
	waiting    func() // Hydrate begins to wait for room
	gathered   func() // Hydrate has read what it needs, and holds no lock
	sweeping   func() // a step of the sweep has looked, and deletes next
	idle       func() // Run has swept everything
}

func (c Config) withDefaults() Config {
	c.PebbleBytes = cmp.Or(c.PebbleBytes, defaultPebbleBytes)
	c.hooks.cacheBytes = cmp.Or(c.hooks.cacheBytes, c.PebbleBytes)
	c.OverlayBytes = cmp.Or(c.OverlayBytes, defaultOverlayBytes)
	c.AccountBytes = cmp.Or(c.AccountBytes, defaultAccountBytes)
	c.OpenFiles = cmp.Or(c.OpenFiles, defaultOpenFiles)
	c.hooks.sweepRows = cmp.Or(c.hooks.sweepRows, maxSweepRows)
	c.hooks.buildRows = cmp.Or(c.hooks.buildRows, maxBuildRows)
	c.hooks.chunkLinks = cmp.Or(c.hooks.chunkLinks, maxChunkLinks)
	c.hooks.checkLinks = cmp.Or(c.hooks.checkLinks, checkLinks)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("references: field Dir: must be set")
	case c.KeepGoing && !c.ReadOnly:
		return errors.New("references: field KeepGoing: needs ReadOnly")
	case c.PrefixBits < 0 || c.PrefixBits > maxPrefixBits:
		return fmt.Errorf("references: field PrefixBits: %d is not 1 to %d", c.PrefixBits, maxPrefixBits)
	case c.PebbleBytes < minPebbleBytes:
		return fmt.Errorf("references: field PebbleBytes: %d is less than %d", c.PebbleBytes, minPebbleBytes)
	case c.OverlayBytes < 0:
		return fmt.Errorf("references: field OverlayBytes: %d is negative", c.OverlayBytes)
	case c.AccountBytes < 0:
		return fmt.Errorf("references: field AccountBytes: %d is negative", c.AccountBytes)
	case c.OpenFiles < 0:
		return fmt.Errorf("references: field OpenFiles: %d is negative", c.OpenFiles)
	}
	return nil
}
