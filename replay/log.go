package replay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/dict"
	"millrace/translate"
)

// maxAppendBytes bounds what one Append commits: Pebble's batches end at 4 GiB.
const maxAppendBytes = 2 << 30

// Progress is how far the log has come: everything up to Seq of the epoch is committed.
type Progress struct {
	Stream translate.Stream
	Epoch  uint32
	Seq    int64 // 0: nothing of this epoch yet
	TimeUS int64 // newest stamp given out, over all epochs; 0: none

	// Previous is, while Seq is 0, how far the last epoch came that has any frame: a Gap of unknown
	// size lies between it and the first frame to come. Zero if no epoch has a frame, and as soon as
	// this one has.
	Previous EpochEnd
}

// EpochEnd is the last frame committed of an epoch, whether it gave an event or not.
type EpochEnd struct {
	Epoch uint32
	Seq   int64
}

// Range is what the log holds.
type Range struct {
	Oldest, Newest Mark // zero if the log holds no event
	Retention      time.Duration
	Gaps           []Gap // oldest first
	Events         int64
	Bytes          int64 // of the stored parts, before Pebble compresses them
}

// Log is the event log. One goroutine appends; everything else is safe for concurrent use.
type Log struct {
	cfg     Config
	store   *store
	stored  *dict.Dictionary
	encoder compressor // with stored
	cache   *cache
	metrics *metrics
	snap    atomic.Pointer[snapshot] // written under mu

	trimMu sync.Mutex  // serialises trims; before mu
	clock  *clockWatch // guarded by trimMu

	mu sync.Mutex // serialises changes of the log; before storeMu

	// storeMu keeps the store open under readers: they hold it shared, Close exclusively.
	storeMu  sync.RWMutex
	closed   bool // guarded by storeMu
	closing  chan struct{}
	closeErr error // guarded by storeMu
}

// Progress returns what was committed last.
func (l *Log) Progress() Progress {
	s := l.snap.Load()
	return Progress{Stream: s.streamOf(s.epoch), Epoch: s.epoch, Seq: s.seq, TimeUS: s.timeUS, Previous: s.previous}
}

// Range returns what the log holds now. The caller must not change its Gaps.
func (l *Log) Range() Range {
	s := l.snap.Load()
	r := Range{Retention: l.cfg.Retention, Gaps: s.gaps}
	if s.oldest != (mark{}) {
		held := s.total.minus(s.trimmed)
		r.Oldest, r.Newest, r.Events, r.Bytes = s.export(s.oldest), s.export(s.newest), held.events, held.bytes
	}
	return r
}

