package replay

import (
	"millrace/replay/internal/filter"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// KindSet is a set of event kinds. The zero KindSet stands for all but #sync events.
type KindSet = format.KindSet

// AllKinds are all kinds of events.
const AllKinds = format.AllKinds

// Kinds returns the set of ks.
func Kinds(ks ...translate.Kind) KindSet { return format.Kinds(ks...) }

// FilterConfig says which events pass. The zero value passes all but #sync events.
type FilterConfig = filter.Config

// Filter is a compiled FilterConfig. It is immutable, but for subjects that are added, and may be
// shared by any number of readers.
type Filter = filter.Filter

// NewFilter compiles cfg; it keeps nothing of it but the strings of collections and sources. See
// FilterConfig.Bytes for what it takes.
func NewFilter(cfg FilterConfig) (*Filter, error) { return filter.New(cfg) }

// match makes m the matcher of f for a block. It returns false if the tables show that no event of
// the block passes.
func (bs *blockStore) match(m *filter.Matcher, f *Filter, cand candidate) (some bool, err error) {
	x := cand.idx
	if !m.Reset(f, x.SlimIndex) || f.ByDID() && !matchDIDs(m, f, cand) {
		return false, nil
	}
	if !f.ByReference() {
		return true, nil
	}
	refs, err := bs.referencesIn(cand)
	if err != nil {
		return false, err
	}
	return m.MatchReferences(refs, bs.sources), nil
}

// matchDIDs goes on after m.Reset, as m.MatchDIDs does. A block on disk is often matched twice:
// when it is read ahead, and by its reader.
func matchDIDs(m *filter.Matcher, f *Filter, cand candidate) bool {
	x := cand.idx
	if cand.blk != nil {
		return m.MatchDIDs(x.full, x.hashes())
	}
	w := f.WantedDIDs(x.full, x.wanted.Load())
	x.wanted.Store(w)
	return m.TakeDIDs(x.full, w)
}

// referencesIn returns the references of a block; nil if it has none.
func (bs *blockStore) referencesIn(cand candidate) (*format.References, error) {
	switch {
	case cand.blk != nil:
		return cand.blk.refs, nil
	case cand.idx.HasReferences:
		return bs.referencesOf(cand.idx)
	}
	return nil, nil
}

// referencesOf returns the references of a block on disk that has some.
func (bs *blockStore) referencesOf(x *blockIndex) (*format.References, error) {
	key := x.Key()
	v, err := bs.cache.Get(cacheKey{block: key, part: format.RangeReferences}, func() (v cached, err error) {
		err = bs.view(format.RangeReferences, key, func(b []byte) (err error) {
			v.refs, err = format.DecodeReferences(b, x.Events())
			return err
		})
		return v, err
	})
	return v.refs, err
}
