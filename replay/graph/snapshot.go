package graph

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"

	"millrace/replay/references"
)

const (
	magicStart   = "millrace graph "
	magic        = magicStart + "4\n"
	sectionBytes = 1 << 20 // from which a section ends; a large set may exceed it
	maxSection   = 1 << 30
	saveBatch    = 4096 // sets that are read in one lock
	// savedFraction is which fraction of the memory copies of changed sets may take, and
	// savedBytes what one takes beside its bytes.
	savedFraction, savedBytes = 16, 64
)

// Kinds of sections, in the order of a file.
const (
	sectionHeader = iota + 1
	sectionAccounts
	sectionSets
	sectionFlags
	sectionRecords
	sectionEnd
)

// Header is the first section of a snapshot.
type Header struct {
	StoreID    string
	Generation uint64
	Sources    []string
	Tables     []int // that the file has, in order; the static edges of the first source have number len(Sources)
	Position   references.Position
	Build      uint64 // of Result
	Accounts   int
	Lost       bool // accounts got no ordinal for want of memory
}

var errChanged = errors.New("too much was changed while it was written: its sets would take too much memory")

// walk is where a Save is: all Out sets before (table, next) are written.
type walk struct {
	table    int
	next     uint32
	accounts int
	saved    map[setKey][]byte // encoded sets that changed before the walk reached them
	bytes    atomic.Int64      // of saved
	failed   bool              // they were too many
}

// setKey names an Out set by its table and ordinal.
type setKey struct {
	table   int
	ordinal uint32
}

// keepLocked copies an Out set that changes, if a Save has yet to write it.
func (g *Graph) keepLocked(table int, actor uint32) {
	w, p := g.walk, setKey{table, actor}
	if w == nil || w.failed || int(actor) >= w.accounts || table < w.table || table == w.table && actor < w.next {
		return
	}
	if _, found := w.saved[p]; found {
		return
	}
	w.saved[p] = appendSet(nil, g.indexes[2*table].set(actor))
	if w.bytes.Add(savedBytes+int64(len(w.saved[p]))) > g.cfg.Memory/savedFraction {
		w.saved, w.failed = nil, true
		w.bytes.Store(0)
	}
}

// Save writes a snapshot of the position at its start into a file, in place of any that is there.
// It copies the table of second records and the flags at its start, in the lock.
func (g *Graph) Save(ctx context.Context, name string) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	if err := g.save(ctx, name); err != nil {
		return fmt.Errorf("graph: save snapshot %s: %w", name, err)
	}
	return nil
}

func (g *Graph) save(ctx context.Context, name string) error {
	temp := name + ".tmp"
	f, err := os.Create(temp)
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		os.Remove(temp) // renamed by then, or of no use
	}()
	w := &sectionWriter{w: bufio.NewWriterSize(f, sectionBytes)}
	if err := g.writeSections(ctx, w); err != nil {
		return err
	}
	if err := w.w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// sectionWriter writes sections; the first error ends it.
type sectionWriter struct {
	w   *bufio.Writer
	err error
}

func (w *sectionWriter) section(kind byte, payload []byte) {
	if w.err != nil {
		return
	}
	head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(head, castagnoli()), castagnoli(), payload)
	for _, b := range [][]byte{head, payload, binary.LittleEndian.AppendUint32(nil, sum)} {
		if w.err == nil {
			_, w.err = w.w.Write(b)
		}
	}
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func (g *Graph) writeSections(ctx context.Context, w *sectionWriter) error {
	_, w.err = w.w.WriteString(magic)
	header, uids, flags, more, err := g.begin()
	if err != nil {
		return err
	}
	defer func() {
		g.mu.Lock()
		g.walk = nil
		g.mu.Unlock()
	}()
	head, err := json.Marshal(header)
	if err != nil {
		return err
	}
	w.section(sectionHeader, head)
	for batch := range slices.Chunk(uids, sectionBytes/8) {
		var b []byte
		for _, uid := range batch {
			b = binary.LittleEndian.AppendUint64(b, uid)
		}
		w.section(sectionAccounts, b)
	}
	payload := make([]byte, 0, 2*sectionBytes)
	for i, table := range header.Tables {
		for first := 0; first < header.Accounts && w.err == nil; {
			if err := ctx.Err(); err != nil {
				return err
			}
			payload = append(payload[:0], byte(table))
			payload = binary.LittleEndian.AppendUint32(payload, uint32(first))
			var failed bool
			if payload, first, failed = g.appendSets(payload, table, first); failed {
				return errChanged
			}
			w.section(sectionSets, payload)
		}
		w.section(sectionFlags, append([]byte{byte(table)}, flags[i]...))
	}
	g.writeRecords(w, more)
	w.section(sectionEnd, nil)
	return w.err
}