// Append commits the blocks, in the order they are given, in one synced write, and then shows them
// to readers. Calls must follow one another in relay order, from one goroutine. A block without
// events only moves the position. Errors: ErrReadOnly; ErrOutOfOrder, after which the log is as it was; ErrClosed;
// and ErrFailed, after which it takes nothing more and the process should stop: whether the blocks
// are durable is then unknown, but the next Open finds all of them with their position, or none.
func (l *Log) Append(bs ...*Block) error {
	if len(bs) == 0 {
		return nil
	}
	if l.cfg.ReadOnly {
		return fmt.Errorf("append: %w", ErrReadOnly)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.snap.Load()
	if old.err != nil {
		return old.err
	}
	if err := l.store.err(); err != nil {
		return err
	}
	next := old.next()
	size := 1 << 10
	for _, b := range bs {
		size += int(b.stored()) + 1<<9
	}
	batch := l.store.db.NewBatchWithSize(size)
	defer batch.Close()
	withEvents, err := l.stage(batch, next, bs)
	if err != nil {
		return fmt.Errorf("append: %w", err)
	}
	start := time.Now()
	if err := l.store.commit(batch, true); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	l.metrics.syncSeconds.Observe(time.Since(start).Seconds())
	for _, b := range bs {
		b.sealedIndex, b.sealedPlain, b.sealedZstd = nil, nil, nil
	}
	if len(withEvents) > 0 {
		next.push(withEvents, l.cfg.TailBytes)
	}
	if l.cfg.Retention == 0 {
		next.forgetBeforeTail()
	}
	l.publish(next)
	return nil
}

// stage applies the blocks to next and adds to the batch what is to be stored. It returns the
// blocks that have events.
func (l *Log) stage(batch *pebble.Batch, next *snapshot, bs []*Block) ([]*Block, error) {
	withEvents := make([]*Block, 0, len(bs))
	newEpoch := false
	var bytes int64
	for _, b := range bs {
		if err := next.follows(b); err != nil {
			return nil, err
		}
		if bytes += b.stored(); bytes > maxAppendBytes {
			return nil, fmt.Errorf("more than %d bytes at once", int64(maxAppendBytes))
		}
		if b.epoch != next.epoch {
			var err error
			if next.streams, err = addStream(next.streams, l.cfg.Relay, b.epoch); err != nil {
				return nil, err
			}
			newEpoch = true
		}
		next.advance(b)
		if b.idx != nil {
			withEvents = append(withEvents, b)
		}
		if l.cfg.Retention > 0 {
			if err := putBlock(batch, b, next.total); err != nil {
				return nil, err
			}
		}
	}
	if newEpoch {
		if err := putMeta(batch, metaStreams, appendStreams(nil, next.streams)); err != nil {
			return nil, err
		}
	}
	durable := next.state
	if l.cfg.Retention == 0 {
		durable.floor, durable.oldest, durable.trimmed = durable.newest, mark{}, durable.total
	}
	return withEvents, putMeta(batch, metaState, appendState(nil, &durable))
}

// putBlock adds a block's parts and its gap to the batch. total includes the block.
func putBlock(batch *pebble.Batch, b *Block, total totals) error {
	if g := b.gap; g != nil {
		v := appendTrailer(appendGap(make([]byte, 0, gapBytes+trailerBytes), g), rangeGap, g.TimeUS)
		if err := batch.Set(timeKey(rangeGap, g.TimeUS), v, nil); err != nil {
			return err
		}
	}
	x := b.idx
	if x == nil {
		return nil
	}
	last := x.events() - 1
	ref := blockRef{key: x.key(), seq: x.seq[last], op: x.op[last], totals: total}
	key := x.key()
	for _, p := range []struct {
		key   []byte
		value []byte
	}{
		{seqKey(b.epoch, b.lastSeq), appendTrailer(appendBlockRef(nil, ref), rangeSeq, b.lastSeq)},
		{timeKey(rangeIndex, key), b.sealedIndex},
		{timeKey(rangePlain, key), b.sealedPlain},
		{timeKey(rangeZstd, key), b.sealedZstd},
	} {
		if err := batch.Set(p.key, p.value, nil); err != nil {
			return err
		}
	}
	return nil
}

// publish shows next to readers and wakes those that wait. l.mu is held.
func (l *Log) publish(next *snapshot) {
	old := l.snap.Swap(next)
	close(old.changed)
}

// Run trims the log as its retention asks and watches the clock until ctx is done or the log is
// closed (then it returns nil) or the log fails (then it returns why, and the process should stop).
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(l.trimInterval())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.closing:
			return nil
		case <-l.store.failed:
			return fmt.Errorf("run log: %w", l.store.err())
		case <-tick.C:
			if err := l.Trim(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("run log: %w", err)
			}
		}
	}
}

// Close ends readers (they get ErrClosed), waits for calls that still run, and closes the store. It
// is safe to call twice, and from any goroutine.
func (l *Log) Close() error {
	l.mu.Lock()
	s := l.snap.Load()
	if s.err == nil {
		close(l.closing)
		next := s.next()
		next.err = ErrClosed
		close(next.changed)
		l.publish(next)
	}
	l.mu.Unlock()
	l.trimMu.Lock() // a trim that still runs sees closing and ends
	defer l.trimMu.Unlock()
	l.storeMu.Lock()
	defer l.storeMu.Unlock()
	if l.closed {
		return l.closeErr
	}
	l.closed = true
	if err := l.store.close(); err != nil {
		l.closeErr = fmt.Errorf("close log: %w", err)
	}
	l.metrics.unregister()
	return l.closeErr
}
