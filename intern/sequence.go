package intern

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"millrace/intern/kv"
)

// errExhausted means: no sequence with UIDs left was found.
var errExhausted = errors.New("no UID is left: all sequences that were tried are used up")

// ErrWentBack means: a counter is lower than it was, so an older copy of the store is back.
var ErrWentBack = errors.New("UID store has gone back to an older state")

// maxPicks is how many random sequences are looked at for one that is not exhausted.
const maxPicks = 64

// sequences hands random sequences to the workers of one Interner, no two the same while there are
// enough. Safe for concurrent use.
type sequences struct {
	mu    sync.Mutex
	rng   *rand.Rand
	count uint64              // 1<<p
	taken map[uint32]struct{} // by a worker
}

// pick takes a random sequence.
func (s *sequences) pick() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sequence uint32
	for range maxPicks {
		sequence = uint32(s.rng.Uint64N(s.count))
		if _, taken := s.taken[sequence]; !taken {
			break
		}
	}
	s.taken[sequence] = struct{}{}
	return sequence
}

// inUse returns the sequences that are taken.
func (s *sequences) inUse() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.taken))
}

// giveBack ends what pick began.
func (s *sequences) giveBack(sequence uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, sequence)
}

// allocator takes UIDs from one sequence for one worker, transaction after transaction. When the
// sequence is exhausted, or another worker turns out to use it, it takes another.
//
// A transaction calls begin, then uid as often as it likes, then finish, and committed or failed.
type allocator struct {
	codec     codec
	sequences *sequences
	metrics   *metrics

	held     bool
	sequence uint32 // if held
	known    bool   // whether expect is what the counter must be, if no other worker uses the sequence
	expect   uint64 // what this allocator has left there, the least that it can be; 0: nothing
	last     uint64 // last n given out
	stored   uint64 // what the counter held in this transaction
	key      []byte
	left     []uint32 // sequences given up in this transaction: it must not read them again
}

// counterKey returns the key of the counter of the allocator's sequence. It is valid until another
// is taken.
func (a *allocator) counterKey() []byte {
	if !a.held {
		a.held, a.known, a.expect = true, false, 0
		a.sequence = a.sequences.pick()
		a.key = appendSequenceKey(a.key[:0], a.sequence)
	}
	return a.key
}

// begin starts a transaction; value is what it has read at counterKey.
func (a *allocator) begin(ctx context.Context, txn kv.Txn, value []byte) error {
	if err := a.load(ctx, txn, value); err != nil {
		return err
	}
	if a.stored < a.expect {
		return fmt.Errorf("%w: sequence %d is at %d, and was at %d", ErrWentBack, a.sequence, a.stored, a.expect)
	}
	if a.known && a.stored != a.expect {
		a.metrics.sequenceContended.Inc()
		return a.change(ctx, txn)
	}
	return nil
}

// load takes over the counter's value. A sequence never used has none and begins after what was
// skipped.
func (a *allocator) load(ctx context.Context, txn kv.Txn, value []byte) (err error) {
	if value == nil {
		a.last, err = storedNumber(ctx, txn, []byte(keySkipped))
	} else {
		a.last, err = number(value)
	}
	a.stored = a.last
	return err
}

// change gives the sequence up and takes another that is not exhausted.
func (a *allocator) change(ctx context.Context, txn kv.Txn) error {
	for range maxPicks {
		if a.held {
			a.left = append(a.left, a.sequence)
			a.held = false
		}
		key := a.counterKey()
		if slices.Contains(a.left, a.sequence) {
			continue
		}
		value, err := kv.GetOne(ctx, txn, key)
		if err == nil {
			err = a.load(ctx, txn, value)
		}
		if err != nil {
			return err
		}
		if a.last < a.codec.maxN() {
			return nil
		}
	}
	return errExhausted
}

// uid returns a UID that no string has if the transaction commits.
func (a *allocator) uid(ctx context.Context, txn kv.Txn) (uint64, error) {
	if a.last >= a.codec.maxN() {
		a.metrics.sequenceExhausted.Inc()
		a.finish(txn)
		if err := a.change(ctx, txn); err != nil {
			return 0, err
		}
	}
	a.last++
	return a.codec.join(a.sequence, a.last), nil
}

// finish writes the raised counter.
func (a *allocator) finish(txn kv.Txn) {
	if a.last > a.stored {
		txn.Set(a.key, appendNumber(a.last))
	}
}

// committed says that the transaction was applied.
func (a *allocator) committed() {
	a.known, a.expect = true, a.last
	a.endTransaction()
}

// failed notes that it was not committed, or that the outcome is unknown.
func (a *allocator) failed(unknown bool) {
	if unknown {
		a.known = false
	}
	a.endTransaction()
}

func (a *allocator) endTransaction() {
	for _, sequence := range a.left {
		if !a.held || sequence != a.sequence {
			a.sequences.giveBack(sequence)
		}
	}
	a.left = a.left[:0]
}
