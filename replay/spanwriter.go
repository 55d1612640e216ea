package replay

import (
	"crypto/rand"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
)

// joinSpan lets a block that stays as it is join the open span.
func (p *appendCall) joinSpan(b *Block) error {
	l := p.log
	if l.cfg.Retention == 0 || b.idx.Key() <= p.next.Floor.TimeUS {
		return nil
	}
	err := l.spans.Join(p.batch, b.blockEvents(), b.stored())
	p.next.spanEnds(l.spans.Through())
	return err
}

// joinSettled lets the blocks join that a trim settled.
func (p *appendCall) joinSettled() error {
	for _, b := range p.log.settled {
		if err := p.joinSpan(b); err != nil {
			return err
		}
	}
	p.log.settled = nil
	return nil
}

// fingerprintKey reads the log's key, or makes it.
func (o *opener) fingerprintKey() error {
	v, ok, err := logstore.Meta(o.store, format.MetaFingerprintKey)
	if err != nil {
		return err
	}
	if !ok {
		if !o.fresh {
			return logstore.Corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", format.MetaFingerprintKey, format.ErrMissing))
		}
		v = make([]byte, format.FingerprintKeyBytes, format.FingerprintKeyBytes+format.TrailerBytes)
		_, _ = rand.Read(v) // never fails
		if err := logstore.PutMeta(o.batch, format.MetaFingerprintKey, v); err != nil {
			return err
		}
	}
	key, err := format.DecodeFingerprintKey(v)
	if err != nil {
		return logstore.Corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", format.MetaFingerprintKey, err))
	}
	o.fingerprints = key
	return nil
}

// openSpan lists the spans and gathers the blocks after the newest, from their indexes and
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
			return logstore.Corrupt(format.RangeSpan, us, fmt.Errorf("malformed key %x", it.Key()))
		}
		s.spanEnds(us)
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("read the spans: %w", err)
	}
	o.spans = logstore.NewSpanWriter(o.fingerprints, o.cfg.Retention, o.cfg.RetentionBytes, s.spanned)
	if o.cfg.ReadOnly || o.cfg.Retention == 0 {
		return nil
	}
	return o.spans.Gather(o.store, o.batch, s.Floor.TimeUS, s.spanEnds)
}
