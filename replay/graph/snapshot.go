package graph

import (
	"bufio"
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

	"millrace/replay/references"
)

const (
	magic        = "millrace graph 1\n"
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

// Kinds of sets in a section.
const (
	setEmpty = iota
	setDeltas
	setBitmap
)

// Header is the first section of a snapshot.
type Header struct {
	StoreID    string
	Generation uint64
	Sources    []string
	Position   references.Position
	Build      uint64 // of Result
	Accounts   int
	Lost       bool // accounts got no ordinal for want of memory
}

var errChanged = errors.New("too much was changed while it was written: its sets would take too much memory")

// walk is where a Save is: all sets before (index, next) are written.
type walk struct {
	index    int
	next     uint32
	accounts int
	saved    map[setKey][]byte // encoded sets that changed before the walk reached them
	bytes    int64             // of all that were copied
	failed   bool              // they were too many
}

// setKey names a set by its index and ordinal.
type setKey struct {
	index   int
	ordinal uint32
}

// keepLocked copies the sets of an edge that changes, if a Save has yet to write them.
func (g *Graph) keepLocked(source int, actor, subject uint32) {
	if g.walk == nil {
		return
	}
	for _, p := range []setKey{{2 * source, actor}, {2*source + 1, subject}} {
		w := g.walk
		if int(p.ordinal) >= w.accounts || p.index < w.index || p.index == w.index && p.ordinal < w.next {
			continue
		}
		if _, found := w.saved[p]; found || w.failed {
			continue
		}
		set := appendSet(nil, g.indexes[p.index].set(p.ordinal))
		w.saved[p] = set
		if w.bytes += savedBytes + int64(len(set)); w.bytes > g.cfg.Memory/savedFraction {
			w.saved, w.bytes, w.failed = nil, 0, true
		}
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
	for index := range 2 * len(header.Sources) {
		for first := 0; first < header.Accounts && w.err == nil; {
			if err := ctx.Err(); err != nil {
				return err
			}
			payload = append(payload[:0], byte(index))
			payload = binary.LittleEndian.AppendUint32(payload, uint32(first))
			payload, first = g.appendSets(payload, index, first)
			if g.walkFailed() {
				return errChanged
			}
			w.section(sectionSets, payload)
		}
		w.section(sectionFlags, append([]byte{byte(index)}, flags[index]...))
	}
	g.writeRecords(w, more)
	w.section(sectionEnd, nil)
	return w.err
}

// walkFailed says whether so much has changed that the snapshot cannot be of one position.
func (g *Graph) walkFailed() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.walk.failed
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
	for _, x := range g.indexes {
		var b []byte
		for _, bitmap := range []interface{ ToBytes() ([]byte, error) }{x.incomplete, x.static} {
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

// appendSets appends the next sets of an index until a section is full, and returns what comes
// next.
func (g *Graph) appendSets(payload []byte, index, first int) ([]byte, int) {
	for first < g.walk.accounts && len(payload) < sectionBytes {
		end := min(first+saveBatch, g.walk.accounts)
		g.mu.RLock()
		for ; first < end && len(payload) < sectionBytes; first++ {
			p := setKey{index, uint32(first)}
			if saved, found := g.walk.saved[p]; found {
				payload = append(payload, saved...)
				delete(g.walk.saved, p)
			} else {
				payload = appendSet(payload, g.indexes[index].set(p.ordinal))
			}
		}
		g.walk.index, g.walk.next = index, uint32(first)
		g.mu.RUnlock()
	}
	return payload, first
}

func appendSet(b []byte, s set) []byte {
	if s.members == 0 {
		return append(b, setEmpty)
	}
	kind, data := byte(setDeltas), s.deltas
	if s.bitmap != nil {
		kind = setBitmap
		data, _ = s.bitmap.ToBytes() // writes to memory: no error
	}
	b = binary.LittleEndian.AppendUint32(append(b, kind), uint32(s.members))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
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
