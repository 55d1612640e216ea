package references

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/postings"
)

// advice is what to do when the store is damaged.
const advice = "check the disk; restore the reference store's directory from a copy, or move it away to start an empty store"

// Bounds of the memtable, which takes a quarter of Config.PebbleBytes. The larger it is, the
// less often a row is written again by compactions, which cost most of what the store does. After
// a crash what two memtables held is read from the log again.
const (
	minMemTable = 1 << 20
	maxMemTable = 64 << 20
	memTables   = 2 // that may be alive: one being filled, one being flushed
)

// formatVersion is written out so that a newer Pebble does not change the files of an older store
// unasked.
const formatVersion = pebble.FormatValueSeparation

// openGuard opens the database.
func (c *Config) openGuard() (*pebbleguard.DB, error) {
	return pebbleguard.Open(pebbleguard.Config{
		Dir:       c.Dir,
		FS:        c.FS,
		Store:     "reference store",
		Advice:    advice,
		Options:   c.options(),
		ReadOnly:  c.ReadOnly,
		KeepGoing: c.KeepGoing,
		CheckMark: c.checkMark,
		Logger:    c.Logger,
	})
}

// options are tuned for random look-ups of small rows that are overwritten and deleted. Bloom
// filters are on every level but the last, which has nine tenths of the rows. Pebble's Get does not
// read a filter there, and most look-ups find their row in it. The last level is compressed with
// zstd, whatever it saves: Pebble's own profiles leave blocks alone that shrink by less than a
// fifth.
func (c *Config) options() *pebble.Options {
	memTable := min(max(c.PebbleBytes/4, minMemTable), maxMemTable)
	o := &pebble.Options{
		CacheSize:                   c.hooks.cacheBytes, // Pebble takes the memtables out of it
		FormatMajorVersion:          formatVersion,
		Merger:                      postings.Merger(),
		MemTableSize:                uint64(memTable),
		MemTableStopWritesThreshold: memTables,
		L0CompactionThreshold:       8,
		L0StopWritesThreshold:       32,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                c.OpenFiles,
		DisableWAL:                  true, // the log has what a crash takes back; Flush
		BytesPerSync:                1 << 20,
	}
	o.CompactionConcurrencyRange = func() (int, int) { return 1, 2 }
	o.TargetFileSizes[0] = 8 << 20
	dense := block.CompressionProfile{
		Name:        "millrace-references",
		DataBlocks:  block.ZstdCompression.DataBlocks,
		ValueBlocks: block.ZstdCompression.ValueBlocks,
		OtherBlocks: block.FastestCompression.OtherBlocks,
		// a block that would shrink by less is stored uncompressed
		MinReductionPercent: 3,
	}
	last := len(o.Levels) - 1
	for i := range o.Levels {
		l := &o.Levels[i]
		l.BlockSize = blockSize
		l.IndexBlockSize = 32 << 10
		l.FilterPolicy = bloom.FilterPolicy(10)
		profile := block.FastestCompression
		if i == last {
			l.FilterPolicy = pebble.NoFilterPolicy
			profile = &dense
		}
		l.Compression = func() *block.CompressionProfile { return profile }
	}
	return o
}

// blockSize is how many bytes of rows are compressed, read and cached together.
const blockSize = 16 << 10
