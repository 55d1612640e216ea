package logstore

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// Meta returns a meta value as decode reads it; ok is false if there is none.
func Meta[T any](st *pebblestore.Store, name string, decode func([]byte) (T, error)) (v T, ok bool, err error) {
	sealed, ok, err := st.Value(format.MetaKey(name))
	if err != nil || !ok {
		return v, false, err
	}
	if v, err = format.Open(sealed, format.RangeMeta, 0, decode); err != nil {
		return v, false, Corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", name, err))
	}
	return v, true, nil
}

// MissingMeta is the error of a log that lacks a meta value.
func MissingMeta(name string) error {
	return Corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", name, format.ErrMissing))
}

// PutMeta adds a meta value to the batch. It appends to value.
func PutMeta(b *pebble.Batch, name string, value []byte) error {
	return b.Set(format.MetaKey(name), format.AppendTrailer(value, format.RangeMeta, 0), nil)
}

// PutVersion adds the log's version to the batch.
func PutVersion(b *pebble.Batch, version uint32) error {
	return b.Set(format.MetaKey(format.MetaFormat), binary.BigEndian.AppendUint32(nil, version), nil)
}

// PutStreams adds the streams to the batch, and the bases of their seqs unless all are 0.
func PutStreams(b *pebble.Batch, streams format.Streams) error {
	if err := PutMeta(b, format.MetaStreams, format.AppendStreams(nil, streams)); err != nil {
		return err
	}
	if streams[len(streams)-1].SeqBase == 0 {
		return nil
	}
	return PutMeta(b, format.MetaSeqBases, format.AppendSeqBases(nil, streams))
}

// each calls f with an iterator at each key of range r from a key on; what names them in errors.
func each(st *pebblestore.Store, what string, r format.Range, from []byte, f func(it *pebbleguard.Iterator) error) error {
	it, err := st.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: r.End()})
	if err != nil {
		return fmt.Errorf("read the %s: %w", what, err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		if err := f(it); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("read the %s: %w", what, err)
	}
	return nil
}

// Gaps reads the gaps after floorUS.
func Gaps(st *pebblestore.Store, floorUS int64) (gaps []format.Gap, err error) {
	from := format.TimeKey(format.RangeGap, floorUS+1)
	err = each(st, "gaps", format.RangeGap, from, func(it *pebbleguard.Iterator) error {
		us, ok := format.ParseTimeKey(it.Key())
		if !ok {
			return Corrupt(format.RangeGap, 0, fmt.Errorf("malformed key %x", it.Key()))
		}
		g, err := format.OpenGap(it.Value(), us)
		if err != nil {
			return Corrupt(format.RangeGap, us, err)
		}
		gaps = append(gaps, g)
		return nil
	})
	return gaps, err
}

// Spans returns the keys of the spans after floorUS, of a log whose newest event is at newestUS.
func Spans(st *pebblestore.Store, floorUS, newestUS int64) (keys []int64, err error) {
	from := format.TimeKey(format.RangeSpan, floorUS+1)
	err = each(st, "spans", format.RangeSpan, from, func(it *pebbleguard.Iterator) error {
		us, ok := format.ParseTimeKey(it.Key())
		if !ok || us > newestUS {
			return fmt.Errorf("read the spans: %w", Corrupt(format.RangeSpan, us, fmt.Errorf("malformed key %x", it.Key())))
		}
		keys = append(keys, us)
		return nil
	})
	return keys, err
}

// LastFrame returns the last frame of an epoch that stored blocks cover; 0: there is none.
func LastFrame(st *pebblestore.Store, epoch uint32) (int64, error) {
	it, err := st.NewIter(&pebble.IterOptions{
		LowerBound: format.SeqKey(epoch, 0), UpperBound: format.SeqKey(epoch, math.MaxInt64)})
	if err != nil {
		return 0, fmt.Errorf("find the end of epoch %d: %w", epoch, err)
	}
	defer it.Close()
	if !it.Last() {
		return 0, it.Error()
	}
	_, seq, ok := format.ParseSeqKey(it.Key())
	if !ok {
		return 0, Corrupt(format.RangeSeq, 0, fmt.Errorf("malformed key %x", it.Key()))
	}
	return seq, nil
}
