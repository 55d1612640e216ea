package chain

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv/pebbleguard"
)

// Config is what Open needs. Dir and Sample must be set.
type Config struct {
	Dir string // the store's own directory, made if absent
	FS  vfs.FS // nil: the real file system

	Sample uint64 // one account in so many has a state

	PebbleBytes int64        // memtables and block cache; 0: 8 MiB
	OpenFiles   int          // tables that are kept open; 0: 1,000
	Logger      *slog.Logger // nil: discard
}

func (c Config) withDefaults() Config {
	c.PebbleBytes = cmp.Or(c.PebbleBytes, 8<<20)
	c.OpenFiles = cmp.Or(c.OpenFiles, 1000)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("chain: field Dir: must be set")
	case c.Sample == 0:
		return errors.New("chain: field Sample: must be set")
	case c.PebbleBytes < minPebbleBytes:
		return fmt.Errorf("chain: field PebbleBytes: %d is less than %d", c.PebbleBytes, minPebbleBytes)
	case c.OpenFiles < 0:
		return fmt.Errorf("chain: field OpenFiles: %d is negative", c.OpenFiles)
	}
	return nil
}

const (
	minPebbleBytes = 512 << 10
	// advice is what to do when the store is damaged.
	advice = "check the disk; move the store's directory away: commits are then compared from each account's next one on"
	// formatVersion is written out so that a newer Pebble does not change the files of an older
	// store unasked.
	formatVersion = pebble.FormatValueSeparation
)

func (c *Config) open() (*pebbleguard.DB, error) {
	return pebbleguard.Open(pebbleguard.Config{
		Dir: c.Dir, FS: c.FS, Store: "store of chains", Advice: advice, Logger: c.Logger,
		Options: &pebble.Options{
			CacheSize:          c.PebbleBytes, // Pebble takes the memtables out of it
			FormatMajorVersion: formatVersion,
			MemTableSize:       uint64(min(c.PebbleBytes/4, 16<<20)),
			MaxOpenFiles:       c.OpenFiles,
			BytesPerSync:       1 << 20,
		},
	})
}
