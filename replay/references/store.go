package references

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
)

// Errors that callers branch on. They come wrapped; use errors.Is.
var (
	// errNoStore: the store is open for reading only, and there is none in the directory.
	errNoStore = pebbleguard.ErrNoStore
	// ErrFailed: a write, a sync or a file failed; the store takes nothing more and the process
	// should stop.
	ErrFailed = pebbleguard.ErrFailed
)

var (
	errReadOnly = errors.New("the store is open for reading only")
	errClosed   = errors.New("the store is closed")
)

// Store is the open reference store. Safe for concurrent use, but for what Hydrate and Apply say.
type Store struct {
	cfg     Config
	db      *pebbleguard.DB
	codec   UIDCodec
	metrics *metrics

	hydration hydration
	commits   commits

	mu      sync.Mutex
	overlay overlay
	room    chan struct{} // the overlay has become smaller
	sweeps  chan struct{} // an account waits for its sweep

	flushing sync.Mutex // held through a flush
	marked   uint64     // the high-water mark, if it was written; guarded by flushing

	using    sync.RWMutex // held shared by copies, views and measurements; Close keeps it
	close    sync.Once
	closeErr error
}

// commits is what the database has.
type commits struct {
	mu      sync.Mutex // held while committing, and to look at one state
	applied uint64     // number of the last batch

	generation atomic.Pointer[Generation]
	state      atomic.Pointer[state]
	flushed    atomic.Pointer[state] // after a crash the store is here or further
	purges     atomic.Bool           // an account was purged, in whatever generation
	links      atomic.Pointer[linkState]
	observer   *observer                     // nil: none; guarded by mu
	move       atomic.Pointer[chan struct{}] // closed when state is another

	recent recentLinks
	heads  headFilter // with links

	edges []edge // used again
	row   Row
}

// Open opens the store in cfg.Dir, or makes an empty one. Only one process can have it open.
// Errors: errNoStore, ErrNewerFormat, errPrefixBits, and those of pebbleguard.Open, which says
// when a directory is damaged, or holds a database's files but none.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	db, err := cfg.openGuard()
	if err != nil {
		return nil, fmt.Errorf("open reference store in %s: %w", cfg.Dir, err)
	}
	s := &Store{cfg: cfg, db: db, room: make(chan struct{}, 1), sweeps: make(chan struct{}, 1),
		overlay: overlay{records: make(map[recordID]recordEntry)}}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("open reference store in %s: %w", cfg.Dir, cmp.Or(err, db.Close()))
	}
	s.metrics = newMetrics(cfg.Registerer, s)
	return s, nil
}

// load reads the meta values, or writes them if the store is new.
func (s *Store) load() error {
	format, formed, err := s.db.Value(metaKey(metaFormat))
	if err != nil {
		return err
	}
	bits, older := uint(s.cfg.PrefixBits), false
	switch {
	case formed:
		if s.codec.prefixBits, err = decodeFormat(format); err != nil {
			if !errors.Is(err, ErrNewerFormat) {
				err = damaged(metaKey(metaFormat), err)
			}
			return err
		}
		if bits != 0 && bits != s.codec.prefixBits {
			return fmt.Errorf("%w: it was made for %d, the UID store has %d", errPrefixBits, s.codec.prefixBits, bits)
		}
		older = !bytes.Equal(format, appendFormat(nil, s.codec.prefixBits))
		if older && !s.cfg.ReadOnly {
			if err := s.form(); err != nil {
				return err
			}
		}
	case s.cfg.ReadOnly:
		return errNoStore
	default:
		if s.codec.prefixBits = bits; bits == 0 {
			s.codec.prefixBits = defaultPrefixBits
		}
		if err := s.form(); err != nil {
			return err
		}
	}
	g, err := metaValue(s.db.Value, metaGeneration, decodeGeneration)
	if err != nil {
		return err
	}
	st, err := metaValue(s.db.Value, metaState, decodeState)
	if err != nil {
		return err
	}
	if st.syncs, err = metaValue(s.db.Value, metaSyncs, decodeSyncs); err != nil {
		return err
	}
	purged, _, err := s.first(rangePurged)
	if err != nil {
		return err
	}
	s.commits.purges.Store(purged != nil)
	s.commits.generation.Store(&g)
	s.commits.state.Store(&st)
	s.commits.flushed.Store(&st)
	s.commits.moved()
	if err := s.loadLinks(older); err != nil {
		return err
	}
	s.hydration = newHydration(s.codec, &s.overlay, st, s.cfg.AccountBytes)
	return nil
}

