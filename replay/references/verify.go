package references

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/postings"
)

// verifyStep is how many keys are read between two looks at the context.
const verifyStep = 4096

// Report is what Verify found.
type Report struct {
	Findings
	Rows       uint64 // that are alive
	References uint64 // of these
	Below      uint64 // rows below the floor of their account, to be swept
	Accounts   uint64
	Purged     uint64 // accounts
	Sweeps     uint64 // accounts that wait for their sweep
}

// Verify reads the whole store; commits and the sweep wait meanwhile. Each key and value must be as
// it is written. Each row must be of an account with a state and below the last arrival number.
// Rows below a floor must wait for the sweep. It leaves out links, which package links verifies.
// Behind files that cannot be read it goes on, with Config.KeepGoing. progress, if not nil, gets
// the number of keys seen so far.
func (s *Store) Verify(ctx context.Context, progress func(seen uint64)) (*Report, error) {
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	v := &verifier{store: s, state: *s.commits.state.Load(), progress: progress}
	for _, err := range s.Damage() {
		v.report.Problem("%v", err)
	}
	unknown := func([]byte, []byte) error { return errors.New("its first byte, the range, is unknown") }
	links, behind := postings.Bounds()
	for _, part := range []struct {
		begin, end []byte
		check      func(key, value []byte) error
	}{
		{nil, rangeMeta.start(), unknown},
		{rangeMeta.start(), rangeMeta.end(), v.meta},
		{rangeAccount.start(), rangeAccount.end(), v.account},
		{rangeSweep.start(), rangeSweep.end(), v.sweep},
		{rangePurged.start(), rangePurged.end(), v.purged},
		{rangePurged.end(), rangeRecord.start(), unknown},
		{rangeRecord.start(), rangeRecord.end(), v.row},
		{rangeRecord.end(), links, unknown},
		{behind, []byte{0xff, 0xff, 0xff, 0xff}, unknown},
	} {
		if err := v.scan(ctx, part.begin, part.end, part.check); err != nil {
			return nil, fmt.Errorf("verify reference store: %w", err)
		}
	}
	return &v.report, nil
}

type verifier struct {
	store    *Store
	state    state
	report   Report
	progress func(seen uint64)
	seen     uint64
	unread   error // of the disk, which says nothing about what is stored

	// Of the row before.
	last struct {
		account uint64
		known   bool // its state
		floor   uint64
		waits   bool // for its sweep
	}
	decoded Row // used again
}

// scan calls check with each key of a range. An error of check is a problem, and does not end the
// scan. After a file that cannot be read the scan goes on.
func (v *verifier) scan(ctx context.Context, begin, end []byte, check func(key, value []byte) error) error {
	for {
		err := v.scanFile(ctx, begin, end, check)
		var c *pebbleguard.CorruptionError
		if !v.store.cfg.KeepGoing || !errors.As(err, &c) {
			return err
		}
		v.report.Problem("%v", c)
		if bytes.Compare(c.After, begin) <= 0 || bytes.Compare(c.After, end) >= 0 {
			return nil
		}
		begin = c.After
	}
}

func (v *verifier) scanFile(ctx context.Context, begin, end []byte, check func(key, value []byte) error) error {
	it, err := v.store.db.NewIter(&pebble.IterOptions{LowerBound: begin, UpperBound: end})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		err := check(it.Key(), it.Value())
		if v.unread != nil {
			return errors.Join(v.unread, it.Close())
		}
		if err != nil {
			v.report.Problem("key %x: %v", it.Key(), err)
		}
		if v.seen++; v.seen%verifyStep == 0 {
			if v.progress != nil {
				v.progress(v.seen)
			}
			if err := context.Cause(ctx); err != nil {
				return errors.Join(err, it.Close())
			}
		}
	}
	if err := it.Error(); err != nil {
		_ = it.Close() // the same
		return err
	}
	return it.Close()
}

// meta checks that the name is known: Open has read the values.
func (v *verifier) meta(key, _ []byte) error {
	switch string(key[1:]) {
	case metaFormat, metaGeneration, metaState, metaLinks, metaSyncs:
		return nil
	}
	return errors.New("unknown name of a meta value")
}

func (v *verifier) account(key, value []byte) error {
	v.report.Accounts++
	if _, err := v.store.codec.parseAccountKey(key); err != nil {
		return err
	}
	state, err := decodeAccount(value)
	if err == nil && state.floor > v.state.arrival+1 {
		err = fmt.Errorf("floor %d is above the last arrival number, %d", state.floor, v.state.arrival)
	}
	return err
}

func (v *verifier) sweep(key, value []byte) error {
	v.report.Sweeps++
	account, err := v.store.codec.parseAccountKey(key)
	if err != nil {
		return err
	}
	if len(value) > 0 && !bytes.HasPrefix(value, v.store.codec.accountKey(rangeRecord, account)) {
		return errors.New("its sweep continues at a row of another account")
	}
	return nil
}

func (v *verifier) purged(key, value []byte) error {
	v.report.Purged++
	if _, err := v.store.codec.parseAccountKey(key); err != nil {
		return err
	}
	_, err := decodePurged(value)
	return err
}

func (v *verifier) row(key, value []byte) error {
	if err := v.store.codec.decodeRow(&v.decoded, key, value); err != nil {
		return err
	}
	account, arrival := v.decoded.Account, v.decoded.Arrival
	if arrival > v.state.arrival {
		return fmt.Errorf("arrival number %d is above the last, %d", arrival, v.state.arrival)
	}
	if v.last.account != account {
		if err := v.next(account); err != nil {
			return err
		}
	}
	switch {
	case !v.last.known:
		return errAbsent
	case arrival >= v.last.floor:
		v.report.Rows++
		v.report.References += uint64(len(v.decoded.References))
	case !v.last.waits:
		return fmt.Errorf("arrival number %d is below the account's floor, %d, and no sweep is recorded", arrival, v.last.floor)
	default:
		v.report.Below++
	}
	return nil
}

// next looks up the state of an account.
func (v *verifier) next(account uint64) error {
	v.last.account, v.last.known, v.last.floor, v.last.waits = account, false, 0, false
	c := v.store.codec
	value, known, err := v.value(c.accountKey(rangeAccount, account))
	if err != nil || !known {
		return err
	}
	state, err := decodeAccount(value)
	if err != nil {
		return err
	}
	v.last.known, v.last.floor = true, state.floor
	_, v.last.waits, err = v.value(c.accountKey(rangeSweep, account))
	return err
}

// value reads the value of a key. An error that is not damage ends the scan.
func (v *verifier) value(key []byte) (value []byte, ok bool, err error) {
	value, ok, err = v.store.db.Value(key)
	if err != nil && !errors.As(err, new(*pebbleguard.CorruptionError)) {
		v.unread = err
	}
	return value, ok, err
}
