package identity

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"millrace/intern/kv/pebbleguard"
)

// advice is what to do when the cache is damaged.
const advice = "check the disk; move the directory of the identity cache away, and keys are fetched anew"

// formatVersion is written out so that a newer Pebble does not change the files of an older cache
// unasked.
const formatVersion = pebble.FormatValueSeparation

// storeVersion is that of the keys and values.
const storeVersion = 1

// Prefixes of keys; doc.go has the formats.
const (
	prefixEntry  = 'e'
	prefixMeta   = 'm'
	prefixExport = 'x'
)

// The meta values.
const (
	metaFormat     = "mformat"
	metaSource     = "msource"
	metaGeneration = "mgeneration"
)

// store is the cache on disk. The holder of Directory.mu calls it, but for what says
// otherwise. Errors are the failure of db.
type store struct {
	db         *pebbleguard.DB
	half       int    // entries of a generation
	generation uint32 // the younger one
	count      int    // its entries
	older      int    // those of the one before
	key        [1 + 4 + 8]byte
	value      []byte
}

// openStore opens the cache, or makes an empty one. What comes from another source is dropped, and
// an export has then yet to be read.
func openStore(cfg *Config, source string) (*store, error) {
	memTable := min(max(cfg.Bytes/8, 128<<10), 1<<30) // Pebble takes less than 4 GiB
	options := &pebble.Options{
		CacheSize:                   cfg.Bytes / 2, // Pebble takes the memtables out of it
		FormatMajorVersion:          formatVersion,
		MemTableSize:                uint64(memTable),
		MemTableStopWritesThreshold: 2,
		L0StopWritesThreshold:       64,
		MaxOpenFiles:                100,
		BytesPerSync:                1 << 20,
	}
	options.CompactionConcurrencyRange = func() (int, int) { return 1, 1 }
	options.TargetFileSizes[0] = 8 << 20
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebbleguard.Open(pebbleguard.Config{Dir: cfg.Dir, FS: cfg.FS, Store: "identity cache",
		Advice: advice, Options: options, Logger: cfg.Logger})
	if err != nil {
		return nil, fmt.Errorf("open identity cache in %s: %w", cfg.Dir, err)
	}
	s := &store{db: db, half: cfg.hooks.entries / 2}
	if err := s.load(source); err != nil {
		return nil, fmt.Errorf("open identity cache in %s: %w", cfg.Dir, cmp.Or(err, db.Close()))
	}
	return s, nil
}

// load reads the meta values.
func (s *store) load(source string) error {
	format, formed, err := s.db.Value([]byte(metaFormat))
	if err != nil {
		return err
	}
	if formed && (len(format) != 1 || format[0] != storeVersion) {
		return fmt.Errorf("it has a format of another version than %d; %s", storeVersion, advice)
	}
	value, _, err := s.db.Value([]byte(metaGeneration))
	if err != nil {
		return err
	}
	if len(value) == 12 {
		s.generation = binary.BigEndian.Uint32(value)
		s.count, s.older = int(binary.BigEndian.Uint32(value[4:])), int(binary.BigEndian.Uint32(value[8:]))
	}
	had, _, err := s.db.Value([]byte(metaSource))
	if err != nil || string(had) == source && formed {
		return err
	}
	return s.reset()
}

// reset drops everything. The store then has no source.
func (s *store) reset() error {
	s.generation, s.count, s.older = s.generation+2, 0, 0
	return s.db.Update(true, func(b *pebble.Batch) error {
		return errors.Join(
			b.DeleteRange([]byte{prefixEntry}, []byte{prefixEntry + 1}, nil),
			b.DeleteRange([]byte{prefixExport}, []byte{prefixExport + 1}, nil),
			b.Delete([]byte(metaSource), nil),
			b.Set([]byte(metaFormat), []byte{storeVersion}, nil),
			s.setGeneration(b))
	})
}

// hasSource says whether the store has a source, which is then the one it was opened with.
func (s *store) hasSource() (bool, error) {
	_, ok, err := s.db.Value([]byte(metaSource))
	return ok, err
}

// setSource notes that what the store has is of a source.
func (s *store) setSource(source string) error {
	return s.db.Update(true, func(b *pebble.Batch) error { return b.Set([]byte(metaSource), []byte(source), nil) })
}

// entryKey returns the key of an account, until the next call.
func (s *store) entryKey(generation uint32, uid uint64) []byte {
	s.key[0] = prefixEntry
	binary.BigEndian.PutUint32(s.key[1:], generation)
	binary.BigEndian.PutUint64(s.key[5:], uid)
	return s.key[:]
}

// read returns the value of an account in a generation, nil if there is none.
func (s *store) read(generation uint32, uid uint64) []byte {
	value, _, err := s.db.Value(s.entryKey(generation, uid))
	_ = s.db.FailOn("read an identity", err) // Directory.Err has it
	return value
}

// get returns the entry of an account, nil if there is none.
func (s *store) get(uid uint64) *entry {
	value := s.read(s.generation, uid)
	young := value != nil
	if !young {
		value = s.read(s.generation-1, uid)
	}
	if value == nil {
		return nil
	}
	e, err := decodeValue(value)
	if err != nil {
		return nil // it is fetched anew
	}
	if !young {
		s.put(uid, e)
	}
	return e
}

// put writes the entry of an account.
func (s *store) put(uid uint64, e *entry) {
	b := s.db.Pebble().NewBatch()
	defer s.db.CloseBatch(b)
	if s.read(s.generation, uid) == nil {
		if s.count >= s.half {
			s.rotate(b)
		}
		s.count++
	}
	s.value = e.appendValue(s.value[:0])
	_ = b.Set(s.entryKey(s.generation, uid), s.value, nil)
	_ = s.setGeneration(b)
	_ = s.db.Commit(b, false) // an error is the failure of db
}

// rotate begins a generation, and drops the older one.
func (s *store) rotate(b *pebble.Batch) {
	var end [5]byte
	end[0] = prefixEntry
	binary.BigEndian.PutUint32(end[1:], s.generation)
	_ = b.DeleteRange([]byte{prefixEntry}, end[:], nil)
	s.generation, s.count, s.older = s.generation+1, 0, s.count
}

// delete deletes the entry of an account.
func (s *store) delete(uid uint64) {
	b := s.db.Pebble().NewBatch()
	defer s.db.CloseBatch(b)
	if s.read(s.generation, uid) != nil {
		s.count--
		_ = b.Delete(s.entryKey(s.generation, uid), nil)
	}
	if s.read(s.generation-1, uid) != nil {
		_ = b.Delete(s.entryKey(s.generation-1, uid), nil)
	}
	if b.Empty() {
		return
	}
	_ = s.setGeneration(b)
	_ = s.db.Commit(b, false)
}

// setGeneration adds the generation to a batch.
func (s *store) setGeneration(b *pebble.Batch) error {
	value := binary.BigEndian.AppendUint32(nil, s.generation)
	value = binary.BigEndian.AppendUint32(value, uint32(s.count))
	value = binary.BigEndian.AppendUint32(value, uint32(s.older))
	return b.Set([]byte(metaGeneration), value, nil)
}

// sync makes durable what was written. It needs no lock.
func (s *store) sync() error {
	return s.db.FailOn("sync the identity cache", s.db.Guard(func() error { return s.db.Pebble().LogData(nil, pebble.Sync) }))
}
