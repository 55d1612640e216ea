package format

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"millrace/translate"
)

// StreamTag names the stream of a relay (host[:port], case does not matter) and an epoch. It is the
// top 24 bits of xxhash64 over the lower-case host, a NUL and the epoch in big-endian.
func StreamTag(relay string, epoch uint32) translate.Stream {
	b := append([]byte(strings.ToLower(relay)), 0)
	b = binary.BigEndian.AppendUint32(b, epoch)
	return translate.Stream(xxhash.Sum64(b) >> 40)
}

// Stream is one epoch that the log followed.
type Stream struct {
	Epoch uint32
	Relay string           // host[:port]
	Tag   translate.Stream // StreamTag of both
	// SeqBase is what V2Seq takes for its events. It is not in MetaStreams but in MetaSeqBases.
	SeqBase int64
}

// NextSeqBase returns the base of the epoch after one that has that base, and that last frame.
func NextSeqBase(base, lastSeq int64) int64 {
	return min(base+(min(lastSeq, MaxV2Seq>>V2OpBits)+1)<<V2OpBits, MaxV2Seq)
}

// Place is a position with its epoch instead of its stream: places compare over the whole log.
type Place struct {
	Epoch uint32
	Seq   int64
	Op    uint32
}

// Before says whether p comes before q in the log.
func (p Place) Before(q Place) bool {
	if p.Epoch != q.Epoch {
		return p.Epoch < q.Epoch
	}
	if p.Seq != q.Seq {
		return p.Seq < q.Seq
	}
	return p.Op < q.Op
}

// Point is the stamp and the place of an event.
type Point struct {
	TimeUS int64
	Place
}

// State is how far the log has come. Each append commits it with its events.
type State struct {
	Epoch  uint32 // the position reached
	Seq    int64
	TimeUS int64 // newest stamp, of an event or a gap

	Floor  Point // everything up to here was trimmed, or never was in the log
	Oldest Point // first event; zero: the log is empty
	Newest Point // last event ever appended, trimmed or not; zero: none yet

	Previous EpochEnd // zero unless Seq is 0

	Total, Trimmed Totals // of all blocks ever appended, and of those that were trimmed
}

// EpochEnd is the last frame committed of an epoch, whether it gave an event or not.
type EpochEnd struct {
	Epoch uint32
	Seq   int64
}

// Before says whether e comes before o in the log.
func (e EpochEnd) Before(o EpochEnd) bool {
	return e.Epoch < o.Epoch || e.Epoch == o.Epoch && e.Seq < o.Seq
}

// Totals count blocks. Bytes are those of the stored values, before Pebble compresses them.
type Totals struct {
	Blocks, Events, Bytes int64
}

// Plus returns the sum.
func (t Totals) Plus(o Totals) Totals {
	return Totals{t.Blocks + o.Blocks, t.Events + o.Events, t.Bytes + o.Bytes}
}

// Minus returns the difference.
func (t Totals) Minus(o Totals) Totals {
	return Totals{t.Blocks - o.Blocks, t.Events - o.Events, t.Bytes - o.Bytes}
}

func appendPoint(dst []byte, m Point) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.TimeUS))
	dst = binary.LittleEndian.AppendUint32(dst, m.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.Seq))
	return binary.LittleEndian.AppendUint32(dst, m.Op)
}

func (d *decoder) point() Point {
	return Point{d.int64(), Place{d.uint32(), d.int64(), d.uint32()}}
}

func appendTotals(dst []byte, t Totals) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(t.Blocks))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(t.Events))
	return binary.LittleEndian.AppendUint64(dst, uint64(t.Bytes))
}

func (d *decoder) totals() Totals { return Totals{d.int64(), d.int64(), d.int64()} }

// AppendReferencesBegin appends the value of MetaReferences, without trailer: what comes after m
// has its references.
func AppendReferencesBegin(dst []byte, m Point) []byte { return appendPoint(dst, m) }

// DecodeReferencesBegin decodes what AppendReferencesBegin appended.
func DecodeReferencesBegin(b []byte) (Point, error) {
	d := &decoder{b: b}
	return d.point(), d.end()
}

// AppendState appends the value of MetaState, without trailer.
func AppendState(dst []byte, s *State) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, s.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Seq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.TimeUS))
	dst = appendPoint(dst, s.Floor)
	dst = appendPoint(dst, s.Oldest)
	dst = appendPoint(dst, s.Newest)
	dst = appendTotals(dst, s.Total)
	dst = appendTotals(dst, s.Trimmed)
	dst = binary.LittleEndian.AppendUint32(dst, s.Previous.Epoch)
	return binary.LittleEndian.AppendUint64(dst, uint64(s.Previous.Seq))
}

