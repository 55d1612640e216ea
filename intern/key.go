package intern

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// The first byte of each key. See the package comment for the whole layout.
const (
	tagMeta       = 0x00 // + word
	tagSequence   = 0x01 // + sequence, 4 bytes -> last n given out
	tagCollName   = 0x02 // + NSID -> number
	tagCollNumber = 0x03 // + number, 4 bytes -> NSID
	tagInstances  = 0x04 // + instance, 8 bytes -> its heartbeat; of internal/share
	tagNames      = 0x10 // + form: forward keys -> UID
	tagUIDs       = 0x30 // + first UID, 8 bytes -> chunk of names
)

// The keys under tagMeta.
const (
	keyStore       = "\x00store"       // header
	keySkipped     = "\x00floor"       // where sequences without a counter begin; see SkipAhead
	keyCollections = "\x00collections" // last collection number given out
	keyImport      = "\x00import"      // how far an import has come
	keyImported    = "\x00imported"    // the header of the dump that the store was made from
)

// entry is a name as it is stored: DIDs packed, authorities and collections as numbers.
type entry struct {
	form form
	coll uint32
	auth uint64 // UID of the authority; 0 for DIDs and formHandle
	tid  uint64
	// formPLC: 15 bytes; formDID: without did:; formRecord: record key; formHandle: without at://
	text []byte
}

// appendDIDText appends the entry text of a DID, given its form.
func appendDIDText(dst []byte, f form, did []byte) []byte {
	if f == formPLC {
		return appendPLC(dst, did)
	}
	return append(dst, did[len("did:"):]...)
}

// codec turns entries into keys. Its fields are fixed when a store is created.
type codec struct {
	prefixBits uint // p
	stripeBits uint // 0 to 8: the keys of records with TIDs begin in 1<<stripeBits places
}

// errBroken: a stored key or value that this code cannot have written.
var errBroken = errors.New("UID store is damaged")

func broken(what string, b []byte) error {
	return fmt.Errorf("%w: %s %.64x", errBroken, what, b)
}

// appendUID appends a UID in 1 to 10 bytes: rotated so that both a small sequence and a small n
// make a small number. It does not keep the order.
func (c codec) appendUID(dst []byte, uid uint64) []byte {
	return binary.AppendUvarint(dst, bits.RotateLeft64(uid, int(c.prefixBits)))
}

// uid reads what appendUID wrote, and returns what follows. ok is false for anything else.
func (c codec) uid(b []byte) (uid uint64, rest []byte, ok bool) {
	v, rest, ok := uvarint(b)
	return bits.RotateLeft64(v, -int(c.prefixBits)), rest, ok && v != 0
}

// uvarint reads a varint in its shortest spelling, the only one.
func uvarint(b []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}

// split returns the sequence of a UID, and its number n in that.
func (c codec) split(uid uint64) (sequence uint32, n uint64) {
	return uint32(uid >> (64 - c.prefixBits)), uid & (1<<(64-c.prefixBits) - 1)
}

func (c codec) join(sequence uint32, n uint64) uint64 {
	return uint64(sequence)<<(64-c.prefixBits) | n
}

// stripe returns where the keys of an authority's records begin.
func (c codec) stripe(auth uint64) byte {
	return byte(auth * 0x9e3779b97f4a7c15 >> 56 >> (8 - c.stripeBits))
}

// appendKey appends the forward key of e.
//
//	PLC         10 15 bytes
//	DID         11 text
//	record      12 auth collection text
//	collection  13 auth collection
//	authority   14 auth
//	handle      15 text
//	TID         16 [stripe] TID (8 bytes, big-endian) collection auth
//
// The TID leads its key because the TIDs of new records are close to now. Their keys come in nearly
// ascending order, which costs a sorted store least.
func (c codec) appendKey(dst []byte, e *entry) []byte {
	dst = append(dst, tagNames+byte(e.form))
	switch e.form {
	case formPLC, formDID, formHandle:
		return append(dst, e.text...)
	case formRecord:
		dst = binary.AppendUvarint(c.appendUID(dst, e.auth), uint64(e.coll))
		return append(dst, e.text...)
	case formCollection:
		return binary.AppendUvarint(c.appendUID(dst, e.auth), uint64(e.coll))
	case formAuthority:
		return c.appendUID(dst, e.auth)
	}
	if c.stripeBits > 0 {
		dst = append(dst, c.stripe(e.auth))
	}
	dst = binary.BigEndian.AppendUint64(dst, e.tid)
	return c.appendUID(binary.AppendUvarint(dst, uint64(e.coll)), e.auth)
}

