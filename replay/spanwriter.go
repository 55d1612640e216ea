package replay

import (
	"crypto/rand"

	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
)

// joinSpan lets a block that stays as it is join the open span.
func (p *appendCall) joinSpan(b *Block) error {
	l := p.log
	if l.cfg.Retention == 0 || b.idx.Key() <= p.next.Floor.TimeUS {
		return nil
	}
	err := l.spans.Join(p.batch, b.blockEvents(), b.storedBytes)
	p.next.spanEnds(l.spans.Through())
	return err
}

// joinSettled lets the blocks join that a trim settled.
func (p *appendCall) joinSettled() error {
	n := p.next
	for _, b := range n.tail[len(n.tail)-n.settled:] {
		if err := p.joinSpan(b); err != nil {
			return err
		}
	}
	n.settled = 0
	return nil
}

// fingerprintKey reads the log's key, or makes it.
func (o *opener) fingerprintKey() error {
	key, ok, err := logstore.Meta(o.store, format.MetaFingerprintKey, format.DecodeFingerprintKey)
	switch {
	case err != nil:
		return err
	case !ok && !o.fresh:
		return logstore.MissingMeta(format.MetaFingerprintKey)
	case !ok:
		v := make([]byte, format.FingerprintKeyBytes, format.FingerprintKeyBytes+format.TrailerBytes)
		_, _ = rand.Read(v) // never fails
		if key, err = format.DecodeFingerprintKey(v); err == nil {
			err = logstore.PutMeta(o.batch, format.MetaFingerprintKey, v)
		}
	}
	o.fingerprints = key
	return err
}

// openSpan lists the spans and gathers the blocks after the newest, from their indexes and
// references alone. It runs after state.
func (o *opener) openSpan() error {
	s := o.snap
	keys, err := logstore.Spans(o.store, s.Floor.TimeUS, s.Newest.TimeUS)
	if err != nil {
		return err
	}
	for _, key := range keys {
		s.spanEnds(key)
	}
	o.spans = logstore.NewSpanWriter(o.fingerprints, o.cfg.Retention, o.cfg.RetentionBytes, s.spanned)
	if o.cfg.ReadOnly || o.cfg.Retention == 0 {
		return nil
	}
	return o.spans.Gather(o.store, o.batch, s.Floor.TimeUS, s.spanEnds)
}
