package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Back-off of Retry: the pause before the next attempt starts at minPause, doubles, is at most
// maxPause, and is drawn evenly from its upper half. A conflict does not mean that the store is
// overloaded, so its pause stays short.
const (
	minPause         = time.Millisecond
	maxPause         = time.Second
	maxConflictPause = 16 * time.Millisecond
)

// Pause returns how long to wait after the given number of attempts in a row failed, the last one
// with err.
func Pause(attempts int, err error) time.Duration {
	limit := maxPause
	if errors.Is(err, ErrConflict) {
		limit = maxConflictPause
	}
	pause := min(minPause<<min(max(attempts-1, 0), 20), limit)
	return pause/2 + rand.N(pause/2+1)
}

// Sleep waits for d or until the context ends, and then returns the context's cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// GetOne is Txn.Get of one key.
func GetOne(ctx context.Context, txn Txn, key []byte) ([]byte, error) {
	values := make([][]byte, 1)
	err := txn.Get(ctx, [][]byte{key}, values)
	return values[0], err
}

// Once runs fn in a transaction and commits it, one attempt. What fn has read may be used after a
// nil return only.
func Once(ctx context.Context, s Store, fn func(Txn) error) error {
	txn, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer txn.Close()
	if err := fn(txn); err != nil {
		return err
	}
	return txn.Commit(ctx)
}

// Run runs fn in transactions until one commits, fn fails for good, or the context ends. fn may be
// called any number of times, also when an earlier call's writes were in fact applied.
func Run(ctx context.Context, s Store, fn func(Txn) error) error {
	return Retry(ctx, func() error { return Once(ctx, s, fn) })
}

// Retry calls attempt until it succeeds, fails for good, or the context ends.
func Retry(ctx context.Context, attempt func() error) error {
	for attempts := 1; ; attempts++ {
		err := attempt()
		if err == nil || !Retryable(err) {
			return err
		}
		if ended := Sleep(ctx, Pause(attempts, err)); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// ScanAll calls fn with the keys of r in order, reading them in as many transactions as it takes,
// each of at most chunk keys. Together they are no single snapshot: keys written meanwhile may be
// seen or not. An error of fn ends it and is returned as it is.
func ScanAll(ctx context.Context, s Store, r Range, chunk int, fn func(Pair) error) error {
	next := append([]byte(nil), r.Begin...)
	for attempts := 1; ; {
		n := 0
		var fnErr error
		from := Range{append([]byte(nil), next...), r.End}
		err := Once(ctx, s, func(txn Txn) error {
			return txn.Scan(ctx, from, func(p Pair) (bool, error) {
				fnErr = fn(p)
				next = append(append(next[:0], p.Key...), 0) // the least key after it
				n++
				return fnErr == nil && n < chunk, nil
			})
		})
		switch {
		case fnErr != nil:
			return fnErr
		case err == nil && n < chunk:
			return nil
		case err != nil && (ctx.Err() != nil || !Retryable(err)):
			return err
		case err == nil || n > 0:
			attempts = 1 // there was progress
		default:
			if ended := Sleep(ctx, Pause(attempts, err)); ended != nil {
				return fmt.Errorf("%w: %w", ended, err)
			}
			attempts++
		}
	}
}
