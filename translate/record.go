package translate

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
)

// Limits of a record.
const (
	// maxRecordBytes is the largest record, as DAG-CBOR.
	maxRecordBytes = 1 << 20
	// maxDepth is how many maps and arrays may lie within each other, the record itself included.
	maxDepth = 64

	maxContainerLen = 128 << 10 // elements of an array, entries of a map; as in indigo
	maxKeyBytes     = 8192      // of a map key; as in indigo
)

// Scratch above these sizes is given back after a frame, so that a rare giant does not keep its
// memory.
const (
	maxKeptEntries = 1 << 12
	maxKeptScratch = 1 << 16
)

// entry is one entry of a map whose JSON has been appended.
type entry struct {
	prefix uint64 // the key's first eight bytes, big endian, padded with zeros: orders most keys
	key    uint32 // offset of the key in the record
	keyLen uint32
	start  uint32 // of the entry in dst: "key":value
	value  uint32 // of the value in dst
	end    uint32
}

// recordCoder appends records as JSON. It reads each byte of a record once. The keys of a map come
// out in another order than they come in. So a map's entries are put in order once they are all
// there.
type recordCoder struct {
	decoder
	limit   int     // how far dst may grow
	entries []entry // those of all maps that are open
	scratch []byte  // of whatever method runs, not across calls
	refs    finder
}

// appendRecord appends block, a record in DAG-CBOR, as JSON. ok is false if it is not one that the
// data model allows, or if dst would grow beyond limit, which fail says. dst then holds part of it.
//
// Like indigo it reads undefined as null and does not mind bytes after the record.
func (r *recordCoder) appendRecord(dst, block []byte, limit int) (_ []byte, ok bool) {
	if len(block) == 0 || len(block) > maxRecordBytes || block[0]>>5 != majorMap {
		return dst, false
	}
	r.reset(block)
	r.limit = limit
	r.entries = r.entries[:0]
	if r.refs.on {
		r.refs.begin()
	}
	dst = r.appendValue(dst, 1)
	r.buf = nil
	if r.refs.on && r.fail != failNone {
		r.refs.undo()
	}
	return dst, r.fail == failNone
}

// trim gives large scratch back.
func (r *recordCoder) trim() {
	if cap(r.entries) > maxKeptEntries {
		r.entries = nil
	}
	if cap(r.scratch) > maxKeptScratch {
		r.scratch = nil
	}
}

// appendValue appends the next item, which is at the given depth if it is a map or an array.
func (r *recordCoder) appendValue(dst []byte, depth int) []byte {
	major, info, arg := r.head()
	if r.fail != failNone {
		return dst
	}
	switch major {
	case majorUint, majorNegInt:
		if arg > math.MaxInt64 {
			break
		}
		if major == majorNegInt {
			return strconv.AppendInt(dst, -1-int64(arg), 10)
		}
		return strconv.AppendInt(dst, int64(arg), 10)
	case majorBytes:
		dst = append(dst, `{"$bytes":"`...)
		dst = base64.RawStdEncoding.AppendEncode(dst, r.take(arg))
		return append(dst, `"}`...)
	case majorText:
		s := r.take(arg)
		if r.refs.on && mayRefer(s) {
			r.refs.note(r.buf, s)
		}
		return r.appendText(dst, s)
	case majorArray:
		return r.appendArray(dst, arg, depth)
	case majorMap:
		return r.appendMap(dst, arg, depth)
	case majorTag:
		if arg == tagCID {
			return r.appendLink(dst)
		}
	case majorSimple:
		return r.appendSimple(dst, info, arg)
	}
	r.setFail(failMalformed)
	return dst
}

func (r *recordCoder) appendText(dst, s []byte) []byte {
	if room := r.limit - len(dst); maxQuotedLen(len(s)) > room && quotedLen(s) > room {
		r.setFail(failTooLarge)
		return dst
	}
	dst, ok := appendQuoted(dst, s)
	if !ok {
		r.setFail(failMalformed)
	}
	return dst
}

