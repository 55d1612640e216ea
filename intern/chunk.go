package intern

import "encoding/binary"

// A chunk holds the names of UIDs that follow each other, as one value under the first of them:
//
//	chunk  = count entry…
//	entry  = 00 PLC (15 bytes)
//	       | 01 text              other DID
//	       | 02 auth coll text    record
//	       | 03 auth coll         collection
//	       | 04 auth              authority
//	       | 05 text              handle
//	       | 08+coll auth delta   TID: zigzag difference to the TID before it in this chunk,
//	       |                      at first 0
//	text   = length bytes
//
// Numbers are varints, auth a UID as appendUID writes it.
const (
	maxChunkNames = 128     // names in a chunk
	maxChunkBytes = 8 << 10 // a chunk is closed once it has so many bytes
	headTID       = 8
)

// chunkWriter builds a chunk. The zero value is empty.
type chunkWriter struct {
	first uint64 // UID of the first name
	count int
	tid   uint64 // the last TID
	buf   []byte // entries
}

// takes says whether uid belongs in this chunk.
func (w *chunkWriter) takes(uid uint64) bool {
	return w.count == 0 || uid == w.first+uint64(w.count) && w.count < maxChunkNames && len(w.buf) < maxChunkBytes
}

// add appends e, whose UID the chunk takes.
func (w *chunkWriter) add(c codec, uid uint64, e *entry) {
	if w.count == 0 {
		w.first = uid
	}
	w.count++
	if e.form == formTID {
		w.buf = binary.AppendUvarint(w.buf, headTID+uint64(e.coll))
		w.buf = c.appendUID(w.buf, e.auth)
		w.buf = binary.AppendVarint(w.buf, int64(e.tid-w.tid))
		w.tid = e.tid
		return
	}
	w.buf = append(w.buf, byte(e.form))
	if e.auth != 0 {
		w.buf = c.appendUID(w.buf, e.auth)
	}
	if e.coll != 0 {
		w.buf = binary.AppendUvarint(w.buf, uint64(e.coll))
	}
	switch e.form {
	case formPLC:
		w.buf = append(w.buf, e.text...)
	case formDID, formRecord, formHandle:
		w.buf = append(binary.AppendUvarint(w.buf, uint64(len(e.text))), e.text...)
	}
}

// appendTo appends the chunk to dst and empties the writer.
func (w *chunkWriter) appendTo(dst []byte) []byte {
	dst = append(binary.AppendUvarint(dst, uint64(w.count)), w.buf...)
	w.count, w.tid, w.buf = 0, 0, w.buf[:0]
	return dst
}

// chunkReader reads a chunk, entry by entry.
type chunkReader struct {
	codec codec
	whole []byte
	rest  []byte
	left  int
	tid   uint64
	err   error
}

// openChunk returns a reader at the first entry and the number of entries.
func openChunk(c codec, chunk []byte) (chunkReader, int, error) {
	count, rest, ok := uvarint(chunk)
	if !ok || count == 0 || count > maxChunkNames {
		return chunkReader{}, 0, broken("chunk", chunk)
	}
	return chunkReader{codec: c, whole: chunk, rest: rest, left: int(count)}, int(count), nil
}

// next reads an entry; its text aliases the chunk. It returns false at the end and on damage, see
// err.
func (r *chunkReader) next(e *entry) bool {
	if r.left == 0 || r.err != nil {
		if r.err == nil && len(r.rest) > 0 {
			r.err = broken("end of chunk", r.whole)
		}
		return false
	}
	r.left--
	head, rest, ok := uvarint(r.rest)
	switch {
	case ok && head > headTID:
		ok = r.nextTID(e, head-headTID, rest)
	case ok && head < uint64(formTID):
		ok = r.nextOther(e, form(head), rest)
	default:
		ok = false
	}
	if !ok {
		r.err = broken("chunk", r.whole)
	}
	return ok
}

func (r *chunkReader) nextTID(e *entry, coll uint64, b []byte) bool {
	auth, b, ok := r.codec.uid(b)
	if !ok || coll > maxCollection {
		return false
	}
	delta, n := binary.Varint(b)
	if n <= 0 {
		return false
	}
	r.tid += uint64(delta)
	r.rest = b[n:]
	*e = entry{form: formTID, coll: uint32(coll), auth: auth, tid: r.tid}
	return true
}

func (r *chunkReader) nextOther(e *entry, f form, b []byte) bool {
	*e = entry{form: f}
	ok := true
	switch f {
	case formRecord, formCollection:
		e.auth, e.coll, b, ok = r.codec.authColl(b)
	case formAuthority:
		e.auth, b, ok = r.codec.uid(b)
	}
	switch {
	case ok && f == formPLC:
		if ok = len(b) >= plcBytes; ok {
			e.text, b = b[:plcBytes:plcBytes], b[plcBytes:]
		}
	case ok && (f == formDID || f == formRecord || f == formHandle):
		e.text, b, ok = text(b)
	}
	r.rest = b
	return ok
}
