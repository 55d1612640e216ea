package postings

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
)

var (
	errShort = errors.New("cut short")
	errForm  = errors.New("not in the form that the store writes")
	errTwice = errors.New("a link was added or removed twice")
)

// Entry adds a link to a set, or removes it.
type Entry struct {
	Arrival uint64 // no other link of the set has it, now or later
	// Link is the UIDs of account and record, as AppendLink writes them; nil: the link is removed.
	Link []byte
}

// The lowest bits of an entry's head are the length of its link; 0: it is removed.
const (
	lengthBits = 5
	maxLength  = 1<<lengthBits - 1
)

// AppendEntries appends entries, which are sorted by arrival number.
func AppendEntries(dst []byte, entries []Entry) []byte {
	var last uint64
	for i := range entries {
		e := &entries[i]
		dst = appendHead(dst, e.Arrival-last, len(e.Link))
		dst = append(dst, e.Link...)
		last = e.Arrival
	}
	return dst
}

// appendHead appends the uvarint of delta and length, which may take more than 64 bits.
func appendHead(dst []byte, delta uint64, length int) []byte {
	low := byte(delta<<lengthBits) | byte(length)
	if delta>>(7-lengthBits) == 0 {
		return append(dst, low)
	}
	return binary.AppendUvarint(append(dst, low&0x7f|0x80), delta>>(7-lengthBits))
}

// DecodeEntries appends the entries of b to dst. Their links are slices of b.
func DecodeEntries(dst []Entry, b []byte) (_ []Entry, err error) {
	dst = slices.Grow(dst, len(b)/UsualEntry)
	var e Entry
	for len(b) > 0 {
		if e, b, err = NextEntry(b, e.Arrival); err != nil {
			return dst, err
		}
		dst = append(dst, e)
	}
	return dst, nil
}

// UsualEntry is how many bytes an entry takes, as a rule.
const UsualEntry = 12

// NextEntry returns the first entry of b, which is not empty, and what follows it. last is the
// arrival number of the entry before, 0 if there is none. The entry's link is a slice of b.
func NextEntry(b []byte, last uint64) (e Entry, rest []byte, err error) {
	low := b[0]
	length, delta := int(low&maxLength), uint64(low&0x7f)>>lengthBits
	b = b[1:]
	if low&0x80 != 0 {
		var high uint64
		if high, b, err = NextUvarint(b); err != nil {
			return e, nil, err
		}
		if high == 0 || bits.Len64(high)+7-lengthBits > 64 {
			return e, nil, errForm
		}
		delta |= high << (7 - lengthBits)
	}
	if delta == 0 || last+delta < last {
		return e, nil, errForm
	}
	if length > len(b) {
		return e, nil, errShort
	}
	e.Arrival = last + delta
	if length > 0 {
		e.Link = b[:length:length]
	}
	return e, b[length:], nil
}

// NextUvarint returns the number at the beginning of b, which must be as AppendUvarint writes it.
func NextUvarint(b []byte) (v uint64, rest []byte, err error) {
	v, n := binary.Uvarint(b)
	switch {
	case n <= 0:
		return 0, nil, errShort
	case n > 1 && b[n-1] == 0:
		return 0, nil, errForm
	}
	return v, b[n:], nil
}

// UIDs encodes UIDs so that no encoded UID is a prefix of another.
type UIDs interface {
	Append(dst []byte, uid uint64) []byte
	Next(b []byte) (uid uint64, rest []byte, err error)
}

// AppendLink appends the account, and in how many bits the record differs: few if both are of one
// sequence, which is usual.
func AppendLink(dst []byte, c UIDs, account, record uint64) []byte {
	dst = c.Append(dst, account)
	differs := account ^ record
	for shift := (bits.Len64(differs) - 1) &^ 7; shift >= 0; shift -= 8 {
		dst = append(dst, byte(differs>>shift))
	}
	return dst
}

// DecodeLink is the inverse of AppendLink.
func DecodeLink(c UIDs, b []byte) (account, record uint64, err error) {
	account, b, err = c.Next(b)
	if err != nil {
		return 0, 0, err
	}
	if len(b) > 8 || len(b) > 0 && b[0] == 0 {
		return 0, 0, errForm
	}
	var differs uint64
	for _, x := range b {
		differs = differs<<8 | uint64(x)
	}
	return account, account ^ differs, nil
}
