package references

import (
	"fmt"
	"sync"

	"millrace/intern/kv/pebbleguard"
)

// View is the store at one position, for what is derived from the table. One goroutine at a time
// uses it. It must be closed, soon: it keeps old files on disk.
type View struct {
	Position Position
	Codec    UIDCodec
	// LinksComplete says that there are links of all rows of the table.
	LinksComplete bool

	it    *pebbleguard.Iterator // over everything
	using *sync.RWMutex         // the store's
}

// View returns a view of the store as it is.
func (s *Store) View() (*View, error) {
	if err := s.use(); err != nil {
		return nil, fmt.Errorf("read references: %w", err)
	}
	links := s.commits.links.Load() // before the iterator is opened: complete links remain so
	it, err := s.db.NewIter(nil)
	if err != nil {
		s.using.RUnlock()
		return nil, fmt.Errorf("read references: %w", err)
	}
	v := &View{Codec: s.codec, LinksComplete: links.on && links.next == nil, it: it, using: &s.using}
	at, err := metaValue(v.Get, metaState, decodeState) // what commits keep may be newer
	if err != nil {
		_ = v.Close() // after a failed read it says nothing more
		return nil, fmt.Errorf("read references: %w", err)
	}
	v.Position = at.position
	return v, nil
}

// Iterator is over all keys. All methods of the view move it.
func (v *View) Iterator() *pebbleguard.Iterator { return v.it }

// Get returns the value of a key, which is good until the next call of a method. The Bloom filters
// say which levels need not be read.
func (v *View) Get(key []byte) (value []byte, ok bool, err error) {
	if !v.it.SeekPrefixGE(key) {
		return nil, false, v.it.Error()
	}
	value, err = v.it.ValueAndErr()
	return value, err == nil, err
}

// Account returns the lowest arrival number that a record of the account may have, and whether its
// records are hidden.
func (v *View) Account(account uint64) (floor uint64, inactive bool, err error) {
	key := v.Codec.accountKey(rangeAccount, account)
	value, ok, err := v.Get(key)
	if err != nil || !ok {
		return 0, false, err
	}
	state, err := decodeAccount(value)
	if err != nil {
		return 0, false, damaged(key, err)
	}
	return state.floor, state.inactive, nil
}

// Row reads the row of a record into row, whose memory it uses again. ok is false if there is none.
// It may be below its account's floor.
func (v *View) Row(row *Row, account, record uint64) (ok bool, err error) {
	key := v.Codec.recordKey(recordID{account, record})
	value, ok, err := v.Get(key)
	if err != nil || !ok {
		return false, err
	}
	return true, v.DecodeRow(row, key, value)
}

// RowBounds returns the first key that a row may have, and the first after all.
func RowBounds() (start, end []byte) { return rangeRecord.start(), rangeRecord.end() }

// AccountRows returns what the keys of an account's rows begin with, and no others.
func (v *View) AccountRows(account uint64) []byte { return v.Codec.accountKey(rangeRecord, account) }

// DecodeRow decodes a row into row, whose memory it uses again.
func (v *View) DecodeRow(row *Row, key, value []byte) error {
	if err := v.Codec.decodeRow(row, key, value); err != nil {
		return damaged(key, err)
	}
	return nil
}

// Damaged says that the value of a key is not what was written.
func (v *View) Damaged(key []byte, err error) error { return damaged(key, err) }

// Close ends the use of the view.
func (v *View) Close() error {
	defer v.using.RUnlock()
	return v.it.Close()
}
