package replay

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"millrace/translate"
)

// Columns and tables of the index part, by ID, in the order they are written.
const (
	columnCollectionEnds byte = 1 // one value per collection
	columnDIDEnds        byte = 2 // one value per DID

	columnTime       byte = 16 // from here on: one value per event
	columnSeq        byte = 17
	columnOp         byte = 18
	columnKind       byte = 19
	columnCollection byte = 20
	columnDID        byte = 21
	columnDIDUID     byte = 22
	columnURIUID     byte = 23
	columnPlainEnd   byte = 24
	columnZstdEnd    byte = 25
	columnReserved   byte = 26 // what the records refer to; all zero until it is used
	columnLast            = columnReserved

	outlineColumns = 7
)

// Limits of a block. Seal refuses more, so who fills a batch from many frames splits it before. (A
// frame must not be split: a position covers whole frames.)
const (
	// MaxBlockEvents is how many events a block holds at most.
	MaxBlockEvents = math.MaxUint16
	// MaxBlockBytes is how large each of a block's plain and zstd parts may be. Both hold a few bytes
	// more per event than its JSON: a batch with half as much JSON always fits.
	MaxBlockBytes = 1 << 30
)

// index is the decoded index part of a block: what filters and look-ups read. It is immutable. The
// columns have one entry per event.
type index struct {
	epoch      uint32
	firstSeq   int64 // of the frames the block covers
	lastSeq    int64
	dictionary uint32
	kinds      KindSet // of the kinds present

	timeUS     []int64
	seq        []int64
	op         []uint32
	kind       []uint8  // translate.Kind | translate.Operation << 4
	collection []uint16 // 1 + index into collections; 0: identity and account events
	did        []uint16 // index into the DID table
	didUID     []uint64 // nil: all 0
	uriUID     []uint64 // nil: all 0
	plainEnd   []uint32 // one past the event's frame in the plain part
	zstdEnd    []uint32

	collections table
	dids        table
	outline     bool                     // DIDs and UIDs are missing
	didHashes   atomic.Pointer[[]uint64] // made when first asked for

	// What readers of a block on disk know of it: which parts' checksums were right (a bit by range), which strands of
	// the plain part somebody unpacked, and the key of the block after it (0: nobody looked).
	checked atomic.Uint32
	touched atomic.Uint64
	after   atomic.Int64
}

// table is a list of distinct strings, back to back.
type table struct {
	text string
	ends []uint32
}

func (t *table) len() int { return len(t.ends) }

func (t *table) at(i int) string {
	if i == 0 {
		return t.text[:t.ends[0]]
	}
	return t.text[t.ends[i-1]:t.ends[i]]
}

func (x *index) events() int { return len(x.timeUS) }

// key is the block's key: the stamp of its last event.
func (x *index) key() int64 { return x.timeUS[len(x.timeUS)-1] }

// lastMark is the mark of the block's last event.
func (x *index) lastMark() mark {
	i := len(x.timeUS) - 1
	return mark{x.timeUS[i], x.place(i)}
}

func (x *index) place(i int) place { return place{x.epoch, x.seq[i], x.op[i]} }

func (x *index) kindOf(i int) translate.Kind { return translate.Kind(x.kind[i] & 0xf) }

// firstAt returns the first event stamped us or later; events() if there is none.
func (x *index) firstAt(us int64) int {
	if us <= x.timeUS[0] {
		return 0
	}
	return sort.Search(len(x.timeUS), func(i int) bool { return x.timeUS[i] >= us })
}

// firstAfter returns the first event whose place is after p, which is of the block's epoch.
func (x *index) firstAfter(p place) int {
	return sort.Search(len(x.seq), func(i int) bool { return p.before(x.place(i)) })
}

// hashes returns xxhash64 of each DID of the table. Readers that race compute the same.
func (x *index) hashes() []uint64 {
	if h := x.didHashes.Load(); h != nil {
		return *h
	}
	h := make([]uint64, x.dids.len())
	for i := range h {
		h[i] = xxhash.Sum64String(x.dids.at(i))
	}
	x.didHashes.Store(&h)
	return h
}

// memory returns about how many bytes the index takes, hashes included.
func (x *index) memory() int64 {
	perEvent := 8 + 8 + 4 + 1 + 2 + 4 + 4
	if !x.outline {
		perEvent += 2
	}
	if x.didUID != nil {
		perEvent += 8
	}
	if x.uriUID != nil {
		perEvent += 8
	}
	return int64(256 + perEvent*x.events() + len(x.collections.text) + 4*x.collections.len() +
		len(x.dids.text) + (4+8)*x.dids.len())
}

