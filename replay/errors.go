package replay

import (
	"errors"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
)

// Errors that callers branch on. They come wrapped; use errors.Is.
var (
	// ErrUnknownStream: a position cursor names a stream that this log never followed.
	ErrUnknownStream = errors.New("the cursor's stream is unknown to this log")
	// errUnknownDictionary: a reader asked for a dictionary that is not in the registry.
	errUnknownDictionary = errors.New("unknown dictionary")
	// ErrTooOld: a seq of Jetstream v2's wire is older than the log.
	ErrTooOld = errors.New("the cursor is older than the log")
	// ErrV2Seqs: the relay's numbers are beyond what v2's wire can count.
	ErrV2Seqs = errors.New("the relay's sequence numbers are too large for Jetstream v2's wire, whose cursors end at 1e15: use /subscribe")
	// ErrTrimmed: retention trimmed the log under a reader: what it would have read next is gone.
	ErrTrimmed = errors.New("the log was trimmed past the reader's place")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("the log is closed")
	// ErrFailed: a sync or a write failed; the log takes nothing more and the process should stop.
	ErrFailed = pebbleguard.ErrFailed
	// errOutOfOrder: Append was given a block that does not follow what is committed. The log is
	// unharmed, but the caller has a bug.
	errOutOfOrder = errors.New("block out of order")
	// ErrRelayMismatch: the log follows another relay; Config.NewEpoch was not given.
	ErrRelayMismatch = errors.New("the log belongs to another relay")
	// errUIDStoreMismatch: the log's UIDs come from another UID store.
	errUIDStoreMismatch = errors.New("the log belongs to another UID store")
	// ErrNoLog: Config.ReadOnly was given, and there is no log in the directory.
	ErrNoLog = logstore.ErrNoLog
	// ErrInUse: another process, or this one, has the log open.
	ErrInUse = pebbleguard.ErrInUse
	// ErrLost: the log ends before what was committed; its write-ahead log is damaged.
	ErrLost = pebbleguard.ErrLost
	// errReadOnly: Append to a log that is open for reading only.
	errReadOnly = errors.New("the log is open for reading only")
	// errOlderFormat: a version of millrace before the first release wrote this log.
	errOlderFormat = errors.New("the log has an older format")
	// ErrNewerFormat: a newer millrace wrote this log.
	ErrNewerFormat = format.ErrNewerVersion
)

// CorruptionError says that bytes this log wrote are no longer what it wrote. The process should
// stop: nothing after this point can be trusted to be exact.
type CorruptionError = logstore.CorruptionError
