package verify

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
)

// rangeScan walks over the values of one range. A table that cannot be read ends Pebble's
// iterators; the scan then notes it and goes on after it.
type rangeScan struct {
	v         *verifier
	r         format.Range
	it        *pebbleguard.Iterator
	ok        bool   // it is at a value
	key       int64  // the number in its key: time_us, or of RangeSeq the seq
	substream int    // of RangePlain: which one the value has
	value     []byte // good until next
	lastKey   []byte
}

func (v *verifier) scan(r format.Range) (*rangeScan, error) {
	it, err := v.db.NewIter(&pebble.IterOptions{LowerBound: r.Start(), UpperBound: r.End()})
	if err != nil {
		return nil, fmt.Errorf("read the %s range: %w", r.String(), err)
	}
	s := &rangeScan{v: v, r: r, it: it}
	v.iterators = append(v.iterators, it)
	s.settle(it.First())
	return s, nil
}

func (s *rangeScan) next() { s.settle(s.it.Next()) }

// settle goes on from where the iterator is until it is at a value or at the end, and notes what
// cannot be read.
func (s *rangeScan) settle(ok bool) {
	for s.ok = false; !s.ok; {
		if ok {
			var err error
			if s.value, err = s.it.ValueAndErr(); err != nil {
				ok = s.skipValue(err)
			} else if s.ok = s.takeKey(); !s.ok {
				ok = s.it.Next()
			}
			continue
		}
		err := s.it.Error()
		if err == nil {
			return
		}
		s.v.fault(s.r, s.key, "what follows cannot be read: %v", err)
		if ok = s.skip(); !ok {
			return
		}
	}
}

// skipValue notes that a value cannot be read, and goes on with the next key, whose value may be
// whole.
func (s *rangeScan) skipValue(err error) bool {
	k := bytes.Clone(s.it.Key())
	key, _, ok := s.parseKey(k)
	s.v.fault(s.r, key, "%v", err)
	if ok {
		s.key = key
	}
	// Without this, after a failed value, Pebble's SeekGE finds itself at the end already.
	s.it.First()
	return s.it.SeekGE(append(k, 0))
}

// takeKey reads the key that the iterator is at. A key of another shape is noted, and left out.
func (s *rangeScan) takeKey() bool {
	s.lastKey = append(s.lastKey[:0], s.it.Key()...)
	key, substream, ok := s.parseKey(s.lastKey)
	if !ok {
		s.v.fault(s.r, 0, "no value of this range has key %x", s.lastKey)
		return false
	}
	s.key, s.substream = key, substream
	return true
}

// parseKey takes the range's key apart.
func (s *rangeScan) parseKey(k []byte) (key int64, substream int, ok bool) {
	switch s.r {
	case format.RangePlain:
		return format.ParseSubstreamKey(k)
	case format.RangeSeq:
		_, key, ok = format.ParseSeqKey(k)
	default:
		key, ok = format.ParseTimeKey(k)
	}
	return key, 0, ok
}

// skip goes on after what cannot be read, whose end is not known. It looks for the next value that
// can, in steps that double, a microsecond first. (Where every block of the rest of the range is
// unreadable that is the end.)
func (s *rangeScan) skip() bool {
	if s.r == format.RangeSeq {
		return false // it is small; blocks are found without it
	}
	for step := int64(1); step > 0 && s.key <= s.key+step; step *= 2 {
		if s.it.SeekGE(format.TimeKey(s.r, s.key+step)) {
			return true
		}
		if s.it.Error() == nil {
			return false
		}
	}
	return false
}

// each calls fn with the iterator at each key of a range, and notes what cannot be read.
func (v *verifier) each(r format.Range, what string, fn func(it *pebbleguard.Iterator)) error {
	it, err := v.db.NewIter(&pebble.IterOptions{LowerBound: r.Start(), UpperBound: r.End()})
	if err != nil {
		return fmt.Errorf("read the %s: %w", what, err)
	}
	for it.First(); it.Valid(); it.Next() {
		fn(it)
	}
	if err := it.Close(); err != nil {
		v.fault(r, 0, "what follows cannot be read: %v", err)
	}
	return nil
}

// blockScan walks over the blocks: the values of all their parts.
type blockScan [numParts]*rangeScan

func (v *verifier) scanBlocks() (scans blockScan, err error) {
	for i, r := range partRanges() {
		if scans[i], err = v.scan(r); err != nil {
			return scans, err
		}
	}
	return scans, nil
}

// next reads the next block into b; false: there is none.
func (scans *blockScan) next(b *blockCheck) bool {
	b.key = 0
	for _, s := range scans {
		if s.ok && (b.key == 0 || s.key < b.key) {
			b.key = s.key
		}
	}
	for i, s := range scans {
		p := &b.parts[i]
		for p.present = 0; s.ok && s.key == b.key; s.next() {
			p.present |= 1 << s.substream
			p.sealed[s.substream] = append(p.sealed[s.substream][:0], s.value...)
		}
	}
	return b.key != 0
}
