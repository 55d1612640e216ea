package replay

import (
	"bytes"
	"errors"
	"fmt"

	"millrace/dict"
	"millrace/replay/internal/format"
)

// blockCheck is one block on its way through the check: the scan fills key and parts, a worker idx and
// problems, the collector compares it with its neighbours. Its memory is used again.
type blockCheck struct {
	key   int64
	parts [4]sealedPart // in the order of BlockRanges
	done  chan struct{} // one token when a worker is through with it

	idx      *index // nil: it cannot be read
	plain    []byte // its frames; nil: they cannot be read, or not found with idx
	zstd     []byte
	bytes    int64 // of the parts, sealed
	whole    bool  // none is missing
	problems []Problem

	payload []byte // scratch
}

// sealedPart is what is stored of a part: one value, or of plain one for each strand.
type sealedPart struct {
	present uint8                        // a bit for each value that there is
	sealed  [format.MaxSubstreams][]byte // owned by the blockCheck
}

// open opens value s of range r; nil: there is none.
func (p *sealedPart) open(s int, r format.Range, key int64) ([]byte, error) {
	if p.present&(1<<s) == 0 {
		return nil, nil
	}
	return format.OpenTrailer(p.sealed[s], r, key)
}

func (b *blockCheck) problem(r format.Range, event int, offset int64, err error) {
	b.problems = append(b.problems, Problem{Part: r.String(), Block: b.key, Event: event, Offset: offset, Text: err.Error()})
}

// check finds what is wrong with the block by itself.
func (b *blockCheck) check(decoders *decoders) {
	b.idx, b.plain, b.zstd, b.bytes, b.whole, b.problems = nil, nil, nil, 0, true, b.problems[:0]
	var parts [4][]byte
	for i, r := range format.BlockRanges() {
		p := &b.parts[i]
		for s, sealed := range p.sealed {
			if p.present&(1<<s) != 0 {
				b.bytes += int64(len(sealed))
			}
		}
		var err error
		if parts[i], err = p.open(0, r, b.key); err == nil && parts[i] == nil {
			err = format.ErrMissing
			b.whole = false
		}
		if err != nil {
			b.problem(r, -1, -1, err)
		}
	}
	if parts[0] == nil {
		return
	}
	x, err := decodeIndex(parts[0])
	if err == nil && x.key() != b.key {
		err = fmt.Errorf("its last event is stamped %d", x.key())
	}
	if err != nil {
		b.problem(format.RangeIndex, -1, -1, err)
		return
	}
	b.idx = x
	b.checkIndex(x)
	if parts[3] != nil {
		b.checkOutline(x, parts[3])
	}
	if parts[1] != nil {
		parts[1] = b.unpack(x, parts[1])
	}
	b.plain = b.framesOf(format.RangePlain, parts[1], x.plainEnd)
	b.zstd = b.framesOf(format.RangeZstd, parts[2], x.zstdEnd)
	if b.plain != nil {
		b.checkPlain(x, b.plain)
	}
	if b.zstd != nil {
		b.checkZstd(x, b.plain, b.zstd, decoders)
	}
}

// unpack returns the plain frames, of the first value and those of the other strands; nil if they cannot be read.
func (b *blockCheck) unpack(x *index, first []byte) []byte {
	var strands [format.MaxSubstreams][]byte
	for s := 1; s < format.MaxSubstreams; s++ {
		var err error
		if strands[s], err = b.parts[1].open(s, format.RangePlain, b.key); err != nil {
			b.problem(format.RangePlain, -1, -1, fmt.Errorf("strand %d: %w", s, err))
			return nil
		}
	}
	plain, err := unpack(first, x.plainEnd, &strands)
	if err != nil {
		b.whole = b.whole && !errors.Is(err, format.ErrMissing)
		b.problem(format.RangePlain, -1, -1, err)
		return nil
	}
	return plain
}

// framesOf returns the part if it is as long as the index says, else nil.
func (b *blockCheck) framesOf(r format.Range, part []byte, ends []uint32) []byte {
	if want := int(ends[len(ends)-1]); part != nil && len(part) != want {
		b.problem(r, -1, int64(min(len(part), want)), fmt.Errorf("it has %d bytes, the index says %d", len(part), want))
		return nil
	}
	return part
}

// checkIndex checks the columns and tables.
func (b *blockCheck) checkIndex(x *index) {
	var kinds KindSet
	usedCollections, usedDIDs := make([]bool, x.collections.len()), make([]bool, x.dids.len())
	uids := make([]uint64, x.dids.len())
	for i := range x.timeUS {
		if err := x.checkColumns(i); err != nil {
			b.problem(format.RangeIndex, i, -1, err)
			continue
		}
		kinds |= Kinds(x.kindOf(i))
		if c := x.collection[i]; c > 0 {
			usedCollections[c-1] = true
		}
		d := x.did[i]
		if x.didUID != nil && usedDIDs[d] && uids[d] != x.didUID[i] {
			b.problem(format.RangeIndex, i, -1, fmt.Errorf("%.*q has UID %d and, in an earlier event, %d", maxNamed, x.dids.at(int(d)), x.didUID[i], uids[d]))
		}
		usedDIDs[d] = true
		if x.didUID != nil {
			uids[d] = x.didUID[i]
		}
	}
	if kinds != x.kinds {
		b.problem(format.RangeIndex, -1, -1, fmt.Errorf("its set of kinds is %#b, its events' is %#b", x.kinds, kinds))
	}
	b.checkTable("collection", &x.collections, usedCollections)
	b.checkTable("DID", &x.dids, usedDIDs)
}

