package logstore

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// SpanRetentionShare is the share of the retention, in time and in bytes, that a span covers at
// most: one of so many.
const SpanRetentionShare = 64

// SpanWriter gathers blocks that are not merged any further. It stores their span when a block does
// not fit into it.
type SpanWriter struct {
	key       format.FingerprintKey
	maxMicros int64
	maxBytes  int64 // 0: no limit

	open    *format.SpanBuilder // nil: empty
	through int64               // key of the newest span; 0: none
}

// NewSpanWriter returns one that goes on after the span whose key is through; 0: there is none.
// maxBytes is the retention in bytes; 0: no limit.
func NewSpanWriter(key format.FingerprintKey, retention time.Duration, maxBytes, through int64) *SpanWriter {
	return &SpanWriter{
		key:       key,
		maxMicros: max(retention.Microseconds()/SpanRetentionShare, 1),
		maxBytes:  maxBytes / SpanRetentionShare,
		through:   through,
	}
}

// Key is the key of the fingerprints in the spans.
func (w *SpanWriter) Key() format.FingerprintKey { return w.key }

// Through is the key of the newest span; 0: there is none.
func (w *SpanWriter) Through() int64 { return w.through }

// Join takes the next block. If it does not fit, the span of those before it is added to the batch.
func (w *SpanWriter) Join(batch *pebble.Batch, b format.BlockEvents, bytes int64) error {
	if w.open != nil && !w.open.Fits(b, bytes, w.maxMicros, w.maxBytes) {
		for _, v := range w.open.Finish() {
			if err := batch.Set(v.Key, v.Value, nil); err != nil {
				return err
			}
		}
		w.through = w.open.Key()
		w.open = nil
	}
	if w.open == nil {
		w.open = format.NewSpanBuilder(b.Index.Epoch, w.key)
	}
	w.open.Add(b, bytes)
	return nil
}

// Trimmed forgets what lies at or before the floor.
func (w *SpanWriter) Trimmed(floorUS int64) {
	if w.open != nil && w.open.Key() <= floorUS {
		w.open = nil
	}
}

// Gather lets the blocks join that no span covers, from their indexes and references alone. It
// calls ends with the key of each span that is added to the batch.
func (w *SpanWriter) Gather(st *pebblestore.Store, batch *pebble.Batch, floorUS int64, ends func(key int64)) error {
	us := max(w.through, floorUS)
	it, err := st.NewIter(&pebble.IterOptions{
		LowerBound: format.TimeKey(format.RangeIndex, us+1), UpperBound: format.RangeIndex.End()})
	if err != nil {
		return fmt.Errorf("read the newest blocks: %w", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		key, _ := format.ParseTimeKey(it.Key())
		sealed, err := it.ValueAndErr()
		if err != nil {
			return ReadError(format.RangeIndex, key, err)
		}
		x, err := format.Open(sealed, format.RangeIndex, key, format.DecodeIndex)
		if err != nil {
			return Corrupt(format.RangeIndex, key, err)
		}
		bytes := int64(len(sealed)) + int64(x.PlainEnd[x.Events()-1]) + int64(x.ZstdEnd[x.Events()-1]) + 2*format.TrailerBytes
		b := format.BlockEvents{Index: x}
		if x.HasReferences {
			if b.References, err = references(st, x); err != nil {
				return err
			}
		}
		if err := w.Join(batch, b, bytes); err != nil {
			return err
		}
		ends(w.through)
	}
	return it.Error()
}

// references returns the references of a block that has some.
func references(st *pebblestore.Store, x *format.Index) (*format.References, error) {
	key := x.Key()
	sealed, ok, err := st.Value(format.TimeKey(format.RangeReferences, key))
	switch {
	case err != nil:
		return nil, ReadError(format.RangeReferences, key, err)
	case !ok:
		return nil, Corrupt(format.RangeReferences, key, format.ErrMissing)
	}
	r, err := format.Open(sealed, format.RangeReferences, key, func(b []byte) (*format.References, error) {
		return format.DecodeReferences(b, x.Events())
	})
	if err != nil {
		return nil, Corrupt(format.RangeReferences, key, err)
	}
	return r, nil
}