// form writes the format. Links of an older one are dropped, and built again.
func (s *Store) form() error {
	_, on, err := s.db.Value(metaKey(metaLinks))
	if err != nil {
		return err
	}
	return s.updateDurably(func(batch *pebble.Batch) error {
		err := batch.Set(metaKey(metaFormat), appendFormat(nil, s.codec.prefixBits), nil)
		if on {
			err = errors.Join(err, dropLinks(batch), setLinks(batch, &linkState{on: true, next: rangeRecord.start()}))
		}
		return err
	})
}

// updateDurably commits a batch that fill has filled, which no crash may take back.
func (s *Store) updateDurably(fill func(batch *pebble.Batch) error) error {
	if err := s.db.Update(false, fill); err != nil {
		return err
	}
	return s.db.Flush()
}

// metaValue returns the meta value of a name, the zero value if there is none.
func metaValue[T any](get func(key []byte) ([]byte, bool, error), name string, decode func([]byte) (T, error)) (v T, err error) {
	value, ok, err := get(metaKey(name))
	if err != nil || !ok {
		return v, err
	}
	if v, err = decode(value); err != nil {
		err = damaged(metaKey(name), err)
	}
	return v, err
}

// damaged says that what is stored under key is not what was written.
func damaged(key []byte, err error) error {
	return &pebbleguard.CorruptionError{Store: "reference store", Advice: advice, Err: fmt.Errorf("value of key %x: %w", key, err)}
}

// fail makes an error of own data the failure of the store.
func (s *Store) fail(what string, err error) error {
	return fmt.Errorf("%s: %w", what, s.db.FailOn(what, err))
}

// Generation returns the current one. Its number is 0 if none was begun.
func (s *Store) Generation() Generation { return *s.commits.generation.Load() }

// FormatVersion returns the version of the store's format.
func (s *Store) FormatVersion() (uint32, error) {
	format, ok, err := s.db.Value(metaKey(metaFormat))
	if err != nil || !ok {
		return 0, cmp.Or(err, errNoStore)
	}
	return binary.BigEndian.Uint32(format), nil // Open has decoded it
}

// Position returns the position of the last batch that was applied. The next one follows it.
func (s *Store) Position() Position { return s.commits.state.Load().position }

// Flush makes durable what was applied, and returns the position reached with it. A crash does not
// take the store back behind it: the log may trim what is at or before it. The error is the failure
// of the store.
func (s *Store) Flush() (Position, error) {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	at := s.commits.state.Load()
	if s.commits.flushed.Load() == at {
		return at.position, nil
	}
	if err := s.flushLocked(at); err != nil {
		return Position{}, fmt.Errorf("flush references: %w", err)
	}
	return at.position, nil
}

// flushLocked makes durable what was applied, which is at least the state at. flushing is held.
func (s *Store) flushLocked(at *state) error {
	err := s.db.Flush()
	if err == nil {
		err = s.raiseMark(at.arrival)
	}
	if err == nil {
		s.commits.flushed.Store(at)
	}
	return err
}

// InexactSince returns the stamp since when deletes may be missing: of the generation's first gap,
// or of the first #sync while there are accounts that are inexact. 0: none is missing.
func (s *Store) InexactSince() int64 {
	at := s.commits.state.Load()
	return min(cmp.Or(at.inexactUS, at.syncs.firstUS), cmp.Or(at.syncs.firstUS, at.inexactUS))
}

