package intern

import (
	"context"
	"fmt"
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/intern/kv"
)

// countStep is how many counters one transaction reads.
const countStep = 1000

// Count returns how many UIDs the store has given out, to whichever Interner: the sum of its
// sequences' counters without what SkipAhead skipped. It reads one key for each sequence that was
// ever used, and tries for as long as ctx lives.
func (in *Interner) Count(ctx context.Context) (uids uint64, err error) {
	skipped, err := in.Skipped(ctx)
	if err == nil {
		err = kv.ScanAll(ctx, in.store, tagRange(tagSequence), countStep, func(p kv.Pair) error {
			last, err := number(p.Value)
			uids += last - min(skipped, last)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("count UIDs: %w", err)
	}
	return uids, nil
}

// Skipped returns how many UIDs of each sequence SkipAhead has skipped so far. It tries for as long
// as ctx lives.
func (in *Interner) Skipped(ctx context.Context) (uids uint64, err error) {
	err = kv.Run(ctx, in.store, func(txn kv.Txn) (err error) {
		uids, err = storedNumber(ctx, txn, []byte(keySkipped))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read how many UIDs were skipped: %w", err)
	}
	return uids, nil
}

// storedNumber reads the number under a key, 0 if there is none.
func storedNumber(ctx context.Context, txn kv.Txn, key []byte) (uint64, error) {
	value, err := kv.GetOne(ctx, txn, key)
	if err != nil {
		return 0, err
	}
	return numberOrZero(value)
}

// CheckGiven returns ErrWentBack if the store may give out one of uids, which events have, once
// more: then an older copy of it is back. UIDs that were skipped are fine. It tries for as long as
// ctx lives.
func (in *Interner) CheckGiven(ctx context.Context, uids []uint64) error {
	highest := make(map[uint32]uint64)
	for _, uid := range uids {
		if sequence, n := in.codec.split(uid); uid != 0 {
			highest[sequence] = max(highest[sequence], n)
		}
	}
	sequences, keys := slices.Collect(maps.Keys(highest)), [][]byte{[]byte(keySkipped)}
	for _, sequence := range sequences {
		keys = append(keys, appendSequenceKey(nil, sequence))
	}
	return in.retry(ctx, func(ctx context.Context, txn kv.Txn) error {
		values := make([][]byte, len(keys))
		if err := txn.Get(ctx, keys, values); err != nil {
			return err
		}
		for i, sequence := range sequences {
			value := values[1+i]
			if value == nil { // it begins after what was skipped
				value = values[0]
			}
			last, err := numberOrZero(value)
			if err != nil {
				return err
			}
			if n := highest[sequence]; n > last {
				return fmt.Errorf("%w: sequence %d is at %d, and the log has %d", ErrWentBack, sequence, last, n)
			}
		}
		return nil
	})
}

// Given returns how many UIDs this Interner has given to DIDs and to AT URIs since it was opened.
func (in *Interner) Given() (dids, uris uint64) {
	return counted(in.metrics.didNew), counted(in.metrics.uriNew)
}

func counted(c prometheus.Counter) uint64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0 // a counter always can
	}
	return uint64(m.GetCounter().GetValue())
}
