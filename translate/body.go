package translate

import "math"

// field is one of a body's fields that this package reads.
type field uint8

const (
	fieldSeq field = iota
	fieldRepo
	fieldDID
	fieldRev
	fieldTime
	fieldOps
	fieldBlocks
	fieldTooBig
	fieldHandle
	fieldActive
	fieldStatus

	numFields
)

// fieldOf returns the field of a key, or numFields.
func fieldOf(key []byte) field {
	switch string(key) {
	case "seq":
		return fieldSeq
	case "repo":
		return fieldRepo
	case "did":
		return fieldDID
	case "rev":
		return fieldRev
	case "time":
		return fieldTime
	case "ops":
		return fieldOps
	case "blocks":
		return fieldBlocks
	case "tooBig":
		return fieldTooBig
	case "handle":
		return fieldHandle
	case "active":
		return fieldActive
	case "status":
		return fieldStatus
	}
	return numFields
}

// body holds the fields of a frame's body, whatever its type: each one whole CBOR item, or nil.
// They alias the frame.
type body struct {
	fields [numFields][]byte
}

// read reads the body, which the rest of d must be.
func (b *body) read(d *decoder) Reason {
	for range d.container(majorMap) {
		key := d.text()
		value := d.raw()
		if d.fail != failNone {
			break
		}
		f := fieldOf(key)
		if f == numFields {
			continue
		}
		if b.fields[f] != nil {
			return ReasonInvalidBody
		}
		b.fields[f] = value
	}
	switch {
	case d.fail == failTruncated:
		return ReasonTruncatedFrame
	case d.fail != failNone || d.rest() > 0:
		return ReasonInvalidBody
	}
	return kept
}

// seq returns the sequence number.
func (b *body) seq() (int64, Reason) {
	d := decoder{buf: b.fields[fieldSeq]}
	major, _, seq := d.head()
	if d.fail != failNone || major != majorUint || seq == 0 || seq > math.MaxInt64 {
		return 0, ReasonInvalidSeq
	}
	return int64(seq), kept
}

// text returns the text of a field that valid accepts, or the reason given.
func (b *body) text(f field, valid func([]byte) bool, reason Reason) ([]byte, Reason) {
	s, ok := textOf(b.fields[f])
	if !ok || !valid(s) {
		return nil, reason
	}
	return s, kept
}

// accountFields returns what #identity, #account and #sync have in common.
func (b *body) accountFields() (seq int64, did, time []byte, reason Reason) {
	if seq, reason = b.seq(); reason != kept {
		return
	}
	if did, reason = b.text(fieldDID, validDID, ReasonInvalidDID); reason != kept {
		return
	}
	time, reason = b.text(fieldTime, validDatetime, ReasonInvalidTime)
	return
}