// Failed is closed when a write or a sync failed, or damage was found. Err says why.
func (s *Store) Failed() <-chan struct{} { return s.db.Failed() }

// Err returns the failure, nil while there is none.
func (s *Store) Err() error { return s.db.Err() }

// Damage returns, with Config.KeepGoing, what Open found wrong.
func (s *Store) Damage() []error { return s.db.Damage }

// Checkpoint makes a copy in dir, which must not exist: a store with every batch that was applied
// before the call.
func (s *Store) Checkpoint(dir string) error {
	err := s.use()
	if err == nil {
		defer s.using.RUnlock()
		_, err = s.Flush()
	}
	if err == nil {
		err = s.db.Checkpoint(dir)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// CheckpointClosed is Store.Checkpoint of a store that no process has open. Its format, and that of
// the copy, stay as they are, so that the millrace that wrote it can go on with both. Errors:
// errNoStore, and those of Open.
func CheckpointClosed(cfg Config, dir string) error {
	cfg.ReadOnly = true
	s, err := Open(cfg)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		return err
	}
	cfg = cfg.withDefaults()
	cfg.ReadOnly = false
	db, err := cfg.openGuard() // Pebble makes checkpoints of databases that may be written only
	if err != nil {
		return fmt.Errorf("open reference store in %s: %w", cfg.Dir, err)
	}
	if err := cmp.Or(db.Checkpoint(dir), db.Close()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// use makes Close wait for the caller, until that unlocks s.using.
func (s *Store) use() error {
	if !s.using.TryRLock() {
		return errClosed
	}
	return nil
}

// Close waits for copies and views, flushes and closes. No batch or rows may be under way. Safe
// twice. After a failure it returns that and leaves the files as they are.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.metrics.unregister()
		// Guard waits until the store has failed, at most: a read may then never end.
		_ = s.db.Guard(func() error { s.using.Lock(); return nil })
		if !s.cfg.ReadOnly {
			s.flushing.Lock()
			s.closeErr = s.flushLocked(s.commits.state.Load())
			s.flushing.Unlock()
		}
		s.closeErr = cmp.Or(s.closeErr, s.db.Close())
	})
	return s.closeErr
}

// lookUp returns a copy of a value, nil if there is none.
func (s *Store) lookUp(key []byte) ([]byte, error) {
	begun := time.Now()
	value, ok, err := s.db.Value(key)
	if ok && value == nil {
		value = []byte{} // nil is that there is none
	}
	s.metrics.lookupSeconds.Observe(time.Since(begun).Seconds())
	return value, err
}

// first returns a copy of the first key of a range, and of its value; nil if there is none.
func (s *Store) first(r keyRange) (key, value []byte, err error) {
	it, err := s.rangeIter(r)
	if err != nil {
		return nil, nil, err
	}
	if it.First() {
		key, value = bytes.Clone(it.Key()), bytes.Clone(it.Value())
	}
	return key, value, errors.Join(it.Error(), it.Close())
}

// firstState returns the state of an account as the database has it. An account that is new to the
// generation is not known, and begins with the rev up to which it was purged.
func (s *Store) firstState(account uint64) (state accountState, known bool, err error) {
	key := s.codec.accountKey(rangeAccount, account)
	value, err := s.lookUp(key)
	if err != nil {
		return state, false, err
	}
	if value == nil {
		state.purged, err = s.purgedRev(account)
		state.rev = state.purged
		return state, false, err
	}
	if state, err = decodeAccount(value); err != nil {
		return state, false, damaged(key, err)
	}
	return state, true, nil
}

// purgedRev returns the rev up to which an account was purged, 0 if it was not.
func (s *Store) purgedRev(account uint64) (rev uint64, err error) {
	if !s.commits.purges.Load() {
		return 0, nil
	}
	key := s.codec.accountKey(rangePurged, account)
	value, err := s.lookUp(key)
	if err != nil || value == nil {
		return 0, err
	}
	if rev, err = decodePurged(value); err != nil {
		return 0, damaged(key, err)
	}
	return rev, nil
}
