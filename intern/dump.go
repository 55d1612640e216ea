package intern

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"
)

// A dump is a store in a file:
//
//	dump    = magic(8) segment…
//	segment = kind(1) length(4) CRC-32C of kind and payload(4) payload
//
//	'H'  length and header, as under 00 "store", skipped, number of counters, their sum
//	'C'  collections: number length NSID …
//	'U'  UIDs: first-UID(8) length chunk …, in ascending order
//	'S'  sequences: sequence(4) last-n …
//	'E'  end: number of names, collections, sequences,
//	     and the SHA-256 of the file before this segment
//
// in this order. Sizes in parentheses are bytes, those of segments little-endian and those of UIDs
// and sequences big-endian; all others are varints. The keys by name are not in it: they follow
// from the chunks.
const dumpMagic = "mrUIDs\x001"

// noDump is what is wrong with a file without it.
const noDump = "it does not begin as millrace intern export begins one"

const (
	segHeader      = 'H'
	segCollections = 'C'
	segUIDs        = 'U'
	segSequences   = 'S'
	segEnd         = 'E'
)

const (
	segHeadBytes = 9
	maxSegment   = 1 << 20 // bytes of a payload; those written are much smaller
	fillSegment  = 64 << 10
)

// errDump means: a dump is damaged or incomplete.
var errDump = errors.New("UID dump is damaged or incomplete")

// segment is one segment of a dump.
type segment struct {
	kind    byte
	payload []byte
}

func (s segment) crc() uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // made once
	return crc32.Update(crc32.Checksum([]byte{s.kind}, table), table, s.payload)
}

// dumpWriter appends segments.
type dumpWriter struct {
	w      *bufio.Writer
	sum    hash.Hash // of all that was written
	counts dumpCounts
}

// dumpCounts is what the end of a dump states.
type dumpCounts struct{ names, collections, sequences uint64 }

func (w *dumpWriter) write(b []byte) error {
	w.sum.Write(b)
	_, err := w.w.Write(b)
	return err
}

// segment writes a segment and flushes it, so that a file cut here can be resumed.
func (w *dumpWriter) segment(s segment) error {
	head := binary.LittleEndian.AppendUint32([]byte{s.kind}, uint32(len(s.payload)))
	head = binary.LittleEndian.AppendUint32(head, s.crc())
	if err := w.write(head); err != nil {
		return err
	}
	if err := w.write(s.payload); err != nil {
		return err
	}
	return w.w.Flush()
}

// end writes the last segment.
func (w *dumpWriter) end() error {
	payload := binary.AppendUvarint(nil, w.counts.names)
	payload = binary.AppendUvarint(payload, w.counts.collections)
	payload = binary.AppendUvarint(payload, w.counts.sequences)
	return w.segment(segment{segEnd, w.sum.Sum(payload)})
}

// dumpReader reads segments and checks their order.
type dumpReader struct {
	r      *bufio.Reader
	sum    hash.Hash // of all that was read but the end
	offset int64     // of the next segment
	kind   byte      // of the last segment
	counts dumpCounts
	header dumpHeader
	next   uint64 // the least UID that the next chunk may begin with
	buf    []byte
}

// dumpHeader is the payload of the first segment.
type dumpHeader struct {
	header
	skipped  uint64
	counters uint64 // number of counters when the dump was begun
	total    uint64 // their sum, modulo 2^64
}

func newDumpReader(r io.Reader) *dumpReader {
	return &dumpReader{r: bufio.NewReaderSize(r, 1<<20), sum: sha256.New()}
}

// open reads magic and header.
func (r *dumpReader) open() error {
	magic := make([]byte, len(dumpMagic))
	if _, err := io.ReadFull(r.r, magic); err != nil || string(magic) != dumpMagic {
		return r.damage(err, noDump)
	}
	r.sum.Write(magic)
	r.offset = int64(len(magic))
	s, err := r.segment()
	if err != nil {
		return err
	}
	if s.kind != segHeader {
		return fmt.Errorf("%w: its first segment is no header", errDump)
	}
	return nil
}

// segment reads a segment whole. Its payload is valid until the next call. io.EOF: there is no
// more; any other error is or wraps errDump, or is the reader's own. The offset stays after the
// last good segment.
func (r *dumpReader) segment() (segment, error) {
	var head [segHeadBytes]byte
	if n, err := io.ReadFull(r.r, head[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return segment{}, io.EOF
		}
		return segment{}, r.damage(err, "cut off")
	}
	s, size := segment{kind: head[0]}, int(binary.LittleEndian.Uint32(head[1:]))
	if size > maxSegment {
		return segment{}, r.damage(nil, "segment of %d bytes", size)
	}
	r.buf = slices.Grow(r.buf[:0], size)[:size]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return segment{}, r.damage(err, "cut off")
	}
	s.payload = r.buf
	if s.crc() != binary.LittleEndian.Uint32(head[5:]) {
		return segment{}, r.damage(nil, "checksum of a segment")
	}
	if err := r.check(s); err != nil {
		return segment{}, err
	}
	if s.kind != segEnd {
		r.sum.Write(head[:])
		r.sum.Write(s.payload)
	}
	r.kind = s.kind
	r.offset += int64(len(head) + size)
	return s, nil
}