// appendIndex appends the encoded index, without trailer.
func appendIndex(dst []byte, x *index) []byte {
	n := x.events()
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	dst = binary.LittleEndian.AppendUint32(dst, x.epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.firstSeq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.lastSeq))
	dst = binary.LittleEndian.AppendUint32(dst, x.dictionary)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(x.collections.len()))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(x.dids.len()))
	dst = append(dst, byte(x.kinds), columnLast-columnTime+1, 0, 0)

	dst = appendColumn(dst, columnCollectionEnds, true, x.collections.ends)
	dst = append(dst, x.collections.text...)
	dst = appendColumn(dst, columnDIDEnds, true, x.dids.ends)
	dst = append(dst, x.dids.text...)

	dst = appendColumn(dst, columnTime, true, x.timeUS)
	dst = appendColumn(dst, columnSeq, true, x.seq)
	dst = appendColumn(dst, columnOp, false, x.op)
	dst = appendColumn(dst, columnKind, false, x.kind)
	dst = appendColumn(dst, columnCollection, false, x.collection)
	dst = appendColumn(dst, columnDID, false, x.did)
	dst = appendColumn(dst, columnDIDUID, false, x.didUID)
	dst = appendColumn(dst, columnURIUID, false, x.uriUID)
	dst = appendColumn(dst, columnPlainEnd, true, x.plainEnd)
	dst = appendColumn(dst, columnZstdEnd, true, x.zstdEnd)
	return appendColumn(dst, columnReserved, false, []uint8(nil))
}

// appendOutline appends what of the index readers need who do not look for DIDs or want UIDs, without trailer: it is a
// fifth.
func appendOutline(dst []byte, x *index) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(x.events()))
	dst = binary.LittleEndian.AppendUint32(dst, x.epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.firstSeq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.lastSeq))
	dst = binary.LittleEndian.AppendUint32(dst, x.dictionary)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(x.collections.len()))
	dst = append(dst, byte(x.kinds), outlineColumns)

	dst = appendColumn(dst, columnCollectionEnds, true, x.collections.ends)
	dst = append(dst, x.collections.text...)

	dst = appendColumn(dst, columnTime, true, x.timeUS)
	dst = appendColumn(dst, columnSeq, true, x.seq)
	dst = appendColumn(dst, columnOp, false, x.op)
	dst = appendColumn(dst, columnKind, false, x.kind)
	dst = appendColumn(dst, columnCollection, false, x.collection)
	dst = appendColumn(dst, columnPlainEnd, true, x.plainEnd)
	return appendColumn(dst, columnZstdEnd, true, x.zstdEnd)
}

// decodeIndex decodes what appendIndex made. It keeps nothing of b. It takes nothing on trust that a
// reader would later index with, so that no bytes make it, or a reader, panic.
func decodeIndex(b []byte) (*index, error) {
	d := &decoder{b: b}
	n := int(d.uint32())
	x := &index{epoch: d.uint32(), firstSeq: d.int64(), lastSeq: d.int64(), dictionary: d.uint32()}
	collections, dids := int(d.uint16()), int(d.uint16())
	x.kinds = KindSet(d.byte())
	columns := int(d.byte())
	d.take(2)
	d.checkEvents(n)
	x.collections = d.table(columnCollectionEnds, collections)
	x.dids = d.table(columnDIDEnds, dids)
	return x.decodeColumns(d, n, columns, 1<<(columnLast-columnTime+1)-1)
}

// decodeOutline decodes what appendOutline made, as decodeIndex does.
func decodeOutline(b []byte) (*index, error) {
	d := &decoder{b: b}
	n := int(d.uint32())
	x := &index{outline: true, epoch: d.uint32(), firstSeq: d.int64(), lastSeq: d.int64(), dictionary: d.uint32()}
	collections := int(d.uint16())
	x.kinds = KindSet(d.byte())
	columns := int(d.byte())
	d.checkEvents(n)
	x.collections = d.table(columnCollectionEnds, collections)
	return x.decodeColumns(d, n, columns, columnBit(columnTime)|columnBit(columnSeq)|columnBit(columnOp)|
		columnBit(columnKind)|columnBit(columnCollection)|columnBit(columnPlainEnd)|columnBit(columnZstdEnd))
}

// columnBit stands for the column in a set of those that there are one value an event of.
func columnBit(id byte) uint32 { return 1 << (id - columnTime) }

