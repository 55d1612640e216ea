package ingest

import (
	"errors"
	"sync"

	"millrace/replay"
)

// notedLog notes what the blocks have that are appended.
type notedLog[E any] struct {
	*replay.Log
	note func(in replay.Input) ([]E, error) // what a block that is sealed has
	fail func() error                       // called before each Append

	mu     sync.Mutex
	sealed map[*replay.Block][]E
	got    []E
}

func (l *notedLog[E]) Seal(in replay.Input) (*replay.Block, error) {
	b, err := l.Log.Seal(in)
	events, noteErr := l.note(in)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sealed == nil {
		l.sealed = make(map[*replay.Block][]E)
	}
	l.sealed[b] = events
	return b, errors.Join(err, noteErr)
}

func (l *notedLog[E]) Append(blocks ...*replay.Block) error {
	if err := l.fail(); err != nil {
		return err
	}
	if err := l.Log.Append(blocks...); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range blocks {
		l.got = append(l.got, l.sealed[b]...)
		delete(l.sealed, b)
	}
	return nil
}
