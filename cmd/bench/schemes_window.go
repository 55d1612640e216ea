package main

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"millrace/intern/kv"
)

// FoundationDB's high-contention allocator, as the documentation of its directory layer and the talk about it describe
// it: numbers come from a window that moves up. A transaction counts itself into the window, draws numbers from it at
// random until one is not taken yet, and marks that as taken; only two that draw the same conflict. A window that is
// half full is left behind. Windows are small at first, so that the first numbers are short.
//
//	w 'c' start  -> how many have tried this window, added to without reading
//	w 'r' number -> taken
const (
	windowCounters = "wc"
	windowRecent   = "wr"
)

// windowSize is how many numbers a window that begins at start has.
func windowSize(start uint64) uint64 {
	switch {
	case start < 255:
		return 64
	case start < 65535:
		return 1024
	}
	return 8192
}

// adder is a transaction that can add to a counter without reading it, as FoundationDB's can. On a store
// without that the counter is written from a snapshot: additions get lost when many meet, and windows fill up further.
type adder interface {
	Add(key []byte, n uint64)
}

func windowKey(part string, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte(part), n) }

// snapshot reads a key without a conflict.
func snapshot(ctx context.Context, txn kv.Txn, key []byte) (value []byte, err error) {
	pairs := make([]kv.Pair, 1)
	err = txn.Last(ctx, []kv.Range{{Begin: key, End: append(append([]byte(nil), key...), 0)}}, pairs)
	return pairs[0].Value, err
}

// latestWindow returns where the newest window begins.
func latestWindow(ctx context.Context, txn kv.Txn) (uint64, error) {
	pairs := make([]kv.Pair, 1)
	r := kv.Range{Begin: []byte(windowCounters), End: []byte(windowRecent)}
	if err := txn.Last(ctx, []kv.Range{r}, pairs); err != nil || pairs[0].Key == nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(pairs[0].Key[len(windowCounters):]), nil
}

func allocWindow(ctx context.Context, txn kv.Txn, w *schemeWorker, uids []uint64) error {
	for i := range uids {
		n, err := allocInWindow(ctx, txn, w.rng)
		if err != nil {
			return err
		}
		uids[i] = n + 1
	}
	return nil
}

// allocInWindow takes one number.
func allocInWindow(ctx context.Context, txn kv.Txn, rng *rand.Rand) (uint64, error) {
	for {
		start, err := latestWindow(ctx, txn)
		if err != nil {
			return 0, err
		}
		if start, err = enterWindow(ctx, txn, start); err != nil {
			return 0, err
		}
		for {
			candidate := start + rng.Uint64N(windowSize(start))
			key := windowKey(windowRecent, candidate)
			value := make([][]byte, 1)
			if err := txn.Get(ctx, [][]byte{key}, value); err != nil {
				return 0, err
			}
			if value[0] == nil {
				txn.Set(key, nil)
				return candidate, nil
			}
			now, err := latestWindow(ctx, txn)
			if err != nil {
				return 0, err
			}
			if now > start {
				break // others have moved on
			}
		}
	}
}

// enterWindow counts the transaction into the window at start, or into the next ones if it is half full.
func enterWindow(ctx context.Context, txn kv.Txn, start uint64) (uint64, error) {
	for {
		key := windowKey(windowCounters, start)
		value, err := snapshot(ctx, txn, key)
		if err != nil {
			return 0, err
		}
		var count uint64
		if value != nil {
			count = binary.LittleEndian.Uint64(value)
		}
		if 2*(count+1) < windowSize(start) {
			if a, ok := unwrapped(txn).(adder); ok {
				a.Add(key, 1)
				markWritten(txn)
			} else {
				txn.Set(key, binary.LittleEndian.AppendUint64(nil, count+1))
			}
			return start, nil
		}
		start += windowSize(start)
	}
}

// unwrapped returns the store's own transaction.
func unwrapped(txn kv.Txn) kv.Txn {
	if c, ok := txn.(*countedTxn); ok {
		return c.Txn
	}
	return txn
}

func markWritten(txn kv.Txn) {
	if c, ok := txn.(*countedTxn); ok {
		c.wrote = true
	}
}

// windowWaste is how many numbers the windows that were left behind hold that nobody has.
func windowWaste(ctx context.Context, store kv.Store, used uint64) (wasted uint64, err error) {
	err = kv.Run(ctx, store, func(txn kv.Txn) error {
		start, err := latestWindow(ctx, txn)
		wasted = start - min(start, used)
		return err
	})
	return wasted, err
}
