package main

import (
	"context"
	"encoding/binary"
	"errors"

	"millrace/intern/kv"
)

// FoundationDB's high-contention allocator, as the documentation of its directory layer describes
// it: numbers come from a window that moves up. A transaction counts itself into the window, draws
// random numbers until one is free, and marks it. Only two that draw the same number conflict. A
// window that is half full is left behind.
const (
	windowCounters = "wc" // + start: how many have entered this window, added to without reading
	windowTaken    = "wr" // + number: it is taken
)

// windowSize returns how many numbers a window that begins at start has. The first numbers are
// short.
func windowSize(start uint64) uint64 {
	switch {
	case start < 255:
		return 64
	case start < 65535:
		return 1024
	}
	return 8192
}

func windowKey(part string, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte(part), n) }

func allocWindow(ctx context.Context, txn kv.Txn, w *caller, uids []uint64) error {
	for i := range uids {
		start, err := enterWindow(ctx, txn)
		for err == nil && uids[i] == 0 {
			n := start + w.rng.Uint64N(windowSize(start))
			var taken []byte
			if taken, err = kv.GetOne(ctx, txn, windowKey(windowTaken, n)); err != nil {
				break
			}
			if taken == nil {
				txn.Set(windowKey(windowTaken, n), nil)
				uids[i] = n + 1
				break
			}
			var newest uint64
			if newest, _, err = newestWindow(ctx, txn); err == nil && newest > start {
				start, err = enterWindow(ctx, txn)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newestWindow returns where the newest window begins and how many have entered it, read without a
// conflict.
func newestWindow(ctx context.Context, txn kv.Txn) (start, entered uint64, err error) {
	r := kv.Range{Begin: []byte(windowCounters), End: []byte(windowTaken)}
	err = txn.Last(ctx, []kv.Range{r}, func(_ int, p kv.Pair) error {
		start, entered = binary.BigEndian.Uint64(p.Key[len(windowCounters):]), binary.LittleEndian.Uint64(p.Value)
		return nil
	})
	return start, entered, err
}

// enterWindow counts the transaction into the newest window, or into the next one if that is half
// full.
func enterWindow(ctx context.Context, txn kv.Txn) (start uint64, err error) {
	start, entered, err := newestWindow(ctx, txn)
	if err != nil {
		return 0, err
	}
	if 2*(entered+1) >= windowSize(start) {
		start += windowSize(start)
	}
	key := windowKey(windowCounters, start)
	// Callers that enter do not conflict. A store that cannot add blindly would lose additions: its
	// windows would fill up, and callers would draw numbers for ever.
	adder, ok := txn.(interface{ Add(key []byte, n uint64) })
	if !ok {
		return 0, errors.New("this store cannot add to a counter without reading it: take another with -store")
	}
	adder.Add(key, 1)
	return start, nil
}