// DecodeState decodes what AppendState appended.
func DecodeState(b []byte) (State, error) {
	d := &decoder{b: b}
	s := State{Epoch: d.uint32(), Seq: d.int64(), TimeUS: d.int64(),
		Floor: d.point(), Oldest: d.point(), Newest: d.point(), Total: d.totals(), Trimmed: d.totals(),
		Previous: EpochEnd{d.uint32(), d.int64()}}
	return s, d.end()
}

// AppendStreams appends the value of MetaStreams, without trailer. Tags follow from the rest.
func AppendStreams(dst []byte, streams []Stream) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(streams)))
	for _, s := range streams {
		dst = binary.LittleEndian.AppendUint32(dst, s.Epoch)
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.Relay)))
		dst = append(dst, s.Relay...)
	}
	return dst
}

// DecodeStreams decodes what AppendStreams appended: one stream at least, with ascending epochs.
func DecodeStreams(b []byte) (Streams, error) {
	d := &decoder{b: b}
	n := int(d.uint32())
	var streams []Stream
	for i := 0; i < n && d.err == nil; i++ {
		s := Stream{Epoch: d.uint32()}
		s.Relay = string(d.take(int(d.uint16())))
		s.Tag = StreamTag(s.Relay, s.Epoch)
		if i > 0 && s.Epoch <= streams[i-1].Epoch {
			d.fail(fmt.Errorf("epoch %d follows epoch %d, but epochs must ascend", s.Epoch, streams[i-1].Epoch))
		}
		streams = append(streams, s)
	}
	if d.err == nil && len(streams) == 0 {
		d.fail(fmt.Errorf("it names no stream"))
	}
	return streams, d.end()
}

// AppendSeqBases appends the value of MetaSeqBases, without trailer.
func AppendSeqBases(dst []byte, streams []Stream) []byte {
	for _, s := range streams {
		dst = binary.LittleEndian.AppendUint32(dst, s.Epoch)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(s.SeqBase))
	}
	return dst
}

// DecodeSeqBases sets the bases of those streams that the value has, and returns their number:
// they are the first. Streams that are no more among them it passes over.
func DecodeSeqBases(b []byte, streams []Stream) (known int, err error) {
	d := &decoder{b: b}
	last := int64(-1)
	for d.err == nil && len(d.b) > 0 {
		epoch, base := d.uint32(), d.int64()
		if d.err == nil && (base <= last && base < MaxV2Seq || base > MaxV2Seq) {
			d.fail(fmt.Errorf("seq base %d of epoch %d follows %d, but bases must ascend", base, epoch, last))
		}
		last = base
		if known < len(streams) && streams[known].Epoch == epoch {
			streams[known].SeqBase = base
			known++
		}
	}
	return known, d.end()
}

// Use says which blocks a dictionary may have compressed: none stamped after ThroughUS, unless
// it is the stored one, which is the last of the log's uses.
type Use struct {
	ID      uint32
	SinceUS int64 // wall clock when it first became the stored one; 0: not known
	FromUS  int64 // the log's newest stamp when it last became the stored one
	// the log's newest stamp when another took its place, if blocks came between; else as before
	ThroughUS int64
}

// AppendUses appends the value of MetaDictionaries, without trailer.
func AppendUses(dst []byte, uses []Use) []byte {
	for _, u := range uses {
		dst = binary.LittleEndian.AppendUint32(dst, u.ID)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(u.SinceUS))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(u.FromUS))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(u.ThroughUS))
	}
	return dst
}

// DecodeUses decodes what AppendUses appended. A dictionary has one use at most.
func DecodeUses(b []byte) ([]Use, error) {
	d := &decoder{b: b}
	var uses []Use
	for d.err == nil && len(d.b) > 0 {
		u := Use{ID: d.uint32(), SinceUS: d.int64(), FromUS: d.int64(), ThroughUS: d.int64()}
		if FindUse(uses, u.ID) >= 0 {
			d.fail(fmt.Errorf("it lists dictionary %d twice", u.ID))
		}
		uses = append(uses, u)
	}
	return uses, d.end()
}

