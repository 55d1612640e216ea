package replay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Bounds of the memtable, which takes a quarter of Config.PebbleBytes.
const (
	minMemTable = 1 << 20
	maxMemTable = 64 << 20
)

// Keys grow at the ends of their ranges, so that flushed tables of a range do not overlap, and level 0 is one
// table deep but for the meta range and where a trim has put a range deletion over them: that alone makes
// Pebble compact them, as l0Threshold is twice that depth. The others wait until they are l0Files and are then
// written together into the last level, once, as few large tables; LBaseMaxBytes keeps the levels between
// empty. To move each flushed table instead would leave some 80,000 of them in a log of 36 hours at 1,500
// events/s, whose metadata is not within the memory budget.
//
// What a flush writes of plain and zstd parts goes to blob files, two a flush (four if it has a large span's copies), that
// compactions leave alone: for each byte of the log 1.02 are written beside the WAL instead of 1.82. A blob file takes
// 700 bytes of memory; with memtables of 11 MiB (a budget of 256 MiB) the log of those 36 hours has 26,000. With
// smaller memtables than minBlobMemTable they would be too many, and tables keep their values.
const (
	l0Threshold     = 4
	l0Files         = 128
	targetFileBytes = 64 << 20

	minBlobMemTable = 8 << 20
	minBlobValue    = 4 << 10
	maxBlobDepth    = 8 // how many blob files may overlap; ours do not
)

// maxCompactions run at once when Pebble falls behind; else one.
const maxCompactions = 3

// flushDelayDeleteRange is how long a trim may sit in the memtable before the tables it covers go.
const flushDelayDeleteRange = 10 * time.Second

// store is Pebble with an end to its failures. Pebble ends the process on an error it cannot
// survive, or retries for ever in the background; here both become one failure that the log's owner
// sees: failed is closed, failure says why, and from then on Pebble is not called again.
type store struct {
	db   *pebble.DB
	lock *pebble.Lock // nil: db has its own

	memTableBytes int64
	cacheBytes    int64 // of blocks
	logger        *slog.Logger

	once    sync.Once
	failed  chan struct{}
	failure error // read only after failed is closed
}

// openStore opens the Pebble database of cfg, which has its defaults.
func openStore(cfg *Config) (*store, error) {
	s := &store{logger: cfg.Logger, failed: make(chan struct{})}
	opts := s.options(cfg)
	wal := newWALFS(cfg.FS, s, cfg.Dir)
	opts.FS = wal
	if cfg.ReadOnly {
		if err := s.lockExisting(cfg); err != nil {
			return nil, err
		}
		opts.ReadOnly, opts.Lock = true, s.lock
	}
	err := s.guard(func() error {
		db, err := pebble.Open(cfg.Dir, opts)
		s.db = db
		return err
	})
	if err != nil {
		if s.lock != nil {
			err = errors.Join(err, s.lock.Close())
		}
		return nil, fmt.Errorf("open %s (is another process using it, or did a newer version write it?): %w", cfg.Dir, err)
	}
	wal.open.Store(true)
	return s, nil
}

// lockExisting takes the lock of a directory that has a store in it. (To take it makes a file.)
func (s *store) lockExisting(cfg *Config) error {
	fs := cfg.FS
	if fs == nil {
		fs = vfs.Default
	}
	desc, err := pebble.Peek(cfg.Dir, fs)
	if errors.Is(err, os.ErrNotExist) || err == nil && !desc.Exists {
		return fmt.Errorf("%w in %s", ErrNoLog, cfg.Dir)
	}
	if err != nil {
		return fmt.Errorf("look into %s: %w", cfg.Dir, err)
	}
	if s.lock, err = pebble.LockDirectory(cfg.Dir, fs); err != nil {
		return fmt.Errorf("%w: lock %s: %w: end the process that has it open first", ErrInUse, cfg.Dir, err)
	}
	return nil
}

