package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/zstd"

	jetstreamv1 "millrace/dict/jetstream"
)

// jetstreamStore keeps events the way Jetstream v1 does: two Pebble stores with Pebble's defaults,
// one of plain and one of compressed events. Each event is an unsynced Set in both, under
// <time_us>_<did>[_<collection>]. A replay reads everything from its cursor on. Filters look at the
// key, as v1's do. (v1 also limits the pace of a replay; this does not.) One goroutine puts; any
// number replay.
type jetstreamStore struct {
	halves [2]*pebble.DB // of plain and of compressed events
	key    []byte        // Put's scratch
}

// jetstreamEnd is above every key of an event.
const jetstreamEnd = "97"

// jetstreamEvent is one event of a replay. Its bytes are good until the callback returns.
type jetstreamEvent struct {
	timeUS     int64
	did        []byte
	collection []byte // nil: not a commit
	payload    []byte // JSON, or a zstd frame of it
}

// openJetstreamStore opens or makes the store in dir.
func openJetstreamStore(dir string) (*jetstreamStore, error) {
	s := &jetstreamStore{}
	for i, name := range []string{"plain", "compressed"} {
		db, err := pebble.Open(filepath.Join(dir, name), &pebble.Options{Logger: quietPebble{}})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the store laid out as Jetstream's: %w", err), s.Close())
		}
		s.halves[i] = db
	}
	return s, nil
}

// Put stores an event; collection is empty for identity and account events. It keeps nothing of its
// arguments.
func (s *jetstreamStore) Put(timeUS int64, did, collection string, plain, compressed []byte) error {
	s.key = strconv.AppendInt(s.key[:0], timeUS, 10)
	s.key = append(append(s.key, '_'), did...)
	if collection != "" {
		s.key = append(append(s.key, '_'), collection...)
	}
	for i, payload := range [...][]byte{plain, compressed} {
		if err := s.halves[i].Set(s.key, payload, pebble.NoSync); err != nil {
			return fmt.Errorf("put an event: %w", err)
		}
	}
	return nil
}

// Replay calls emit for each event from cursor (inclusive) on, with plain or compressed payloads,
// and stops at its first error, which it returns.
func (s *jetstreamStore) Replay(compressed bool, cursor int64, emit func(e *jetstreamEvent) error) error {
	db := s.halves[0]
	if compressed {
		db = s.halves[1]
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: strconv.AppendInt(nil, cursor, 10), UpperBound: []byte(jetstreamEnd)})
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer it.Close()
	var e jetstreamEvent
	for it.First(); it.Valid(); it.Next() {
		if err := e.parseKey(it.Key()); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		e.payload = it.Value()
		if err := emit(&e); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return nil
}

// parseKey takes apart what Put made: what follows the last '_' is the collection. (An identity
// event of a DID with '_' in it, which no relay's traffic is known for, is misread.)
func (e *jetstreamEvent) parseKey(key []byte) error {
	stamp, rest, ok := bytes.Cut(key, []byte{'_'})
	us, err := strconv.ParseInt(string(stamp), 10, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q is not the key of an event", key)
	}
	e.timeUS, e.did, e.collection = us, rest, nil
	if i := bytes.LastIndexByte(rest, '_'); i >= 0 {
		e.did, e.collection = rest[:i], rest[i+1:]
	}
	return nil
}

// Flush writes both memtables out, so that tables hold everything.
func (s *jetstreamStore) Flush() error { return errors.Join(s.halves[0].Flush(), s.halves[1].Flush()) }

// Close closes both stores. It is safe twice.
func (s *jetstreamStore) Close() error {
	var errs []error
	for i, db := range s.halves {
		if db != nil {
			errs = append(errs, db.Close())
			s.halves[i] = nil
		}
	}
	return errors.Join(errs...)
}

// jetstreamEncoder returns what Jetstream compresses events with (EncodeAll): klauspost's encoder
// at its default level with its dictionary and a window of 128 KiB.
func jetstreamEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderDict(jetstreamv1.Dictionary()), zstd.WithWindowSize(128<<10), zstd.WithEncoderConcurrency(1))
}

// quietPebble is a Pebble logger that says nothing but what ends the process.
type quietPebble struct{}

func (quietPebble) Infof(string, ...any)  {}
func (quietPebble) Errorf(string, ...any) {}
func (quietPebble) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
