package replay

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/consume/relaysim/testwait"
	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// model is the log as a plain slice. Trimmed blocks stay in it: first counts them.
type model struct {
	blocks []modelBlock // those with events, oldest first
	first  int
	gaps   []Gap // all, in order
	epoch  uint32
	seq    int64
	timeUS int64

	bases map[uint32]int64 // of seqs on v2's wire, by epoch

	begin format.Place // place directly before the first frame the log was ever given
}

type modelBlock struct {
	testBlock
	stored     int64
	substreams int // values that its plain part has
}

// adoptBlocks takes over how the log's events are cut into blocks. Before that it makes sure that
// the log has exactly the model's blocks, some of them merged. It checks every event's place and
// stamp, and the sizes.
func (w *world) adoptBlocks() {
	w.t.Helper()
	m := w.m
	if w.cfg.Retention == 0 {
		return
	}
	held := m.blocks[m.first:]
	blocks := m.blocks[:m.first:m.first]
	it, err := w.log.store.NewIter(&pebble.IterOptions{LowerBound: format.RangeIndex.Start(), UpperBound: format.RangeIndex.End()})
	if err != nil {
		w.t.Fatal(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		us, _ := format.ParseTimeKey(it.Key())
		v, err := w.log.blocks.decodeAt(it, format.RangeIndex, us)
		if err != nil {
			w.t.Fatal(err)
		}
		x := v.idx
		b := modelBlock{stored: int64(len(it.Value()))}
		for _, r := range []format.Range{format.RangePlain, format.RangeZstd, format.RangeSlimIndex} {
			v, ok, err := w.log.store.Value(format.TimeKey(r, us))
			if err != nil || !ok {
				w.t.Fatalf("block %d lacks part %s: %v", us, r.String(), err)
			}
			b.stored += int64(len(v))
			if r == format.RangePlain {
				b.substreams = max(1, int(v[1]))
			}
		}
		for s := 1; s < b.substreams; s++ {
			v, ok, err := w.log.store.Value(format.SubstreamKey(us, s))
			if err != nil || !ok {
				w.t.Fatalf("block %d lacks substream %d of %d: %v", us, s, b.substreams, err)
			}
			b.stored += int64(len(v))
			w.substreamsBytes++
		}
		refs := w.references(x)
		if v, _, err := w.log.store.Value(format.TimeKey(format.RangeReferences, us)); err != nil {
			w.t.Fatal(err)
		} else {
			b.stored += int64(len(v))
		}
		n := 0
		for len(b.events) < x.Events() && n < len(held) {
			b.events = append(b.events[:len(b.events):len(b.events)], held[n].events...)
			n++
		}
		if n == 0 || len(b.events) != x.Events() || n == 1 && b.stored != held[0].stored {
			w.t.Fatalf("block %d has %d events in %d bytes, it can not be %d blocks with %d", us, x.Events(), b.stored, n, len(b.events))
		}
		for i, e := range b.events {
			if e.Place != x.PlaceAt(i) || e.timeUS != x.TimeUS[i] {
				w.t.Fatalf("block %d: event %d is %v at %d, not %v at %d", us, i, x.PlaceAt(i), x.TimeUS[i], e.Place, e.timeUS)
			}
			if got := w.unnumbered(eventReferences(refs, i)); !slices.Equal(got, e.refs) || refs.Repeated(i) != e.repeated {
				w.t.Fatalf("block %d: event %d has references %v, repeated %t; not %v, %t", us, i, got, refs.Repeated(i), e.refs, e.repeated)
			}
			if i > 0 && slices.ContainsFunc(m.gaps, func(g Gap) bool { return g.TimeUS > b.events[i-1].timeUS && g.TimeUS <= e.timeUS }) {
				w.t.Fatalf("block %d has a gap within it", us)
			}
		}
		b.epoch, b.firstSeq, b.lastSeq, b.gap = held[0].epoch, held[0].firstSeq, held[n-1].lastSeq, held[0].gap
		if x.FirstSeq != b.firstSeq || x.LastSeq != b.lastSeq {
			w.t.Fatalf("block %d covers frames %d to %d, not %d to %d", us, x.FirstSeq, x.LastSeq, b.firstSeq, b.lastSeq)
		}
		blocks = append(blocks, b)
		held = held[n:]
		w.merged += n - 1
	}
	if len(held) > 0 {
		w.t.Fatalf("%d blocks are not in the store", len(held))
	}
	m.blocks = blocks
}

func (b modelBlock) last() testEvent { return b.events[len(b.events)-1] }

// floor is the last event that was trimmed; nil: none was.
func (m *model) floor() *testEvent {
	if m.first == 0 {
		return nil
	}
	e := m.blocks[m.first-1].last()
	return &e
}

func (m *model) floorUS() int64 {
	if f := m.floor(); f != nil {
		return f.timeUS
	}
	return 0
}

func (m *model) append(b testBlock, stored int64) {
	if m.begin == (format.Place{}) {
		m.begin = format.Place{Epoch: b.epoch, Seq: b.firstSeq - 1, Op: math.MaxUint32}
	}
	if b.epoch != m.epoch {
		m.bases[b.epoch] = m.bases[m.epoch] + (m.seq+1)*1024
	}
	m.epoch, m.seq = b.epoch, b.lastSeq
	if b.gap != nil {
		m.gaps = append(m.gaps, *b.gap)
		m.timeUS = b.gap.TimeUS
	}
	if len(b.events) > 0 {
		m.blocks = append(m.blocks, modelBlock{testBlock: b, stored: stored})
		m.timeUS = b.events[len(b.events)-1].timeUS
	}
}

func (m *model) clone() *model {
	c := *m
	c.bases = maps.Clone(m.bases)
	c.blocks = m.blocks[:len(m.blocks):len(m.blocks)]
	c.gaps = m.gaps[:len(m.gaps):len(m.gaps)]
	return &c
}

// item is what a reader meets: an event or a gap.
type item struct {
	gap   *Gap
	event *testEvent
}

// items returns what is in the log, in order.
func (m *model) items() []item {
	var out []item
	gaps := m.gaps
	for len(gaps) > 0 && gaps[0].TimeUS <= m.floorUS() {
		gaps = gaps[1:]
	}
	for _, b := range m.blocks[m.first:] {
		for i := range b.events {
			for len(gaps) > 0 && gaps[0].TimeUS <= b.events[i].timeUS {
				out = append(out, item{gap: &gaps[0]})
				gaps = gaps[1:]
			}
			out = append(out, item{event: &b.events[i]})
		}
	}
	for i := range gaps {
		out = append(out, item{gap: &gaps[i]})
	}
	return out
}

// want is what a reader must give for a cursor; wait reports that the log has not reached it yet.
func (m *model) want(c Cursor) (items []item, clamped bool) {
	all := m.items()
	from := func(us int64) []item {
		for i, it := range all {
			if it.gap != nil && it.gap.TimeUS >= us || it.event != nil && it.event.timeUS >= us {
				return all[i:]
			}
		}
		return nil
	}
	switch c.kind {
	case cursorLive:
		return nil, false
	case cursorTime:
		switch {
		case c.timeUS == 0:
			return all, false
		case c.timeUS <= m.floorUS():
			return all, true
		case m.first == 0 && len(m.blocks) > 0 && c.timeUS < m.blocks[0].events[0].timeUS:
			return all, true
		case c.timeUS > m.timeUS:
			return nil, false
		}
		return from(c.timeUS), false
	}
	if c.kind == cursorSeq {
		p, live := m.placeBefore(c.seq)
		if live {
			return nil, false
		}
		c = PositionCursor(translate.Position{Stream: StreamOf(testRelay, p.Epoch), Seq: p.Seq, Op: p.Op})
	}
	p := format.Place{Epoch: 0, Seq: c.position.Seq, Op: c.position.Op}
	for e := uint32(1); e <= m.epoch; e++ {
		if StreamOf(testRelay, e) == c.position.Stream {
			p.Epoch = e
		}
	}
	floor := m.begin
	if f := m.floor(); f != nil {
		floor = f.Place
	}
	if p.Before(floor) {
		return all, true
	}
	for i, it := range all {
		if it.event != nil && p.Before(it.event.Place) {
			return all[i:], false
		}
		if it.gap != nil && (it.gap.To.Stream != c.position.Stream || it.gap.To.Seq > p.Seq) && m.gapIsAfter(*it.gap, p) {
			return all[i:], false
		}
	}
	return nil, false
}

// gapIsAfter says whether the gap's far end is after p.
func (m *model) gapIsAfter(g Gap, p format.Place) bool {
	for e := uint32(1); e <= m.epoch; e++ {
		if StreamOf(testRelay, e) == g.To.Stream {
			return e > p.Epoch || e == p.Epoch && g.To.Seq > p.Seq
		}
	}
	return false
}

// world drives a log and its model.
type world struct {
	t               *testing.T
	rng             *rand.Rand
	clock           *testClock
	fs              *vfs.MemFS
	cfg             Config
	log             *Log
	m               *model
	dec             *dict.Decoder
	merged          int // blocks that others took in
	substreamsBytes int // values that substreams have of their own
	stamp           int64
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), clock: newTestClock(), fs: vfs.NewCrashableMem(),
		m: &model{epoch: firstEpoch, bases: make(map[uint32]int64)}}
	w.cfg = testConfig(t, w.fs, w.clock)
	w.cfg.hooks.keepSmall = false
	var err error
	w.dec, err = dict.NewDecoder(1<<20, w.cfg.Dictionaries.All()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.dec.Close)
	w.cfg.Retention = time.Duration(1+w.rng.IntN(20)) * time.Minute
	if w.rng.IntN(2) == 0 {
		w.cfg.RetentionBytes = int64(50_000 + w.rng.IntN(400_000))
	}
	w.cfg.TailBytes = int64(1 + w.rng.IntN(100_000))
	w.cfg.CacheBytes = int64(1 + w.rng.IntN(300_000))
	w.cfg.hooks.alwaysSlow = seed%2 == 0
	w.cfg.hooks.blobValue = int(seed / 2 % 2)
	w.cfg.hooks.substreamsBytes = []int{1, 3000, 0}[seed%3]
	w.open()
	return w
}