func (s *store) options(cfg *Config) *pebble.Options {
	memTable := min(max(cfg.PebbleBytes/4, minMemTable), maxMemTable)
	s.memTableBytes, s.cacheBytes = memTable, max(cfg.PebbleBytes-2*memTable, 1<<20)
	opts := &pebble.Options{
		FS:                          cfg.FS,
		FormatMajorVersion:          pebble.FormatNewest,
		CacheSize:                   s.cacheBytes,
		MemTableSize:                uint64(memTable),
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       l0Threshold,
		L0CompactionFileThreshold:   s.l0Files(),
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               1 << 50,
		BytesPerSync:                1 << 20,
		MaxOpenFiles:                cfg.MaxOpenFiles,
		FlushDelayDeleteRange:       flushDelayDeleteRange,
		CompactionConcurrencyRange:  func() (int, int) { return 1, min(maxCompactions, runtime.GOMAXPROCS(0)) },
		Logger:                      (*pebbleLogger)(s),
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				s.fail(fmt.Errorf("background work of the store: %w", err))
			},
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				s.fail(&CorruptionError{Part: "store", Err: fmt.Errorf("%s: %w", info.Path, info.Details)})
			},
			DiskSlow: func(info pebble.DiskSlowInfo) {
				s.logger.Warn("disk is slow", "path", info.Path, "op", info.OpType.String(), "took", info.Duration)
			},
		},
	}
	opts.Experimental.SpanPolicyFunc = spanPolicy
	blobs := pebble.ValueSeparationPolicy{
		Enabled:               memTable >= minBlobMemTable || cfg.blobValue > 0,
		MinimumSize:           cmp.Or(cfg.blobValue, minBlobValue),
		MaxBlobReferenceDepth: maxBlobDepth,
		TargetGarbageRatio:    1, // no blob file is written again: trims take them whole
	}
	opts.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy { return blobs }
	opts.TargetFileSizes[0] = targetFileBytes
	// What spanPolicy does not have compressed is stored as it is. A copy of the profile, as Pebble compresses nothing
	// with its own, whatever spanPolicy says.
	compression := *sstable.NoCompression
	compression.Name = "millrace"
	for i := range opts.Levels {
		opts.Levels[i].Compression = func() *sstable.CompressionProfile { return &compression }
		opts.Levels[i].BlockSize = 8 << 10
	}
	return opts
}

// l0Files is how many tables of level 0 are written into the last level together: with blob files so few that what they
// refer to is about targetFileBytes for each range, as a trim gives back what whole tables refer to.
func (s *store) l0Files() int {
	if s.memTableBytes < minBlobMemTable {
		return l0Files
	}
	return int(l0Files * minBlobMemTable / s.memTableBytes)
}

// fail records the first failure and lets everybody know.
func (s *store) fail(err error) {
	s.once.Do(func() {
		var c *CorruptionError
		if errors.As(err, &c) {
			s.failure = fmt.Errorf("%w: %w", ErrFailed, err)
		} else {
			s.failure = fmt.Errorf("%w: %w (%s, then start the process again: what was committed is safe)",
				ErrFailed, err, adviceFor(err))
		}
		close(s.failed)
	})
}

// adviceFor is what to do about a failure. Pebble passes some errors on as text only.
func adviceFor(err error) string {
	if errors.Is(err, syscall.EMFILE) || strings.Contains(err.Error(), syscall.EMFILE.Error()) {
		return "raise the limit of open files, LimitNOFILE= in the systemd unit or ulimit -n"
	}
	return "check the disk and its free space"
}

// err returns the failure, nil while there is none.
func (s *store) err() error {
	select {
	case <-s.failed:
		return s.failure
	default:
		return nil
	}
}

// guard runs f, which calls Pebble, in a goroutine of its own and waits for it, or for the failure
// of the store, whichever is first: then f may never return (see pebbleLogger.Fatalf). A panic of
// Pebble's is a failure too.
func (s *store) guard(f func() error) error {
	if err := s.err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				s.fail(fmt.Errorf("panic in the store: %v", p))
			}
		}()
		done <- f()
	}()
	select {
	case err := <-done:
		if failure := s.err(); failure != nil {
			return failure
		}
		return err
	case <-s.failed:
		return s.failure
	}
}

// commit writes b, synced if sync is set. An error is the failure of the store: after one nobody
// knows what of b is on disk.
func (s *store) commit(b *pebble.Batch, sync bool) error {
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	err := s.guard(func() error { return s.db.Apply(b, opts) })
	if err != nil && !errors.Is(err, ErrFailed) {
		s.fail(fmt.Errorf("commit: %w", err))
		return s.failure
	}
	return err
}

// get returns a copy of key's value; ok is false if there is none.
func (s *store) get(key []byte) (value []byte, ok bool, err error) {
	if err := s.err(); err != nil {
		return nil, false, err
	}
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	value = append([]byte(nil), v...)
	return value, true, closer.Close()
}

// close closes Pebble. After a failure it leaves everything as it is: the process is about to end,
// and the next start recovers from what was synced.
func (s *store) close() error {
	if err := s.err(); err != nil {
		return err
	}
	err := s.guard(s.db.Close)
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// pebbleLogger is store as Pebble's logger.
type pebbleLogger store

func (l *pebbleLogger) Infof(format string, args ...any) {
	l.logger.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

func (l *pebbleLogger) Errorf(format string, args ...any) {
	l.logger.Error("pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf must not return: Pebble would go on as if what failed had worked, and might then delete what
// only it made superfluous. Ending the process is not for a library to do either. So the goroutine
// stops here, for good, and the failure is told to whoever waits in guard or in Run.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	(*store)(l).fail(fmt.Errorf(format, args...))
	select {}
}