// appendSimple appends true, false, null or a float without a fraction.
func (r *recordCoder) appendSimple(dst []byte, info byte, arg uint64) []byte {
	var f float64
	switch info {
	case simpleFalse:
		return append(dst, "false"...)
	case simpleTrue:
		return append(dst, "true"...)
	case simpleNull, simpleUndefined:
		return append(dst, "null"...)
	case simpleFloat16:
		f = float16(uint16(arg))
	case simpleFloat32:
		f = float64(math.Float32frombits(uint32(arg)))
	case simpleFloat64:
		f = math.Float64frombits(arg)
	default:
		f = math.NaN()
	}
	const limit = 1 << 63
	if f >= -limit && f < limit && f == math.Trunc(f) {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	r.setFail(failMalformed)
	return dst
}

// float16 returns the number that the bits of an IEEE 754 half-precision float stand for.
func float16(bits uint16) float64 {
	fraction := float64(bits & 0x3ff)
	f := 0.0
	switch exponent := int(bits >> 10 & 0x1f); exponent {
	case 0:
		f = math.Ldexp(fraction, -24)
	case 31:
		f = math.NaN() // or an infinity, which is no integer either
	default:
		f = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits&0x8000 != 0 {
		return -f
	}
	return f
}

// appendLink appends what follows the tag of a link.
func (r *recordCoder) appendLink(dst []byte) []byte {
	cid := linkCID(r.bytes())
	if cid == nil {
		r.setFail(failMalformed)
		return dst
	}
	dst = append(dst, `{"$link":"`...)
	return append(appendCID(dst, cid), `"}`...)
}

func (r *recordCoder) appendArray(dst []byte, n uint64, depth int) []byte {
	if depth > maxDepth || n > maxContainerLen {
		r.setFail(failMalformed)
		return dst
	}
	dst = append(dst, '[')
	if r.refs.on {
		r.refs.enterArray()
	}
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		if r.refs.on {
			r.refs.element(r.pos)
		}
		dst = r.appendValue(dst, depth+1)
		if r.fail != failNone {
			return dst
		}
	}
	if r.refs.on {
		r.refs.leave()
	}
	return append(dst, ']')
}

// appendMap appends a map of n entries, sorted by key. If it is one of the objects that stand for
// something else (a link, bytes, a blob), it is checked. It is brought into that object's form.
func (r *recordCoder) appendMap(dst []byte, n uint64, depth int) []byte {
	if depth > maxDepth || n > maxContainerLen {
		r.setFail(failMalformed)
		return dst
	}
	first, start := len(r.entries), len(dst)
	dst = append(dst, '{')
	sorted, keys := true, specialKeys(0)
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.appendEntry(dst, depth)
		if r.fail != failNone {
			return dst
		}
		last := len(r.entries) - 1
		if i > 0 && sorted {
			sorted = r.compare(r.entries[last-1], r.entries[last]) < 0
		}
		keys |= specialKeyOf(&r.entries[last])
	}
	dst = append(dst, '}')
	entries := r.entries[first:]
	if !sorted {
		dst = r.reorder(dst, start, entries)
	}
	if keys != 0 && r.fail == failNone {
		dst = r.finishSpecial(dst, start, entries, keys, depth)
	}
	r.entries = r.entries[:first]
	return dst
}

// appendEntry appends the next entry of a map as "key":value and records it.
func (r *recordCoder) appendEntry(dst []byte, depth int) []byte {
	key := r.text()
	if r.fail != failNone || len(key) > maxKeyBytes {
		r.setFail(failMalformed)
		return dst
	}
	e := entry{
		prefix: keyPrefix(key),
		key:    uint32(r.pos - len(key)),
		keyLen: uint32(len(key)),
		start:  uint32(len(dst)),
	}
	dst = append(r.appendText(dst, key), ':')
	e.value = uint32(len(dst))
	if r.refs.on {
		r.refs.enterMember(e.key, e.keyLen)
		dst = r.appendValue(dst, depth+1)
		r.refs.leave()
	} else {
		dst = r.appendValue(dst, depth+1)
	}
	e.end = uint32(len(dst))
	r.entries = append(r.entries, e)
	return dst
}

// keyPrefix returns entry.prefix for a key.
func keyPrefix(key []byte) uint64 {
	var padded [8]byte
	copy(padded[:], key)
	return binary.BigEndian.Uint64(padded[:])
}

// keyOf returns the key of an entry. It aliases the record.
func (r *recordCoder) keyOf(e entry) []byte { return r.buf[e.key : e.key+e.keyLen] }

// compare orders entries as encoding/json does: by the bytes of their keys.
func (r *recordCoder) compare(a, b entry) int {
	if a.prefix != b.prefix {
		return cmp.Compare(a.prefix, b.prefix)
	}
	return bytes.Compare(r.keyOf(a), r.keyOf(b))
}

// reorder sorts the entries of the map at dst[start:] and rewrites it in that order. It fails if
// two keys are equal. The entries' offsets are right again afterwards.
func (r *recordCoder) reorder(dst []byte, start int, entries []entry) []byte {
	slices.SortFunc(entries, r.compare)
	for i := 1; i < len(entries); i++ {
		if r.compare(entries[i-1], entries[i]) == 0 {
			r.setFail(failMalformed)
			return dst
		}
	}
	r.scratch = append(r.scratch[:0], dst[start:]...)
	end := len(dst)
	dst = dst[:start+1]
	for i := range entries {
		e := &entries[i]
		text := r.scratch[int(e.start)-start : int(e.end)-start]
		e.value += uint32(len(dst)) - e.start
		e.start = uint32(len(dst))
		dst = append(dst, text...)
		e.end = uint32(len(dst))
		dst = append(dst, ',')
	}
	dst = dst[:end]
	dst[end-1] = '}'
	return dst
}
