// Package logstore opens the store of a log, and reads and writes what is beside its blocks: meta
// values, gaps, sources, dictionaries and spans. The store is Pebble, with tables that end where
// key ranges do, and a high-water mark that reports whether committed events were lost.
package logstore

import (
	"errors"
	"fmt"
	"time"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// ErrNoLog means that the store is open for reading only, and there is none in the directory.
var ErrNoLog = errors.New("there is no log")

// Open opens the store in cfg.Dir. It sets cfg's SpanPolicy and CheckMark. Errors: ErrNoLog, and
// those of pebblestore.Open.
func Open(cfg pebblestore.Config) (*pebblestore.Store, error) {
	cfg.SpanPolicy = SpanPolicy
	cfg.CheckMark = func(db *pebbleguard.DB, mark []byte) error { return checkHighWater(db, mark, cfg.Dir) }
	st, err := pebblestore.Open(cfg)
	if errors.Is(err, pebbleguard.ErrNoStore) {
		return nil, fmt.Errorf("%w in %s", ErrNoLog, cfg.Dir)
	}
	return st, err
}

// IsEmpty says whether the store has no key. It is false if that cannot be read.
func IsEmpty(st *pebblestore.Store) bool {
	it, err := st.NewIter(nil)
	if err != nil {
		return false
	}
	empty := !it.First()
	return it.Close() == nil && empty
}

// RaiseMark moves the high-water mark of st to s, which was committed. No other call for the mark
// may be under way.
func RaiseMark(st *pebblestore.Store, s *format.State) error {
	return st.FailOn("commit", st.Mark().Write(format.AppendHighWater(nil, highWaterOf(s))))
}

func highWaterOf(s *format.State) format.HighWater {
	return format.HighWater{Place: format.Place{Epoch: s.Epoch, Seq: s.Seq}, TimeUS: s.TimeUS, Events: s.Total.Events}
}

// checkHighWater says what is lost if the log in dir ends before its mark.
func checkHighWater(db *pebbleguard.DB, mark []byte, dir string) error {
	had, err := format.DecodeHighWater(mark)
	if err != nil {
		return fmt.Errorf("high-water mark: %w", err)
	}
	var s format.State // zero if the log is empty
	_, formed, err := db.Value(format.MetaKey(format.MetaFormat))
	if err == nil && formed {
		var sealed []byte
		if sealed, _, err = db.Value(format.MetaKey(format.MetaState)); err == nil {
			s, err = format.Open(sealed, format.RangeMeta, 0, format.DecodeState)
		}
	}
	if err != nil {
		return nil //nolint:nilerr // the log reads the state too, and returns this
	}
	has := highWaterOf(&s)
	if !has.Before(had.Place) && has.TimeUS >= had.TimeUS && has.Events >= had.Events {
		return nil
	}
	return fmt.Errorf("%w: the log ends at seq %d of epoch %d (%s), but it had come to seq %d of epoch %d (%s), %d events further: "+
		"its write-ahead log is damaged or missing (nothing was changed; restore the log's directory from a copy, or remove the file %s in %s "+
		"to go on without these events: the relay is asked again for those that it still has)", pebbleguard.ErrLost,
		has.Seq, has.Epoch, stampTime(has.TimeUS), had.Seq, had.Epoch, stampTime(had.TimeUS), max(had.Events-has.Events, 0),
		pebbleguard.MarkFile, dir)
}

func stampTime(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339) }
