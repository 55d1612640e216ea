package chain

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/translate/verify"
)

// Position is how far the log has come: a frame.
type Position struct {
	Epoch uint32
	Seq   int64
}

// Account is what an account is known by: half of its DID's SHA-256. Nobody can make a DID that is
// taken for another.
type Account [sha256.Size / 2]byte

// AccountOf returns the account of a DID.
func AccountOf(did []byte) Account {
	sum := sha256.Sum256(did)
	return Account(sum[:])
}

// Number returns the first 8 bytes as a number.
func (a Account) Number() uint64 { return binary.BigEndian.Uint64(a[:]) }

// Change is what one frame has changed of an account.
type Change struct {
	Account       Account
	Before, After verify.State
}

// Store is the open store. See the package comment for its concurrency.
type Store struct {
	cfg Config
	db  *pebbleguard.DB
	at  Position // of the last Commit

	mu      sync.Mutex
	pending map[Account]pending // by account

	close func() error // closes the database, once
}

// pending is the newest state of an account that the database does not have.
type pending struct {
	state   verify.State
	changes int // that are set and not committed
}

// Open opens the store in cfg.Dir, or makes an empty one. Begin comes next. Errors are those of
// pebbleguard.Open.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	db, err := cfg.open()
	if err != nil {
		return nil, fmt.Errorf("open store of chains in %s: %w", cfg.Dir, err)
	}
	return &Store{cfg: cfg, db: db, pending: make(map[Account]pending), close: sync.OnceValue(db.Close)}, nil
}

// Begin brings the store to the log's position.
func (s *Store) Begin(at Position) error {
	s.at = at
	if err := s.load(); err != nil {
		return fmt.Errorf("bring the store of chains to the log's position: %w", err)
	}
	return nil
}

func (s *Store) load() error {
	value, known, err := s.db.Value(metaKey())
	if err != nil {
		return err
	}
	undo, _, err := s.db.Value(undoKey())
	if err != nil {
		return err
	}
	batch := s.db.Pebble().NewBatch()
	defer s.db.CloseBatch(batch)
	m := decodeMeta(value)
	before, replaced := decodeUndo(undo)
	switch want := (meta{formatNumber, s.cfg.Sample, s.at}); {
	case m == want:
		return nil
	case m.version == want.version && m.sample == want.sample && before == s.at:
		for i := len(replaced) - 1; i >= 0; i-- {
			if err := setState(batch, replaced[i].Account, replaced[i].Before); err != nil {
				return err
			}
		}
	default:
		if known {
			s.cfg.Logger.Info("the store of chains begins anew, as it is not at the log's position, or of another --verify-sample or version: the next commit of each account is not compared",
				"epoch", m.at.Epoch, "seq", m.at.Seq, "log_epoch", s.at.Epoch, "log_seq", s.at.Seq)
		}
		if err := batch.DeleteRange([]byte{rangeState}, []byte{rangeState + 1}, nil); err != nil {
			return err
		}
	}
	if err := errors.Join(batch.Delete(undoKey(), nil), s.setMeta(batch, s.at)); err != nil {
		return err
	}
	return s.db.Commit(batch, true)
}

func (s *Store) setMeta(batch *pebble.Batch, at Position) error {
	return batch.Set(metaKey(), appendMeta(nil, meta{formatNumber, s.cfg.Sample, at}), nil)
}

// Get returns the newest state of an account, zero if it is not known.
func (s *Store) Get(account Account) (state verify.State, err error) {
	s.mu.Lock()
	p, ok := s.pending[account]
	s.mu.Unlock()
	if ok {
		return p.state, nil
	}
	value, closer, err := s.db.Get(stateKey(account))
	if errors.Is(err, pebble.ErrNotFound) {
		return state, nil
	}
	if err == nil {
		if state, err = decodeState(value); err != nil {
			err = s.db.FailOn("read a state", &pebbleguard.CorruptionError{Store: "store of chains", Advice: advice, Err: err})
		}
		err = errors.Join(err, closer.Close())
	}
	if err != nil {
		return state, fmt.Errorf("read the state of an account: %w", err)
	}
	return state, nil
}

// Set makes c.After the newest state of its account. A Commit must follow.
func (s *Store) Set(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[c.Account] = pending{c.After, s.pending[c.Account].changes + 1}
}

// Commit makes durable the changes up to a position, all that were set and not committed, in their
// order. The log gets the frames after that. An error is the failure of the store.
func (s *Store) Commit(at Position, changes []Change) error {
	err := s.db.Update(true, func(batch *pebble.Batch) error {
		err := errors.Join(batch.Set(undoKey(), appendUndo(nil, s.at, changes), nil), s.setMeta(batch, at))
		for i := range changes {
			err = errors.Join(err, setState(batch, changes[i].Account, changes[i].After))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("commit the states of accounts: %w", err)
	}
	s.at = at
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		account := changes[i].Account
		p := s.pending[account]
		if p.changes--; p.changes <= 0 {
			delete(s.pending, account)
			continue
		}
		s.pending[account] = p
	}
	return nil
}

// Failed is closed when a write or a sync failed, or damage was found. Err says why.
func (s *Store) Failed() <-chan struct{} { return s.db.Failed() }

// Err returns the failure, nil while there is none.
func (s *Store) Err() error { return s.db.Err() }

// Close closes the store. Nothing else may be under way. Safe twice.
func (s *Store) Close() error { return s.close() }