// key reads what appendKey wrote. The entry's text aliases b.
func (c codec) key(b []byte) (entry, error) {
	if len(b) < 2 || b[0] < tagNames || b[0] >= tagNames+byte(numForms) {
		return entry{}, broken("name key", b)
	}
	e, rest, ok := entry{form: form(b[0] - tagNames)}, b[1:], true
	switch e.form {
	case formPLC, formDID, formHandle:
		e.text, rest = rest, nil
		ok = e.form != formPLC || len(e.text) == plcBytes
	case formRecord:
		e.auth, e.coll, rest, ok = c.authColl(rest)
		e.text, rest = rest, nil
	case formCollection:
		e.auth, e.coll, rest, ok = c.authColl(rest)
	case formAuthority:
		e.auth, rest, ok = c.uid(rest)
	case formTID:
		if c.stripeBits > 0 {
			rest = rest[1:]
		}
		if ok = len(rest) > 8; ok {
			e.tid = binary.BigEndian.Uint64(rest)
			e.coll, rest, ok = collection(rest[8:])
		}
		if ok {
			e.auth, rest, ok = c.uid(rest)
		}
	}
	// The only spelling of an entry is the one that appendKey gives it.
	if !ok || len(rest) > 0 || !bytes.Equal(c.appendKey(make([]byte, 0, 64), &e), b) {
		return entry{}, broken("name key", b)
	}
	return e, nil
}

func (c codec) authColl(b []byte) (auth uint64, coll uint32, rest []byte, ok bool) {
	if auth, b, ok = c.uid(b); ok {
		coll, b, ok = collection(b)
	}
	return auth, coll, b, ok
}

// collection reads a collection's number, which is never 0.
func collection(b []byte) (coll uint32, rest []byte, ok bool) {
	v, rest, ok := uvarint(b)
	return uint32(v), rest, ok && v > 0 && v <= maxCollection
}

func appendSequenceKey(dst []byte, sequence uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, tagSequence), sequence)
}

func appendCollNameKey(dst, nsid []byte) []byte { return append(append(dst, tagCollName), nsid...) }

func appendCollNumberKey(dst []byte, coll uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, tagCollNumber), coll)
}

const uidKeyBytes = 9 // of what appendUIDKey appends

func appendUIDKey(dst []byte, uid uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, tagUIDs), uid)
}

// uidOfKey reads a key of appendUIDKey's, whose length was checked.
func uidOfKey(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:]) }

// number reads a value that holds one varint.
func number(b []byte) (uint64, error) {
	v, rest, ok := uvarint(b)
	if !ok || len(rest) > 0 {
		return 0, broken("number", b)
	}
	return v, nil
}

// numberOrZero is number, or 0 for nil: there is no value.
func numberOrZero(b []byte) (uint64, error) {
	if b == nil {
		return 0, nil
	}
	return number(b)
}

// collectionNumber reads a value that holds a collection's number.
func collectionNumber(b []byte) (uint32, error) {
	coll, rest, ok := collection(b)
	if !ok || len(rest) > 0 {
		return 0, broken("collection number", b)
	}
	return coll, nil
}

// uidValue reads a value that holds one UID.
func (c codec) uidValue(b []byte) (uint64, error) {
	uid, rest, ok := c.uid(b)
	if !ok || len(rest) > 0 {
		return 0, broken("UID", b)
	}
	return uid, nil
}

// uidOrZero is uidValue, or 0 for nil: there is no value.
func (c codec) uidOrZero(b []byte) (uint64, error) {
	if b == nil {
		return 0, nil
	}
	return c.uidValue(b)
}

// appendDIDKey appends the forward key of a valid DID.
func appendDIDKey(dst, did []byte) []byte {
	f := formDID
	if isPLC(did) {
		f = formPLC
	}
	return appendDIDText(append(dst, tagNames+byte(f)), f, did)
}

// appendNumber returns a value that number reads.
func appendNumber(n uint64) []byte { return binary.AppendUvarint(nil, n) }
