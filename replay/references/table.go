package references

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/postings"
)

// Row is a record that is alive.
type Row struct {
	Account, Record uint64 // UIDs
	Arrival         uint64
	References      []Reference
}

// Account is what is known of an account.
type Account struct {
	Rev       uint64 // of its last commit, as a packed TID
	Imported  uint64 // rev of what was imported; 0: nothing was
	Purged    uint64 // rev up to which it was purged; 0: it was not
	InexactUS int64  // stamp of the #sync since when deletes may be missing; 0: none
	Inactive  bool   // its records are hidden
}

// Account returns what is known of an account at Position. ok is false if it was not seen in this
// generation; Purged may be known even so.
func (s *Store) Account(account uint64) (a Account, ok bool, err error) {
	state, known, err := s.firstState(account)
	if err != nil || !known {
		return Account{Purged: state.purged}, false, err
	}
	return Account{state.rev, state.imported, state.purged, state.inexactUS, state.inactive}, true, nil
}

// Row returns a record at Position. ok is false if it is not alive, or not known.
func (s *Store) Row(account, record uint64) (row Row, ok bool, err error) {
	state, _, err := s.firstState(account)
	if err != nil {
		return row, false, err
	}
	key := s.codec.recordKey(recordID{account, record})
	value, err := s.lookUp(key)
	if err != nil || value == nil {
		return row, false, err
	}
	if err := s.codec.decodeRow(&row, key, value); err != nil {
		return row, false, damaged(key, err)
	}
	return row, row.Arrival >= state.floor, nil
}

// Rows calls fn with each record that is alive, in the order of the UIDs, and returns the position
// at which they are. fn keeps no references.
func (s *Store) Rows(ctx context.Context, fn func(*Row) error) (at Position, err error) {
	return s.rows(ctx, rangeRecord.start(), rangeRecord.end(), fn)
}

// RowsOf is Rows of one account.
func (s *Store) RowsOf(ctx context.Context, account uint64, fn func(*Row) error) (at Position, err error) {
	begin := s.codec.accountKey(rangeRecord, account)
	return s.rows(ctx, begin, postings.PrefixEnd(begin), fn)
}

func (s *Store) rows(ctx context.Context, begin, end []byte, fn func(*Row) error) (at Position, err error) {
	s.commits.mu.Lock()
	rows, err := s.openRowsLocked(begin, end)
	s.commits.mu.Unlock()
	if err != nil {
		return at, fmt.Errorf("read rows: %w", err)
	}
	return rows.Position, errors.Join(rows.Each(ctx, fn), rows.Close())
}

// Rows is the records that are alive at a position. One goroutine at a time uses it. It must be
// closed, soon: it keeps old files on disk.
type Rows struct {
	Position Position

	codec          UIDCodec
	rows, accounts *pebbleguard.Iterator
	account, floor uint64 // of the row before; 0: none
}

// openRowsLocked opens the rows of some keys. With the lock, both iterators see one state.
func (s *Store) openRowsLocked(begin, end []byte) (*Rows, error) {
	r := &Rows{Position: s.Position(), codec: s.codec}
	var err error
	if r.rows, err = s.db.NewIter(&pebble.IterOptions{LowerBound: begin, UpperBound: end}); err == nil {
		r.accounts, err = s.rangeIter(rangeAccount)
	}
	if err != nil {
		return nil, errors.Join(err, closeIter(r.rows))
	}
	return r, nil
}

// Each calls fn with each record, in the order of the UIDs. fn keeps no references.
func (r *Rows) Each(ctx context.Context, fn func(*Row) error) error {
	return r.each(ctx, r.rows.First(), nil, fn)
}

// EachOf is Each of one account.
func (r *Rows) EachOf(ctx context.Context, account uint64, fn func(*Row) error) error {
	prefix := r.codec.accountKey(rangeRecord, account)
	return r.each(ctx, r.rows.SeekGE(prefix), prefix, fn)
}

func (r *Rows) each(ctx context.Context, ok bool, prefix []byte, fn func(*Row) error) (err error) {
	var row Row
	for ; ok && err == nil && bytes.HasPrefix(r.rows.Key(), prefix); ok = r.rows.Next() {
		var alive bool
		if alive, err = r.decode(&row); err == nil && alive {
			err = fn(&row)
		}
		if err == nil {
			err = context.Cause(ctx)
		}
	}
	if err = errors.Join(err, r.rows.Error()); err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	return nil
}

// Close ends the use of the rows.
func (r *Rows) Close() error { return errors.Join(r.rows.Close(), r.accounts.Close()) }

func (s *Store) rangeIter(r keyRange) (*pebbleguard.Iterator, error) {
	return s.db.NewIter(&pebble.IterOptions{LowerBound: r.start(), UpperBound: r.end()})
}

func closeIter(it *pebbleguard.Iterator) error {
	if it == nil {
		return nil
	}
	return it.Close()
}

// decode decodes the row at which the iterator is, and reads the state of its account if that is
// not the one of the row before. alive is false if it is below the floor.
func (r *Rows) decode(row *Row) (alive bool, err error) {
	if err := r.codec.decodeRow(row, r.rows.Key(), r.rows.Value()); err != nil {
		return false, damaged(r.rows.Key(), err)
	}
	if row.Account == r.account {
		return row.Arrival >= r.floor, nil
	}
	key := r.codec.accountKey(rangeAccount, row.Account)
	if !r.accounts.SeekGE(key) || !bytes.Equal(r.accounts.Key(), key) {
		return false, cmp.Or(r.accounts.Error(), damaged(key, errAbsent))
	}
	state, err := decodeAccount(r.accounts.Value())
	if err != nil {
		return false, damaged(key, err)
	}
	r.account, r.floor = row.Account, state.floor
	return row.Arrival >= r.floor, nil
}

// errAbsent means that an account has rows and no state.
var errAbsent = errors.New("the account has rows, but no state")
