package main

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"millrace/intern"
	"millrace/intern/kv"
)

// A scheme gives UIDs to the strings of a batch in one transaction, which also reads whether they
// have one and writes both directions. alloc sets uids to UIDs that no other string has once txn
// commits; nil: the Interner's own.
type scheme struct {
	name  string
	batch int // strings a transaction
	alloc func(ctx context.Context, txn kv.Txn, w *schemeWorker, uids []uint64) error
}

func schemes() []scheme {
	return []scheme{
		{"one counter, string by string", 1, allocCounter},
		{"one counter, batches of 500", 500, allocCounter},
		{"random sequence per string", 1, allocRandom},
		{"FoundationDB's allocator, string by string", 1, allocWindow},
		{"Snowflake, string by string", 1, allocSnowflake},
		{"Snowflake, batches of 500", 500, allocSnowflake},
		{"batched sequences (millrace)", 500, nil},
	}
}

// schemeWorker is one worker of a scheme.
type schemeWorker struct {
	rng       *rand.Rand
	snowflake snowflake
}

func get(ctx context.Context, txn kv.Txn, key []byte) ([]byte, error) {
	value := make([][]byte, 1)
	err := txn.Get(ctx, [][]byte{key}, value)
	return value[0], err
}

// raise takes n UIDs from the counter under key.
func raise(ctx context.Context, txn kv.Txn, key []byte, n int) (first uint64, err error) {
	value, err := get(ctx, txn, key)
	if err != nil {
		return 0, err
	}
	var last uint64
	if value != nil {
		last = binary.BigEndian.Uint64(value)
	}
	txn.Set(key, binary.BigEndian.AppendUint64(nil, last+uint64(n)))
	return last + 1, nil
}

func allocCounter(ctx context.Context, txn kv.Txn, _ *schemeWorker, uids []uint64) error {
	first, err := raise(ctx, txn, []byte{'n'}, len(uids))
	for i := range uids {
		uids[i] = first + uint64(i)
	}
	return err
}

func allocRandom(ctx context.Context, txn kv.Txn, w *schemeWorker, uids []uint64) error {
	for i := range uids {
		sequence := w.rng.Uint64N(1 << intern.DefaultPrefixBits)
		n, err := raise(ctx, txn, binary.BigEndian.AppendUint16([]byte{'s'}, uint16(sequence)), 1)
		if err != nil {
			return err
		}
		uids[i] = sequence<<(64-intern.DefaultPrefixBits) | n
	}
	return nil
}

func allocSnowflake(_ context.Context, _ kv.Txn, w *schemeWorker, uids []uint64) error {
	for i := range uids {
		uids[i] = w.snowflake.next()
	}
	return nil
}

// snowflake makes UIDs of 41 bits of milliseconds, 10 bits of shard and 12 bits of sequence. It
// never goes back: while the clock is behind, or a millisecond is used up, it uses the milliseconds
// after the last used one.
type snowflake struct {
	now   func() time.Time
	shard uint64
	milli uint64
	seq   uint64
}

func (s *snowflake) next() uint64 {
	if milli := uint64(s.now().UnixMilli()); milli > s.milli {
		s.milli, s.seq = milli, 0
	} else if s.seq++; s.seq == 1<<12 {
		s.milli, s.seq = s.milli+1, 0
	}
	return s.milli&(1<<41-1)<<22 | s.shard&(1<<10-1)<<12 | s.seq
}

// FoundationDB's high-contention allocator, as the documentation of its directory layer describes
// it: numbers come from a window that moves up. A transaction counts itself into the window, draws
// numbers at random until one is not taken yet, and marks it; only two that draw the same conflict.
// A window that is half full is left behind.
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

func allocWindow(ctx context.Context, txn kv.Txn, w *schemeWorker, uids []uint64) error {
	for i := range uids {
		start, err := enterWindow(ctx, txn)
		for err == nil && uids[i] == 0 {
			n := start + w.rng.Uint64N(windowSize(start))
			var taken []byte
			if taken, err = get(ctx, txn, windowKey(windowTaken, n)); err != nil {
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
	pairs := make([]kv.Pair, 1)
	r := kv.Range{Begin: []byte(windowCounters), End: []byte(windowTaken)}
	if err := txn.Last(ctx, []kv.Range{r}, pairs); err != nil || pairs[0].Key == nil {
		return 0, 0, err
	}
	return binary.BigEndian.Uint64(pairs[0].Key[len(windowCounters):]), binary.LittleEndian.Uint64(pairs[0].Value), nil
}

// enterWindow counts the transaction into the newest window, or into the next one if that is half
// full.
func enterWindow(ctx context.Context, txn kv.Txn) (start uint64, err error) {
	start, entered, err := newestWindow(ctx, txn)
	if err != nil {
		return 0, err
	}
	if 2*(entered+1) >= windowSize(start) {
		start, entered = start+windowSize(start), 0
	}
	key := windowKey(windowCounters, start)
	// A store that cannot add blindly, as FoundationDB can, loses additions that meet: windows fill
	// up further.
	if a, ok := txn.(*countedTxn).Txn.(interface{ Add(key []byte, n uint64) }); ok {
		a.Add(key, 1)
	} else {
		txn.Set(key, binary.LittleEndian.AppendUint64(nil, entered+1))
	}
	return start, nil
}
