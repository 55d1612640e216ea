package references

import (
	"cmp"
	"errors"
)

// keyRange is the first byte of a key.
type keyRange byte

const (
	rangeMeta    keyRange = 0x01
	rangeAccount keyRange = 0x02
	rangeSweep   keyRange = 0x03
	rangePurged  keyRange = 0x04
	rangeRecord  keyRange = 0x10
)

func (r keyRange) start() []byte { return []byte{byte(r)} }
func (r keyRange) end() []byte   { return []byte{byte(r) + 1} }

// Names of meta values.
const (
	metaFormat     = "format"
	metaGeneration = "generation"
	metaState      = "state"
	metaLinks      = "links"
	metaSyncs      = "syncs"
)

func metaKey(name string) []byte { return append([]byte{byte(rangeMeta)}, name...) }

// maxUIDBytes is the length of the longest encoded UID, of any number of prefix bits.
const maxUIDBytes = 5 + 8

var (
	errShort = errors.New("cut short")
	errForm  = errors.New("not in the form that the store writes")
)

// UIDCodec encodes UIDs in few bytes that sort as the UIDs do. A UID is a sequence, in its
// prefixBits uppermost bits, and a number. The sequence comes first, with the class of the number
// in the lowest two bits. The number follows in as many bytes as its class says, big-endian.
type UIDCodec struct {
	prefixBits uint
}

// lengths are the bytes of a number by class.
func (c UIDCodec) lengths() [4]int {
	most := int(64-c.prefixBits+7) / 8
	return [4]int{min(3, most), min(4, most), min(5, most), most}
}

func (c UIDCodec) headBytes() int { return int(c.prefixBits+2+7) / 8 }

// split returns the sequence and the number.
func (c UIDCodec) split(uid uint64) (sequence, n uint64) {
	shift := 64 - c.prefixBits
	return uid >> shift, uid & (1<<shift - 1)
}

// Append appends a UID.
func (c UIDCodec) Append(dst []byte, uid uint64) []byte {
	sequence, n := c.split(uid)
	class := c.classOf(n)
	head := sequence<<2 | uint64(class)
	return c.appendNumber(appendBig(dst, head, c.headBytes()), n, class)
}

// classOf returns the first class whose length holds n.
func (c UIDCodec) classOf(n uint64) int {
	for class, length := range c.lengths() {
		if length == 8 || n>>(8*length) == 0 {
			return class
		}
	}
	return 3 // never: the last holds every number
}

func (c UIDCodec) appendNumber(dst []byte, n uint64, class int) []byte {
	return appendBig(dst, n, c.lengths()[class])
}

// Next returns the first UID of b and what follows it.
func (c UIDCodec) Next(b []byte) (uid uint64, rest []byte, err error) {
	head, b, err := nextBig(b, c.headBytes())
	if err != nil {
		return 0, nil, err
	}
	sequence := head >> 2
	if sequence>>c.prefixBits != 0 {
		return 0, nil, errForm
	}
	n, b, err := c.nextNumber(b, int(head&3))
	return sequence<<(64-c.prefixBits) | n, b, err
}

func (c UIDCodec) nextNumber(b []byte, class int) (n uint64, rest []byte, err error) {
	n, b, err = nextBig(b, c.lengths()[class])
	if err == nil && (c.classOf(n) != class || n>>(64-c.prefixBits) != 0) {
		err = errForm
	}
	return n, b, err
}

// appendBig appends the lower bytes of v, big-endian.
func appendBig(dst []byte, v uint64, bytes int) []byte {
	for shift := 8 * (bytes - 1); shift >= 0; shift -= 8 {
		dst = append(dst, byte(v>>shift))
	}
	return dst
}

func nextBig(b []byte, bytes int) (v uint64, rest []byte, err error) {
	if len(b) < bytes {
		return 0, nil, errShort
	}
	for _, c := range b[:bytes] {
		v = v<<8 | uint64(c)
	}
	return v, b[bytes:], nil
}

// accountKey returns the key of r, which is not rangeRecord, for an account. Of rangeRecord it is
// what the keys of the account's rows begin with, and no others.
func (c UIDCodec) accountKey(r keyRange, account uint64) []byte {
	return c.Append(append(make([]byte, 0, 1+maxUIDBytes), byte(r)), account)
}

func (c UIDCodec) appendRecordKey(dst []byte, id recordID) []byte {
	return c.Append(c.Append(append(dst, byte(rangeRecord)), id.account), id.record)
}

func (c UIDCodec) recordKey(id recordID) []byte {
	return c.appendRecordKey(make([]byte, 0, 1+2*maxUIDBytes), id)
}

// parseAccountKey is the inverse of accountKey.
func (c UIDCodec) parseAccountKey(key []byte) (account uint64, err error) {
	account, rest, err := c.Next(key[1:])
	if err == nil && len(rest) > 0 {
		err = errForm
	}
	return account, err
}

// parseRecordKey is the inverse of recordKey.
func (c UIDCodec) parseRecordKey(key []byte) (id recordID, err error) {
	account, rest, err := c.Next(key[1:])
	if err != nil {
		return id, err
	}
	record, rest, err := c.Next(rest)
	if err == nil && len(rest) > 0 {
		err = errForm
	}
	return recordID{account, record}, err
}

// recordID names a record.
type recordID struct{ account, record uint64 }

func (id recordID) compare(other recordID) int {
	return cmp.Or(cmp.Compare(id.account, other.account), cmp.Compare(id.record, other.record))
}
