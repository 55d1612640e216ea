package replay

import (
	"fmt"
	"strconv"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// variant is one of the forms that a block's events are sent in.
type variant struct {
	extended   bool
	dictionary uint32 // 0: uncompressed
}

// source is a block that a reader looks at: its index and, if it is in the tail, the rest of it.
type source struct {
	idx *blockIndex
	blk *Block // nil: not in the tail

	// others is the key of the span whose copies of identity and account events idx is of; 0: of a block.
	// Of them only those before event end are looked at; what comes next is at stamp next.
	others int64
	end    int
	next   int64

	// skip, if idx is nil, is the mark up to which nothing passes the filter; zero: the log ends here.
	skip format.Mark
}

// bounds returns how many of the events are to be looked at, and the stamp where to go on behind them.
func (s source) bounds() (end int, next int64) {
	if s.others != 0 {
		return s.end, s.next
	}
	return s.idx.Events(), s.idx.Key() + 1
}

// key is the key that the parts are stored under.
func (s source) key() int64 {
	if s.others != 0 {
		return s.others
	}
	return s.idx.Key()
}

// storedEnds returns where the frames of a stored variant end; nil if v is not one of the block's.
func (v variant) storedEnds(x *blockIndex) []uint32 {
	switch {
	case v.extended:
		return nil
	case v.dictionary == 0:
		return x.PlainEnd
	case v.dictionary == x.Dictionary:
		return x.ZstdEnd
	}
	return nil
}

// part is the range of the part that has the frames of a stored variant.
func (s source) part(v variant) format.Range {
	r := format.RangePlain
	if v.dictionary != 0 {
		r = format.RangeZstd
	}
	if s.others != 0 {
		r += format.RangeCopiesPlain - format.RangePlain
	}
	return r
}

// frames returns the frames of a block of the tail, or those of a variant that is not stored: from the cache, or built
// of the plain ones. The result is immutable and shared. The caller holds storeMu.
func (l *Log) frames(src source, v variant, stream translate.Stream) (frames, error) {
	ends := v.storedEnds(src.idx)
	switch {
	case ends == nil:
		return l.build(src, v, stream)
	case v.dictionary == 0:
		return frames{src.blk.plain, ends}, nil
	}
	return frames{src.blk.zstd, ends}, nil
}

// plain returns the plain frames of a source, in a's memory if they are not in the tail.
func (l *Log) plain(src source, a *arena) ([]byte, error) {
	if src.blk != nil {
		return src.blk.plain, nil
	}
	x := src.idx
	p, err := l.openPart(x, src.part(variant{}), src.key(), int(x.PlainEnd[x.Events()-1]))
	if err != nil {
		return nil, err
	}
	defer p.close()
	var mem pooled
	defer mem.free()
	all, err := p.pages.AppendFrames(a.b[:0], &mem, &p)
	if err != nil {
		return nil, p.corrupt(err)
	}
	a.b = all
	return a.b, nil
}

// build returns a variant that is not stored. It is built once, whoever asks first.
func (l *Log) build(src source, v variant, stream translate.Stream) (frames, error) {
	e, mine := l.cache.find(cacheKey{block: src.key(), others: src.others != 0, first: src.idx.TimeUS[0], variant: v})
	if !mine {
		return e.frames, e.err
	}
	defer func() { l.cache.fill(e, int64(cap(e.data)+4*cap(e.ends))) }()
	a := newArena(0)
	defer a.free()
	plain, err := l.plain(src, a)
	if err != nil {
		e.err = err
		return frames{}, err
	}
	var enc format.Compressor
	if v.dictionary != 0 {
		if enc, err = l.cfg.Dictionaries.Encoder(v.dictionary); err != nil {
			e.err = fmt.Errorf("build a variant of block %d: %w", src.idx.Key(), err)
			return frames{}, e.err
		}
	}
	e.frames, e.err = buildVariant(src.idx, plain, v.extended, enc, stream), nil
	l.metrics.variants.Inc()
	return e.frames, nil
}

// buildVariant makes the frames of all events out of the plain ones. enc nil: uncompressed.
func buildVariant(x *blockIndex, plain []byte, extended bool, enc format.Compressor, stream translate.Stream) frames {
	const extraBytes = 128 // about what extended adds
	room := len(plain) + extraBytes*x.Events()
	if enc != nil {
		room /= 2
	}
	f := frames{data: make([]byte, 0, room), ends: make([]uint32, x.Events())}
	var scratch []byte
	var start uint32
	for i, end := range x.PlainEnd {
		payload := format.FramePayload(plain[start:end])
		start = end
		if extended {
			scratch = appendExtended(scratch[:0], x.full, i, payload, stream)
			payload = scratch
		}
		if enc != nil {
			f.data = format.AppendCompressed(f.data, enc, payload)
		} else {
			f.data = format.AppendFrameHeader(f.data, format.OpcodeText, len(payload))
			f.data = append(f.data, payload...)
		}
		f.ends[i] = uint32(len(f.data))
	}
	if cap(f.data) > len(f.data)+len(f.data)/8 {
		f.data = append(make([]byte, 0, len(f.data)), f.data...)
	}
	return f
}

// appendExtended appends event i's JSON with its cursor and UIDs added at the end of the object.
func appendExtended(dst []byte, x *format.Index, i int, payload []byte, stream translate.Stream) []byte {
	dst = append(dst, payload[:len(payload)-1]...)
	dst = append(dst, `,"cursor":"`...)
	dst = translate.AppendPosition(dst, translate.Position{Stream: stream, Seq: x.Seq[i], Op: x.Op[i]})
	dst = append(dst, '"')
	did, uri := x.UIDs(i)
	if did != 0 || uri != 0 {
		dst = append(dst, `,"uids":{`...)
		if did != 0 {
			dst = append(dst, `"did":"`...)
			dst = strconv.AppendUint(dst, did, 10)
			dst = append(dst, '"')
		}
		if uri != 0 {
			if did != 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `"uri":"`...)
			dst = strconv.AppendUint(dst, uri, 10)
			dst = append(dst, '"')
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}