// checkOutline checks that the outline says what the index says.
func (b *blockCheck) checkOutline(x *index, part []byte) {
	if _, err := decodeOutline(part); err != nil {
		b.problem(format.RangeSlimIndex, -1, -1, err)
		return
	}
	want := appendOutline(nil, x)
	if !bytes.Equal(part, want) {
		b.problem(format.RangeSlimIndex, -1, int64(differAt(part, want)), errors.New("it is not what the index makes"))
	}
}

// checkTable checks that each name is in the table once, and needed.
func (b *blockCheck) checkTable(what string, t *table, used []bool) {
	seen := make(map[string]struct{}, t.len())
	for i := range t.len() {
		name := t.at(i)
		if _, twice := seen[name]; twice {
			b.problem(format.RangeIndex, -1, -1, fmt.Errorf("%s %.*q is in its table twice", what, maxNamed, name))
		}
		seen[name] = struct{}{}
		if !used[i] {
			b.problem(format.RangeIndex, -1, -1, fmt.Errorf("no event is of %s %.*q of its table", what, maxNamed, name))
		}
	}
}

// checkHeader checks a whole websocket frame's header and returns the payload, nil if it is wrong.
func (b *blockCheck) checkHeader(r format.Range, opcode byte, i int, start uint32, frame []byte) []byte {
	n := format.FrameHeaderBytes(len(frame))
	var head [format.MaxFrameHeaderBytes]byte
	if len(frame) < n || !bytes.Equal(frame[:n], format.AppendFrameHeader(head[:0], opcode, len(frame)-n)) {
		b.problem(r, i, int64(start), fmt.Errorf("the frame of %d bytes begins with % x", len(frame), frame[:min(len(frame), format.MaxFrameHeaderBytes)]))
		return nil
	}
	return frame[n:]
}

// checkPlain checks the frames' headers and what their JSON says.
func (b *blockCheck) checkPlain(x *index, plain []byte) {
	var start uint32
	for i, end := range x.plainEnd {
		payload := b.checkHeader(format.RangePlain, format.OpcodeText, i, start, plain[start:end])
		if payload != nil && x.collection[i] == 0 == (x.kind[i]&0xf != 1) { // else the columns were found wrong
			if at, err := x.checkPayload(i, payload); err != nil {
				b.problem(format.RangePlain, i, int64(end)-int64(len(payload))+int64(at), err)
			}
		}
		start = end
	}
}

// checkZstd checks the compressed frames' headers and that they hold the plain payloads. plain is nil if
// that part cannot be read.
func (b *blockCheck) checkZstd(x *index, plain, zstd []byte, decoders *decoders) {
	dec := decoders.of(x.dictionary)
	if dec == nil {
		b.problem(format.RangeZstd, -1, -1, fmt.Errorf("it is made with dictionary %d, which the log does not have", x.dictionary))
		return
	}
	var start, plainStart uint32
	for i, end := range x.zstdEnd {
		frame := b.checkHeader(format.RangeZstd, format.OpcodeBinary, i, start, zstd[start:end])
		var want []byte
		if plain != nil {
			want = format.FramePayload(plain[plainStart:x.plainEnd[i]])
			plainStart = x.plainEnd[i]
		}
		start = end
		if frame == nil {
			continue
		}
		got, err := dec.Append(b.payload[:0], frame)
		if err != nil {
			b.problem(format.RangeZstd, i, int64(end)-int64(len(frame)), err)
			continue
		}
		b.payload = got
		if plain != nil && !bytes.Equal(got, want) {
			b.problem(format.RangeZstd, i, int64(end)-int64(len(frame)), differ(got, want))
		}
	}
}

// differAt returns the first byte in which a and b differ.
func differAt(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// differ says where the decompressed event is not the plain one.
func differ(got, want []byte) error {
	if i := differAt(got, want); i < min(len(got), len(want)) {
		return fmt.Errorf("decompressed it differs from the plain event at byte %d of its JSON: %q, not %q",
			i, got[i:min(i+16, len(got))], want[i:min(i+16, len(want))])
	}
	return fmt.Errorf("decompressed it has %d bytes, the plain event %d", len(got), len(want))
}

// maxVerifiedEvent bounds a decompressed event: a record has at most 1 MiB, and no byte of it becomes more
// than six.
const maxVerifiedEvent = 16 << 20

// decoders are one a dictionary of the log. Safe for concurrent use once made.
type decoders struct {
	byID map[uint32]*dict.Decoder
}

func newDecoders(files map[uint32]*dict.Dictionary) (*decoders, error) {
	d := &decoders{byID: make(map[uint32]*dict.Decoder, len(files))}
	for id, file := range files {
		dec, err := dict.NewDecoder(maxVerifiedEvent, file)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("dictionary %d: %w", id, err)
		}
		d.byID[id] = dec
	}
	return d, nil
}

// of returns the decoder of a dictionary, nil if the log does not have it.
func (d *decoders) of(id uint32) *dict.Decoder { return d.byID[id] }

func (d *decoders) close() {
	for _, dec := range d.byID {
		dec.Close()
	}
}
