package replay

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// StreamOf names the stream of a relay (host[:port], case does not matter) and an epoch: the top 24
// bits of xxhash64 over the lower-case host, a NUL and the epoch in big-endian.
func StreamOf(relay string, epoch uint32) translate.Stream {
	b := append([]byte(strings.ToLower(relay)), 0)
	b = binary.BigEndian.AppendUint32(b, epoch)
	return translate.Stream(xxhash.Sum64(b) >> 40)
}

// firstEpoch is the epoch of an empty log.
const firstEpoch = 1

// stream is one epoch that the log followed.
type stream struct {
	epoch uint32
	relay string
	tag   translate.Stream
}

// mark is a Mark that compares over epochs.
type mark struct {
	timeUS int64
	place
}

// state is what every Append commits next to its events. It is small and replaced whole.
type state struct {
	epoch  uint32 // the position reached
	seq    int64
	timeUS int64 // newest stamp, of an event or a gap

	floor  mark // everything up to here is not, or no longer, in the log
	oldest mark // first event; zero: the log is empty
	newest mark // last event ever appended, trimmed or not; zero: none yet

	previous EpochEnd // see Progress

	// Totals over all time; floor's are those of what was trimmed.
	total, trimmed totals
}

// totals count blocks. bytes are those of the parts before Pebble compresses them.
type totals struct {
	blocks, events, bytes int64
}

func (t totals) minus(o totals) totals {
	return totals{t.blocks - o.blocks, t.events - o.events, t.bytes - o.bytes}
}

func (t *totals) add(b *Block) {
	t.blocks++
	t.events += int64(b.Events())
	t.bytes += b.stored()
}

func appendMark(dst []byte, m mark) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.timeUS))
	dst = binary.LittleEndian.AppendUint32(dst, m.epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.seq))
	return binary.LittleEndian.AppendUint32(dst, m.op)
}

func (d *decoder) mark() mark {
	return mark{d.int64(), place{d.uint32(), d.int64(), d.uint32()}}
}

func appendTotals(dst []byte, t totals) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(t.blocks))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(t.events))
	return binary.LittleEndian.AppendUint64(dst, uint64(t.bytes))
}

func (d *decoder) totals() totals { return totals{d.int64(), d.int64(), d.int64()} }

// appendState appends the value of MetaState, without trailer.
func appendState(dst []byte, s *state) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, s.epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.seq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.timeUS))
	dst = appendMark(dst, s.floor)
	dst = appendMark(dst, s.oldest)
	dst = appendMark(dst, s.newest)
	dst = appendTotals(dst, s.total)
	dst = appendTotals(dst, s.trimmed)
	dst = binary.LittleEndian.AppendUint32(dst, s.previous.Epoch)
	return binary.LittleEndian.AppendUint64(dst, uint64(s.previous.Seq))
}

func decodeState(b []byte) (state, error) {
	d := &decoder{b: b}
	s := state{epoch: d.uint32(), seq: d.int64(), timeUS: d.int64(),
		floor: d.mark(), oldest: d.mark(), newest: d.mark(), total: d.totals(), trimmed: d.totals(),
		previous: EpochEnd{d.uint32(), d.int64()}}
	return s, d.end()
}

// end returns the first error, and one if bytes are left.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail(fmt.Errorf("%d bytes follow it", len(d.b)))
	}
	return d.err
}

// appendStreams appends the value of MetaStreams, without trailer.
func appendStreams(dst []byte, streams []stream) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(streams)))
	for _, s := range streams {
		dst = binary.LittleEndian.AppendUint32(dst, s.epoch)
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.relay)))
		dst = append(dst, s.relay...)
	}
	return dst
}

func decodeStreams(b []byte) ([]stream, error) {
	d := &decoder{b: b}
	n := int(d.uint32())
	var streams []stream
	for i := 0; i < n && d.err == nil; i++ {
		s := stream{epoch: d.uint32()}
		s.relay = string(d.take(int(d.uint16())))
		s.tag = StreamOf(s.relay, s.epoch)
		if i > 0 && s.epoch <= streams[i-1].epoch {
			d.fail(fmt.Errorf("epoch %d follows epoch %d", s.epoch, streams[i-1].epoch))
		}
		streams = append(streams, s)
	}
	if d.err == nil && len(streams) == 0 {
		d.fail(fmt.Errorf("it names no stream"))
	}
	return streams, d.end()
}

// maxRelayBytes bounds Config.Relay: the longest DNS name with a port.
const maxRelayBytes = 253 + 6

// maxEpochs bounds the list of streams. Epochs that old are far behind any retention.
const maxEpochs = 10_000

// addStream returns streams with one more epoch of relay, leaving out the oldest if there are too
// many. Two epochs must not share a tag: cursors could not tell them apart.
func addStream(streams []stream, relay string, epoch uint32) ([]stream, error) {
	s := stream{epoch: epoch, relay: relay, tag: StreamOf(relay, epoch)}
	for _, o := range streams {
		if o.tag == s.tag {
			return nil, fmt.Errorf("epoch %d of %s and epoch %d of %s have the same stream tag %s: skip this epoch with --new-epoch",
				o.epoch, o.relay, epoch, relay, s.tag)
		}
	}
	if len(streams) >= maxEpochs {
		streams = streams[len(streams)-maxEpochs+1:]
	}
	return append(streams[:len(streams):len(streams)], s), nil
}

// gapBytes is the length of a gap's value, without trailer.
const gapBytes = 2 * (4 + 8 + 4)

func appendGap(dst []byte, g *Gap) []byte {
	for _, p := range []translate.Position{g.From, g.To} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(p.Stream))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(p.Seq))
		dst = binary.LittleEndian.AppendUint32(dst, p.Op)
	}
	return dst
}

func decodeGap(b []byte, timeUS int64) (Gap, error) {
	d := &decoder{b: b}
	g := Gap{TimeUS: timeUS}
	for _, p := range []*translate.Position{&g.From, &g.To} {
		*p = translate.Position{Stream: translate.Stream(d.uint32()), Seq: d.int64(), Op: d.uint32()}
	}
	return g, d.end()
}

// blockRef is the value of RangeSeq: where the block is, and the totals up to and including it.
type blockRef struct {
	key int64
	seq int64 // of its last event, whose stamp is key
	op  uint32
	totals
}

func appendBlockRef(dst []byte, r blockRef) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.key))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.seq))
	dst = binary.LittleEndian.AppendUint32(dst, r.op)
	return appendTotals(dst, r.totals)
}

// decodeBlockRef decodes the value of a key of RangeSeq.
func decodeBlockRef(sealed []byte, seq int64) (blockRef, error) {
	b, err := format.OpenTrailer(sealed, format.RangeSeq, seq)
	if err != nil {
		return blockRef{}, err
	}
	d := &decoder{b: b}
	r := blockRef{key: d.int64(), seq: d.int64(), op: d.uint32(), totals: d.totals()}
	return r, d.end()
}
