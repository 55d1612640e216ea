package replay

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
)

// blockScan walks over the indexes of stored blocks within one call of Next. It sees one state of
// the store. Its user holds storeMu.
type blockScan struct {
	bs *blockStore
	it *pebbleguard.Iterator // nil until the first find
	at int64                 // key the iterator is at; 0: nowhere

	slim   bool        // its user takes slim indexes for indexes
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
// snapshot that says there is one: from > s.floor.timeUS and from <= s.beforeTail.timeUS.
func (c *blockScan) find(s *snapshot, from int64) (*blockIndex, error) {
	before := c.before
	if before != nil && before.Key() != from-1 {
		before = nil
	}
	if before != nil && before.after.Load() != 0 {
		if e := c.bs.cache.peek(cacheKey{block: before.after.Load(), part: c.part()}); e != nil {
			return e.idx, nil
		}
	}
	if err := c.open(s, from); err != nil {
		return nil, err
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
		return nil, c.bs.corrupt(c.part(), from, fmt.Errorf("key %x", c.it.Key()))
	}
	c.at = key
	if before != nil {
		before.after.Store(key) // for good: on disk no block comes between
	}
	e, mine := c.bs.cache.find(cacheKey{block: key, part: c.part()})
	if !mine {
		return e.idx, e.err
	}
	e.idx, e.err = c.bs.decodeAt(c.it, c.part(), key)
	var bytes int64
	if e.err == nil {
		bytes = e.idx.memory()
	}
	c.bs.cache.fill(e, bytes)
	return e.idx, e.err
}

// indexOf returns the index of a block on disk whose key is known, or its slim index: what range r has of it.
func (bs *blockStore) indexOf(r format.Range, key int64) (*blockIndex, error) {
	e, mine := bs.cache.find(cacheKey{block: key, part: r})
	if !mine {
		return e.idx, e.err
	}
	var bytes int64
	defer func() { bs.cache.fill(e, bytes) }()
	e.err = bs.view(r, key, func(b []byte) (err error) {
		if e.idx, err = decodeBlockIndex(r, b); err == nil && e.idx.Key() != key {
			err = fmt.Errorf("its last event is stamped %d", e.idx.Key())
		}
		return err
	})
	if e.err == nil {
		bytes = e.idx.memory()
	}
	return e.idx, e.err
}

// open makes the iterator. A trim publishes the new floor before it deletes what lies below. So if
// the floor, looked at after the iterator was made, is still below from, the iterator cannot miss
// what a trim deleted: it sees all blocks from there on.
func (c *blockScan) open(s *snapshot, from int64) error {
	if c.it != nil {
		return nil
	}
	it, err := c.iterator(c.part(), s.beforeTail.TimeUS, from)
	c.it = it
	return err
}

// iterator makes one over range r, from from up to last.
func (c *blockScan) iterator(r format.Range, last, from int64) (*pebbleguard.Iterator, error) {
	// The upper bound keeps out what is in the store but not published yet, or never will be
	// because its sync failed.
	it, err := c.bs.store.NewIter(&pebble.IterOptions{LowerBound: format.TimeKey(r, from), UpperBound: format.TimeKey(r, last+1)})
	if err != nil {
		return nil, c.bs.readError(r, from, err)
	}
	if c.bs.snap.Load().Floor.TimeUS >= from {
		_ = it.Close()
		return nil, ErrFellOff
	}
	return it, nil
}

func (c *blockScan) close() {
	if c.it != nil {
		_ = c.it.Close() // its error was returned by find
		c.it = nil
	}
	if c.spans != nil {
		_ = c.spans.Close()
		c.spans = nil
	}
}

// decodeAt decodes the index or the slim index that it is at.
func (bs *blockStore) decodeAt(it *pebbleguard.Iterator, r format.Range, key int64) (*blockIndex, error) {
	sealed, err := it.ValueAndErr()
	if err != nil {
		return nil, bs.readError(r, key, err)
	}
	b, err := format.OpenTrailer(sealed, r, key)
	if err != nil {
		return nil, bs.corrupt(r, key, err)
	}
	x, err := decodeBlockIndex(r, b)
	if err == nil && x.Key() != key {
		err = fmt.Errorf("its last event is stamped %d", x.Key())
	}
	if err != nil {
		return nil, bs.corrupt(r, key, err)
	}
	return x, nil
}

// readPart returns a stored part without its trailer.
func (bs *blockStore) readPart(r format.Range, key int64) ([]byte, error) {
	sealed, ok, err := bs.store.Value(format.TimeKey(r, key))
	if err != nil {
		return nil, bs.readError(r, key, err)
	}
	if !ok {
		return nil, bs.missing(r, key)
	}
	b, err := format.OpenTrailer(sealed, r, key)
	if err != nil {
		return nil, bs.corrupt(r, key, err)
	}
	return b, nil
}

// missing says why a value is not there.
func (bs *blockStore) missing(r format.Range, key int64) error {
	// A trim that took it published its floor before, see blockScan.open.
	if bs.snap.Load().Floor.TimeUS >= key {
		return ErrFellOff
	}
	return bs.corrupt(r, key, format.ErrMissing)
}

// readError says what an error of Pebble's means: that the disk gave back something else than was
// written, or that it could not be read.
func (bs *blockStore) readError(r format.Range, key int64, err error) error {
	if errors.Is(err, ErrFailed) {
		return err
	}
	var damaged *pebbleguard.CorruptionError
	if errors.As(err, &damaged) {
		return bs.corrupt(r, key, err)
	}
	return fmt.Errorf("read %s part of block %d: %w", r.String(), key, err)
}

// corrupt makes a *CorruptionError and fails the log with it: it no longer holds what it must.
func (bs *blockStore) corrupt(r format.Range, key int64, err error) error {
	err = corrupt(r, key, err)
	bs.store.FailAdvised(err)
	return err
}
