package pebbleguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// MarkFile is the name of the high-water mark's file.
const MarkFile = "MARK"

const (
	markMagic     = "mrmark1\n"
	markSlotBytes = 4 << 10
	maxMarkValue  = 256
	markInterval  = time.Second
)

// Mark is the high-water mark of a database that is open for writing. One goroutine at a time
// writes it: the one to which Due returned true.
type Mark struct {
	db         *DB
	taken      atomic.Bool // guards generation and written
	file       vfs.File
	value      []byte // that Open found; nil: none
	generation uint64
	written    time.Time
}

// Value returns the mark that Open found; nil: none.
func (m *Mark) Value() []byte { return m.value }

// readMark returns the value of the mark; ok is false if there is none that can be read.
func readMark(fs vfs.FS, dir string) (value []byte, ok bool, err error) {
	file, err := fs.Open(fs.PathJoin(dir, MarkFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the high-water mark: %w", err)
	}
	value, _, ok, err = decodeMark(file)
	return value, ok, errors.Join(err, file.Close())
}

func decodeMark(file io.ReaderAt) (value []byte, generation uint64, ok bool, err error) {
	for i := range int64(2) {
		slot := make([]byte, len(markMagic)+8+2+maxMarkValue+4)
		n, err := file.ReadAt(slot, i*markSlotBytes)
		if err != nil && err != io.EOF {
			return nil, 0, false, fmt.Errorf("read the high-water mark: %w", err)
		}
		v, g, sound := decodeSlot(slot[:n])
		if sound && (!ok || g > generation) {
			value, generation, ok = v, g, true
		}
	}
	return value, generation, ok, nil
}

func decodeSlot(slot []byte) (value []byte, generation uint64, ok bool) {
	const head = len(markMagic) + 8 + 2
	if len(slot) < head || string(slot[:len(markMagic)]) != markMagic {
		return nil, 0, false
	}
	end := head + int(binary.LittleEndian.Uint16(slot[head-2:]))
	if end+4 > len(slot) || binary.LittleEndian.Uint32(slot[end:]) != markSum(slot[:end]) {
		return nil, 0, false
	}
	return slot[head:end], binary.LittleEndian.Uint64(slot[len(markMagic):]), true
}

func appendSlot(dst []byte, generation uint64, value []byte) []byte {
	at := len(dst)
	dst = append(dst, markMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, generation)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(value)))
	dst = append(dst, value...)
	return binary.LittleEndian.AppendUint32(dst, markSum(dst[at:]))
}

func markSum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// openMark opens the mark for writing, and makes its file if there is none.
func (d *DB) openMark() (m *Mark, err error) {
	fs, dir := d.cfg.FS, d.cfg.Dir
	name := fs.PathJoin(dir, MarkFile)
	_, err = fs.Stat(name)
	fresh := errors.Is(err, os.ErrNotExist)
	if err != nil && !fresh {
		return nil, fmt.Errorf("open the high-water mark: %w", err)
	}
	file, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("open the high-water mark: %w", err)
	}
	m = &Mark{db: d, file: &namedFile{file, name}}
	if fresh {
		// The file gets its disk blocks now, so later writes work on a full disk too.
		_, err = file.WriteAt(make([]byte, 2*markSlotBytes), 0)
		err = errors.Join(err, file.Sync(), syncDir(fs, dir))
	} else {
		m.value, m.generation, _, err = decodeMark(file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the high-water mark: %w", err), file.Close())
	}
	return m, nil
}

// Due says whether the mark is old. If it is, the caller must call Write, and no other caller gets
// that answer before.
func (m *Mark) Due() bool {
	if !m.taken.CompareAndSwap(false, true) {
		return false
	}
	if !m.written.IsZero() && time.Since(m.written) < markInterval {
		m.taken.Store(false)
		return false
	}
	return true
}

// Write writes the mark and syncs it. What value stands for must be synced, and the caller the only
// one: by Due, or since Due is not called again.
func (m *Mark) Write(value []byte) error {
	defer m.taken.Store(false)
	if len(value) > maxMarkValue {
		return fmt.Errorf("write the high-water mark: %d bytes are too many", len(value))
	}
	if err := m.db.checkPlace(); err != nil {
		return err
	}
	m.generation++
	m.written = time.Now()
	_, err := m.file.WriteAt(appendSlot(nil, m.generation, value), int64(m.generation%2)*markSlotBytes)
	if err == nil {
		err = m.file.SyncData()
	}
	if err != nil {
		return fmt.Errorf("write the high-water mark: %w", err)
	}
	return nil
}

func (m *Mark) close() error { return m.file.Close() }
