package intern

import (
	"context"
	"sync"
	"sync/atomic"

	"millrace/intern/kv"
)

// tailBack is how many UIDs before a sequence's counter the tail begins: what was given out since its owner took it
// up, and some that are wanted soon.
const tailBack = 2048

// maxTailChunks is how many chunks of one sequence are read at a time.
const maxTailChunks = 64

// found is a name that another Interner gave a UID, read in a committed state.
type found struct {
	key []byte
	uid uint64
	did bool
}

// tail reads what the peers write: the chunks of the sequences that they say they take UIDs from, each from where it
// stopped. A chunk is one key for up to 128 names, so this costs the store a fraction of looking up every
// name. A sequence is written by one worker in ascending order, so nothing appears behind the place that was reached.
//
// run is one goroutine, with one more for each peer during a round.
type tail struct {
	in      *Interner
	peers   *peers
	out     chan []found
	wake    chan struct{} // someone waits
	waiting atomic.Bool
	next    map[uint64]map[uint32]uint64 // by peer and sequence: the next UID
}

func newTail(in *Interner, p *peers) *tail {
	return &tail{in: in, peers: p, out: make(chan []found, 16), wake: make(chan struct{}, 1), next: make(map[uint64]map[uint32]uint64)}
}

// hurry says whether someone waits for what the tail reads.
func (t *tail) hurry(waiting bool) {
	if t.waiting.Swap(waiting) || !waiting {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run reads until the Interner is closed.
func (t *tail) run() {
	for t.pause() {
		v := t.peers.view.Load()
		if v.alone {
			clear(t.next)
			continue
		}
		t.round(v)
	}
}

// pause waits for the next round; false means that there is none.
func (t *tail) pause() bool {
	ctx := t.in.ctx
	if t.waiting.Load() {
		return kv.Sleep(ctx, t.peers.pace.tail) == nil
	}
	idle, cancel := context.WithTimeout(ctx, t.peers.pace.idle)
	defer cancel()
	select {
	case <-t.wake:
	case <-idle.Done():
	}
	return ctx.Err() == nil
}

// round reads what each peer has written since the last round.
func (t *tail) round(v *view) {
	for id := range t.next {
		if _, ok := v.feeds[id]; !ok {
			delete(t.next, id)
		}
	}
	var wg sync.WaitGroup
	for id, sequences := range v.feeds {
		next := t.next[id]
		if next == nil {
			next = make(map[uint32]uint64)
			t.next[id] = next
		}
		wg.Go(func() { t.read(next, sequences) })
	}
	wg.Wait()
}

// read reads one peer's sequences, in one transaction. If that fails, the next round reads the same again.
func (t *tail) read(next map[uint32]uint64, sequences []uint32) {
	reached := make(map[uint32]uint64, len(sequences))
	var names []found
	err := t.in.attempt(t.in.ctx, func(ctx context.Context, txn kv.Txn) error {
		names = names[:0]
		for _, sequence := range sequences {
			from, ok := next[sequence]
			if !ok {
				var err error
				if from, err = t.begin(ctx, txn, sequence); err != nil {
					return err
				}
			}
			to, more, err := t.readSequence(ctx, txn, sequence, from, names)
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
	clear(next) // of sequences that the peer has left
	for sequence, uid := range reached {
		next[sequence] = uid
	}
	if len(names) == 0 {
		return
	}
	select {
	case t.out <- names:
	case <-t.in.ctx.Done():
	}
}

// begin returns where to begin with a sequence that was not read before.
func (t *tail) begin(ctx context.Context, txn kv.Txn, sequence uint32) (uint64, error) {
	value := make([][]byte, 1)
	if err := txn.Get(ctx, [][]byte{appendSequenceKey(nil, sequence)}, value); err != nil {
		return 0, err
	}
	last := uint64(0)
	if value[0] != nil {
		var err error
		if last, err = number(value[0]); err != nil {
			return 0, err
		}
	}
	return t.in.codec.join(sequence, last+1-min(last, tailBack)), nil
}

// readSequence appends the names of a sequence from a UID on, and returns the UID that follows them.
func (t *tail) readSequence(ctx context.Context, txn kv.Txn, sequence uint32, from uint64, names []found) (uint64, []found, error) {
	c := t.in.codec
	r := kv.Range{Begin: appendUIDKey(nil, from), End: append(appendUIDKey(nil, c.join(sequence, c.maxN())), 0)}
	chunks := 0
	err := txn.Scan(ctx, r, func(p kv.Pair) (bool, error) {
		if len(p.Key) != 9 {
			return false, broken("UID key", p.Key)
		}
		chunk, count, err := openChunk(c, append([]byte(nil), p.Value...))
		if err != nil {
			return false, err
		}
		uid := uidOfKey(p.Key)
		for e := (entry{}); chunk.next(&e); uid++ {
			names = append(names, found{key: c.appendKey(nil, &e), uid: uid, did: e.form.isDID()})
		}
		from = uidOfKey(p.Key) + uint64(count)
		chunks++
		return chunks < maxTailChunks, chunk.err
	})
	return from, names, err
}
