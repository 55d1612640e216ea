package replay

import (
	"fmt"

	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
	"millrace/replay/internal/pebblestore"
)

// About is what a log says about itself, beside Progress, Range and Dictionaries.
type About struct {
	Version  uint32 // of its format
	Relay    string // that it follows: a host
	UIDStore string // whose UIDs it holds; "": it has had none
}

// About reads what the log says about itself. Errors: ErrClosed, *CorruptionError, the disk's.
func (l *Log) About() (About, error) {
	l.blocks.storeMu.RLock()
	defer l.blocks.storeMu.RUnlock()
	if l.blocks.closed {
		return About{}, ErrClosed
	}
	s := l.snap.Load()
	a := About{Version: s.version, Relay: s.streams[len(s.streams)-1].Relay}
	var err error
	if a.UIDStore, _, err = uidStoreOf(l.store); err != nil {
		return About{}, fmt.Errorf("read the ID of the UID store: %w", err)
	}
	return a, nil
}

// uidStoreOf returns the ID of the UID store whose UIDs the log in st holds; false: it has none.
func uidStoreOf(st *pebblestore.Store) (id string, ok bool, err error) {
	return logstore.Meta(st, format.MetaUIDs, func(b []byte) (string, error) { return string(b), nil })
}