func (w *world) open() { w.log = mustOpen(w.t, w.cfg) }

// next returns the next stamp.
func (w *world) next() int64 {
	w.stamp = max(w.clock.us(), w.stamp+1)
	return w.stamp
}

// block makes a random block that follows m's last.
func (w *world) block(m *model) testBlock {
	b := testBlock{epoch: m.epoch, firstSeq: m.seq + 1 + int64(w.rng.IntN(3))}
	from := translate.Position{Stream: StreamOf(testRelay, m.epoch), Seq: m.seq}
	gap := m.seq > 0 && w.rng.IntN(8) == 0
	if m.seq > 0 && w.rng.IntN(15) == 0 {
		b.epoch++
		b.firstSeq = 1 + int64(w.rng.IntN(50))
		gap = w.rng.IntN(2) == 0
	} else if gap {
		b.firstSeq += int64(w.rng.IntN(100))
	}
	if gap {
		b.gap = &Gap{From: from, To: translate.Position{Stream: StreamOf(testRelay, b.epoch), Seq: b.firstSeq}, TimeUS: w.next()}
	}
	seq := b.firstSeq
	for range w.rng.IntN(12) {
		seq += int64(w.rng.IntN(3))
		ops := w.rng.IntN(4)
		for op := range ops {
			b.events = append(b.events, randomEvent(w.rng, format.Place{Epoch: b.epoch, Seq: seq, Op: uint32(op)}, w.next()))
		}
		seq++
	}
	b.lastSeq = seq + int64(w.rng.IntN(2))
	if gap && len(b.events) > 0 && w.rng.IntN(2) == 0 {
		b.gap.TimeUS = b.events[0].timeUS // as Seal does for 0
	}
	return b
}

