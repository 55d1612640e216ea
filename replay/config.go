package replay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/dict"
	"millrace/replay/internal/format"
)

// Defaults of Config's shares of memory.
const (
	defaultTailBytes   = 32 << 20
	defaultCacheBytes  = 32 << 20
	defaultPebbleBytes = 64 << 20
	defaultOpenFiles   = 1000
)

// Config is what Open needs. Dir, Dictionaries and, unless ReadOnly, Relay must be set.
type Config struct {
	Dir   string // the log's own directory, made if absent
	FS    vfs.FS // nil: the real file system
	Relay string // host[:port]; names the stream, together with the epoch

	// ReadOnly opens a log that exists and changes nothing in it; of its directory it only holds
	// the lock. Relay and UIDStore may be empty then, for whatever the log's are; NewEpoch and
	// Retention must be. Append fails, trims do nothing.
	ReadOnly bool

	// start a new epoch, unless the last one has no frame yet and is of Relay: the operator says
	// that the relay's numbering is another one
	NewEpoch bool
	UIDStore string // ID of the store that UIDs come from; "": interning is off

	Retention      time.Duration // 0: position and tail only, nothing else is stored
	RetentionBytes int64         // stored bytes before compression; 0: no limit
	// Hold returns the last frame that may be trimmed, whatever the retention and TrimTo say; nil:
	// any may be. It may wait for the disk: only trims and Log.Close wait for it.
	Hold func() EpochEnd

	// References says that what is appended from now on has its references, if it has any. The log
	// notes since when that is so. See Log.References.
	References bool
	// Collections names those of the events that are appended; "": all. Where it changes, the
	// references begin again: the log lacks what became of records of other collections.
	Collections string

	// The log's shares of the memory budget, in bytes; 0: a default for small machines. What one
	// Append commits should be well below an eighth of PebbleBytes.
	TailBytes   int64 // newest blocks
	CacheBytes  int64 // older blocks and variants that readers share
	PebbleBytes int64 // memtables and block cache

	MaxOpenFiles int // tables and blob files that are kept open; 0: 1,000

	Dictionaries *dict.Registry // its Stored dictionary compresses the stored variant

	// Strings sets strings[i] to the DID or AT URI that uids[i] stands for, "" if there is none,
	// for readers that want references. It is given 10,000 at most. nil: there are no such readers.
	Strings func(uids []uint64, strings []string) error

	hooks testHooks

	Now       func() time.Time     // wall clock; nil: time.Now
	Monotonic func() time.Duration // since any fixed moment; nil: the process's monotonic clock
	// what the wall clock is checked against before events are trimmed by age; nil: nothing
	FrameAge   FrameAge
	Logger     *slog.Logger // nil: discard
	Registerer prometheus.Registerer
}

// FrameAge returns the wall clock less the times that frames carry, for frames that came of late;
// known is false if none did. A clock that is ahead makes all frames look old.
type FrameAge func() (age time.Duration, known bool)

// testHooks are what tests change. The zero value changes nothing.
type testHooks struct {
	// called before a block is read ahead; nil: nothing is
	readAhead func()
	// called before a part is opened; nil: nothing is
	openPart func(r format.Range, key int64)
	// small blocks are never merged, for tests that count blocks
	keepSmall bool
	// readers look ahead as if each look-up had waited for the disk
	alwaysSlow bool
	// memory of sealed parts is overwritten when it is given back
	scribble bool
	// blocks of so many bytes are packed in substreams; 0: 128 KiB
	substreamsBytes int
	// values of so many bytes go to blob files, whatever the memtable; 0: see
	// pebblestore.Config.BlobValue
	blobValue int
}

// validate says what is wrong with cfg.
func (cfg *Config) validate() error {
	switch {
	case cfg.Dir == "":
		return errors.New("replay: field Dir: must be set")
	case cfg.ReadOnly && (cfg.NewEpoch || cfg.Retention != 0 || cfg.RetentionBytes != 0):
		return errors.New("replay: field ReadOnly: does not go with NewEpoch, Retention and RetentionBytes")
	case (cfg.Relay != "" || !cfg.ReadOnly) && (cfg.Relay == "" || len(cfg.Relay) > maxRelayBytes || strings.ContainsAny(cfg.Relay, "/ \x00")):
		return fmt.Errorf("replay: field Relay: %.80q is not host[:port]", cfg.Relay)
	case cfg.Dictionaries == nil:
		return errors.New("replay: field Dictionaries: must be set")
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Retention", int64(cfg.Retention)}, {"RetentionBytes", cfg.RetentionBytes}, {"TailBytes", cfg.TailBytes},
		{"CacheBytes", cfg.CacheBytes}, {"PebbleBytes", cfg.PebbleBytes}, {"MaxOpenFiles", int64(cfg.MaxOpenFiles)},
	} {
		if f.value < 0 {
			return fmt.Errorf("replay: field %s: %d is negative", f.name, f.value)
		}
	}
	return nil
}

// withDefaults returns cfg with its zeros filled.
func (cfg Config) withDefaults() Config {
	cfg.Relay = strings.ToLower(cfg.Relay)
	cfg.TailBytes = cmp.Or(cfg.TailBytes, defaultTailBytes)
	cfg.CacheBytes = cmp.Or(cfg.CacheBytes, defaultCacheBytes)
	cfg.PebbleBytes = cmp.Or(cfg.PebbleBytes, defaultPebbleBytes)
	cfg.MaxOpenFiles = cmp.Or(cfg.MaxOpenFiles, defaultOpenFiles)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Monotonic == nil {
		start := time.Now()
		cfg.Monotonic = func() time.Duration { return time.Since(start) }
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return cfg
}
