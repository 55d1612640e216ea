package translate

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind distinguishes what a subscriber can see.
type Kind uint8

// The kinds, in the order of their bits in a filter's kind set.
const (
	KindCommit Kind = iota + 1
	KindIdentity
	KindAccount
	KindSync
)

// String returns the kind as the wire spells it.
func (k Kind) String() string {
	switch k {
	case KindCommit:
		return "commit"
	case KindIdentity:
		return "identity"
	case KindAccount:
		return "account"
	case KindSync:
		return "sync"
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// Operation is what a commit event did to its record; other events have OpNone.
type Operation uint8

// The operations of a commit event.
const (
	OpNone Operation = iota
	OpCreate
	OpUpdate
	OpDelete
)

// String returns the operation as the wire spells it, "" for OpNone.
func (o Operation) String() string {
	switch o {
	case OpNone:
		return ""
	case OpCreate:
		return "create"
	case OpUpdate:
		return "update"
	case OpDelete:
		return "delete"
	}
	return "operation(" + strconv.Itoa(int(o)) + ")"
}

// ParseOperation is the inverse of Operation.String, and OpNone for what it does not return.
func ParseOperation(name []byte) Operation {
	for o := OpCreate; o <= OpDelete; o++ {
		if o.String() == string(name) {
			return o
		}
	}
	return OpNone
}

// Stream names one relay's unbroken sequence numbering: 24 bits of a hash of the relay's host and
// the epoch. It is written as six lower-case hex digits.
type Stream uint32

// String returns the six hex digits.
func (s Stream) String() string { return fmt.Sprintf("%06x", uint32(s)) }

// Position says where an event came from. Positions of one stream order by (Seq, Op); those of
// different streams do not compare.
type Position struct {
	Stream Stream
	Seq    int64  // the relay's sequence number of the frame, > 0
	Op     uint32 // index of the op in its frame; 0 for events of other kinds
}

// AppendPosition appends p as "<stream>-<seq>-<op>", e.g. "b7e1c0-31527015322-0".
func AppendPosition(dst []byte, p Position) []byte {
	const hex = "0123456789abcdef"
	for shift := 20; shift >= 0; shift -= 4 {
		dst = append(dst, hex[uint32(p.Stream)>>shift&0xf])
	}
	dst = append(dst, '-')
	dst = strconv.AppendInt(dst, p.Seq, 10)
	dst = append(dst, '-')
	return strconv.AppendUint(dst, uint64(p.Op), 10)
}

// String returns what AppendPosition appends.
func (p Position) String() string { return string(AppendPosition(nil, p)) }

// ParsePosition is the inverse of AppendPosition. It refuses every other spelling.
func ParsePosition(s string) (Position, error) {
	parts := strings.Split(s, "-")
	if len(parts) == 3 && len(parts[0]) == 6 {
		stream, err1 := strconv.ParseUint(parts[0], 16, 24)
		seq, err2 := strconv.ParseInt(parts[1], 10, 64)
		op, err3 := strconv.ParseUint(parts[2], 10, 32)
		p := Position{Stream: Stream(stream), Seq: seq, Op: uint32(op)}
		if err1 == nil && err2 == nil && err3 == nil && p.String() == s {
			return p, nil
		}
	}
	return Position{}, fmt.Errorf("position %.80q is not <stream>-<seq>-<op> (six hex digits, two decimal numbers)", s)
}

// Event describes one event of a Batch. Its bytes are in the batch; the batch's accessors find
// them.
type Event struct {
	Seq    int64  // the frame's sequence number
	TimeUS int64  // Unix microseconds; 0 until Batch.Stamp
	DIDUID uint64 // UID of the DID, 0 if it has none
	URIUID uint64 // UID of at://did/collection/rkey, 0 if it has none or the event is not an op

	Op        uint32 // index of the op in its frame
	start     uint32 // first byte in Batch.JSON
	end       uint32 // one past the last
	coll      uint32 // offset of the collection from start; ops only
	rkey      uint32 // offset of the record key from start; ops only
	didLen    uint16
	collLen   uint16
	rkeyLen   uint16
	Kind      Kind
	Operation Operation
	NewURI    bool // URIUID was given while the batch got its UIDs
	// Unverified is the verify.Reason of the event's frame, 0 if it is verified, or was not to be.
	Unverified uint8
}

// stampDigits is the width of every time_us from September 2001 until November 2286, which is why
// it can be written last, in place.
const stampDigits = 16

// MinTimeUS and maxTimeUS bound what Batch.Stamp takes.
const (
	MinTimeUS = 1_000_000_000_000_000
	maxTimeUS = 9_999_999_999_999_999
)

// didAt is where the DID begins in every event's JSON: after {"did":"
const didAt = 8

// Batch holds the events of consecutive frames: their JSON back to back, and what the later steps
// must know of each. It is owned by one goroutine at a time and reused after Reset: bytes that are
// kept longer must be copied.
type Batch struct {
	Events     []Event
	JSON       []byte
	References []Reference // in the order of Events, those of one in that of its record's bytes
	// when the newest of the frames was sent: RFC 3339, as its sender says; empty: none says
	Time   []byte
	Counts Counts

	refText []byte // the paths and subjects of References
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.Events = b.Events[:0]
	b.JSON = b.JSON[:0]
	b.References = b.References[:0]
	b.refText = b.refText[:0]
	b.Time = b.Time[:0]
	b.Counts = Counts{}
}

// Bytes returns how many bytes the events' JSON and their references come to.
func (b *Batch) Bytes() int {
	return len(b.JSON) + len(b.refText) + len(b.References)*referenceBytes
}

// Release lets go of the JSON, and of the references, if they hold more than keep bytes of memory.
// Then the batch's accessors must not be used before Reset.
func (b *Batch) Release(keep int) {
	if cap(b.JSON) > keep {
		b.JSON = nil
	}
	if cap(b.refText)+cap(b.References)*referenceBytes > keep {
		b.References, b.refText = nil, nil
	}
}

// Remove takes the events out of which remove says so, and their references. Their JSON stays.
func (b *Batch) Remove(remove func(e *Event) bool) {
	kept, next := b.Events[:0], 0
	refs := b.References[:0]
	for i := range b.Events {
		gone := remove(&b.Events[i])
		for ; next < len(b.References) && int(b.References[next].Event) == i; next++ {
			if !gone {
				r := b.References[next]
				r.Event = uint32(len(kept))
				refs = append(refs, r)
			}
		}
		if !gone {
			kept = append(kept, b.Events[i])
		}
	}
	b.Events, b.References = kept, refs
}

// Payload returns the JSON of event i. It aliases b.JSON.
func (b *Batch) Payload(i int) []byte {
	e := &b.Events[i]
	return b.JSON[e.start:e.end:e.end]
}

// DID returns the DID of event i. It aliases b.JSON: no character of a valid DID is escaped in
// JSON.
func (b *Batch) DID(i int) []byte {
	e := &b.Events[i]
	at := e.start + didAt
	return b.JSON[at : at+uint32(e.didLen) : at+uint32(e.didLen)]
}

// Collection returns the NSID of op i, empty for events of other kinds. It aliases b.JSON.
func (b *Batch) Collection(i int) []byte {
	e := &b.Events[i]
	at := e.start + e.coll
	return b.JSON[at : at+uint32(e.collLen) : at+uint32(e.collLen)]
}

// RecordKey returns the record key of op i, empty for events of other kinds. It aliases b.JSON.
func (b *Batch) RecordKey(i int) []byte {
	e := &b.Events[i]
	at := e.start + e.rkey
	return b.JSON[at : at+uint32(e.rkeyLen) : at+uint32(e.rkeyLen)]
}

// Stamp sets the time_us of event i, in Event.TimeUS and in the JSON. timeUS must be within
// MinTimeUS and maxTimeUS.
func (b *Batch) Stamp(i int, timeUS int64) {
	if timeUS < MinTimeUS || timeUS > maxTimeUS {
		panic("translate: time_us " + strconv.FormatInt(timeUS, 10) + " does not have 16 digits")
	}
	e := &b.Events[i]
	e.TimeUS = timeUS
	at := e.start + didAt + uint32(e.didLen) + uint32(len(`","time_us":`))
	digits := b.JSON[at : at+stampDigits]
	for j := stampDigits - 1; j >= 0; j-- {
		digits[j] = byte('0' + timeUS%10)
		timeUS /= 10
	}
}
