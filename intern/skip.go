package intern

import (
	"context"
	"fmt"
	"time"

	"millrace/intern/kv"
)

// DefaultSkip is more UIDs than one sequence gives out in years.
const DefaultSkip = 1 << 32

// For each second of a copy's age SkipRestored skips 1/skipSeconds of the most that SkipAhead may
// skip. With DefaultPrefixBits these are 2^20 UIDs, more than any machine takes from a sequence.
// skipMargin is added to the age, as clocks may differ.
const (
	skipSeconds = 1 << 28
	skipMargin  = 1 << 12 * time.Second
)

// Beside DefaultSkip, or half the limit if that is less, SkipCopy skips what SkipRestored does for
// 1/copyShare of the time since copyEpoch, in Unix seconds. With DefaultPrefixBits these are 2^14
// UIDs for each second between two restores.
const (
	copyShare = 64
	copyEpoch = 1767225600 // 2026-01-01
)

// skipStep is how many counters one transaction raises.
const skipStep = 500

// SkipAhead raises every sequence of the store by n. After an older copy was restored, no UID then
// is given out twice that was given out since the copy was made. n must exceed what any one
// sequence gave out in that time.
//
// Sequences that the copy does not know may have been used since as well. So what counts as skipped
// is raised too: the place where a sequence without a counter begins. It returns how many counters
// were raised. Interrupted or repeated, it only skips more.
func SkipAhead(ctx context.Context, store kv.Store, n uint64) (raised int, err error) {
	_, raised, err = skip(ctx, store, func(uint64) uint64 { return n })
	return raised, err
}

// SkipRestored is SkipAhead for a copy of that age. The number n of UIDs that it skips grows with
// the age. So two servers that are restored from one copy, one after the other, give out different
// UIDs.
func SkipRestored(ctx context.Context, store kv.Store, age time.Duration) (n uint64, raised int, err error) {
	return skip(ctx, store, func(limit uint64) uint64 { return skipOf(0, age, limit) })
}

// SkipCopy is SkipRestored for a copy of unknown age. It skips more the later it is.
func SkipCopy(ctx context.Context, store kv.Store, now time.Time) (n uint64, raised int, err error) {
	since := now.Sub(time.Unix(copyEpoch, 0))
	return skip(ctx, store, func(limit uint64) uint64 {
		return skipOf(min(DefaultSkip, limit/2), since/copyShare, limit)
	})
}

// skipOf returns how many UIDs of a sequence are skipped for a copy of that age, beside base.
func skipOf(base uint64, age time.Duration, limit uint64) uint64 {
	return min(base+uint64((max(age, 0)+skipMargin).Seconds()*(float64(limit)+1)/skipSeconds), limit)
}

// skip raises every sequence by what of returns for the most that it may be raised by.
func skip(ctx context.Context, store kv.Store, of func(limit uint64) uint64) (n uint64, raised int, err error) {
	var h header
	err = kv.Run(ctx, store, func(txn kv.Txn) (err error) {
		if h, err = loadHeader(ctx, txn); err != nil {
			return err
		}
		limit := h.maxN() / 4
		if n = of(limit); n == 0 || n > limit {
			return fmt.Errorf("cannot skip %d UIDs: not 1 to %d, a quarter of a sequence", n, limit)
		}
		return h.raise(ctx, txn, [][]byte{[]byte(keySkipped)}, n)
	})
	if err != nil {
		return n, 0, fmt.Errorf("skip ahead: %w", err)
	}
	var keys [][]byte
	flush := func() error {
		err := kv.Run(ctx, store, func(txn kv.Txn) error { return h.raise(ctx, txn, keys, n) })
		raised += len(keys)
		keys = keys[:0]
		return err
	}
	err = kv.ScanAll(ctx, store, tagRange(tagSequence), skipStep, func(p kv.Pair) error {
		keys = append(keys, append([]byte(nil), p.Key...))
		if len(keys) == skipStep {
			return flush()
		}
		return nil
	})
	if err == nil && len(keys) > 0 {
		err = flush()
	}
	if err != nil {
		return n, raised, fmt.Errorf("skip ahead: %w", err)
	}
	return n, raised, nil
}

// raise adds n to counters. One that would pass the end of its sequence stops there.
func (c codec) raise(ctx context.Context, txn kv.Txn, keys [][]byte, n uint64) error {
	values := make([][]byte, len(keys))
	if err := txn.Get(ctx, keys, values); err != nil {
		return err
	}
	for i, value := range values {
		last, err := numberOrZero(value)
		if err != nil {
			return err
		}
		last += min(n, c.maxN()-min(last, c.maxN()))
		txn.Set(keys[i], appendNumber(last))
	}
	return nil
}

// maxN is the last n of a sequence.
func (c codec) maxN() uint64 { return 1<<(64-c.prefixBits) - 1 }

// tagRange holds the keys that begin with tag.
func tagRange(tag byte) kv.Range { return kv.Range{Begin: []byte{tag}, End: []byte{tag + 1}} }
