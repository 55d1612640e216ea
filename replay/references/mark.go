package references

import (
	"encoding/binary"
	"fmt"

	"millrace/intern/kv/pebbleguard"
)

// The high-water mark is the last arrival number that was flushed, in eight bytes. Imports and
// purges raise it, too: the log does not have them.

// checkMark compares the mark with the database.
func (c *Config) checkMark(db *pebbleguard.DB, mark []byte) error {
	s, err := metaValue(db.Value, metaState, decodeState)
	if err != nil || len(mark) != 8 {
		return nil //nolint:nilerr // Open reads the state too, and returns this
	}
	had := binary.BigEndian.Uint64(mark)
	if s.arrival >= had {
		return nil
	}
	return fmt.Errorf("%w: the reference store lacks what was written after arrival number %d, and had come to %d: the end of its manifest is damaged "+
		"(nothing was changed; restore its directory from a copy, or remove the file %s in %s, and the graph's snapshot, to go on: records come again from the log, imports and purges do not)",
		pebbleguard.ErrLost, s.arrival, had, pebbleguard.MarkFile, c.Dir)
}

// raiseMark notes that an arrival number was flushed. flushing is held.
func (s *Store) raiseMark(arrival uint64) error {
	if arrival == s.marked {
		return nil
	}
	if err := s.db.Mark().Write(binary.BigEndian.AppendUint64(nil, arrival)); err != nil {
		return s.db.FailOn("flush", err)
	}
	s.marked = arrival
	return nil
}
