package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/dict"
	"millrace/replay/internal/clocktrust"
	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
	"millrace/replay/internal/pebblestore"
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

	// Previous is set while Seq is 0. It says how far the last epoch with a frame came: a Gap of
	// unknown size lies between it and the first frame to come. It is zero if no epoch has a frame,
	// and once this one has.
	Previous EpochEnd
}

// EpochEnd is the last frame committed of an epoch, whether it gave an event or not.
type EpochEnd = format.EpochEnd

// Range is what the log holds.
type Range struct {
	Oldest, Newest Point // zero if the log holds no event
	Retention      time.Duration
	Gaps           []Gap  // oldest first
	References     *Point // what comes after it has its references; nil: they are off
	Events         int64
	Bytes          int64 // of the stored parts, before Pebble compresses them
}

// Log is the event log. One goroutine appends; everything else is safe for concurrent use.
type Log struct {
	cfg     Config
	store   *pebblestore.Store
	blocks  *blockStore // what is read of store
	stored  storedDictionary
	metrics *metrics
	trims   trims
	closing chan struct{} // closed when Close begins

	// serialises changes of the log; after trims.mu, before blockStore.storeMu
	mu        sync.Mutex
	snap      atomic.Pointer[snapshot] // written under mu
	spans     *logstore.SpanWriter     // guarded by mu
	unflushed int64                    // bytes of batches since the last flush began; guarded by mu
	opening   *pebble.Batch            // what Begin commits; nil: it has; guarded by mu
}

// storedDictionary is the dictionary of the stored variant.
type storedDictionary struct {
	*dict.Dictionary
	encoder format.Compressor
}

// trims is what trims share.
type trims struct {
	mu    sync.Mutex       // serialises them
	clock clocktrust.Trust // guarded by mu
	ahead bool             // stamps are ahead of a trusted clock; guarded by mu
	held  bool             // the last trim dropped less than it should; guarded by mu
}

// Progress returns what was committed last.
func (l *Log) Progress() Progress {
	s := l.snap.Load()
	return Progress{Stream: s.streams.Tag(s.Epoch), Epoch: s.Epoch, Seq: s.Seq, TimeUS: s.TimeUS, Previous: s.Previous}
}

// Range returns what the log holds now. The caller must not change its Gaps.
func (l *Log) Range() Range {
	s := l.snap.Load()
	r := Range{Retention: l.cfg.Retention, Gaps: s.gaps}
	if s.references != nil {
		r.References = new(s.export(*s.references))
	}
	if s.Oldest != (format.Point{}) {
		held := s.held()
		r.Oldest, r.Newest, r.Events, r.Bytes = s.export(s.Oldest), s.export(s.Newest), held.Events, held.Bytes
	}
	return r
}

// About is what a log says about itself, beside Progress, Range and Dictionaries.
type About struct {
	Version  uint32 // of its format
	Relay    string // that it follows: a host
	UIDStore string // whose UIDs it holds; "": it has had none
}

// About reads what the log says about itself. Errors: ErrClosed, *CorruptionError, the disk's.
func (l *Log) About() (About, error) {
	l.blocks.storeMu.RLock()
	defer l.blocks.storeMu.RUnlock()
	if l.blocks.closed {
		return About{}, ErrClosed
	}
	s := l.snap.Load()
	a := About{Version: s.version, Relay: s.streams[len(s.streams)-1].Relay}
	var err error
	if a.UIDStore, _, err = uidStoreOf(l.store); err != nil {
		return About{}, fmt.Errorf("read the ID of the UID store: %w", err)
	}
	return a, nil
}

// NewestUIDs returns the UIDs of the newest block's events, in no order; 0 is none. Errors:
// ErrClosed, *CorruptionError, the disk's.
func (l *Log) NewestUIDs() (uids []uint64, err error) {
	l.blocks.storeMu.RLock()
	defer l.blocks.storeMu.RUnlock()
	if l.blocks.closed {
		return nil, ErrClosed
	}
	s := l.snap.Load()
	if s.held().Events == 0 {
		return nil, nil
	}
	x, err := l.blocks.indexOf(format.RangeIndex, s.Newest.TimeUS)
	if err != nil {
		return nil, fmt.Errorf("read the newest UIDs: %w", err)
	}
	return append(slices.Clone(x.full.DIDUID), x.full.URIUID...), nil
}

