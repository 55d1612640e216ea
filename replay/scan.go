package replay

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
)

// blockScan walks over the indexes of stored blocks within one call of Next. It sees one state of
// the store. Its user keeps the store open, see blockStore.
type blockScan struct {
	bs *blockStore
	it *pebbleguard.Iterator // nil until the first find
	at int64                 // key the iterator is at; 0: nowhere

	slim   bool        // find returns slim indexes
	before *blockIndex // its user was in that block before; nil: in none

	spans *pebbleguard.Iterator // nil until the first spansFrom
}

// part is the range of the indexes that its user takes.
func (c *blockScan) part() format.Range {
	if c.slim {
		return format.RangeSlimIndex
	}
	return format.RangeIndex
}

// find returns the index of the first block that has an event stamped from or later. s is the
// snapshot that says there is one: from > s.Floor.TimeUS and from <= s.beforeTail.TimeUS.
func (c *blockScan) find(s *snapshot, from int64) (*blockIndex, error) {
	before := c.before
	if before != nil && before.Key() != from-1 {
		before = nil
	}
	if before != nil && before.after.Load() != 0 {
		if v, ok := c.bs.cache.Peek(cacheKey{block: before.after.Load(), part: c.part()}); ok {
			return v.idx, nil
		}
	}
	if c.it == nil {
		var err error
		if c.it, err = c.iterator(c.part(), s.beforeTail.TimeUS, from); err != nil {
			return nil, err
		}
	}
	var ok bool
	if c.at != 0 && c.at == from-1 {
		ok = c.it.Next()
	} else {
		ok = c.it.SeekGE(format.TimeKey(c.part(), from))
	}
	if !ok {
		if err := c.it.Error(); err != nil {
			return nil, c.bs.readError(c.part(), from, err)
		}
		return nil, c.bs.corrupt(c.part(), s.beforeTail.TimeUS, format.ErrMissing)
	}
	key, ok := format.ParseTimeKey(c.it.Key())
	if !ok {
		return nil, c.bs.corrupt(c.part(), from, fmt.Errorf("malformed key %x", c.it.Key()))
	}
	c.at = key
	if before != nil {
		before.after.Store(key) // for good: on disk no block comes between
	}
	v, err := c.bs.storedAt(c.it, c.part(), key)
	return v.idx, err
}

// iterator makes one over range r, from from up to last. A trim publishes the new floor before it
// deletes what lies below. So if the floor, looked at after the iterator was made, is still below
// from, the iterator cannot miss what a trim deleted. It sees all blocks from there on.
func (c *blockScan) iterator(r format.Range, last, from int64) (*pebbleguard.Iterator, error) {
	// The upper bound keeps out what is in the store but not published yet, or never will be
	// because its sync failed.
	it, err := c.bs.store.NewIter(&pebble.IterOptions{LowerBound: format.TimeKey(r, from), UpperBound: format.TimeKey(r, last+1)})
	if err != nil {
		return nil, c.bs.readError(r, from, err)
	}
	if c.bs.snap.Load().Floor.TimeUS >= from {
		_ = it.Close()
		return nil, ErrTrimmed
	}
	return it, nil
}

func (c *blockScan) close() {
	if c.it != nil {
		_ = c.it.Close() // its error was returned by find
	}
	if c.spans != nil {
		_ = c.spans.Close()
	}
}

// spansFrom returns the first span that covers from or what comes after it, and those after it, n
// in all at most, up to the first that fails. There is one: from <= s.spanned. It reads them in a
// row, which a disk answers fastest.
func (c *blockScan) spansFrom(s *snapshot, from int64, n int) ([]*format.Span, error) {
	if c.spans == nil {
		var err error
		if c.spans, err = c.iterator(format.RangeSpan, s.spanned, from); err != nil {
			return nil, err
		}
	}
	var spans []*format.Span
	for ok := c.spans.SeekGE(format.TimeKey(format.RangeSpan, from)); ok && len(spans) < n; ok = c.spans.Next() {
		sp, err := c.spanAt()
		if err != nil {
			return spans, err
		}
		spans = append(spans, sp)
	}
	if len(spans) > 0 {
		return spans, nil
	}
	if err := c.spans.Error(); err != nil {
		return nil, c.bs.readError(format.RangeSpan, from, err)
	}
	return nil, c.bs.corrupt(format.RangeSpan, s.spanned, format.ErrMissing)
}

// spanAt returns the span that the iterator is at.
func (c *blockScan) spanAt() (*format.Span, error) {
	key, ok := format.ParseTimeKey(c.spans.Key())
	if !ok {
		return nil, c.bs.corrupt(format.RangeSpan, 0, fmt.Errorf("malformed key %x", c.spans.Key()))
	}
	v, err := c.bs.storedAt(c.spans, format.RangeSpan, key)
	return v.span, err
}
