package replay

import (
	"fmt"
	"math"
	"sort"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
	"millrace/translate"
)

// maxTailBlocks bounds the tail by number too, because every Append copies the list of its blocks.
const maxTailBlocks = 4096

// snapshot is what readers see of the log: replaced whole, never changed. A new one is made under
// Log.mu and published with one atomic store, which is what "publish" means in this package.
type snapshot struct {
	format.State
	version uint32 // of the log's format
	streams format.Streams
	gaps    []Gap        // by TimeUS, all after floor
	uses    []format.Use // dictionaries that the store has; the stored one is last

	references *format.Point // what comes after it has its references; nil: they are off

	// tail holds the newest blocks, oldest first: exactly those with events after beforeTail.
	tail       []*Block
	tailBytes  int64
	beforeTail format.Point

	// The newest group blocks of the tail are small and will be one, see compact.go. Trims and all
	// that relies on blocks that stay as they are keep to those before.
	group     int
	groupBase format.Totals // before the group
	settled   int           // newest blocks that were a group until a trim, and have not joined spans

	spanned int64   // key of the newest span; 0: none
	spans   []int64 // the keys of all after floor

	// changed is closed when this snapshot is superseded, or the log closed. See Log.Changed.
	changed chan struct{}
	err     error // the log is closed
}

// next returns a copy to be changed and published.
func (s *snapshot) next() *snapshot {
	n := *s
	n.changed = make(chan struct{})
	return &n
}

// held counts the blocks that are in the log.
func (s *snapshot) held() format.Totals { return s.Total.Minus(s.Trimmed) }

// raiseVersion adds to the batch that the log is of a version, unless it is of that or a later one.
func (s *snapshot) raiseVersion(batch *pebble.Batch, version uint32) error {
	if s.version >= version {
		return nil
	}
	s.version = version
	return logstore.PutVersion(batch, version)
}

// spanEnds notes that a span was stored. key may be one that was noted before.
func (s *snapshot) spanEnds(key int64) {
	if key > s.spanned {
		// one writer: what older snapshots see stays as it is
		s.spanned, s.spans = key, append(s.spans, key)
	}
}

// spansSince returns the keys of the spans from the one on that covers from, or what comes after
// it.
func (s *snapshot) spansSince(from int64) []int64 {
	return s.spans[sort.Search(len(s.spans), func(i int) bool { return s.spans[i] >= from }):]
}

// shrinkTail drops the oldest blocks beyond the limits, but none of the group and not the newest.
// The list must be s's own.
func (s *snapshot) shrinkTail(maxBytes int64) {
	n := len(s.tail)
	kept := max(s.group, 1)
	drop := 0
	for ; drop < n-kept && (s.tailBytes > maxBytes || n-drop > maxTailBlocks); drop++ {
		s.tailBytes -= s.tail[drop].memory()
		s.beforeTail = s.tail[drop].idx.LastPoint()
	}
	clear(s.tail[:drop]) // the array lives as long as the list
	s.tail = s.tail[drop:]
}

// stable is the key of the last block that will stay as it is.
func (s *snapshot) stable() int64 {
	if s.group == 0 {
		return s.Newest.TimeUS
	}
	if i := len(s.tail) - s.group; i > 0 {
		return s.tail[i-1].idx.Key()
	}
	return s.beforeTail.TimeUS
}

// trimTail drops the blocks of the tail up to m, which is a block's last point.
func (s *snapshot) trimTail(m format.Point) {
	if m.TimeUS <= s.beforeTail.TimeUS {
		return
	}
	i := s.tailIndex(m.TimeUS + 1)
	for _, b := range s.tail[:i] {
		s.tailBytes -= b.memory()
	}
	s.tail = append([]*Block(nil), s.tail[i:]...)
	s.settled = min(s.settled, len(s.tail))
	s.beforeTail = m
}

// forgetBeforeTail moves the floor up to the tail, of a log that stores nothing.
func (s *snapshot) forgetBeforeTail() {
	if len(s.tail) == 0 || s.beforeTail.TimeUS <= s.Floor.TimeUS {
		return
	}
	first := s.tail[0].idx
	s.Floor = s.beforeTail
	s.Oldest = first.FirstPoint()
	s.gaps = gapsAfter(s.gaps, s.Floor.TimeUS)
	s.Trimmed = s.Total
	for _, b := range s.tail {
		s.Trimmed = s.Trimmed.Minus(b.totals())
	}
}

// tailIndex returns the first block of the tail that has an event stamped us or later.
func (s *snapshot) tailIndex(us int64) int {
	n := len(s.tail)
	// Live readers want the last block.
	if n > 0 && us <= s.tail[n-1].idx.Key() && (n == 1 || us > s.tail[n-2].idx.Key()) {
		return n - 1
	}
	return sort.Search(n, func(i int) bool { return s.tail[i].idx.Key() >= us })
}

// gapAt returns the first gap that lies at us or later.
func (s *snapshot) gapAt(us int64) (*Gap, bool) {
	if n := len(s.gaps); n == 0 || s.gaps[n-1].TimeUS < us {
		return nil, false
	}
	i := sort.Search(len(s.gaps), func(i int) bool { return s.gaps[i].TimeUS >= us })
	return &s.gaps[i], true
}

