package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/clocktrust"
	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
)

const (
	// maxGaps bounds the gaps in the log, which all are in memory. At more, the log is trimmed up
	// to the newest that fit, so that no reader crosses one that is forgotten.
	maxGaps = 100_000

	// trimInterval is how often Run trims. By what comes in that time the log may pass a limit of
	// bytes.
	trimInterval = time.Second
)

// Trim does at once what Run does from time to time. It drops the oldest blocks that are older than
// the retention, or beyond its bytes, a whole span at a time. A span goes when its last event is
// too old, and it covers at most 1/64 of the retention, in time and in bytes.
func (l *Log) Trim(ctx context.Context) error {
	return l.trim(ctx, l.cfg.RetentionBytes)
}

// TrimTo is Trim, and then drops more of the oldest blocks until at most maxBytes are stored (as
// Range.Bytes counts). It is for when the disk runs short. 0 drops everything.
func (l *Log) TrimTo(ctx context.Context, maxBytes int64) error {
	if limit := l.cfg.RetentionBytes; limit > 0 {
		maxBytes = min(maxBytes, limit)
	}
	if maxBytes <= 0 {
		maxBytes = -1
	}
	return l.trim(ctx, maxBytes)
}

// trim drops by age and down to maxBytes; 0: no limit, negative: nothing is left.
func (l *Log) trim(ctx context.Context, maxBytes int64) error {
	l.trims.mu.Lock()
	defer l.trims.mu.Unlock()
	trusted := l.watchClockLocked()
	if l.cfg.Retention == 0 {
		return nil
	}
	s := l.snap.Load()
	for ctx.Err() == nil {
		if s.err != nil || s.Oldest == (format.Point{}) {
			return nil
		}
		var key int64
		if trusted {
			key = l.cfg.Now().Add(-l.cfg.Retention).UnixMicro() - 1
		}
		if n := len(s.gaps); n > maxGaps {
			key = max(key, s.gaps[n-maxGaps-1].TimeUS)
		}
		key, err := l.lastBlockAt(s, key)
		if err != nil {
			return fmt.Errorf("trim: %w", err)
		}
		key = s.spanBefore(key)
		byBytes, more, err := l.cutByBytes(s, maxBytes)
		if err != nil {
			return fmt.Errorf("trim: %w", err)
		}
		key, err = l.holdLocked(s, max(key, s.spanAfter(byBytes)))
		if err != nil {
			return fmt.Errorf("trim: %w", err)
		}
		if key <= s.Floor.TimeUS {
			return nil
		}
		if key > s.stable() {
			// It would cut the group. Nothing is lost if its blocks stay small.
			s = l.settle()
			continue
		}
		done, err := l.cutLocked(s, key)
		if err != nil {
			return fmt.Errorf("trim: %w", err)
		}
		if done && !more {
			return nil
		}
		s = l.snap.Load()
	}
	return ctx.Err()
}

// readClock returns what the clocks say now.
func (c *Config) readClock() clocktrust.Reading {
	r := clocktrust.Reading{Wall: c.Now(), Mono: c.Monotonic()}
	if c.FrameAge != nil {
		r.FrameAge, r.Known = c.FrameAge()
	}
	return r
}

// watchClockLocked reads the clocks, reports what is wrong with them, and says whether age counts.
// It needs l.trims.mu.
func (l *Log) watchClockLocked() (trusted bool) {
	before := l.trims.clock
	step := l.trims.clock.Observe(l.cfg.readClock())
	trusted = l.trims.clock.Trusted()
	age, disagrees := l.trims.clock.Disagrees()
	_, disagreed := before.Disagrees()
	switch {
	case step != 0:
		l.metrics.clockSteps.Inc()
		l.cfg.Logger.Error("the clock was set: trimming by age is paused until it has been steady and agrees with the times of frames",
			"step", step, "steady_for", clocktrust.SteadyTime)
	case trusted && !before.Trusted():
		l.cfg.Logger.Info("the clock is trusted: the log is trimmed by age")
	case disagrees && !disagreed:
		l.cfg.Logger.Error("the clock does not agree with the times of frames: trimming by age is paused; "+
			"if no backlog is being read, check this machine's clock", "frame_age", age, "allowed", clocktrust.MaxError)
	}
	lead := time.UnixMicro(l.snap.Load().TimeUS).Sub(l.cfg.Now())
	wasAhead := l.trims.ahead
	l.trims.ahead = trusted && l.cfg.Retention > 0 && lead > clocktrust.MaxError
	if l.trims.ahead && !wasAhead {
		l.cfg.Logger.Error("the clock was ahead once, and events are stamped as later than it ever since: they are not trimmed by age "+
			"until it gets there and they are old; limits by bytes hold", "ahead", lead.Round(time.Second))
	}
	l.metrics.trimPaused.Store(!trusted || l.trims.ahead)
	return trusted
}

// holdLocked returns key, or the last span or block before it that Config.Hold lets go. It needs
// l.trims.mu.
func (l *Log) holdLocked(s *snapshot, key int64) (int64, error) {
	wasHeld := l.trims.held
	l.trims.held = false
	if l.cfg.Hold == nil || key <= s.Floor.TimeUS {
		return key, nil
	}
	last := l.cfg.Hold()
	p := format.Place{Epoch: last.Epoch, Seq: last.Seq, Op: math.MaxUint32}
	var us int64 // the last block to trim has no event after this
	switch {
	case s.Newest.Place.Before(p):
		return key, nil
	case s.Floor.Place.Before(p):
		next, err := l.blocks.findAfter(s, p)
		if err != nil {
			return 0, err
		}
		us = next - 1
	}
	if us >= key {
		return key, nil
	}
	if l.trims.held = true; !wasHeld {
		l.cfg.Logger.Warn("the log is not trimmed as it should be: the reference store, or a backup of it, has not read that far",
			"read_epoch", last.Epoch, "read_seq", last.Seq)
	}
	held, err := l.lastBlockAt(s, us)
	return s.spanBefore(held), err
}

