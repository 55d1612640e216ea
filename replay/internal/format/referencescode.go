package format

import (
	"encoding/binary"
	"fmt"
)

// columnSources is the column of the numbers of a block's sources.
const columnSources byte = 48

// What a subject's authority is coded as; larger numbers: one of the authorities so far, counted
// from the newest.
const (
	authorityNone = iota // 0
	authoritySelf        // the subject
	authorityNew         // the next one in the list of authorities
	authorityKnown
)

// AppendReferences appends the encoded references, which are not nil, without trailer.
func AppendReferences(dst []byte, r *References) []byte {
	authorities, codes := codeAuthorities(r.Subjects)
	for _, n := range []int{len(r.ends), len(r.entries), len(r.Sources), len(r.Subjects), len(authorities)} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	}
	dst = appendColumn(dst, columnSources, false, r.Sources)
	uids := make([]uint64, len(r.Subjects))
	for i, s := range r.Subjects {
		uids[i] = s.UID
	}
	dst = appendPacked(dst, uids)
	dst = appendPacked(dst, authorities)
	for _, c := range codes {
		dst = binary.AppendUvarint(dst, uint64(c))
	}
	next := uint32(0)
	for i := range r.ends {
		entries := r.Entries(i)
		head := uint64(len(entries)) << 1
		if r.Repeated(i) {
			head |= 1
		}
		dst = binary.AppendUvarint(dst, head)
		for _, e := range entries {
			code := uint64(e.Source) << 2
			if e.Had {
				code |= 2
			}
			if e.Subject == next {
				next++
				dst = binary.AppendUvarint(dst, code|1)
				continue
			}
			dst = binary.AppendUvarint(dst, code)
			dst = binary.AppendUvarint(dst, uint64(next-1-e.Subject))
		}
	}
	return dst
}

// codeAuthorities returns the authorities that are no subject's own, each once, and the code of
// each subject's.
func codeAuthorities(subjects []Subject) (authorities []uint64, codes []uint32) {
	known := make(map[uint64]uint32, len(subjects))
	codes = make([]uint32, len(subjects))
	for i, s := range subjects {
		switch n, ok := known[s.Authority]; {
		case s.Authority == 0:
			codes[i] = authorityNone
		case s.Authority == s.UID:
			codes[i] = authoritySelf
		case ok:
			codes[i] = authorityKnown + uint32(len(authorities)) - 1 - n
		default:
			known[s.Authority] = uint32(len(authorities))
			authorities = append(authorities, s.Authority)
			codes[i] = authorityNew
		}
	}
	return authorities, codes
}

// maxReferencesLen is how many bytes the encoded references and their trailer take at most.
func maxReferencesLen(r *References) int {
	if r == nil {
		return 0
	}
	return 128 + TrailerBytes + 2*(2+2*maxPackedPrefixes) + 4*len(r.Sources) + (8+8+3)*len(r.Subjects) + 2*len(r.ends) + (3+3)*len(r.entries)
}

