package replay

import (
	"crypto/rand"
	"fmt"
	"sort"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/translate"
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
func (w *spanWriter) join(batch *pebble.Batch, x *format.Index, plain, zstd []byte, bytes int64) error {
	if w.open != nil && !w.open.Fits(x, bytes, w.maxMicros, w.maxBytes) {
		for _, v := range w.open.Finish() {
			if err := batch.Set(v.Key, v.Value, nil); err != nil {
				return err
			}
		}
		w.through = w.open.Key()
		w.open = nil
	}
	if w.open == nil {
		w.open = format.NewSpanBuilder(x.Epoch, w.key)
	}
	w.open.Add(x, plain, zstd, bytes)
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
	err := l.spans.join(p.batch, b.idx.full, b.plain, b.zstd, b.stored())
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

// openSpan lists the spans and gathers the blocks behind the newest, from their indexes alone. It runs
// after state.
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
			return corrupt(format.RangeSpan, us, fmt.Errorf("key %x", it.Key()))
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
		if err := o.spans.join(o.batch, x, nil, nil, bytes); err != nil {
			return err
		}
		o.snap.spanEnds(o.spans.through)
	}
	return it.Error()
}

// plan is where, as a span says, the events are that a filter passes.
type plan struct {
	key    int64 // of the span; 0: no plan
	blocks format.BlockSet
	// others says that identity and account events that are not in blocks are wanted, from the
	// span's copies of them.
	others bool
}

// empty says that nothing in the span passes.
func (p *plan) empty() bool { return p.blocks.Empty() && !p.others }

// selective says whether spans can tell f where to look.
func (f *Filter) selective() bool {
	return f != nil && (!f.anyCollection || f.dids != nil || f.kinds != 0)
}

// planOf returns where to look in the span for events that f passes, DIDs apart.
func planOf(s *format.Span, f *Filter) plan {
	p := plan{key: s.Key()}
	all := format.FirstBlocks(len(s.Keys))
	commits := f.kinds.Has(translate.KindCommit)
	if commits && f.anyCollection {
		p.blocks = all
		return p
	}
	if commits {
		for i := range s.Collections.Len() {
			if f.collection(s.Collections.At(i)) {
				p.blocks.Union(&s.Present[i])
			}
		}
	}
	var others format.BlockSet
	if f.kinds.Has(translate.KindIdentity) {
		others.Union(&s.IdentityIn)
	}
	if f.kinds.Has(translate.KindAccount) {
		others.Union(&s.AccountIn)
	}
	if s.Copied && f.dids == nil {
		p.others = !others.Empty()
	} else {
		p.blocks.Union(&others)
	}
	return p
}

// findSpan is find for a filter that spans can tell where to look, at a place that they cover.
func (p *pass) findSpan() (source, error) {
	r, s := p.r, p.s
	if r.plan.key < r.next {
		if err := p.nextPlan(); err != nil {
			return source{}, err
		}
	}
	sp, err := r.log.blocks.spanOf(r.plan.key)
	if err != nil {
		return source{}, err
	}
	// The span may reach into the tail; then the rest of it is read from there.
	end := sp.LastMark()
	if end.TimeUS > s.beforeTail.TimeUS {
		end = s.beforeTail
	}
	next := r.plan.blocks.Next(sp.FirstWith(r.next))
	until := end.TimeUS + 1
	if next < len(sp.Keys) && sp.Keys[next] <= end.TimeUS {
		until = sp.First[next]
	} else {
		next = format.MaxSpanBlocks
	}
	if r.plan.others && r.next < until {
		src, err := p.others(sp, until)
		if err != nil || src.idx != nil {
			return src, err
		}
	}
	if next == format.MaxSpanBlocks {
		return source{skip: end}, nil
	}
	p.span, p.block = sp, next
	if p.depth() > 1 {
		p.lookAheadInSpans(sp, next, int(sp.Events[next])*aheadEventBytes)
	}
	begun := time.Now()
	x, err := r.log.blocks.indexOf(p.scan.part(), sp.Keys[next])
	if slow := time.Since(begun) > slowLook; slow || err == nil && r.variant.storedEnds(x) == nil {
		r.looked(slow) // else the look into its part tells
	}
	return source{idx: x}, err
}

// others returns the copies of identity and account events from r.next on and before until; an empty
// source if there are none.
func (p *pass) others(sp *format.Span, until int64) (source, error) {
	x, err := p.r.log.blocks.othersIndex(sp.Key())
	if err != nil {
		return source{}, err
	}
	i, end := x.FirstAt(p.r.next), x.FirstAt(until)
	if i >= end {
		return source{}, nil
	}
	return source{idx: x, others: sp.Key(), end: end, next: until}, nil
}

