package replay

import (
	"crypto/rand"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
)

// spanRetentionShare: a span covers at most this share of the retention, in time and in bytes.
const spanRetentionShare = 64

// spanWriter gathers blocks that stay as they are, and stores a span when enough came together.
type spanWriter struct {
	key       format.FingerprintKey
	maxMicros int64
	maxBytes  int64 // 0: no limit

	open    *format.SpanBuilder // nil: empty
	settled []*Block            // stay small, but did not join yet
	through int64               // key of the newest span; 0: none
}

func newSpanWriter(cfg *Config, key format.FingerprintKey) *spanWriter {
	return &spanWriter{
		key:       key,
		maxMicros: max(cfg.Retention.Microseconds()/spanRetentionShare, 1),
		maxBytes:  cfg.RetentionBytes / spanRetentionShare,
	}
}

// join takes the next block. If it does not fit, the span of those before it is added to the batch.
func (w *spanWriter) join(batch *pebble.Batch, b format.BlockEvents, bytes int64) error {
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

// trimmed forgets what lies at or before the floor.
func (w *spanWriter) trimmed(floorUS int64) {
	if w.open != nil && w.open.Key() <= floorUS {
		w.open = nil
	}
}

// joinSpan lets a block that stays as it is join the open span.
func (p *appendPass) joinSpan(b *Block) error {
	l := p.log
	if l.cfg.Retention == 0 || b.idx.Key() <= p.next.Floor.TimeUS {
		return nil
	}
	err := l.spans.join(p.batch, b.blockEvents(), b.stored())
	p.next.spanEnds(l.spans.through)
	return err
}

// joinSettled lets the blocks join that a trim settled.
func (p *appendPass) joinSettled() error {
	for _, b := range p.log.spans.settled {
		if err := p.joinSpan(b); err != nil {
			return err
		}
	}
	p.log.spans.settled = nil
	return nil
}

// FingerprintKey reads the log's key, or makes it.
func (o *opener) fingerprintKey() error {
	v, ok, err := o.meta(format.MetaFingerprintKey)
	if err != nil {
		return err
	}
	if !ok {
		if !o.fresh {
			return corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", format.MetaFingerprintKey, format.ErrMissing))
		}
		v = make([]byte, format.FingerprintKeyBytes, format.FingerprintKeyBytes+format.TrailerBytes)
		_, _ = rand.Read(v) // never fails
		if err := putMeta(o.batch, format.MetaFingerprintKey, v); err != nil {
			return err
		}
	}
	key, err := format.DecodeFingerprintKey(v)
	if err != nil {
		return corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", format.MetaFingerprintKey, err))
	}
	o.spans = newSpanWriter(o.cfg, key)
	return nil
}

// openSpan lists the spans and gathers the blocks behind the newest, from their indexes and
// references alone. It runs after state.
func (o *opener) openSpan() error {
	s := o.snap
	it, err := o.store.NewIter(&pebble.IterOptions{
		LowerBound: format.TimeKey(format.RangeSpan, s.Floor.TimeUS+1), UpperBound: format.RangeSpan.End()})
	if err != nil {
		return fmt.Errorf("read the spans: %w", err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		us, ok := format.ParseTimeKey(it.Key())
		if !ok || us > s.Newest.TimeUS {
			return corrupt(format.RangeSpan, us, fmt.Errorf("malformed key %x", it.Key()))
		}
		o.spans.through = us
		s.spanEnds(us)
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("read the spans: %w", err)
	}
	if o.cfg.ReadOnly || o.cfg.Retention == 0 {
		return nil
	}
	return o.gatherSpan(max(s.spanned, s.Floor.TimeUS))
}

// gatherSpan lets the blocks after us join.
func (o *opener) gatherSpan(us int64) error {
	it, err := o.store.NewIter(&pebble.IterOptions{
		LowerBound: format.TimeKey(format.RangeIndex, us+1), UpperBound: format.RangeIndex.End()})
	if err != nil {
		return fmt.Errorf("read the newest blocks: %w", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		key, _ := format.ParseTimeKey(it.Key())
		sealed, err := it.ValueAndErr()
		if err != nil {
			return corrupt(format.RangeIndex, key, err)
		}
		body, err := format.OpenTrailer(sealed, format.RangeIndex, key)
		if err != nil {
			return corrupt(format.RangeIndex, key, err)
		}
		x, err := format.DecodeIndex(body)
		if err != nil {
			return corrupt(format.RangeIndex, key, err)
		}
		bytes := int64(len(sealed)) + int64(x.PlainEnd[x.Events()-1]) + int64(x.ZstdEnd[x.Events()-1]) + 2*format.TrailerBytes
		b := format.BlockEvents{Index: x}
		if x.HasReferences {
			if b.References, err = o.referencesOf(x); err != nil {
				return err
			}
		}
		if err := o.spans.join(o.batch, b, bytes); err != nil {
			return err
		}
		o.snap.spanEnds(o.spans.through)
	}
	return it.Error()
}

// referencesOf returns the references of a block that has some.
func (o *opener) referencesOf(x *format.Index) (*format.References, error) {
	key := x.Key()
	sealed, ok, err := o.store.Value(format.TimeKey(format.RangeReferences, key))
	if err == nil && !ok {
		err = format.ErrMissing
	}
	var b []byte
	if err == nil {
		b, err = format.OpenTrailer(sealed, format.RangeReferences, key)
	}
	var r *format.References
	if err == nil {
		r, err = format.DecodeReferences(b, x.Events())
	}
	if err != nil {
		return nil, corrupt(format.RangeReferences, key, err)
	}
	return r, nil
}
