package pebblekv

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config says where the store is and how much memory it may use.
type Config struct {
	Dir           string
	FS            vfs.FS // nil: the real one
	CacheBytes    int64  // block cache; 0: 32 MiB
	MaxOpenFiles  int    // tables that are kept open; 0: 1,000
	MemTableBytes int64  // one memtable; up to memTables are alive; 0: 16 MiB
	ReadOnly      bool   // there must be a store; nothing in it changes, and commits fail
	// with ReadOnly, for checkers: damaged files are in Damage, and what else can be read is read
	KeepGoing  bool
	AcceptLoss bool // a store that has lost commits is opened; see intern.SkipAhead
	Logger     *slog.Logger
}

// memTables is how many memtables may be alive: one being filled, the others being flushed.
const memTables = 3

// withDefaults returns c with its zeros filled. FS and Logger are pebbleguard's to fill in.
func (c Config) withDefaults() Config {
	c.MaxOpenFiles = cmp.Or(c.MaxOpenFiles, 1000)
	c.CacheBytes = cmp.Or(c.CacheBytes, 32<<20)
	c.MemTableBytes = cmp.Or(c.MemTableBytes, 16<<20)
	return c
}

// validate names the first field that cannot be used.
func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("pebblekv: field Dir: must be set")
	case c.CacheBytes < 0:
		return fmt.Errorf("pebblekv: field CacheBytes: %d is negative", c.CacheBytes)
	case c.MaxOpenFiles < 0:
		return fmt.Errorf("pebblekv: field MaxOpenFiles: %d is negative", c.MaxOpenFiles)
	case c.MemTableBytes < 0:
		return fmt.Errorf("pebblekv: field MemTableBytes: %d is negative", c.MemTableBytes)
	}
	return nil
}

// formatVersion is written out so that a newer Pebble does not change the files of an older store
// unasked.
const formatVersion = pebble.FormatValueSeparation

// options are tuned for small keys and values that are written once and never change. Every level
// has Bloom filters, since most reads are for absent keys. The last level, which has most of the
// data, is compressed with zstd.
func (c *Config) options() *pebble.Options {
	o := &pebble.Options{
		// Pebble takes the memtables out of it
		CacheSize:                   c.CacheBytes + memTables*c.MemTableBytes,
		FormatMajorVersion:          formatVersion,
		MemTableSize:                uint64(c.MemTableBytes),
		MemTableStopWritesThreshold: memTables,
		L0CompactionThreshold:       8,
		L0StopWritesThreshold:       32,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                c.MaxOpenFiles,
		WALBytesPerSync:             1 << 20,
	}
	o.CompactionConcurrencyRange = func() (int, int) { return 1, 2 }
	// The values of UIDs are whole chunks of names. Pebble counts their bytes, takes look-ups for
	// scans, and would rewrite tables beside them to save a level.
	o.Experimental.ReadSamplingMultiplier = -1
	o.TargetFileSizes[0] = 4 << 20
	last := len(o.Levels) - 1
	for i := range o.Levels {
		l := &o.Levels[i]
		l.BlockSize = 16 << 10
		l.IndexBlockSize = 32 << 10
		l.FilterPolicy = bloom.FilterPolicy(10)
		profile := block.FastestCompression
		if i == last {
			profile = block.BalancedCompression
		}
		l.Compression = func() *block.CompressionProfile { return profile }
	}
	return o
}
