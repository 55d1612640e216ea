package references

import (
	"encoding/binary"
	"math"

	"millrace/replay/internal/postings"
)

// How a reference's authority is written: the lowest bits of its head.
const (
	authorityFull    = iota
	authoritySubject // it is the subject
	authorityAccount // it is the account of the record
	// Its sequence is the subject's, as is usual: one worker takes the UIDs of an account and of
	// its records. So only the number is written. The class of the number is added.
	authorityNear

	headPathShift = 3
)

// appendRow appends the value of a row.
func (c UIDCodec) appendRow(dst []byte, account, arrival uint64, refs []Reference) []byte {
	dst = binary.AppendUvarint(dst, arrival)
	for i := range refs {
		r := &refs[i]
		mode, class := authorityFull, 0
		subjectSequence, _ := c.split(r.Subject)
		sequence, n := c.split(r.Authority)
		switch {
		case r.Authority == r.Subject:
			mode = authoritySubject
		case r.Authority == account:
			mode = authorityAccount
		case sequence == subjectSequence:
			mode, class = authorityNear, c.classOf(n)
		}
		dst = binary.AppendUvarint(dst, uint64(r.Path)<<headPathShift|uint64(mode+class))
		dst = c.Append(dst, r.Subject)
		switch mode {
		case authorityFull:
			dst = c.Append(dst, r.Authority)
		case authorityNear:
			dst = c.appendNumber(dst, n, class)
		}
	}
	return dst
}

// rowArrival returns the arrival number of a row, and its encoded references.
func rowArrival(value []byte) (arrival uint64, refs []byte, err error) {
	arrival, refs, err = postings.NextUvarint(value)
	if err == nil && arrival == 0 {
		err = errForm
	}
	return arrival, refs, err
}

// appendReferences decodes a row's references and appends them to dst.
func (c UIDCodec) appendReferences(dst []Reference, account uint64, b []byte) ([]Reference, error) {
	for len(b) > 0 {
		r, rest, err := c.nextReference(account, b)
		if err != nil {
			return dst, err
		}
		dst, b = append(dst, r), rest
	}
	return dst, nil
}

// decodeRow decodes a row into row, whose memory it uses again.
func (c UIDCodec) decodeRow(row *Row, key, value []byte) error {
	id, err := c.parseRecordKey(key)
	if err != nil {
		return err
	}
	row.Account, row.Record = id.account, id.record
	var refs []byte
	if row.Arrival, refs, err = rowArrival(value); err == nil {
		row.References, err = c.appendReferences(row.References[:0], id.account, refs)
	}
	return err
}

func (c UIDCodec) nextReference(account uint64, b []byte) (r Reference, rest []byte, err error) {
	head, b, err := postings.NextUvarint(b)
	if err != nil {
		return r, nil, err
	}
	mode, class := int(head&(1<<headPathShift-1)), 0
	if mode > authorityNear {
		mode, class = authorityNear, mode-authorityNear
	}
	if head>>headPathShift > math.MaxUint32 || class > 3 {
		return r, nil, errForm
	}
	r.Path = uint32(head >> headPathShift)
	if r.Subject, b, err = c.Next(b); err != nil {
		return r, nil, err
	}
	subjectSequence, _ := c.split(r.Subject)
	switch mode {
	case authoritySubject:
		r.Authority = r.Subject
		return r, b, nil
	case authorityAccount:
		r.Authority = account
		if account == r.Subject {
			err = errForm
		}
		return r, b, err
	case authorityNear:
		r.Authority, b, err = c.nextNumber(b, class)
		r.Authority |= subjectSequence << (64 - c.prefixBits)
	default:
		r.Authority, b, err = c.Next(b)
		if sequence, _ := c.split(r.Authority); err == nil && sequence == subjectSequence {
			err = errForm
		}
	}
	if err == nil && (r.Authority == r.Subject || r.Authority == account) {
		err = errForm
	}
	return r, b, err
}

// accountState is what is kept of an account.
type accountState struct {
	rev       uint64 // of the last commit; 0: none
	imported  uint64 // rev of the import; 0: none
	purged    uint64 // at most rev; neither log nor import brings back what is up to it; 0: none
	floor     uint64 // rows with a lower arrival number are gone; 0: none
	deletedUS int64  // time of the last deletion; 0: none
	inexactUS int64  // the stamp since when deletes may be missing; 0: exact
	statusUS  int64  // time of the last change of inactive; 0: none
	inactive  bool   // its records are hidden
}

// Flags of an account's value: which of its numbers follow.
const (
	hasImported = 1 << iota
	hasPurged
	hasFloor
	hasDeleted
	hasInexact
	hasStatus
)

// appendAccount appends the value of an account.
func appendAccount(dst []byte, s *accountState) []byte {
	at := len(dst)
	dst = append(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, s.rev)
	for i, rev := range [...]uint64{s.imported, s.purged} {
		if rev != 0 {
			dst[at] |= hasImported << i
			dst = binary.BigEndian.AppendUint64(dst, rev)
		}
	}
	status := uint64(s.statusUS) << 1
	if s.inactive {
		status |= 1
	}
	for i, v := range [...]uint64{s.floor, uint64(s.deletedUS), uint64(s.inexactUS), status} {
		if v != 0 {
			dst[at] |= hasFloor << i
			dst = binary.AppendUvarint(dst, v)
		}
	}
	return dst
}

// decodeAccount is the inverse of appendAccount.
func decodeAccount(b []byte) (s accountState, err error) {
	if len(b) == 0 {
		return s, errShort
	}
	flags, b := b[0], b[1:]
	if flags >= hasStatus<<1 {
		return s, errForm
	}
	if s.rev, b, err = nextBig(b, 8); err != nil {
		return s, err
	}
	for i, rev := range [...]*uint64{&s.imported, &s.purged} {
		if flags&(hasImported<<i) == 0 {
			continue
		}
		if *rev, b, err = nextBig(b, 8); err != nil {
			return s, err
		}
		if *rev == 0 {
			return s, errForm
		}
	}
	var deleted, inexact, status uint64
	for i, v := range [...]*uint64{&s.floor, &deleted, &inexact, &status} {
		if flags&(hasFloor<<i) == 0 {
			continue
		}
		if *v, b, err = postings.NextUvarint(b); err != nil {
			return s, err
		}
		if *v == 0 {
			return s, errForm
		}
	}
	s.deletedUS, s.inexactUS = int64(deleted), int64(inexact)
	s.statusUS, s.inactive = int64(status>>1), status&1 != 0
	if len(b) > 0 {
		err = errForm
	}
	return s, err
}

// decodePurged returns the rev up to which an account was purged.
func decodePurged(b []byte) (rev uint64, err error) {
	rev, b, err = nextBig(b, 8)
	if err == nil && (len(b) > 0 || rev == 0) {
		err = errForm
	}
	return rev, err
}
