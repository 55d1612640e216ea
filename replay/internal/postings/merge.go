package postings

import (
	"cmp"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Merger folds entries: a removal takes away the addition of its arrival number. The order of the
// operands means nothing, as a number is added once and removed once. Its name is that of Pebble's
// own merger: Pebble opens a database only with the merger name that it was created with, and some
// reference stores were created with Pebble's.
func Merger() *pebble.Merger {
	return &pebble.Merger{
		Name: pebble.DefaultMerger.Name,
		Merge: func(_, value []byte) (pebble.ValueMerger, error) {
			m := new(merger)
			return m, m.MergeNewer(value)
		},
	}
}

// merger implements pebble.ValueMerger.
type merger struct {
	values  []byte // of the operands
	entries []Entry
}

// MergeNewer takes an operand.
func (m *merger) MergeNewer(value []byte) (err error) {
	from := len(m.values)
	m.values = append(m.values, value...) // older entries refer to the old array
	m.entries, err = DecodeEntries(m.entries, m.values[from:])
	return err
}

// MergeOlder takes an operand.
func (m *merger) MergeOlder(value []byte) error { return m.MergeNewer(value) }

// Finish returns what is left, which may be nothing: a key stays when its links are gone. (Pebble's
// DeletableValueMerger would remove it, but compactions that do so panic, as of v2.1.7.)
func (m *merger) Finish(includesBase bool) (value []byte, _ io.Closer, err error) {
	if m.entries, err = Fold(m.entries, includesBase); err != nil {
		return nil, nil, err
	}
	return AppendEntries(make([]byte, 0, len(m.values)+16), m.entries), nil, nil
}

// Fold sorts entries by arrival number and takes away additions with their removals; with complete
// also the other removals. A number that was added twice is an error.
func Fold(entries []Entry, complete bool) ([]Entry, error) {
	byArrival := func(a, b Entry) int { return cmp.Compare(a.Arrival, b.Arrival) }
	if !slices.IsSortedFunc(entries, byArrival) {
		slices.SortFunc(entries, byArrival)
	}
	out := entries[:0]
	for i := 0; i < len(entries); i++ {
		e := entries[i]
		if i+1 < len(entries) && entries[i+1].Arrival == e.Arrival {
			if (e.Link == nil) == (entries[i+1].Link == nil) {
				return nil, errTwice
			}
			i++
			continue
		}
		if e.Link != nil || !complete {
			out = append(out, e)
		}
	}
	clear(entries[len(out):])
	return out, nil
}
