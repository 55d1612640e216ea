package kv

import (
	"context"
	"errors"
	"time"
)

// Errors that callers branch on. Stores wrap them with what they were doing.
var (
	// ErrConflict: a key this transaction read was written by another one. Nothing was applied.
	ErrConflict = errors.New("transaction conflicts with another")
	// ErrUnknownOutcome: the commit may or may not have been applied.
	ErrUnknownOutcome = errors.New("commit outcome unknown")
	// ErrTooOld: the transaction took longer than Limits.Duration. Nothing was applied.
	ErrTooOld = errors.New("transaction too old")
	// ErrTooLarge: keys, values or the whole are over Limits. Nothing was applied; retrying is
	// useless.
	ErrTooLarge = errors.New("transaction too large")
	// ErrUnavailable: the store cannot be reached. Nothing was applied.
	ErrUnavailable = errors.New("store unavailable")
	// ErrClosed: the store was closed. Final.
	ErrClosed = errors.New("store closed")
	// ErrReadOnly: the store is open for reading only, and takes no writes.
	ErrReadOnly = errors.New("store open for reading only")
)

// Retryable says whether the same work, begun anew, may succeed. It may after a conflict, an
// unknown outcome, an expired transaction, an outage, or an attempt that ran into its own deadline.
func Retryable(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrTooOld) ||
		errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// Damage is the error of a store that cannot read a part of what it holds.
type Damage interface {
	error
	ReadOn() []byte // where reading may go on; nil: not known
}

// Limits are what one transaction may hold and take.
type Limits struct {
	Bytes    int           // keys and values written plus keys read
	Key      int           // bytes of one key
	Value    int           // bytes of one value
	Duration time.Duration // from Begin to Commit; 0: no limit
	// Spread says that keys written in ascending order gather on one machine and should be spread
	// over the key space. It is false for a store on one machine, where ascending order is the
	// cheapest.
	Spread bool
	// Shared says that other processes may have the store open at the same time.
	Shared bool
}

// Store holds keys and values, both byte strings, in the order of the keys' bytes.
type Store interface {
	// Begin starts a transaction. It fails with ErrUnavailable, ErrClosed, or the context's error.
	Begin(ctx context.Context) (Txn, error)
	// Limits never change while the store is open.
	Limits() Limits
}

// Range is the keys k with Begin <= k < End.
type Range struct{ Begin, End []byte }

// Pair is a key with its value. Both are the transaction's, and valid during the call that they are
// passed to.
type Pair struct{ Key, Value []byte }

// Txn is one transaction. It belongs to one goroutine.
type Txn interface {
	// Get reads all keys, in parallel where that helps, and sets values[i] to the value of keys[i],
	// nil if there is none. Values are never nil for a key that exists. They are valid until Close.
	// The keys are read as conflicting. Ascending keys are read fastest.
	Get(ctx context.Context, keys, values [][]byte) error
	// Last calls fn with the greatest key in ranges[i] for each i, in order, but for ranges without
	// one, until fn returns an error. It is a snapshot read. The pair is valid during the call
	// only.
	Last(ctx context.Context, ranges []Range, fn func(i int, p Pair) error) error
	// Scan calls fn with the keys of r in order, as a snapshot read, until fn returns false or an
	// error. The pair is valid during the call only.
	Scan(ctx context.Context, r Range, fn func(Pair) (bool, error)) error
	// Set and Clear write at Commit. Key and value are copied.
	Set(key, value []byte)
	Clear(key []byte)
	// Commit may be called once. See the package comment for its errors.
	Commit(ctx context.Context) error
	// Close releases the transaction, committed or not. Safe twice.
	Close()
}
