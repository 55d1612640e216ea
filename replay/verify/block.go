package verify

import (
	"bytes"
	"errors"
	"fmt"

	"millrace/dict"
	"millrace/replay/internal/format"
)

// blockCheck is one block on its way through the check. The scan fills key and parts, a worker what
// follows. Then it is compared with its neighbours. Its memory is used again.
type blockCheck struct {
	key   int64
	parts [numParts]sealedPart // in the order of partRanges

	checked chan struct{} // one token when a worker is through with it

	idx      *format.Index      // nil: it cannot be read
	refs     *format.References // nil: there are none, or they cannot be read
	plain    []byte             // its frames; nil: they cannot be read, or not found with idx
	zstd     []byte
	bytes    int64 // of the parts, sealed
	whole    bool  // none is missing
	problems []Problem

	payload []byte // scratch
}

// numParts is how many parts a block may have.
const numParts = 5

// partRanges returns the ranges of a block's parts; the last is not in all blocks.
func partRanges() [numParts]format.Range {
	b := format.BlockRanges()
	return [numParts]format.Range{b[0], b[1], b[2], b[3], format.RangeReferences}
}

// sealedPart is what is stored of a part: one value, or of plain one for each substream.
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
func (b *blockCheck) check(decoders decoders) {
	b.idx, b.refs, b.plain, b.zstd, b.bytes, b.whole, b.problems = nil, nil, nil, nil, 0, true, b.problems[:0]
	var parts [numParts][]byte
	for i, r := range partRanges() {
		p := &b.parts[i]
		for s, sealed := range p.sealed {
			if p.present&(1<<s) != 0 {
				b.bytes += int64(len(sealed))
			}
		}
		var err error
		if parts[i], err = p.open(0, r, b.key); err == nil && parts[i] == nil && r != format.RangeReferences {
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
	x, err := format.DecodeIndex(parts[0])
	if err == nil && x.Key() != b.key {
		err = fmt.Errorf("its last event is stamped %d", x.Key())
	}
	if err != nil {
		b.problem(format.RangeIndex, -1, -1, err)
		return
	}
	b.idx = x
	b.checkIndex(x)
	b.checkReferences(x, parts[4])
	if parts[3] != nil {
		b.checkSlimIndex(x, parts[3])
	}
	if parts[1] != nil {
		parts[1] = b.unpack(x, parts[1])
	}
	b.plain = b.framesOf(format.RangePlain, parts[1], x.PlainEnd)
	b.zstd = b.framesOf(format.RangeZstd, parts[2], x.ZstdEnd)
	if b.plain != nil {
		b.checkPlain(x, b.plain)
	}
	if b.zstd != nil {
		b.checkZstd(x, b.plain, b.zstd, decoders)
	}
}

// unpack returns the plain frames, of the first value and those of the other substreams; nil if
// they cannot be read.
func (b *blockCheck) unpack(x *format.Index, first []byte) []byte {
	var substreams [format.MaxSubstreams][]byte
	for s := 1; s < format.MaxSubstreams; s++ {
		var err error
		if substreams[s], err = b.parts[1].open(s, format.RangePlain, b.key); err != nil {
			b.problem(format.RangePlain, -1, -1, fmt.Errorf("substream %d: %w", s, err))
			return nil
		}
	}
	plain, err := format.UnpackFrames(first, x.PlainEnd, &substreams)
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
func (b *blockCheck) checkIndex(x *format.Index) {
	var kinds format.KindSet
	usedCollections, usedDIDs := make([]bool, x.Collections.Len()), make([]bool, x.DIDs.Len())
	uids := make([]uint64, x.DIDs.Len())
	for i := range x.TimeUS {
		if err := checkColumns(x, i); err != nil {
			b.problem(format.RangeIndex, i, -1, err)
			continue
		}
		kinds |= format.Kinds(x.KindAt(i))
		if c := x.Collection[i]; c > 0 {
			usedCollections[c-1] = true
		}
		d := x.DID[i]
		if x.DIDUID != nil && usedDIDs[d] && uids[d] != x.DIDUID[i] {
			b.problem(format.RangeIndex, i, -1, fmt.Errorf("%.*q has UID %d and, in an earlier event, %d", maxNamed, x.DIDs.At(int(d)), x.DIDUID[i], uids[d]))
		}
		usedDIDs[d] = true
		if x.DIDUID != nil {
			uids[d] = x.DIDUID[i]
		}
	}
	if kinds != x.Kinds {
		b.problem(format.RangeIndex, -1, -1, fmt.Errorf("its set of kinds is %#b, its events' is %#b", x.Kinds, kinds))
	}
	b.checkTable("collection", &x.Collections, usedCollections)
	b.checkTable("DID", &x.DIDs, usedDIDs)
}

// checkSlimIndex checks that the slim index says what the index says.
func (b *blockCheck) checkSlimIndex(x *format.Index, part []byte) {
	if _, err := format.DecodeSlimIndex(part); err != nil {
		b.problem(format.RangeSlimIndex, -1, -1, err)
		return
	}
	want := format.AppendSlimIndex(nil, &x.SlimIndex)
	if !bytes.Equal(part, want) {
		b.problem(format.RangeSlimIndex, -1, int64(differAt(part, want)), errors.New("the index gives another one"))
	}
}

// checkTable checks that each name is in the table once, and needed.
func (b *blockCheck) checkTable(what string, t *format.NameTable, used []bool) {
	seen := make(map[string]struct{}, t.Len())
	for i := range t.Len() {
		name := t.At(i)
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
func (b *blockCheck) checkPlain(x *format.Index, plain []byte) {
	var start uint32
	for i, end := range x.PlainEnd {
		payload := b.checkHeader(format.RangePlain, format.OpcodeText, i, start, plain[start:end])
		// else the columns were found wrong
		if payload != nil && x.Collection[i] == 0 == (x.Kind[i]&0xf != 1) {
			if at, err := checkPayload(x, i, payload); err != nil {
				b.problem(format.RangePlain, i, int64(end)-int64(len(payload))+int64(at), err)
			}
		}
		start = end
	}
}

// checkZstd checks the compressed frames' headers and that they hold the plain payloads. plain is
// nil if that part cannot be read.
func (b *blockCheck) checkZstd(x *format.Index, plain, zstd []byte, decoders decoders) {
	dec := decoders[x.Dictionary]
	if dec == nil {
		b.problem(format.RangeZstd, -1, -1, fmt.Errorf("it is made with dictionary %d, which the log does not have", x.Dictionary))
		return
	}
	var start, plainStart uint32
	for i, end := range x.ZstdEnd {
		frame := b.checkHeader(format.RangeZstd, format.OpcodeBinary, i, start, zstd[start:end])
		var want []byte
		if plain != nil {
			want = format.FramePayload(plain[plainStart:x.PlainEnd[i]])
			plainStart = x.PlainEnd[i]
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

// maxVerifiedEvent bounds a decompressed event: a record has at most 1 MiB, and no byte of it
// becomes more than six.
const maxVerifiedEvent = 16 << 20

// decoders has a decoder for each dictionary of the log. Safe for concurrent use once made.
type decoders map[uint32]*dict.Decoder

func newDecoders(files map[uint32]*dict.Dictionary) (decoders, error) {
	d := make(decoders, len(files))
	for id, file := range files {
		dec, err := dict.NewDecoder(maxVerifiedEvent, file)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("dictionary %d: %w", id, err)
		}
		d[id] = dec
	}
	return d, nil
}

func (d decoders) close() {
	for _, dec := range d {
		dec.Close()
	}
}