// othersIndex returns the index of a span's copies.
func (bs *blockStore) othersIndex(key int64) (*blockIndex, error) {
	e, mine := bs.cache.find(cacheKey{block: key, part: format.RangeCopiesIndex})
	if !mine {
		return e.idx, e.err
	}
	var bytes int64
	defer func() { bs.cache.fill(e, bytes) }()
	b, err := bs.readPart(format.RangeCopiesIndex, key)
	if err != nil {
		e.err = err
		return nil, err
	}
	if e.idx, err = decodeBlockIndex(format.RangeCopiesIndex, b); err != nil {
		e.err = bs.corrupt(format.RangeCopiesIndex, key, err)
		return nil, e.err
	}
	bytes, e.err = e.idx.memory(), nil
	return e.idx, nil
}

// spanOf returns a span whose key is known.
func (bs *blockStore) spanOf(key int64) (*format.Span, error) {
	e, mine := bs.cache.find(cacheKey{block: key, part: format.RangeSpan})
	if !mine {
		return e.span, e.err
	}
	defer func() { bs.cache.fill(e, e.spanBytes()) }()
	e.err = bs.view(format.RangeSpan, key, e.decodeSpan)
	return e.span, e.err
}

// DecodeSpan fills the entry of a span.
func (e *cacheEntry) decodeSpan(b []byte) (err error) {
	if e.span, err = format.DecodeSpan(b); err == nil && e.span.Key() != e.key.block {
		err = fmt.Errorf("its last block is %d", e.span.Key())
	}
	return err
}

func (e *cacheEntry) spanBytes() int64 {
	if e.err != nil {
		return 0
	}
	return e.span.Memory()
}

// spansFrom returns the first span that covers from or what comes after it, and those behind it, n in all at most. There
// is one: from <= s.spanned. It reads them in a row, which a disk answers fastest.
func (c *blockScan) spansFrom(s *snapshot, from int64, n int) ([]*format.Span, error) {
	if c.spans == nil {
		it, err := c.iterator(format.RangeSpan, s.spanned, from)
		if err != nil {
			return nil, err
		}
		c.spans = it
	}
	var spans []*format.Span
	for ok := c.spans.SeekGE(format.TimeKey(format.RangeSpan, from)); ok && len(spans) < n; ok = c.spans.Next() {
		sp, err := c.spanAt()
		if err != nil && len(spans) == 0 {
			return nil, err
		}
		if err != nil {
			return spans, nil //nolint:nilerr // it comes again when the reader is there
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
		return nil, c.bs.corrupt(format.RangeSpan, 0, fmt.Errorf("key %x", c.spans.Key()))
	}
	e, mine := c.bs.cache.find(cacheKey{block: key, part: format.RangeSpan})
	if !mine {
		return e.span, e.err
	}
	defer func() { c.bs.cache.fill(e, e.spanBytes()) }()
	sealed, err := c.spans.ValueAndErr()
	if err != nil {
		e.err = c.bs.readError(format.RangeSpan, key, err)
		return nil, e.err
	}
	b, err := format.OpenTrailer(sealed, format.RangeSpan, key)
	if err == nil {
		err = e.decodeSpan(b)
	}
	if e.err = err; err != nil {
		e.err = c.bs.corrupt(format.RangeSpan, key, err)
	}
	return e.span, e.err
}

// blocksOf returns the blocks of a span that may have events of the DIDs with these fingerprints, which ascend. What
// it reads is looked at once, so it goes past the cache.
func (bs *blockStore) blocksOf(key int64, fingerprints []uint64) (set format.BlockSet, err error) {
	for len(fingerprints) > 0 {
		shard := format.ShardOf(fingerprints[0])
		n := sort.Search(len(fingerprints), func(i int) bool { return format.ShardOf(fingerprints[i]) > shard })
		err := bs.viewAt(format.ShardKey(key, shard), format.RangeSpanDIDs, key, func(b []byte) error {
			v, err := format.OpenDIDShard(b, shard)
			for i := 0; i < n && err == nil; i++ {
				if e := v.Find(fingerprints[i]); e >= 0 {
					err = v.AddTo(&set, e)
				}
			}
			return err
		})
		if err != nil {
			return set, err
		}
		fingerprints = fingerprints[n:]
	}
	return set, nil
}

// view calls f with a stored value, without its trailer, which f must not keep. An error of f's means
// that the value is corrupt.
func (bs *blockStore) view(r format.Range, key int64, f func(b []byte) error) error {
	return bs.viewAt(format.TimeKey(r, key), r, key, f)
}

// viewAt is view of the value at storeKey, whose trailer names r and key.
func (bs *blockStore) viewAt(storeKey []byte, r format.Range, key int64, f func(b []byte) error) error {
	sealed, closer, err := bs.open(storeKey, r, key)
	if err != nil {
		return err
	}
	defer closer.Close()
	b, err := format.OpenTrailer(sealed, r, key)
	if err == nil {
		err = f(b)
	}
	if err != nil {
		return bs.corrupt(r, key, err)
	}
	return nil
}
