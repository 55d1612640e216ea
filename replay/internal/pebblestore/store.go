package pebblestore

import (
	"cmp"
	"log/slog"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv/pebbleguard"
)

// Bounds of the memtable, which takes a quarter of Config.Bytes.
const (
	minMemTable = 1 << 20
	maxMemTable = 64 << 20
)

// Keys grow at the ends of their ranges, so flushed tables of a range do not overlap. Level 0 is
// one table deep, but for the meta range and where a trim has put a range deletion over them. Only
// there Pebble compacts them, as l0Threshold is twice that depth. The others wait until they are
// l0Files. Then they are written together into the last level, once, as few large tables;
// LBaseMaxBytes keeps the levels between empty. To move each flushed table instead would leave
// very many in a large log. Their metadata is not within the memory budget.
//
// What a flush writes of plain and zstd parts goes to blob files, which compactions leave alone. So
// beside the WAL most bytes of the log are written once, not twice. A flush makes two, or four if
// it has a large span's copies. Each takes memory for as long as it is there: with smaller
// memtables than MinBlobMemTable they would be too many, and tables keep their values.
const (
	l0Threshold     = 4
	l0Files         = 128 // with memtables of MinBlobMemTable: see l0FilesFor
	targetFileBytes = 64 << 20

	MinBlobMemTable = 8 << 20 // with smaller memtables, tables keep their values
	minBlobValue    = 4 << 10
	maxBlobDepth    = 8 // how many blob files may overlap; those of the log do not
)

// maxCompactions run at once when Pebble falls behind; else one.
const maxCompactions = 3

// flushDelayDeleteRange is how long a trim may sit in the memtable before the tables it covers go.
const flushDelayDeleteRange = 10 * time.Second

// Advice is what to do when the log is damaged.
const Advice = "check the disk; restore the log's directory from a copy, or move it away to start an empty log"

// Config is what Open needs. Dir and SpanPolicy must be set.
type Config struct {
	Dir       string
	FS        vfs.FS // nil: the real file system
	ReadOnly  bool   // there must be a database; nothing in it changes
	KeepGoing bool   // with ReadOnly: damage is noted in Store.Damage, and ends nothing
	Bytes     int64  // of memory: memtables and block cache
	OpenFiles int    // tables and value files that are kept open; 0: 1,000
	// values of so many bytes go to value files, whatever the memtable; 0: see MinBlobMemTable
	BlobValue int

	SpanPolicy pebble.SpanPolicyFunc
	// CheckMark is pebbleguard.Config's.
	CheckMark func(db *pebbleguard.DB, mark []byte) error
	Logger    *slog.Logger // nil: discard
}

// Store is the open database.
type Store struct {
	*pebbleguard.DB
	MemTableBytes int64
	CacheBytes    int64 // of table blocks
}

// Open opens the database in cfg.Dir, or makes an empty one. Its errors are pebbleguard.Open's.
func Open(cfg Config) (*Store, error) {
	cfg.FS = cmp.Or(cfg.FS, vfs.Default)
	db, err := pebbleguard.Open(pebbleguard.Config{
		Dir:       cfg.Dir,
		FS:        &blobFS{cfg.FS},
		Store:     "event log",
		Advice:    Advice,
		Options:   cfg.options(),
		ReadOnly:  cfg.ReadOnly,
		KeepGoing: cfg.KeepGoing,
		CheckMark: cfg.CheckMark,
		Logger:    cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	memTable, cache := cfg.split()
	return &Store{DB: db, MemTableBytes: memTable, CacheBytes: cache}, nil
}

// split returns the bytes of one memtable and of the block cache. A second memtable may be kept.
func (cfg *Config) split() (memTable, cache int64) {
	memTable = min(max(cfg.Bytes/4, minMemTable), maxMemTable)
	return memTable, max(cfg.Bytes-2*memTable, 1<<20)
}

func (cfg *Config) options() *pebble.Options {
	memTable, cache := cfg.split()
	opts := &pebble.Options{
		FormatMajorVersion:          pebble.FormatNewest,
		CacheSize:                   cache + 2*memTable, // Pebble takes the memtables out of it
		MemTableSize:                uint64(memTable),
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       l0Threshold,
		L0CompactionFileThreshold:   l0FilesFor(memTable),
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               1 << 50,
		BytesPerSync:                1 << 20,
		MaxOpenFiles:                cfg.OpenFiles,
		FlushDelayDeleteRange:       flushDelayDeleteRange,
		CompactionConcurrencyRange:  func() (int, int) { return 1, min(maxCompactions, runtime.GOMAXPROCS(0)) },
	}
	opts.Experimental.SpanPolicyFunc = cfg.SpanPolicy
	blobs := pebble.ValueSeparationPolicy{
		Enabled:               memTable >= MinBlobMemTable || cfg.BlobValue > 0,
		MinimumSize:           cmp.Or(cfg.BlobValue, minBlobValue),
		MaxBlobReferenceDepth: maxBlobDepth,
		TargetGarbageRatio:    1, // no blob file is written again: trims take them whole
	}
	opts.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy { return blobs }
	opts.TargetFileSizes[0] = targetFileBytes
	// What SpanPolicy does not have compressed is stored as it is. The profile is a copy: with
	// NoCompression itself Pebble ignores SpanPolicy and compresses nothing.
	compression := *sstable.NoCompression
	compression.Name = "millrace"
	for i := range opts.Levels {
		opts.Levels[i].Compression = func() *sstable.CompressionProfile { return &compression }
		opts.Levels[i].BlockSize = 8 << 10
	}
	return opts
}

// l0FilesFor returns how many tables of level 0 are written into the last level together. They have
// about targetFileBytes for each large range, with what they refer to: the smaller the memtables,
// the more tables. A trim gives back whole tables.
func l0FilesFor(memTable int64) int {
	return int(l0Files * MinBlobMemTable / memTable)
}
