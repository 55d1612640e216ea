package pebbleguard

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// Errors that callers branch on. They come wrapped; use errors.Is.
var (
	// ErrFailed: a write, a sync or a file failed; the store takes nothing more and the process
	// should stop.
	ErrFailed = errors.New("the store has failed")
	// ErrNoStore: the directory holds no database, and Config.ReadOnly is set.
	ErrNoStore = errors.New("there is no store")
	// ErrInUse: another process, or this one, has the directory open.
	ErrInUse = errors.New("in use by another process")
	// ErrLost: the database ends before its high-water mark.
	ErrLost = errors.New("commits are lost")
)

// TooManyFiles says whether err is EMFILE or ENFILE. It reads the text, as Pebble passes some on as
// text only. That of ENFILE begins with that of EMFILE.
func TooManyFiles(err error) bool {
	return err != nil && strings.Contains(err.Error(), syscall.EMFILE.Error())
}

var errMissing = errors.New("it is missing")

// CorruptionError says that a file is not what was written.
type CorruptionError struct {
	Store  string // whose: "event log"
	File   string // path; "": Err says which, or it is not known
	Advice string // what to do; "": whoever reports it says that
	Err    error
	// After is the least key after what the file covers, from where to read on; nil: not known.
	After []byte
}

// Error names the store, the file and the cause and says what to do.
func (e *CorruptionError) Error() string {
	file, advice := "", ""
	if e.File != "" {
		file = e.File + ": "
	}
	if e.Advice != "" {
		advice = " (" + e.Advice + ")"
	}
	return fmt.Sprintf("the %s is damaged: %s%v%s", e.Store, file, e.Err, advice)
}

// ReadOn implements kv.Damage.
func (e *CorruptionError) ReadOn() []byte { return e.After }

// Unwrap returns what was wrong.
func (e *CorruptionError) Unwrap() error { return e.Err }

// corrupt makes a *CorruptionError.
func (c *Config) corrupt(file string, err error) *CorruptionError {
	return &CorruptionError{Store: c.Store, File: file, Advice: c.Advice, Err: err}
}

// clean turns an error of Pebble's that means damage into a *CorruptionError. Others stay as they
// are. An absent key is told apart first, as Pebble's own test for damage is slow.
func (c *Config) clean(err error) error {
	if err == nil || errors.Is(err, pebble.ErrNotFound) {
		return err
	}
	if known, ok := errors.AsType[*CorruptionError](err); ok {
		return known
	}
	if !pebble.IsCorruptionError(err) {
		return err
	}
	info := pebble.ExtractDataCorruptionInfo(err)
	if info == nil {
		return c.corrupt("", err)
	}
	// Details is the cause; err wraps it in a text that says nothing.
	e := c.corrupt(info.Path, info.Details)
	if end := info.Bounds.End; len(end.Key) > 0 {
		e.After = bytes.Clone(end.Key)
		if end.IsUpperBoundFor(bytes.Compare, end.Key) {
			e.After = append(e.After, 0)
		}
	}
	return e
}