// lastBlockAt returns the key of the last block that has no event after us; 0 if there is none.
func (l *Log) lastBlockAt(s *snapshot, us int64) (int64, error) {
	if us <= s.Floor.TimeUS {
		return 0, nil
	}
	us = min(us, s.Newest.TimeUS)
	key, err := logstore.LastBlock(l.store, s.Floor.TimeUS, us)
	return key, l.blocks.readError(format.RangeIndex, us, err)
}

// spanBefore returns the key of the last span that ends at or before key, 0 if there is none. By
// age the log is trimmed a span at a time, so that trims and their range deletions are few. Behind
// the newest span key stays as it is.
func (s *snapshot) spanBefore(key int64) int64 {
	if key <= s.Floor.TimeUS || key > s.spanned {
		return key
	}
	n := len(s.spans) - len(s.spansSince(key+1))
	if n == 0 {
		return 0
	}
	return s.spans[n-1]
}

// spanAfter returns the key of the first span that ends at or after key: a limit in bytes holds.
func (s *snapshot) spanAfter(key int64) int64 {
	if key <= s.Floor.TimeUS || key > s.spanned {
		return key
	}
	return s.spansSince(key)[0]
}

// cutByBytes returns the key of the last block to drop so that at most maxBytes are left; 0 if
// there is none. more says that it stopped early because the blocks were many.
func (l *Log) cutByBytes(s *snapshot, maxBytes int64) (key int64, more bool, err error) {
	if maxBytes < 0 {
		return s.Newest.TimeUS, false, nil
	}
	if maxBytes == 0 || s.held().Bytes <= maxBytes {
		return 0, false, nil
	}
	key, more, err = logstore.CutByBytes(l.store, &s.State, maxBytes)
	return key, more, l.blocks.readError(format.RangeSeq, key, err)
}

// cutLocked drops all blocks up to the one at key. It needs l.trims.mu, so that nothing else moves
// the floor. It returns false if an Append came between and it must be tried again.
func (l *Log) cutLocked(s *snapshot, key int64) (done bool, err error) {
	it, err := l.store.NewIter(&pebble.IterOptions{
		LowerBound: format.TimeKey(format.RangeIndex, key), UpperBound: format.TimeKey(format.RangeIndex, s.Newest.TimeUS+1)})
	if err != nil {
		return false, err
	}
	defer it.Close()
	if !it.First() {
		if err := it.Error(); err != nil {
			return false, l.blocks.readError(format.RangeIndex, key, err)
		}
		return false, l.blocks.corrupt(format.RangeIndex, key, format.ErrMissing)
	}
	last, err := l.blocks.decodeAt(it, format.RangeIndex, key)
	if err != nil {
		return false, err
	}
	ptr, err := logstore.Pointer(l.store, last.idx.Epoch, last.idx.LastSeq, key)
	if err != nil {
		return false, l.blocks.readError(format.RangeSeq, key, err)
	}
	var oldest format.Point
	if it.Next() {
		us, _ := format.ParseTimeKey(it.Key())
		first, err := l.blocks.decodeAt(it, format.RangeIndex, us)
		if err != nil {
			return false, err
		}
		oldest = first.idx.FirstPoint()
	} else if err := it.Error(); err != nil {
		return false, l.blocks.readError(format.RangeIndex, key, err)
	}
	return l.drop(last.idx, ptr, oldest)
}

// drop publishes the new floor and then deletes everything up to last, in this order. A reader that
// finds something missing looks at the floor afterwards to see why.
func (l *Log) drop(last *blockIndex, ptr format.BlockPointer, oldest format.Point) (done bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.snap.Load()
	if old.err != nil {
		return true, nil
	}
	if oldest == (format.Point{}) && old.Newest.TimeUS > last.Key() {
		return false, nil
	}
	next := old.next()
	next.Floor = last.LastPoint()
	next.Oldest = oldest
	next.Trimmed = ptr.Totals
	next.gaps = gapsAfter(next.gaps, last.Key())
	next.uses = format.NeededUses(old.uses, last.Key())
	next.spans = next.spansSince(last.Key() + 1)
	next.trimTail(next.Floor)
	l.spans.Trimmed(last.Key())
	l.publishLocked(next)

	batch := l.store.Pebble().NewBatch()
	defer l.store.CloseBatch(batch)
	err = errors.Join(logstore.DeleteThrough(batch, next.Floor, last.Epoch, last.LastSeq),
		logstore.PutMeta(batch, format.MetaState, format.AppendState(nil, &next.State)))
	if len(next.uses) < len(old.uses) {
		err = errors.Join(err, logstore.PutUses(batch, old.uses, next.uses))
	}
	if err != nil {
		return false, err
	}
	// Not synced: should it be lost, the next trim does it again. Nothing can be half done.
	if err := l.store.Commit(batch, false); err != nil {
		return false, err
	}
	dropped := next.Trimmed.Minus(old.Trimmed)
	l.metrics.trims.Inc()
	l.metrics.trimmedBlocks.Add(float64(dropped.Blocks))
	l.cfg.Logger.Debug("log trimmed", "blocks", dropped.Blocks, "events", dropped.Events,
		"bytes", dropped.Bytes, "oldest_us", next.Oldest.TimeUS)
	return true, nil
}
