package pebblekv

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
)

// markKey is where the store itself has the value of its high-water mark. No transaction uses it.
const markKey = "\xffmark"

// marker writes the high-water mark. Its value is a count that rises with each mark, and the time:
//
//	count:u64 | Unix seconds:i64
//
// A transaction that finds the mark old writes the next value with its own keys, and, once they are
// synced, to the mark. So if the mark's count is above the store's, that transaction is lost, and
// what came after it.
type marker struct {
	db    *pebbleguard.DB
	count uint64 // of the last mark; only the caller for whom the mark's Due returned true uses it
	held  bool   // the mark stays until raise
}

func appendMark(dst []byte, count uint64, at time.Time) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, count)
	return binary.LittleEndian.AppendUint64(dst, uint64(at.Unix()))
}

// parseMark returns the count and the time of a mark; zeros if b is none.
func parseMark(b []byte) (count uint64, at time.Time) {
	if len(b) != 16 {
		return 0, time.Time{}
	}
	return binary.LittleEndian.Uint64(b), time.Unix(int64(binary.LittleEndian.Uint64(b[8:])), 0).UTC()
}

// newMarker returns the marker of a store that is open for writing.
func newMarker(db *pebbleguard.DB, held bool) (*marker, error) {
	stored, _, err := db.Value([]byte(markKey))
	if err != nil {
		return nil, err
	}
	has, _ := parseMark(stored)
	had, _ := parseMark(db.Mark().Value())
	return &marker{db: db, count: max(has, had), held: held}, nil
}

// raise moves the mark of a held marker beyond everything that was lost. No transaction is under
// way.
func (m *marker) raise() error {
	value := m.next()
	err := m.db.Update(true, func(b *pebble.Batch) error { return b.Set([]byte(markKey), value, nil) })
	if err != nil {
		return err
	}
	return m.db.FailOn("commit", m.db.Mark().Write(value))
}

// next returns the value of the next mark.
func (m *marker) next() []byte {
	m.count++
	return appendMark(nil, m.count, time.Now())
}

// stage adds the next mark to a batch, if it is due, and returns its value, else nil.
func (m *marker) stage(b *pebble.Batch) (value []byte, err error) {
	if m.held || !m.db.Mark().Due() {
		return nil, nil
	}
	value = m.next()
	return value, b.Set([]byte(markKey), value, nil)
}

// checkMark says what is lost if the store ends before its mark.
func checkMark(db *pebbleguard.DB, mark []byte) error {
	had, until := parseMark(mark)
	stored, _, err := db.Value([]byte(markKey))
	if err != nil {
		return err
	}
	has, since := parseMark(stored)
	if has >= had {
		return nil
	}
	from := "its beginning"
	if has > 0 {
		from = since.Format(time.RFC3339)
	}
	return fmt.Errorf("%w: the UID store lacks UIDs that were given out between %s and %s: its write-ahead log is damaged or missing "+
		"(nothing was changed; restore the store from a copy, or go on without them; in both cases run millrace intern skip-ahead, "+
		"so that no UID is given twice)", pebbleguard.ErrLost, from, until.Format(time.RFC3339))
}
