package replay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// openStore opens the database of cfg, which has its defaults. keepGoing is pebblestore.Config's.
func openStore(cfg *Config, keepGoing bool) (*pebblestore.Store, error) {
	st, err := pebblestore.Open(pebblestore.Config{
		Dir:        cfg.Dir,
		FS:         cfg.FS,
		ReadOnly:   cfg.ReadOnly,
		KeepGoing:  keepGoing,
		Bytes:      cfg.PebbleBytes,
		OpenFiles:  cfg.MaxOpenFiles,
		BlobValue:  cfg.blobValue,
		SpanPolicy: spanPolicy,
		CheckMark:  func(db *pebbleguard.DB, mark []byte) error { return checkHighWater(db, mark, cfg.Dir) },
		Logger:     cfg.Logger,
	})
	if errors.Is(err, pebbleguard.ErrNoStore) {
		return nil, fmt.Errorf("%w in %s", ErrNoLog, cfg.Dir)
	}
	return st, err
}

// highWater is how far the log had come: the value of its high-water mark.
type highWater struct {
	place  place // its op is not used
	timeUS int64
	events int64 // ever appended
}

func highWaterOf(s *state) highWater {
	return highWater{place: place{epoch: s.epoch, seq: s.seq}, timeUS: s.timeUS, events: s.total.events}
}

func (h highWater) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, h.place.epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.place.seq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.timeUS))
	return binary.LittleEndian.AppendUint64(dst, uint64(h.events))
}

// checkHighWater says what is lost if the log in dir ends before its mark.
func checkHighWater(db *pebbleguard.DB, mark []byte, dir string) error {
	d := &decoder{b: mark}
	had := highWater{place: place{epoch: d.uint32(), seq: d.int64()}, timeUS: d.int64(), events: d.int64()}
	if err := d.end(); err != nil {
		return fmt.Errorf("high-water mark: %w", err)
	}
	var s state // zero if the log is empty
	_, formed, err := db.Value(format.MetaKey(format.MetaFormat))
	if err == nil && formed {
		var sealed, value []byte
		sealed, _, err = db.Value(format.MetaKey(format.MetaState))
		if err == nil {
			value, err = format.OpenTrailer(sealed, format.RangeMeta, 0)
		}
		if err == nil {
			s, err = decodeState(value)
		}
	}
	if err != nil {
		return nil // the state is read again, and then this is reported
	}
	has := highWaterOf(&s)
	if !has.place.before(had.place) && has.timeUS >= had.timeUS && has.events >= had.events {
		return nil
	}
	return fmt.Errorf("%w: the log ends at seq %d of epoch %d (%s), but it had come to seq %d of epoch %d (%s), %d events further: "+
		"its write-ahead log is damaged or missing (nothing was changed; restore the log's directory from a copy, or remove the file %s in %s "+
		"to go on without these events: the relay is asked again for those that it still has)", pebbleguard.ErrLost,
		has.place.seq, has.place.epoch, stampTime(has.timeUS), had.place.seq, had.place.epoch, stampTime(had.timeUS), max(had.events-has.events, 0),
		pebbleguard.MarkFile, dir)
}

func stampTime(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339) }

// raiseMark moves the high-water mark to what was committed. l.mu is held, and nothing is under way.
func (l *Log) raiseMark(s *state) error {
	return l.store.FailOn("commit", l.store.Mark().Write(highWaterOf(s).append(nil)))
}