// append appends one to four blocks to the log and the model.
func (w *world) append() {
	w.clock.advance(time.Duration(w.rng.IntN(10_000)) * time.Millisecond)
	var bs []*Block
	for range 1 + w.rng.IntN(4) {
		b := w.block(w.m)
		sealed := b.seal(w.t, w.log)
		w.m.append(b, sealed.storedBytes)
		bs = append(bs, sealed)
	}
	if err := w.log.Append(bs...); err != nil {
		w.t.Fatal(err)
	}
}

// trim lets time pass and trims both.
func (w *world) trim() {
	w.adoptBlocks()
	spans, spanned := w.spans()
	if w.rng.IntN(2) == 0 {
		w.clock.advance(time.Duration(w.rng.IntN(60)) * time.Second)
	}
	if err := w.log.Trim(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	m := w.m
	limit := w.clock.wall.Add(-w.cfg.Retention).UnixMicro()
	var bytes int64
	for _, b := range m.blocks[m.first:] {
		bytes += b.stored
	}
	byAge, byBytes := m.first, m.first
	for byAge < len(m.blocks) && m.blocks[byAge].last().timeUS < limit {
		byAge++
	}
	for byAge > m.first && m.blocks[byAge-1].last().timeUS <= spanned && !spans[m.blocks[byAge-1].last().timeUS] {
		byAge--
	}
	for byBytes < len(m.blocks) && w.cfg.RetentionBytes > 0 && (bytes > w.cfg.RetentionBytes ||
		byBytes > m.first && m.blocks[byBytes-1].last().timeUS <= spanned && !spans[m.blocks[byBytes-1].last().timeUS]) {
		bytes -= m.blocks[byBytes].stored
		byBytes++
	}
	m.first = max(byAge, byBytes)
}

// spans returns the keys of the spans in the store, and the newest.
func (w *world) spans() (spans map[int64]bool, newest int64) {
	spans = make(map[int64]bool)
	it, err := w.log.store.NewIter(&pebble.IterOptions{LowerBound: format.RangeSpan.Start(), UpperBound: format.RangeSpan.End()})
	if err != nil {
		w.t.Fatal(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		newest, _ = format.ParseTimeKey(it.Key())
		spans[newest] = true
	}
	return spans, newest
}

func pointOf(e testEvent) Point {
	return Point{e.timeUS, translate.Position{Stream: StreamOf(testRelay, e.Epoch), Seq: e.Seq, Op: e.Op}}
}

// readAll reads everything.
func (w *world) readAll() {
	w.t.Helper()
	cfg := ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 20}
	r, err := w.log.NewReader(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(w.render(w.m.items(), cfg, FilterConfig{}), w.drain(r, cfg)); diff != "" {
		w.t.Fatalf("read all: -want +got\n%s", diff)
	}
}

// TestModel compares the log with a plain slice under random appends, reads, trims, restarts and
// crashes.
func TestModel(t *testing.T) {
	seeds := 6
	if testing.Short() || testwait.Race {
		seeds = 2
	}
	base := uint64(time.Now().UnixNano())
	merged, substreamsBytes := 0, 0
	defer func() {
		if seeds > 2 && (merged == 0 || substreamsBytes == 0) { // two may have too small tails
			t.Errorf("%d blocks were merged, and %d substreams seen, in all runs", merged, substreamsBytes)
		}
	}()
	for i := range seeds {
		seed := base + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 150 {
				switch k := w.rng.IntN(20); {
				case k < 7:
					w.append()
				case k < 15:
					w.read()
				case k < 16:
					w.trim()
				case k < 17:
					w.restart()
				case k < 18:
					w.crash()
				case k < 19:
					w.crashDuringAppend()
				default:
					w.readAll()
				}
				w.check()
			}
			merged += w.merged
			substreamsBytes += w.substreamsBytes
			if errors.Is(w.log.store.Err(), ErrFailed) {
				t.Fatal(w.log.store.Err())
			}
		})
	}
}