// DiskBytes returns how much disk the log takes, its write-ahead log and what a compaction has yet
// to delete included. It is 0 once it is closed or has failed.
func (l *Log) DiskBytes() int64 {
	l.blocks.storeMu.RLock()
	defer l.blocks.storeMu.RUnlock()
	if l.blocks.closed {
		return 0
	}
	var bytes atomic.Int64 // Metrics may return after a failure, or never
	err := l.store.Guard(func() error {
		bytes.Store(int64(l.store.Pebble().Metrics().DiskSpaceUsage()))
		return nil
	})
	if err != nil {
		return 0
	}
	return bytes.Load()
}

// Append commits the blocks, in the order they are given, in one synced write, and then shows them
// to readers. Calls must follow one another in relay order, from one goroutine. A block without
// events only moves the position. Errors: errReadOnly; errOutOfOrder, after which the log is as it
// was; ErrClosed; and ErrFailed, after which it takes nothing more and the process should stop.
// Whether the blocks are durable is then unknown, but the next Open finds all of them with their
// position, or none.
func (l *Log) Append(bs ...*Block) error {
	if len(bs) == 0 {
		return nil
	}
	if l.cfg.ReadOnly {
		return fmt.Errorf("append: %w", errReadOnly)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.snap.Load()
	if old.err != nil {
		return old.err
	}
	if err := l.store.Err(); err != nil {
		return err
	}
	p := appendCall{log: l, next: old.next()}
	if err := p.check(bs); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	size := 1 << 10
	for _, b := range bs {
		size += int(b.storedBytes) + 1<<9
	}
	p.batch = l.store.Pebble().NewBatchWithSize(size)
	defer l.store.CloseBatch(p.batch)
	if err := p.stage(bs); err != nil {
		l.store.Fail(fmt.Errorf("make a batch: %w", err))
		return fmt.Errorf("append: %w", l.store.Err())
	}
	start := time.Now()
	if err := l.store.Commit(p.batch, true); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	l.metrics.syncSeconds.Observe(time.Since(start).Seconds())
	l.blocks.sources.Stored(len(p.sources))
	p.strip(bs)
	if l.cfg.Retention == 0 {
		p.next.forgetBeforeTail()
	}
	l.publishLocked(p.next)
	if l.store.Mark().Due() {
		if err := logstore.RaiseMark(l.store, &p.next.State); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	if err := p.flushIfDue(); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	return nil
}

// publishLocked shows next to readers and wakes those that wait.
func (l *Log) publishLocked(next *snapshot) {
	old := l.snap.Swap(next)
	close(old.changed)
}

// Run trims the log as its retention asks, at once and then from time to time, and watches the
// clock. It returns nil once ctx is done or the log is closed. If the log fails it returns why, and
// the process should stop.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for {
		if err := l.Trim(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("run log: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.closing:
			return nil
		case <-l.store.Failed():
			return fmt.Errorf("run log: %w", l.store.Err())
		case <-tick.C:
		}
	}
}

// failedCloseWait is how long Close waits for calls that still run once the store has failed.
// Pebble stops with its lock held then, and a call that needs the lock, if only to let go of an
// iterator, never returns.
const failedCloseWait = time.Second

// Close ends readers (they get ErrClosed), waits for calls that still run, and closes the store. It
// is safe to call twice, and from any goroutine.
func (l *Log) Close() error {
	closed := make(chan error, 1)
	var wg sync.WaitGroup // not waited for if the store has failed
	wg.Go(func() { closed <- l.close() })
	select {
	case err := <-closed:
		return err
	case <-l.store.Failed():
	}
	select {
	case err := <-closed:
		return err
	case <-time.After(failedCloseWait):
		l.metrics.unregister()
		return fmt.Errorf("close log: %w", l.store.Err())
	}
}

func (l *Log) close() error {
	l.mu.Lock()
	s, prepared := l.snap.Load(), l.opening != nil
	first := s.err == nil
	if first {
		close(l.closing)
		next := s.next()
		next.err = ErrClosed
		close(next.changed)
		l.publishLocked(next)
	}
	l.mu.Unlock()
	if first {
		l.blocks.readahead.wait()
	}
	l.trims.mu.Lock() // a trim that still runs sees closing and ends
	defer l.trims.mu.Unlock()
	return l.blocks.close(func() error {
		defer l.metrics.unregister()
		var err error
		if !l.cfg.ReadOnly && !prepared && l.store.Err() == nil {
			err = logstore.RaiseMark(l.store, &s.State)
		}
		if err := cmp.Or(err, l.store.Close()); err != nil {
			return fmt.Errorf("close log: %w", err)
		}
		return nil
	})
}
