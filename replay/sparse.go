package replay

import (
	"fmt"

	"millrace/dict"
	"millrace/replay/internal/format"
)

// A plain part is unpacked in pages. A reader of few events that lie anywhere in a block would
// unpack all of it. So it takes the zstd part, in which each event is by itself, and decompresses
// those.

// sparseEvents: such a share of a block's events are few.
const sparseEvents = 32

// scattered says whether what f passes may lie anywhere in a block, and not in the substreams of
// few collections.
func (f *Filter) scattered() bool { return f != nil && (f.dids != nil || f.references.bySubject()) }

// sparse says whether the block has few events that pass, sizes apart.
func (m *matcher) sparse() bool {
	if !m.f.scattered() {
		return false
	}
	n := m.idx.Events()
	few := n / sparseEvents
	for i := m.next(0); i < n; i = m.next(i + 1) {
		if few--; few < 0 {
			return false
		}
	}
	return true
}

// giveSparse takes the events from i on and before through that the filter passes out of a stored
// zstd part. They are of bytes in all as plain frames.
func (p *pass) giveSparse(cand candidate, stored *storedPart, i, through, events, bytes int) error {
	r, c, x := p.r, p.c, cand.idx
	p.lookAhead(x, stored.pages.StoredBytes())
	dec, err := r.log.cfg.Dictionaries.Decoder(x.Dictionary)
	if err != nil {
		return fmt.Errorf("decompress events of block %d: %w", x.Key(), err)
	}
	b, own := c.room(bytes, int(x.PlainEnd[x.Events()-1]), r.maxBytes)
	at := 0
	for e := r.matcher.next(i); e < through; e = r.matcher.next(e + 1) {
		size := int(x.PlainEnd[e] - format.FrameStart(x.PlainEnd, e))
		if tooLarge(size, r.filter.limit()) {
			continue
		}
		frame := stored.pages.FirstValue()[format.FrameStart(x.ZstdEnd, e):x.ZstdEnd[e]]
		if err := plainFrame(b[at:at:at+size], frame, size, dec); err != nil {
			return stored.corrupt(fmt.Errorf("event %d: %w", e, err))
		}
		at += size
	}
	c.add(b, own)
	c.Events += events
	c.Bytes += bytes
	return nil
}

// plainFrame writes to dst, which is empty and has room for it, the plain frame of size bytes that
// a compressed one is of.
func plainFrame(dst, compressed []byte, size int, dec *dict.Decoder) error {
	dst = format.AppendFrameHeader(dst, format.OpcodeText, size-format.FrameHeaderBytes(size))
	got, err := dec.Append(dst, format.FramePayload(compressed))
	if err == nil && len(got) != size {
		err = fmt.Errorf("it has %d bytes as a plain frame, the index says %d", len(got), size)
	}
	if err == nil {
		copy(dst[:size], got) // onto itself, unless the decoder wanted more room
	}
	return err
}
