package replay

import (
	"errors"
	"fmt"

	"millrace/replay/internal/format"
)

// Errors that callers branch on. They come wrapped; use errors.Is.
var (
	// ErrUnknownStream: a position cursor names a stream that this log never followed.
	ErrUnknownStream = errors.New("the cursor's stream is unknown to this log")
	// ErrUnknownDictionary: a reader asked for a dictionary that is not in the registry.
	ErrUnknownDictionary = errors.New("unknown dictionary")
	// ErrFellOff: retention trimmed the log under a reader; what it would have read next is gone.
	ErrFellOff = errors.New("fell off the log's retention")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("the log is closed")
	// ErrFailed: a sync or a write failed; the log takes nothing more and the process should stop.
	ErrFailed = errors.New("the log has failed")
	// ErrOutOfOrder: Append was given a block that does not follow what is committed. The log is
	// unharmed, but the caller has a bug.
	ErrOutOfOrder = errors.New("block out of order")
	// ErrRelayMismatch: the log follows another relay; Config.NewEpoch was not given.
	ErrRelayMismatch = errors.New("the log belongs to another relay")
	// ErrUIDStoreMismatch: the log's UIDs come from another UID store.
	ErrUIDStoreMismatch = errors.New("the log belongs to another UID store")
	// ErrNoLog: Config.ReadOnly was given, and there is no log in the directory.
	ErrNoLog = errors.New("there is no log")
	// ErrInUse: Config.ReadOnly was given, and the log's directory cannot be locked, most likely
	// because another process has it open.
	ErrInUse = errors.New("the log is in use")
	// ErrReadOnly: Append to a log that is open for reading only.
	ErrReadOnly = errors.New("the log is open for reading only")
	// ErrOlderFormat: a version of millrace before the first release wrote this log.
	ErrOlderFormat = errors.New("the log has an older format")
	// ErrNewerFormat: a newer millrace wrote this log.
	ErrNewerFormat = format.ErrNewerVersion
)

// CorruptionError says that bytes this log wrote are no longer what it wrote. The process should
// stop: nothing behind this point can be trusted to be exact.
type CorruptionError struct {
	Part string // which part of which key range: "index", "plain", "zstd", "meta", ...
	Key  uint64 // the block's key (time_us of its last event); 0 for meta
	Err  error
}

// Error names the part and the key and says what to do.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("log is corrupt: %s part of block %d: %v "+
		"(check the disk; restore the log's directory from a copy, or move it away to start an empty log)",
		e.Part, e.Key, e.Err)
}

// Unwrap returns what was wrong.
func (e *CorruptionError) Unwrap() error { return e.Err }

func corrupt(r format.Range, key int64, err error) error {
	return &CorruptionError{Part: r.String(), Key: uint64(key), Err: err}
}
