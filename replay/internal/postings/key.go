package postings

import (
	"bytes"
	"cmp"
	"encoding/binary"
)

// Range is the first byte of a key.
type Range byte

// The ranges of the reference store that links have.
const (
	RangeMembers  Range = 0x20
	RangeHead     Range = 0x21
	RangeAccount  Range = 0x22
	RangeStart    Range = 0x23
	rangeEnd      Range = 0x24
	startBytes          = 8
	maxPathNumber       = 1<<32 - 1
)

// Bounds returns the first key of all ranges, and the first after them.
func Bounds() (start, end []byte) { return []byte{byte(RangeMembers)}, []byte{byte(rangeEnd)} }

// Set names the links from a source to a subject.
type Set struct {
	Subject uint64 // UID of the DID or AT URI
	Path    uint32 // number of the source
}

// Compare orders sets by subject, and then by source.
func (s Set) Compare(o Set) int {
	return cmp.Or(cmp.Compare(s.Subject, o.Subject), cmp.Compare(s.Path, o.Path))
}

// AppendSubject appends what all keys of a subject in a range begin with, and no others.
func AppendSubject(dst []byte, c UIDs, r Range, subject uint64) []byte {
	return c.Append(append(dst, byte(r)), subject)
}

// AppendSet appends what all keys of a set in a range begin with, and no others. It is itself the
// key of the first chunk, and of the head.
func AppendSet(dst []byte, c UIDs, r Range, s Set) []byte {
	return binary.AppendUvarint(AppendSubject(dst, c, r, s.Subject), uint64(s.Path))
}

// AppendChunk appends the key of the chunk that starts at an arrival number.
func AppendChunk(dst []byte, c UIDs, s Set, start uint64) []byte {
	dst = AppendSet(dst, c, RangeMembers, s)
	if start == 0 {
		return dst
	}
	return binary.BigEndian.AppendUint64(dst, start)
}

// AppendStart appends the key which says that a chunk starts at an arrival number.
func AppendStart(dst []byte, c UIDs, s Set, start uint64) []byte {
	return binary.BigEndian.AppendUint64(AppendSet(dst, c, RangeStart, s), start)
}

// AppendAccount appends the key of an account's links in a set.
func AppendAccount(dst []byte, c UIDs, s Set, account uint64) []byte {
	return c.Append(AppendSet(dst, c, RangeAccount, s), account)
}

// ParseSet returns the set of a key, and what follows it: the start of a chunk or an account.
func ParseSet(c UIDs, key []byte) (s Set, rest []byte, err error) {
	if len(key) == 0 {
		return s, nil, errShort
	}
	if s.Subject, rest, err = c.Next(key[1:]); err != nil {
		return s, nil, err
	}
	path, rest, err := NextUvarint(rest)
	if err == nil && path > maxPathNumber {
		err = errForm
	}
	s.Path = uint32(path)
	return s, rest, err
}

// ParseStart returns where a chunk starts. rest is what ParseSet returned of its key.
func ParseStart(rest []byte) (start uint64, err error) {
	switch len(rest) {
	case 0:
		return 0, nil
	case startBytes:
		if start = binary.BigEndian.Uint64(rest); start == 0 {
			err = errForm
		}
		return start, err
	}
	return 0, errForm
}

// PrefixEnd returns the least key after all that begin with prefix, whose first byte is no 0xff.
func PrefixEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; ; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
}