// checkEvents fails for a number of events that no block has.
func (d *decoder) checkEvents(n int) {
	if d.err == nil && (n < 1 || n > MaxBlockEvents) {
		d.fail(fmt.Errorf("it has %d events", n))
	}
}

// decodeColumns reads so many columns of n events, to the end. want has a bit for each that must be there.
func (x *index) decodeColumns(d *decoder, n, columns int, want uint32) (*index, error) {
	if d.err != nil {
		return nil, d.err
	}
	x.allocate(n)
	var seen uint32
	for range columns {
		c := d.column(n)
		if d.err != nil {
			return nil, d.err
		}
		if c.id >= columnTime && c.id <= columnLast {
			seen |= columnBit(c.id)
		}
		x.set(c)
	}
	if seen != want {
		return nil, fmt.Errorf("it lacks columns: has %b, not %b", seen, want)
	}
	if len(d.b) > 0 {
		return nil, fmt.Errorf("%d bytes follow it", len(d.b))
	}
	return x, x.check()
}

// table reads a table of n strings.
func (d *decoder) table(id byte, n int) table {
	c := d.column(n)
	if d.err == nil && c.id != id {
		d.fail(fmt.Errorf("column %d where %d should be", c.id, id))
	}
	if d.err != nil || n == 0 {
		return table{}
	}
	t := table{ends: make([]uint32, n)}
	decode(c, t.ends)
	for i := 1; i < n; i++ {
		if t.ends[i] < t.ends[i-1] {
			d.fail(fmt.Errorf("table %d does not ascend", id))
			return table{}
		}
	}
	t.text = string(d.take(int(t.ends[n-1])))
	return t
}

// allocate makes the columns out of few allocations.
func (x *index) allocate(n int) {
	wide := make([]int64, 2*n)
	x.timeUS, x.seq = wide[:n:n], wide[n:]
	mid := make([]uint32, 3*n)
	x.op, x.plainEnd, x.zstdEnd = mid[:n:n], mid[n:2*n:2*n], mid[2*n:]
	x.kind = make([]uint8, n)
	if x.outline {
		x.collection = make([]uint16, n)
		return
	}
	narrow := make([]uint16, 2*n)
	x.collection, x.did = narrow[:n:n], narrow[n:]
}

// set decodes one column into its slice. Columns that this version does not know are left out.
func (x *index) set(c column) {
	switch c.id {
	case columnTime:
		decode(c, x.timeUS)
	case columnSeq:
		decode(c, x.seq)
	case columnOp:
		decode(c, x.op)
	case columnKind:
		decode(c, x.kind)
	case columnCollection:
		decode(c, x.collection)
	case columnDID:
		decode(c, x.did)
	case columnDIDUID:
		x.didUID = decodeUIDs(c, x.events())
	case columnURIUID:
		x.uriUID = decodeUIDs(c, x.events())
	case columnPlainEnd:
		decode(c, x.plainEnd)
	case columnZstdEnd:
		decode(c, x.zstdEnd)
	}
}

func decodeUIDs(c column, n int) []uint64 {
	if c.allZero() {
		return nil
	}
	u := make([]uint64, n)
	decode(c, u)
	return u
}

// check makes sure of what readers rely on.
func (x *index) check() error {
	var time int64
	var plain, zstd uint32
	for i := range x.timeUS {
		switch {
		case x.timeUS[i] <= time:
			return fmt.Errorf("event %d: time_us does not ascend", i)
		case int(x.collection[i]) > x.collections.len():
			return fmt.Errorf("event %d: no collection %d", i, x.collection[i])
		case !x.outline && int(x.did[i]) >= x.dids.len():
			return fmt.Errorf("event %d: no DID %d", i, x.did[i])
		}
		switch {
		case x.plainEnd[i] < plain+2 || x.plainEnd[i] > MaxBlockBytes:
			return fmt.Errorf("event %d: plain frame ends at %d", i, x.plainEnd[i])
		case x.zstdEnd[i] < zstd+2 || x.zstdEnd[i] > MaxBlockBytes:
			return fmt.Errorf("event %d: compressed frame ends at %d", i, x.zstdEnd[i])
		}
		time, plain, zstd = x.timeUS[i], x.plainEnd[i], x.zstdEnd[i]
	}
	return nil
}

// place is a position with its epoch instead of its stream, so that places compare over the whole log.
type place struct {
	epoch uint32
	seq   int64
	op    uint32
}

func (p place) before(q place) bool {
	if p.epoch != q.epoch {
		return p.epoch < q.epoch
	}
	if p.seq != q.seq {
		return p.seq < q.seq
	}
	return p.op < q.op
}
