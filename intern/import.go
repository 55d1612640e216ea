package intern

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"millrace/intern/kv"
)

// errNotEmpty means: an import needs an empty store, or one that holds the same import's beginning.
var errNotEmpty = errors.New("UID store is not empty: import into a new one")

// Dump is a dump that is whole and sound.
type Dump struct {
	file    io.ReadSeeker
	summary *Summary
}

// CheckDump reads a dump from beginning to end, until ctx ends, and checks counts and checksums.
func CheckDump(ctx context.Context, file io.ReadSeeker) (*Dump, error) {
	r := newDumpReader(file)
	err := r.open()
	for err == nil {
		if err = context.Cause(ctx); err == nil {
			_, err = r.segment()
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
	case r.kind != segEnd:
		err = fmt.Errorf("%w: its end is missing", errDump)
	default:
		return &Dump{file, r.header.summary(r.counts, r.offset)}, nil
	}
	return nil, fmt.Errorf("check UID dump: %w", err)
}

// Import brings the dump into an empty store: names and keys, then the counters, last the header
// that makes it a store. The store has the dump's store ID and prefix bits. Begun again after an
// interruption it goes on where it was, and changes nothing once the store has it all. progress, if
// not nil, gets the number of names written so far.
func (d *Dump) Import(ctx context.Context, store kv.Store, progress func(names uint64)) (*Summary, error) {
	m := &importer{store: store, reader: newDumpReader(d.file), progress: progress}
	_, err := d.file.Seek(0, io.SeekStart)
	if err == nil {
		err = m.run(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("import UID dump: %w", err)
	}
	return d.summary, nil
}

// importer writes a dump into a store, a transaction a segment. Each also writes how far it has
// come: the dump's header, and the offset of the next segment.
type importer struct {
	store    kv.Store
	reader   *dumpReader
	target   codec // the store's own
	done     int64 // segments before this offset are in the store
	lastColl uint32
	progress func(uint64)
}

func (m *importer) run(ctx context.Context) error {
	if err := m.reader.open(); err != nil {
		return err
	}
	h := newHeader(int(m.reader.header.prefixBits), m.store.Limits())
	h.storeID = m.reader.header.storeID
	m.target = h.codec
	complete := false
	err := kv.Run(ctx, m.store, func(txn kv.Txn) (err error) {
		complete, err = m.begin(ctx, txn)
		return err
	})
	if err != nil || complete {
		return err
	}
	for {
		s, err := m.reader.segment()
		if err != nil {
			return err // io.EOF cannot be: CheckDump has seen the end
		}
		if s.kind == segEnd {
			return m.finish(ctx, h)
		}
		if err := m.write(ctx, s); err != nil {
			return err
		}
		if m.progress != nil {
			m.progress(m.reader.counts.names)
		}
	}
}

// begin finds out how far an earlier import has come, or makes sure that the store is empty.
func (m *importer) begin(ctx context.Context, txn kv.Txn) (complete bool, err error) {
	values := make([][]byte, 2)
	if err := txn.Get(ctx, [][]byte{[]byte(keyImport), []byte(keyImported)}, values); err != nil {
		return false, err
	}
	header := string(m.reader.header.appendTo(nil))
	if string(values[1]) == header {
		return true, nil
	}
	if value := values[0]; value != nil {
		at := len(value) - 8
		if at < 0 || string(value[:at]) != header {
			return false, fmt.Errorf("%w; it holds the beginning of another file's import", errNotEmpty)
		}
		m.done = int64(binary.BigEndian.Uint64(value[at:]))
		return false, nil
	}
	if h, err := loadHeader(ctx, txn); err == nil && h.storeID == m.reader.header.storeID {
		return false, fmt.Errorf("%w; this one has the file's store ID: the file may be of it, or of a copy", errNotEmpty)
	}
	err = txn.Scan(ctx, kv.Range{Begin: []byte{0}, End: []byte{0xff}}, func(kv.Pair) (bool, error) { return false, errNotEmpty })
	if err == nil {
		m.setProgress(txn, m.reader.offset)
	}
	return false, err
}

func (m *importer) setProgress(txn kv.Txn, offset int64) {
	txn.Set([]byte(keyImport), binary.BigEndian.AppendUint64(m.reader.header.appendTo(nil), uint64(offset)))
}

// transact runs fn in a transaction that conflicts with all others of the import. So a commit that
// arrives late, when its retry was applied, fails.
func (m *importer) transact(ctx context.Context, fn func(kv.Txn) error) error {
	return kv.Run(ctx, m.store, func(txn kv.Txn) error {
		if _, err := kv.GetOne(ctx, txn, []byte(keyImport)); err != nil {
			return err
		}
		return fn(txn)
	})
}

// write writes one segment, unless it is there.
func (m *importer) write(ctx context.Context, s segment) error {
	if s.kind == segCollections {
		if err := eachCollection(s.payload, func(n uint32, _ []byte) error { m.lastColl = max(m.lastColl, n); return nil }); err != nil {
			return err
		}
	}
	if m.reader.offset <= m.done {
		return nil
	}
	return m.transact(ctx, func(txn kv.Txn) (err error) {
		switch s.kind {
		case segCollections:
			err = eachCollection(s.payload, func(n uint32, nsid []byte) error {
				txn.Set(appendCollNameKey(nil, nsid), appendNumber(uint64(n)))
				txn.Set(appendCollNumberKey(nil, n), nsid)
				return nil
			})
		case segUIDs:
			err = eachChunk(s.payload, func(uid uint64, chunk []byte) error { return m.chunk(txn, uid, chunk) })
		case segSequences:
			err = eachSequence(s.payload, func(sequence uint32, last uint64) error {
				txn.Set(appendSequenceKey(nil, sequence), appendNumber(last))
				return nil
			})
		}
		m.setProgress(txn, m.reader.offset)
		return err
	})
}

// chunk writes a chunk and the keys of its names.
func (m *importer) chunk(txn kv.Txn, uid uint64, chunk []byte) error {
	txn.Set(appendUIDKey(nil, uid), chunk)
	c, _, err := openChunk(m.target, chunk)
	if err != nil {
		return err
	}
	var e entry
	var key, value []byte
	for c.next(&e) {
		key, value = m.target.appendKey(key[:0], &e), m.target.appendUID(value[:0], uid)
		txn.Set(key, value)
		uid++
	}
	return c.err
}

// finish makes it a store.
func (m *importer) finish(ctx context.Context, h header) error {
	return m.transact(ctx, func(txn kv.Txn) error {
		txn.Set([]byte(keyStore), h.appendTo(nil))
		if m.lastColl > 0 {
			txn.Set([]byte(keyCollections), appendNumber(uint64(m.lastColl)))
		}
		if skipped := m.reader.header.skipped; skipped > 0 {
			txn.Set([]byte(keySkipped), appendNumber(skipped))
		}
		txn.Clear([]byte(keyImport))
		txn.Set([]byte(keyImported), m.reader.header.appendTo(nil))
		return nil
	})
}