// FindUse returns the index of the dictionary's use, -1 if it has none.
func FindUse(uses []Use, id uint32) int {
	return slices.IndexFunc(uses, func(u Use) bool { return u.ID == id })
}

// ReplaceStored makes id the stored dictionary of a log whose newest stamp is timeUS. It may
// reorder uses.
func ReplaceStored(uses []Use, id uint32, nowUS, timeUS int64) []Use {
	if n := len(uses); n > 0 {
		last := &uses[n-1]
		if last.ID == id {
			return uses
		}
		if timeUS > last.FromUS {
			last.ThroughUS = timeUS
		}
	}
	u := Use{ID: id, SinceUS: nowUS}
	if i := FindUse(uses, id); i >= 0 {
		u = uses[i]
		uses = slices.Delete(uses, i, i+1)
	}
	u.FromUS = timeUS
	return append(uses, u)
}

// NeededUses returns the uses that blocks after floorUS may be of, and the stored one.
func NeededUses(uses []Use, floorUS int64) []Use {
	var needed []Use
	for i, u := range uses {
		if i == len(uses)-1 || u.ThroughUS > floorUS {
			needed = append(needed, u)
		}
	}
	return needed
}

// Gap says that the relay may have withheld events. All between From (the last one that came before
// it) and To (the frame that came after it) may be missing from the log.
type Gap struct {
	From, To translate.Position
	// TimeUS is the gap's own place in the log: it lies before every event stamped TimeUS or
	// later and after every earlier one.
	TimeUS int64
}

// gapBytes is the length of a gap's value, without trailer.
const gapBytes = 2 * (4 + 8 + 4)

// AppendGap appends the value of a key of RangeGap, without trailer: all but TimeUS, which is in
// the key.
func AppendGap(dst []byte, g *Gap) []byte {
	dst = slices.Grow(dst, gapBytes+TrailerBytes)
	for _, p := range []translate.Position{g.From, g.To} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(p.Stream))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(p.Seq))
		dst = binary.LittleEndian.AppendUint32(dst, p.Op)
	}
	return dst
}

// OpenGap decodes the value, with trailer, of a key of RangeGap.
func OpenGap(sealed []byte, timeUS int64) (Gap, error) {
	g := Gap{TimeUS: timeUS}
	b, err := OpenTrailer(sealed, RangeGap, timeUS)
	if err != nil {
		return g, err
	}
	d := &decoder{b: b}
	for _, p := range []*translate.Position{&g.From, &g.To} {
		*p = translate.Position{Stream: translate.Stream(d.uint32()), Seq: d.int64(), Op: d.uint32()}
	}
	return g, d.end()
}

// BlockPointer is the value of a key of RangeSeq: a pointer to the block, and the totals up to and
// including it.
type BlockPointer struct {
	Key int64 // the block's key: the stamp of its last event
	Seq int64 // of its last event; the key of the pointer has the last frame's
	Op  uint32
	Totals
}

// AppendBlockPointer appends the value of a key of RangeSeq, without trailer.
func AppendBlockPointer(dst []byte, r BlockPointer) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Key))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Seq))
	dst = binary.LittleEndian.AppendUint32(dst, r.Op)
	return appendTotals(dst, r.Totals)
}

// OpenBlockPointer decodes the value, with trailer, of a key of RangeSeq whose seq is given.
func OpenBlockPointer(sealed []byte, seq int64) (BlockPointer, error) {
	b, err := OpenTrailer(sealed, RangeSeq, seq)
	if err != nil {
		return BlockPointer{}, err
	}
	d := &decoder{b: b}
	r := BlockPointer{Key: d.int64(), Seq: d.int64(), Op: d.uint32(), Totals: d.totals()}
	return r, d.end()
}

// HighWater is how far the log had come: the value of its high-water mark.
type HighWater struct {
	Place  // the position; its Op is not used
	TimeUS int64
	Events int64 // ever appended
}

// AppendHighWater appends the value of the high-water mark.
func AppendHighWater(dst []byte, h HighWater) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, h.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Seq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.TimeUS))
	return binary.LittleEndian.AppendUint64(dst, uint64(h.Events))
}

// DecodeHighWater decodes what AppendHighWater appended.
func DecodeHighWater(b []byte) (HighWater, error) {
	d := &decoder{b: b}
	h := HighWater{Place: Place{Epoch: d.uint32(), Seq: d.int64()}, TimeUS: d.int64(), Events: d.int64()}
	return h, d.end()
}
