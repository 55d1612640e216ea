package pebbleguard

import (
	"cmp"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// Iterator is Pebble's, with its panics as errors.
type Iterator struct {
	db  *DB
	it  *pebble.Iterator
	err error // a panic; it is then at no value for good
}

// NewIter returns an iterator, which sees the state of now. Close it.
func (d *DB) NewIter(o *pebble.IterOptions) (i *Iterator, err error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	defer d.caught(&err)
	it, err := d.db.NewIter(o)
	if err != nil {
		return nil, d.cfg.clean(err)
	}
	return &Iterator{db: d, it: it}, nil
}

// Get returns the value of key, which is good until closer is closed. Without one the error is
// pebble.ErrNotFound.
func (d *DB) Get(key []byte) (value []byte, closer io.Closer, err error) {
	if err := d.Err(); err != nil {
		return nil, nil, err
	}
	defer d.caught(&err)
	value, closer, err = d.db.Get(key)
	if err == nil && len(value) == 0 {
		// Pebble says only here that a value file cannot be read. An empty value has no bytes to
		// lose.
		err = closer.Close()
		closer = io.NopCloser(nil)
	}
	return value, closer, d.cfg.clean(err)
}

// Value returns a copy of key's value; ok is false if there is none.
func (d *DB) Value(key []byte) (value []byte, ok bool, err error) {
	v, closer, err := d.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	value = append([]byte(nil), v...)
	return value, true, closer.Close()
}

// move runs a step of the iterator.
func (i *Iterator) move(step func() bool) (ok bool) {
	if i.err != nil {
		return false
	}
	defer func() {
		if p := recover(); p != nil {
			i.err, ok = i.db.panicked(p), false
		}
	}()
	return step()
}

// First moves to the first key.
func (i *Iterator) First() bool { return i.move(i.it.First) }

// Last moves to the last key.
func (i *Iterator) Last() bool { return i.move(i.it.Last) }

// Next moves to the next key.
func (i *Iterator) Next() bool { return i.move(i.it.Next) }

// Prev moves to the key before.
func (i *Iterator) Prev() bool { return i.move(i.it.Prev) }

// SeekGE moves to the first key at or after key.
func (i *Iterator) SeekGE(key []byte) bool { return i.move(func() bool { return i.it.SeekGE(key) }) }

// SeekLT moves to the last key before key.
func (i *Iterator) SeekLT(key []byte) bool { return i.move(func() bool { return i.it.SeekLT(key) }) }

// SeekPrefixGE is SeekGE for a caller that wants key only.
func (i *Iterator) SeekPrefixGE(key []byte) bool {
	return i.move(func() bool { return i.it.SeekPrefixGE(key) })
}

// Valid says whether it is at a key.
func (i *Iterator) Valid() bool { return i.err == nil && i.it.Valid() }

// Key returns the key that it is at, which is good until the next step.
func (i *Iterator) Key() []byte { return i.it.Key() }

// Value is ValueAndErr for values that the tables hold; an error is then Error's.
func (i *Iterator) Value() []byte { v, _ := i.ValueAndErr(); return v }

// ValueAndErr returns the value that it is at, which is good until the next step.
func (i *Iterator) ValueAndErr() (value []byte, err error) {
	if i.err != nil {
		return nil, i.err
	}
	defer i.db.caught(&err)
	value, err = i.it.ValueAndErr()
	return value, i.db.cfg.clean(err)
}

// Error says why it is at no key, nil if there are no more.
func (i *Iterator) Error() error {
	if i.err != nil {
		return i.err
	}
	return i.db.cfg.clean(i.it.Error())
}

// Close returns the first error.
func (i *Iterator) Close() (err error) {
	defer i.db.caught(&err)
	err = i.db.cfg.clean(i.it.Close())
	return cmp.Or(i.err, err)
}

// caught turns a panic of Pebble's into an error. To be deferred.
func (d *DB) caught(err *error) {
	if p := recover(); p != nil {
		*err = d.panicked(p)
	}
}
