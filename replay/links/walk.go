package links

import (
	"bytes"
	"slices"

	"millrace/replay/internal/postings"
)

// walker reads the members of a set, a chunk at a time, in the order of their arrival numbers or
// the other way round.
type walker struct {
	view    *view
	prefix  []byte // of the keys of the chunks
	after   uint64 // arrival number past which the walk begins, in its direction; 0: none
	forward bool
	at      []byte // key at or after which the next chunk is; not forward: before which; nil: none
	links   []Link
}

// walk reads the links of a set that come past after.
func (v *view) walk(set Set, after uint64, forward bool) *walker {
	w := &walker{view: v, after: after, forward: forward}
	w.prefix = postings.AppendSet(nil, v.Codec, postings.RangeMembers, set)
	switch {
	case after == 0 && forward:
		w.at = w.prefix
	case after == 0:
		w.at = postings.PrefixEnd(w.prefix)
	default:
		w.at = postings.AppendChunk(nil, v.Codec, set, after)
		if forward { // the chunk before that key may have members after it
			it := v.Iterator()
			if it.SeekLT(append(bytes.Clone(w.at), 0)) && bytes.HasPrefix(it.Key(), w.prefix) {
				w.at = bytes.Clone(it.Key())
			}
		}
	}
	return w
}

// next returns the members of the next chunk, nil at the end. They are good until the next call.
func (w *walker) next() ([]Link, error) {
	for {
		it := w.view.Iterator()
		if w.forward && !it.SeekGE(w.at) || !w.forward && !it.SeekLT(w.at) || !bytes.HasPrefix(it.Key(), w.prefix) {
			return nil, it.Error()
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		w.at = append(w.at[:0:0], it.Key()...)
		if err := w.decode(w.at, value); err != nil {
			return nil, err
		}
		if w.forward {
			w.at = append(w.at, 0)
		}
		if len(w.links) > 0 {
			return w.links, nil
		}
	}
}

// wanted says whether an arrival number is past after.
func (w *walker) wanted(arrival uint64) bool {
	return w.after == 0 || w.forward && arrival > w.after || !w.forward && arrival < w.after
}

// decode makes links of those entries of a chunk that are wanted.
func (w *walker) decode(key, value []byte) (err error) {
	w.links = slices.Grow(w.links[:0], len(value)/postings.UsualEntry)
	var e postings.Entry
	for len(value) > 0 {
		if e, value, err = postings.NextEntry(value, e.Arrival); err != nil {
			return w.view.Damaged(key, err)
		}
		if !w.wanted(e.Arrival) {
			continue
		}
		account, record, err := postings.DecodeLink(w.view.Codec, e.Link)
		if err != nil {
			return w.view.Damaged(key, err)
		}
		w.links = append(w.links, Link{e.Arrival, account, record})
	}
	if !w.forward {
		slices.Reverse(w.links)
	}
	return nil
}
