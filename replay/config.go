package replay

import (
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/dict"
)

// Config is what Open needs. Dir, Relay and Dictionaries must be set.
type Config struct {
	Dir   string // the log's own directory, made if absent
	FS    vfs.FS // nil: the real file system
	Relay string // host[:port]; names the stream, together with the epoch

	NewEpoch bool   // start a new epoch: the operator says that the relay's numbering is another one
	UIDStore string // ID of the store that UIDs come from; "": interning is off

	Retention      time.Duration // 0: position and tail only, nothing else is stored
	RetentionBytes int64         // stored bytes before compression; 0: no limit

	// The log's shares of the memory budget, in bytes; 0: a default for small machines.
	TailBytes   int64 // newest blocks
	CacheBytes  int64 // older blocks and variants that readers share
	PebbleBytes int64 // memtables and block cache

	Dictionaries *dict.Registry // its Stored dictionary compresses the stored variant

	Now        func() time.Time     // wall clock; nil: time.Now
	Monotonic  func() time.Duration // since any fixed moment; nil: the process's monotonic clock
	Logger     *slog.Logger         // nil: discard
	Registerer prometheus.Registerer
}