// begin starts the walk, and copies what is copied at once. UIDs are only appended, so they are
// shared.
func (g *Graph) begin() (header Header, uids []uint64, flags [][]byte, more map[pair][]uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return header, nil, nil, nil, ErrClosed
	}
	header = Header{StoreID: g.cfg.StoreID, Generation: g.cfg.Generation, Sources: g.cfg.Sources,
		Position: g.position, Build: g.build, Accounts: len(g.accounts.uids), Lost: g.lost}
	for table := range g.tables() {
		var b []byte
		out, in := g.indexes[2*table], g.indexes[2*table+1]
		if len(out.refs) == 0 && out.incomplete.IsEmpty() && in.incomplete.IsEmpty() {
			continue
		}
		header.Tables = append(header.Tables, table)
		for _, bitmap := range []*roaring.Bitmap{out.incomplete, in.incomplete} {
			encoded, err := bitmap.ToBytes()
			if err != nil {
				return header, nil, nil, nil, err
			}
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(encoded))), encoded...)
		}
		flags = append(flags, b)
	}
	more = make(map[pair][]uint64, len(g.more))
	for p, records := range maps.All(g.more) {
		more[p] = slices.Clone(records)
	}
	g.walk = &walk{accounts: header.Accounts, saved: map[setKey][]byte{}}
	return header, g.accounts.uids[:header.Accounts], flags, more, nil
}

// appendSets appends the next Out sets of a table until a section is full, and returns what comes
// next. failed says that so much has changed that the snapshot cannot be of one position.
func (g *Graph) appendSets(payload []byte, table, first int) (_ []byte, next int, failed bool) {
	for first < g.walk.accounts && len(payload) < sectionBytes {
		end := min(first+saveBatch, g.walk.accounts)
		g.mu.RLock()
		for ; first < end && len(payload) < sectionBytes; first++ {
			p := setKey{table, uint32(first)}
			if saved, found := g.walk.saved[p]; found {
				payload = append(payload, saved...)
				delete(g.walk.saved, p)
				g.walk.bytes.Add(-savedBytes - int64(len(saved)))
			} else {
				payload = appendSet(payload, g.indexes[2*table].set(p.ordinal))
			}
		}
		g.walk.table, g.walk.next = table, uint32(first)
		failed = g.walk.failed
		g.mu.RUnlock()
	}
	return payload, first, failed
}

func appendSet(b []byte, s set) []byte {
	if s.members == 0 {
		return append(b, 0)
	}
	if s.bitmap != nil {
		data, _ := s.bitmap.ToBytes() // writes to memory: no error
		b = binary.AppendUvarint(b, 2*uint64(s.members)|1)
		return append(binary.AppendUvarint(b, uint64(len(data))), data...)
	}
	code := bytes.TrimRight(s.code, "\x00")
	b = binary.AppendUvarint(b, 2*uint64(s.members))
	b = binary.AppendUvarint(b, uint64(1+len(code)))
	return append(append(b, byte(s.low)), code...)
}

func (g *Graph) writeRecords(w *sectionWriter, more map[pair][]uint64) {
	var b []byte
	for p, records := range more {
		for _, record := range records {
			for _, n := range []uint32{p.source, p.actor, p.subject} {
				b = binary.LittleEndian.AppendUint32(b, n)
			}
			b = binary.LittleEndian.AppendUint64(b, record)
			if len(b) >= sectionBytes {
				w.section(sectionRecords, b)
				b = b[:0]
			}
		}
	}
	if len(b) > 0 {
		w.section(sectionRecords, b)
	}
}