// gapsAfter returns the gaps that lie after us.
func gapsAfter(gaps []Gap, us int64) []Gap {
	i := sort.Search(len(gaps), func(i int) bool { return gaps[i].TimeUS > us })
	return gaps[i:len(gaps):len(gaps)]
}

// advance moves s over b, which follows it.
func (s *snapshot) advance(b *Block) {
	if s.Floor.Place == (format.Place{}) {
		// The log begins here: what came before this frame it never had.
		s.Floor.Place = format.Place{Epoch: b.epoch, Seq: b.firstSeq - 1, Op: math.MaxUint32}
	}
	if b.gap != nil {
		s.gaps = append(s.gaps[:len(s.gaps):len(s.gaps)], *b.gap)
		s.TimeUS = b.gap.TimeUS
	}
	s.Epoch, s.Seq, s.Previous = b.epoch, b.lastSeq, EpochEnd{}
	x := b.idx
	if x == nil {
		return
	}
	if s.Oldest == (format.Point{}) {
		s.Oldest = x.FirstPoint()
	}
	s.Newest = x.LastPoint()
	s.TimeUS = x.Key()
	s.Total = s.Total.Plus(b.totals())
}

// follows checks that b comes directly after what s holds.
func (s *snapshot) follows(b *Block) error {
	switch {
	case b.epoch < s.Epoch || b.epoch == s.Epoch && b.firstSeq <= s.Seq:
		return fmt.Errorf("%w: frames %d to %d of epoch %d come after frame %d of epoch %d",
			errOutOfOrder, b.firstSeq, b.lastSeq, b.epoch, s.Seq, s.Epoch)
	case b.startUS() != 0 && b.startUS() <= s.TimeUS:
		return fmt.Errorf("%w: time_us %d of frames %d to %d is not after %d",
			errOutOfOrder, b.startUS(), b.firstSeq, b.lastSeq, s.TimeUS)
	case b.idx != nil && b.values == nil:
		return fmt.Errorf("%w: frames %d to %d were appended before", errOutOfOrder, b.firstSeq, b.lastSeq)
	}
	return nil
}

// export turns m into what callers see.
func (s *snapshot) export(m format.Point) Point {
	if m == (format.Point{}) {
		return Point{}
	}
	return Point{m.TimeUS, translate.Position{Stream: s.streams.Tag(m.Epoch), Seq: m.Seq, Op: m.Op}}
}

// end is the point of everything that is committed: the newest event, or the frame reached if that
// is further on.
func (s *snapshot) end() Point {
	m := format.Point{TimeUS: s.TimeUS, Place: format.Place{Epoch: s.Epoch, Seq: s.Seq, Op: 0}}
	if s.Newest.Epoch == s.Epoch && s.Newest.Seq == s.Seq {
		m.Op = s.Newest.Op
	}
	return s.export(m)
}

// StreamOf names the stream of a relay (host[:port], case does not matter) and an epoch.
func StreamOf(relay string, epoch uint32) translate.Stream { return format.StreamTag(relay, epoch) }

// firstEpoch is the epoch of an empty log.
const firstEpoch = 1

// maxRelayBytes bounds Config.Relay: the longest DNS name with a port.
const maxRelayBytes = 253 + 6

// StreamOfEpoch names the stream of an epoch that the log followed, whichever relay it was of. It
// may also be the next epoch of the relay that the log follows.
func (l *Log) StreamOfEpoch(epoch uint32) translate.Stream {
	s := l.snap.Load()
	if tag := s.streams.Tag(epoch); tag != 0 {
		return tag
	}
	return StreamOf(l.cfg.Relay, epoch)
}

// EpochOfStream is the inverse of StreamOfEpoch; false if the log never followed the stream.
func (l *Log) EpochOfStream(stream translate.Stream) (epoch uint32, ok bool) {
	return l.snap.Load().streams.Epoch(stream)
}

// LastChange returns the last frame of the log, up to the given one, that has an event or ends a
// gap; a store that has come there has all that the log has up to the given frame. If the log has
// not reached that, or not by its last frames, it returns the given one.
func (l *Log) LastChange(frame EpochEnd) EpochEnd {
	s := l.snap.Load()
	last := EpochEnd{Epoch: s.Newest.Epoch, Seq: s.Newest.Seq}
	if n := len(s.gaps); n > 0 {
		to := s.gaps[n-1].To
		if epoch, ok := s.streams.Epoch(to.Stream); ok && last.Before(EpochEnd{Epoch: epoch, Seq: to.Seq}) {
			last = EpochEnd{Epoch: epoch, Seq: to.Seq}
		}
	}
	if reached := (EpochEnd{Epoch: s.Epoch, Seq: s.Seq}); reached.Before(frame) || !last.Before(frame) {
		return frame
	}
	return last
}

// V2Seq returns the seq on Jetstream v2's wire of an event at a position of this log.
func (l *Log) V2Seq(p translate.Position) int64 {
	s := l.snap.Load()
	epoch, _ := s.streams.Epoch(p.Stream)
	return s.streams.V2Seq(format.Place{Epoch: epoch, Seq: p.Seq, Op: p.Op})
}
