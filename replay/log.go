package replay

import (
	"context"
	"time"

	"millrace/translate"
)

// Progress is how far the log has come: everything up to Seq of the epoch is committed.
type Progress struct {
	Stream translate.Stream
	Epoch  uint32
	Seq    int64 // 0: nothing of this epoch yet
	TimeUS int64 // newest stamp given out, over all epochs; 0: none
}

// Range is what the log holds.
type Range struct {
	Oldest, Newest Mark // zero if the log holds no event
	Retention      time.Duration
	Gaps           []Gap // oldest first
}

// Log is the event log. One goroutine appends; everything else is safe for concurrent use.
type Log struct {
	cfg Config
}

// Open opens the log in cfg.Dir, or makes an empty one. Errors: ErrRelayMismatch,
// ErrUIDStoreMismatch, ErrNewerFormat, *CorruptionError, and those of the disk.
func Open(cfg Config) (*Log, error) { panic("not built yet") }

// Progress returns what was committed last.
func (l *Log) Progress() Progress { panic("not built yet") }

// StreamOf names the stream of a relay (host[:port], case does not matter) and an epoch.
func StreamOf(relay string, epoch uint32) translate.Stream { panic("not built yet") }

// Append commits the blocks, in the order they are given, in one synced write, and then shows them
// to readers. Calls must follow one another in relay order, from one goroutine. A block without
// events only moves the position. After an error that Is ErrFailed the log takes nothing more.
func (l *Log) Append(bs ...*Block) error { panic("not built yet") }

// Run trims the log as its retention asks and watches the clock until ctx is done (then it returns
// nil) or the log fails (then it returns why, and the process should stop).
func (l *Log) Run(ctx context.Context) error { panic("not built yet") }

// Trim does at once what Run does from time to time.
func (l *Log) Trim(ctx context.Context) error { panic("not built yet") }

// Range returns what the log holds now.
func (l *Log) Range() Range { panic("not built yet") }

// Close stops readers (they get ErrClosed) and closes the store. It is safe to call twice.
func (l *Log) Close() error { panic("not built yet") }