func (r *dumpReader) damage(err error, format string, args ...any) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read UID dump at byte %d: %w", r.offset, err)
	}
	return fmt.Errorf("%w: at byte %d: %s", errDump, r.offset, fmt.Sprintf(format, args...))
}

// check checks a segment's place and contents, and counts what it holds.
func (r *dumpReader) check(s segment) (err error) {
	const order = "HCUSE"
	was, is := bytes.IndexByte([]byte(order), r.kind), bytes.IndexByte([]byte(order), s.kind)
	if is < 0 || is < was || is == was && (s.kind == segHeader || s.kind == segEnd) {
		return r.damage(nil, "segment %q after %q", s.kind, r.kind)
	}
	switch s.kind {
	case segHeader:
		r.header, err = parseDumpHeader(s.payload)
	case segCollections:
		err = eachCollection(s.payload, func(uint32, []byte) error { r.counts.collections++; return nil })
	case segUIDs:
		err = eachChunk(s.payload, r.checkChunk)
	case segSequences:
		err = eachSequence(s.payload, func(uint32, uint64) error { r.counts.sequences++; return nil })
	case segEnd:
		err = r.checkEnd(s.payload)
	}
	if err != nil {
		return r.damage(nil, "%v", err)
	}
	return nil
}

func (r *dumpReader) checkChunk(uid uint64, chunk []byte) error {
	c, count, err := openChunk(r.header.codec, chunk)
	if err != nil {
		return err
	}
	if uid < r.next {
		return broken("order of UIDs", chunk)
	}
	var e entry
	for c.next(&e) {
		r.counts.names++
	}
	r.next = uid + uint64(count)
	return c.err
}

func (r *dumpReader) checkEnd(b []byte) error {
	var stated dumpCounts
	ok := true
	for _, n := range []*uint64{&stated.names, &stated.collections, &stated.sequences} {
		if ok {
			*n, b, ok = uvarint(b)
		}
	}
	switch {
	case !ok:
		return broken("end", b)
	case stated != r.counts:
		return fmt.Errorf("its end states %+v, but it holds %+v", stated, r.counts)
	case !bytes.Equal(b, r.sum.Sum(nil)):
		return errors.New("its contents do not have the SHA-256 that its end states")
	}
	return nil
}

func (h *dumpHeader) appendTo(dst []byte) []byte {
	fixed := h.header.appendTo(nil)
	dst = append(binary.AppendUvarint(dst, uint64(len(fixed))), fixed...)
	dst = binary.AppendUvarint(dst, h.skipped)
	dst = binary.AppendUvarint(dst, h.counters)
	return binary.AppendUvarint(dst, h.total)
}

func parseDumpHeader(b []byte) (h dumpHeader, err error) {
	fixed, b, ok := text(b)
	if !ok {
		return h, broken("dump header", b)
	}
	if h.header, err = parseHeader(fixed); err != nil {
		return h, err
	}
	for _, n := range []*uint64{&h.skipped, &h.counters, &h.total} {
		if ok {
			*n, b, ok = uvarint(b)
		}
	}
	if !ok || len(b) > 0 {
		return h, broken("dump header", b)
	}
	return h, nil
}

// text reads a length and as many bytes.
func text(b []byte) (t, rest []byte, ok bool) {
	size, b, ok := uvarint(b)
	if !ok || size > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:size:size], b[size:], true
}

func eachCollection(b []byte, fn func(number uint32, nsid []byte) error) error {
	for len(b) > 0 {
		number, rest, ok := collection(b)
		nsid, rest, ok2 := text(rest)
		if !ok || !ok2 || checkNSID(nsid) != "" {
			return broken("collections", b)
		}
		if err := fn(number, nsid); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

func eachChunk(b []byte, fn func(uid uint64, chunk []byte) error) error {
	for len(b) > 0 {
		if len(b) < 8 {
			return broken("UIDs", b)
		}
		chunk, rest, ok := text(b[8:])
		if !ok {
			return broken("UIDs", b)
		}
		if err := fn(binary.BigEndian.Uint64(b), chunk); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

func eachSequence(b []byte, fn func(sequence uint32, last uint64) error) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return broken("sequences", b)
		}
		last, rest, ok := uvarint(b[4:])
		if !ok {
			return broken("sequences", b)
		}
		if err := fn(binary.BigEndian.Uint32(b), last); err != nil {
			return err
		}
		b = rest
	}
	return nil
}
