package relaysim

import (
	"strconv"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"millrace/consume/relaysim/cbor"
)

// tidLen is the length of a TID, and so of every rev and of most record keys.
const tidLen = 13

// tid is a TID as text.
type tid [tidLen]byte

func (t tid) String() string { return string(t[:]) }

// makeTID writes the 64-bit integer of a TID (top bit clear) as text.
func makeTID(n uint64) (t tid) {
	for i := tidLen - 1; i >= 0; i-- {
		t[i] = syntax.Base32SortAlphabet[n&31]
		n >>= 5
	}
	return t
}

// values are what the holes of a template are filled with.
type values struct {
	epoch uint32
	seq   int64
	did   []byte
	time  []byte
	rev   tid
	rkeys []tid // by the index in the hole
}

type holeKind uint8

// The kinds of holes. The CBOR ones hold a whole encoded value, the others bare text.
const (
	holeSeqCBOR holeKind = iota + 1
	holeDIDCBOR
	holeTimeCBOR
	holeEpoch
	holeSeq
	holeDID
	holeTime
	holeRev
	holeRKey
)

type hole struct {
	at   uint32 // in the literal bytes
	kind holeKind
	rkey uint16 // holeRKey: which one
}

// pattern is a run of bytes with holes in it. It is immutable and shared.
type pattern struct {
	literal []byte
	holes   []hole
}

// append appends the pattern with its holes filled from v.
func (p *pattern) append(dst []byte, v *values) []byte {
	from := uint32(0)
	for _, h := range p.holes {
		dst = append(dst, p.literal[from:h.at]...)
		from = h.at
		switch h.kind {
		case holeSeqCBOR:
			dst = cbor.AppendInt(dst, v.seq)
		case holeDIDCBOR:
			dst = cbor.AppendText(dst, v.did)
		case holeTimeCBOR:
			dst = cbor.AppendText(dst, v.time)
		case holeEpoch:
			dst = strconv.AppendUint(dst, uint64(v.epoch), 10)
		case holeSeq:
			dst = strconv.AppendInt(dst, v.seq, 10)
		case holeDID:
			dst = append(dst, v.did...)
		case holeTime:
			dst = append(dst, v.time...)
		case holeRev:
			dst = append(dst, v.rev[:]...)
		case holeRKey:
			dst = append(dst, v.rkeys[h.rkey][:]...)
		}
	}
	return append(dst, p.literal[from:]...)
}

// text adds literal bytes.
func (p *pattern) text(s string) { p.literal = append(p.literal, s...) }

// hole adds a hole.
func (p *pattern) hole(kind holeKind, rkey uint16) {
	p.holes = append(p.holes, hole{at: uint32(len(p.literal)), kind: kind, rkey: rkey})
}
