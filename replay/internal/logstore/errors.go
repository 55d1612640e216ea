package logstore

import (
	"errors"
	"fmt"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// CorruptionError says that bytes this log wrote are no longer what it wrote. The process should
// stop: nothing after this point can be trusted to be exact.
type CorruptionError struct {
	Part string // which part of which key range: "index", "plain", "zstd", "meta", ...
	Key  uint64 // the block's key (time_us of its last event); 0 for meta
	File string // path of the damaged file; "": not known, or the file is sound
	Err  error
}

// Error names the part and the key and says what to do.
func (e *CorruptionError) Error() string {
	file := ""
	if e.File != "" {
		file = " in " + e.File
	}
	return fmt.Sprintf("log is corrupt: %s part of block %d%s: %v (%s)", e.Part, e.Key, file, e.Err, pebblestore.Advice)
}

// Unwrap returns what was wrong.
func (e *CorruptionError) Unwrap() error { return e.Err }

// Corrupt returns the *CorruptionError of a part in a range.
func Corrupt(r format.Range, key int64, err error) error {
	e := &CorruptionError{Part: r.String(), Key: uint64(key), Err: err}
	if file, ok := errors.AsType[*pebbleguard.CorruptionError](err); ok {
		e.File, e.Err = file.File, file.Err // its advice is this one's
	}
	return e
}

// ReadError is the error of a part that could not be read: a *CorruptionError if the store found
// damage.
func ReadError(r format.Range, key int64, err error) error {
	if errors.As(err, new(*pebbleguard.CorruptionError)) {
		return Corrupt(r, key, err)
	}
	return fmt.Errorf("read %s part of block %d: %w", r.String(), key, err)
}