// DecodeReferences decodes what AppendReferences appended, of a block of so many events. It keeps
// nothing of b. No bytes make it, or a user of what it returns, panic.
func DecodeReferences(b []byte, events int) (*References, error) {
	d := &decoder{b: b}
	n, entries, sources, subjects, authorities := int(d.uint32()), int(d.uint32()), int(d.uint32()), int(d.uint32()), int(d.uint32())
	switch {
	case d.err != nil:
		return nil, d.err
	case n != events:
		return nil, fmt.Errorf("it is of %d events, not %d", n, events)
	case entries > MaxBlockReferences || sources > min(MaxSources, entries) || subjects > entries || authorities > subjects || entries+n > len(d.b):
		return nil, fmt.Errorf("it states %d references, %d sources, %d subjects and %d authorities, which cannot be in %d bytes", entries, sources, subjects, authorities, len(b))
	}
	r := &References{Sources: make([]uint32, sources), Subjects: make([]Subject, subjects),
		entries: make([]ReferenceEntry, 0, entries), ends: make([]uint32, n)}
	decodeNext(d, columnSources, r.Sources)
	uids := make([]uint64, subjects+authorities)
	d.packed(uids[:subjects])
	d.packed(uids[subjects:])
	d.subjects(r.Subjects, uids[:subjects], uids[subjects:])
	next := 0
	for i := range r.ends {
		next = d.entries(r, i, next)
	}
	if d.err == nil && (next != subjects || len(r.entries) != entries) {
		d.fail(fmt.Errorf("its events use %d of %d subjects and %d of %d references", next, subjects, len(r.entries), entries))
	}
	for _, p := range r.Sources {
		if p == 0 {
			d.fail(fmt.Errorf("it has a source without a number"))
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return r, nil
}

// subjects decodes the authorities' codes into dst.
func (d *decoder) subjects(dst []Subject, uids, authorities []uint64) {
	next := 0
	for i, uid := range uids {
		var authority uint64
		switch code := d.uvarint(); {
		case code == authorityNone:
		case code == authoritySelf:
			authority = uid
		case code == authorityNew && next < len(authorities):
			authority = authorities[next]
			next++
		case code >= authorityKnown && code-authorityKnown < uint64(next):
			authority = authorities[next-1-int(code-authorityKnown)]
		default:
			d.fail(fmt.Errorf("subject %d has authority code %d, with %d authorities before it", i, code, next))
		}
		if uid == 0 {
			d.fail(fmt.Errorf("subject %d has no UID", i))
		}
		dst[i] = Subject{uid, authority}
	}
	if next != len(authorities) {
		d.fail(fmt.Errorf("its subjects use %d of %d authorities", next, len(authorities)))
	}
}

// entries decodes the references of event i. next is how many subjects were named before; it
// returns how many were then.
func (d *decoder) entries(r *References, i, next int) int {
	head := d.uvarint()
	if head&1 != 0 {
		if r.repeated == nil {
			r.repeated = make([]uint64, (len(r.ends)+63)/64)
		}
		r.repeated[i/64] |= 1 << (i % 64)
	}
	n := head >> 1
	if n > MaxEventReferences || int(n) > cap(r.entries)-len(r.entries) {
		d.fail(fmt.Errorf("event %d has %d references, which are too many", i, n))
		return next
	}
	for range n {
		code := d.uvarint()
		e := ReferenceEntry{Subject: uint32(next), Source: uint16(code >> 2), Had: code&2 != 0}
		if code&1 == 0 {
			back := d.uvarint()
			if back >= uint64(next) {
				d.fail(fmt.Errorf("event %d refers to the subject %d places before the last, of %d so far", i, back, next))
				return next
			}
			e.Subject = uint32(next - 1 - int(back))
		} else {
			next++
		}
		if code>>2 >= uint64(len(r.Sources)) || next > len(r.Subjects) {
			d.fail(fmt.Errorf("event %d has source %d of %d, subject %d of %d", i, code>>2, len(r.Sources), e.Subject, len(r.Subjects)))
			return next
		}
		r.entries = append(r.entries, e)
	}
	r.ends[i] = uint32(len(r.entries))
	return next
}

// UIDs are packed by their upper 16 bits, the prefix, which few are of, and as many bytes of the
// rest as the largest has.
const (
	packedPrefixBits  = 16
	packedRestBits    = 64 - packedPrefixBits
	maxPackedPrefixes = 255 // in a list; if there are more, each UID has its own
)

// appendPacked appends UIDs.
func appendPacked(dst []byte, uids []uint64) []byte {
	var most uint64
	var prefixes []uint16
	numbers := make(map[uint16]byte)
	for _, u := range uids {
		most = max(most, u<<packedPrefixBits>>packedPrefixBits)
		p := uint16(u >> packedRestBits)
		if _, ok := numbers[p]; !ok && len(prefixes) <= maxPackedPrefixes {
			numbers[p] = byte(len(prefixes))
			prefixes = append(prefixes, p)
		}
	}
	listed := len(prefixes) <= maxPackedPrefixes && (len(prefixes) == 1 || 2*len(prefixes) < len(uids))
	if !listed {
		prefixes = nil
	}
	width := 0
	for ; most > 0; most >>= 8 {
		width++
	}
	dst = append(dst, byte(len(prefixes)), byte(width))
	for _, p := range prefixes {
		dst = binary.LittleEndian.AppendUint16(dst, p)
	}
	for _, u := range uids {
		switch p := uint16(u >> packedRestBits); {
		case !listed:
			dst = binary.LittleEndian.AppendUint16(dst, p)
		case len(prefixes) > 1:
			dst = append(dst, numbers[p])
		}
		for range width {
			dst = append(dst, byte(u))
			u >>= 8
		}
	}
	return dst
}

// packed reads UIDs that appendPacked appended.
func (d *decoder) packed(dst []uint64) {
	n, width := int(d.byte()), int(d.byte())
	if width > packedRestBits/8 {
		d.fail(fmt.Errorf("its UIDs have %d bytes beside the prefix, which are too many", width))
	}
	list := d.take(2 * n)
	head := 0
	switch {
	case n == 0:
		head = 2
	case n > 1:
		head = 1
	}
	raw := d.take(len(dst) * (head + width))
	if d.err != nil {
		return
	}
	for i := range dst {
		u := raw[i*(head+width) : (i+1)*(head+width)]
		var prefix uint16
		switch {
		case n == 0:
			prefix = binary.LittleEndian.Uint16(u)
		case n == 1:
			prefix = binary.LittleEndian.Uint16(list)
		case int(u[0]) < n:
			prefix = binary.LittleEndian.Uint16(list[2*int(u[0]):])
		default:
			d.fail(fmt.Errorf("UID %d has prefix number %d, but there are %d prefixes", i, u[0], n))
			return
		}
		var rest uint64
		for k := width - 1; k >= 0; k-- {
			rest = rest<<8 | uint64(u[head+k])
		}
		dst[i] = uint64(prefix)<<packedRestBits | rest
	}
}
