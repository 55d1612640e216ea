package share

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"millrace/intern/kv"
)

// feed reads what the other instances write: the chunks of the sequences that their records name,
// each from where it stopped. A chunk is one key for many names, so this costs the store a fraction
// of looking up every name. A sequence is written by one worker in ascending order, so nothing
// appears behind the place that was reached.
type feed struct {
	cfg       Config
	instances *instances
	out       chan []Name
	wake      chan struct{} // a string waits
	waiting   atomic.Bool
	next      map[uint64]map[uint32]uint64 // by instance and sequence: the next UID
}

func newFeed(cfg Config, i *instances) *feed {
	return &feed{cfg: cfg, instances: i, out: make(chan []Name, 16), wake: make(chan struct{}, 1),
		next: make(map[uint64]map[uint32]uint64)}
}

// setWaiting notes whether a string waits for the feed. When one begins to wait, the feed polls at
// once.
func (f *feed) setWaiting(waiting bool) {
	if f.waiting.Swap(waiting) || !waiting {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run reads until ctx ends.
func (f *feed) run(ctx context.Context) {
	for f.pause(ctx) {
		v := f.instances.view.Load()
		if v.alone {
			clear(f.next)
			continue
		}
		f.poll(ctx, v)
	}
}

// pause waits for the next poll; false means that there is none.
func (f *feed) pause(ctx context.Context) bool {
	if f.waiting.Load() {
		return kv.Sleep(ctx, f.cfg.Timing.Poll) == nil
	}
	idle, cancel := context.WithTimeout(ctx, f.cfg.Timing.IdlePoll)
	defer cancel()
	select {
	case <-f.wake:
	case <-idle.Done():
	}
	return ctx.Err() == nil
}

// poll reads what each instance has written since the last poll, each in a goroutine of its own.
func (f *feed) poll(ctx context.Context, v *view) {
	maps.DeleteFunc(f.next, func(id uint64, _ map[uint32]uint64) bool { _, ok := v.feeds[id]; return !ok })
	var wg sync.WaitGroup
	for id, sequences := range v.feeds {
		next := f.next[id]
		if next == nil {
			next = make(map[uint32]uint64)
			f.next[id] = next
		}
		wg.Go(func() { f.read(ctx, next, sequences) })
	}
	wg.Wait()
}

// read reads one instance's sequences, in one transaction. If that fails, the next poll reads the
// same again.
func (f *feed) read(ctx context.Context, next map[uint32]uint64, sequences []uint32) {
	reached := make(map[uint32]uint64, len(sequences))
	var names []Name
	err := f.cfg.Interner.Attempt(ctx, 0, func(ctx context.Context, txn kv.Txn) error {
		names = names[:0]
		for _, sequence := range sequences {
			to, more, err := f.cfg.Interner.ReadSequence(ctx, txn, sequence, next[sequence], names)
			if err != nil {
				return err
			}
			reached[sequence], names = to, more
		}
		return nil
	})
	if err != nil {
		return
	}
	clear(next) // of sequences that the instance has left
	maps.Copy(next, reached)
	if len(names) == 0 {
		return
	}
	select {
	case f.out <- names:
	case <-ctx.Done():
	}
}
