package logstore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// LastBlock returns the key of the last block that ends after one stamp and at or before another; 0
// if there is none.
func LastBlock(st *pebblestore.Store, afterUS, throughUS int64) (int64, error) {
	it, err := st.NewIter(&pebble.IterOptions{
		LowerBound: format.TimeKey(format.RangeIndex, afterUS+1), UpperBound: format.TimeKey(format.RangeIndex, throughUS+1)})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	if !it.Last() {
		return 0, it.Error()
	}
	key, ok := format.ParseTimeKey(it.Key())
	if !ok {
		return 0, Corrupt(format.RangeIndex, throughUS, fmt.Errorf("malformed key %x", it.Key()))
	}
	return key, nil
}

// maxCutBlocks bounds the blocks that CutByBytes walks over.
const maxCutBlocks = 100_000

// CutByBytes returns the key of the last block to drop so that at most maxBytes are left of a log
// whose published state is s; 0: there is none. more says that it stopped early because the blocks
// were many.
func CutByBytes(st *pebblestore.Store, s *format.State, maxBytes int64) (key int64, more bool, err error) {
	it, err := st.NewIter(&pebble.IterOptions{LowerBound: format.RangeSeq.Start(), UpperBound: format.RangeSeq.End()})
	if err != nil {
		return 0, false, err
	}
	defer it.Close()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		_, seq, _ := format.ParseSeqKey(it.Key())
		ptr, err := format.OpenBlockPointer(it.Value(), seq)
		if err != nil {
			return 0, false, Corrupt(format.RangeSeq, seq, err)
		}
		if ptr.Key > s.Newest.TimeUS {
			break // not published yet
		}
		if key = ptr.Key; s.Total.Bytes-ptr.Bytes <= maxBytes {
			return key, false, nil
		}
		if n++; n == maxCutBlocks {
			return key, true, nil
		}
	}
	return key, false, it.Error()
}

// Pointer returns the pointer to the block at key, which ends with a frame of an epoch.
func Pointer(st *pebblestore.Store, epoch uint32, lastSeq, key int64) (ptr format.BlockPointer, err error) {
	v, ok, err := st.Value(format.SeqKey(epoch, lastSeq))
	if err != nil {
		return ptr, err
	}
	if !ok {
		return ptr, Corrupt(format.RangeSeq, key, format.ErrMissing)
	}
	if ptr, err = format.OpenBlockPointer(v, lastSeq); err == nil && ptr.Key != key {
		err = fmt.Errorf("it refers to block %d", ptr.Key)
	}
	if err != nil {
		return ptr, Corrupt(format.RangeSeq, key, err)
	}
	return ptr, nil
}

// DeleteThrough adds range deletions to the batch: everything up to p, whose block ends with frame
// lastSeq of epoch.
func DeleteThrough(batch *pebble.Batch, p format.Point, epoch uint32, lastSeq int64) error {
	for _, r := range []format.Range{format.RangeGap, format.RangeSpan, format.RangeIndex, format.RangePlain, format.RangeZstd, format.RangeSpanDIDs,
		format.RangeCopiesIndex, format.RangeCopiesPlain, format.RangeCopiesZstd, format.RangeSlimIndex, format.RangeReferences, format.RangeSpanSubjects} {
		if err := batch.DeleteRange(r.Start(), format.TimeKey(r, p.TimeUS+1), nil); err != nil {
			return err
		}
	}
	return batch.DeleteRange(format.RangeSeq.Start(), format.SeqKey(epoch, lastSeq+1), nil)
}
