package graph

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"golang.org/x/sync/errgroup"
)

var errShort = errors.New("the section is too short")

// Load opens a snapshot. Any error means that it is of no use, and the graph must be built from
// the record table; os.ErrNotExist is one of them.
func Load(name string, cfg Config) (*Graph, error) {
	g, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := newLoader(g).load(name); err != nil {
		g.Close()
		return nil, fmt.Errorf("graph: snapshot %s cannot be used, the graph must be built anew: %w", name, err)
	}
	return g, nil
}

func (l *loader) load(name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, sectionBytes)
	if err := readMagic(r); err != nil {
		return err
	}
	return l.sections(r)
}

// sections reads the sections up to the last, and the end of the file.
func (l *loader) sections(r *bufio.Reader) (err error) {
	defer func() { err = errors.Join(err, l.tasks.Wait()) }()
	at := int64(len(magic))
	var buf, placing []byte // a section's, and those of the one before, whose sets are being placed
	for last := byte(0); last != sectionEnd; {
		kind, read, err := readSection(r, buf[:0])
		if err == nil {
			err = l.section(last, kind, read)
		}
		if err != nil {
			return fmt.Errorf("section at byte %d: %w", at, err)
		}
		at += int64(len(read)) + 9
		last, buf, placing = kind, placing, read
	}
	if _, err := r.ReadByte(); err != io.EOF {
		return fmt.Errorf("data follows its end, at byte %d", at)
	}
	return nil
}

// Peek reads the header of a snapshot.
func Peek(name string) (h Header, err error) {
	f, err := os.Open(name)
	if err != nil {
		return h, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	err = readMagic(r)
	var payload []byte
	if err == nil {
		_, payload, err = readSection(r, nil)
	}
	if err == nil {
		err = json.Unmarshal(payload, &h)
	}
	if err != nil {
		return h, fmt.Errorf("graph: snapshot %s cannot be used: %w", name, err)
	}
	return h, nil
}

// readMagic reads the first line of a snapshot, which has its version.
func readMagic(r *bufio.Reader) error {
	line := make([]byte, len(magic))
	if _, err := io.ReadFull(r, line); err != nil || !strings.HasPrefix(string(line), magicStart) {
		return errors.New("it is not a graph snapshot")
	}
	if string(line) != magic {
		return fmt.Errorf("it is of version %q, and this millrace knows %q", bytes.TrimSpace(line[len(magicStart):]), bytes.TrimSpace([]byte(magic[len(magicStart):])))
	}
	return nil
}

// readSection reads a section into buf, and checks its sum.
func readSection(r io.Reader, buf []byte) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, buf, fmt.Errorf("read its head: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxSection {
		return 0, buf, fmt.Errorf("its length is %d bytes, more than %d", n, maxSection)
	}
	// A length that is damaged must not take memory: read in steps.
	for rest := int(n) + 4; rest > 0; {
		step := min(rest, 4*sectionBytes)
		buf = slices.Grow(buf, step)[:len(buf)+step]
		if _, err := io.ReadFull(r, buf[len(buf)-step:]); err != nil {
			return 0, buf, fmt.Errorf("read its %d bytes: %w", n, err)
		}
		rest -= step
	}
	payload = buf[:n]
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli()), castagnoli(), payload)
	if sum != binary.LittleEndian.Uint32(buf[n:]) {
		return 0, buf, errors.New("its checksum is wrong: the file is damaged")
	}
	return head[0], payload, nil
}

// loader fills a graph from the sections of a snapshot.
type loader struct {
	g      *Graph
	each   func(*Edges) error // gets the edges instead of the graph, if it is set
	edges  Edges              // for each, used again
	header Header
	at     int      // in the header's Tables, of the table whose flags come next
	next   int      // next ordinal of that table
	counts []uint32 // of its edges, see invertLocked
	list   []uint32 // used again
	tasks  errgroup.Group

	found, spare []foundSet // read, and not placed; used again
	placed       chan error // has the result of place, until the next one takes it
}

// foundSet is an Out set that is valid.
type foundSet struct {
	ordinal uint32
	set
}

// placeBatch is how many sets are placed while the next ones are read.
const placeBatch = 4096

func newLoader(g *Graph) *loader {
	l := &loader{g: g, placed: make(chan error, 1)}
	l.placed <- nil
	return l
}

// table is whose sets come next, -1 after the last.
func (l *loader) table() int {
	if l.at == len(l.header.Tables) {
		return -1
	}
	return l.header.Tables[l.at]
}

func (l *loader) section(last, kind byte, payload []byte) (err error) {
	if last == 0 && kind != sectionHeader || last != 0 && kind == sectionHeader {
		return errors.New("the header is missing or repeated")
	}
	d := &decoder{b: payload}
	switch kind {
	case sectionHeader:
		err = l.readHeader(payload)
	case sectionAccounts:
		err = l.readAccounts(payload)
	case sectionSets:
		err = l.readSets(d)
	case sectionFlags:
		err = l.readFlags(d)
	case sectionRecords:
		err = l.readRecords(d)
	case sectionEnd:
		if l.table() >= 0 {
			err = fmt.Errorf("the snapshot ends after %d of %d tables", l.at, len(l.header.Tables))
		}
	default:
		err = fmt.Errorf("unknown section kind %d", kind)
	}
	return errors.Join(err, d.err)
}

func (l *loader) readHeader(b []byte) error {
	if err := json.Unmarshal(b, &l.header); err != nil {
		return fmt.Errorf("read the header: %w", err)
	}
	h, cfg := l.header, l.g.cfg
	switch {
	case h.StoreID != cfg.StoreID:
		return fmt.Errorf("it belongs to UID store %q, not %q", h.StoreID, cfg.StoreID)
	case h.Generation != cfg.Generation:
		return fmt.Errorf("it is of generation %d, and the reference store of %d", h.Generation, cfg.Generation)
	case !slices.Equal(h.Sources, cfg.Sources):
		return fmt.Errorf("it has the sources %q, not %q", h.Sources, cfg.Sources)
	case !slices.IsSorted(h.Tables) || len(slices.Compact(slices.Clone(h.Tables))) != len(h.Tables) ||
		len(h.Tables) > 0 && (h.Tables[0] < 0 || h.Tables[len(h.Tables)-1] >= l.g.tables()):
		return fmt.Errorf("its header lists the tables %d; expected numbers from 0 to %d, rising", h.Tables, l.g.tables()-1)
	case h.Accounts < 0 || int64(h.Accounts) > min(1<<31-1, cfg.Memory/16):
		return l.tooLarge()
	}
	l.g.position, l.g.build, l.g.lost = h.Position, h.Build, h.Lost
	a := &l.g.accounts
	a.uids = make([]uint64, 0, h.Accounts+h.Accounts/16)
	for size := 1 << 10; len(a.table) == 0; size *= 2 {
		if 4*(h.Accounts+1) <= 3*size {
			a.table = make([]uint32, size)
		}
	}
	for _, table := range h.Tables {
		l.g.indexes[2*table].refs = make([]uint32, h.Accounts)
	}
	l.counts = newGroupCounts(h.Accounts)
	return nil
}

func (l *loader) tooLarge() error {
	return fmt.Errorf("its %d accounts and their sets take more than %d bytes, the memory given to the graph",
		l.header.Accounts, l.g.cfg.Memory)
}

func (l *loader) readAccounts(b []byte) error {
	a := &l.g.accounts
	if len(b) == 0 || len(b)%8 != 0 || len(a.uids)+len(b)/8 > l.header.Accounts {
		return fmt.Errorf("it has %d bytes of accounts, after %d of %d accounts: none, too many, or not 8 an account", len(b), len(a.uids), l.header.Accounts)
	}
	for i := 0; i < len(b); i += 8 {
		a.uids = append(a.uids, binary.LittleEndian.Uint64(b[i:]))
	}
	if len(a.uids) == l.header.Accounts {
		l.tasks.Go(a.fill) // beside the sets, which do not need the table
	}
	return nil
}

func (l *loader) readSets(d *decoder) error {
	if table, first := int(d.number(1)), int(d.number(4)); table != l.table() || first != l.next || len(l.g.accounts.uids) != l.header.Accounts {
		return fmt.Errorf("sets of table %d from ordinal %d, after %d of %d accounts; expected table %d, ordinal %d",
			table, first, len(l.g.accounts.uids), l.header.Accounts, l.table(), l.next)
	}
	for len(d.b) > 0 && d.err == nil {
		if l.next >= l.header.Accounts {
			return fmt.Errorf("a table has more than %d sets, one of each account", l.header.Accounts)
		}
		s, err := l.readSet(d)
		if err != nil {
			return fmt.Errorf("set of ordinal %d: %w", l.next, err)
		}
		if s.members > 0 {
			l.found = append(l.found, foundSet{uint32(l.next), s})
		}
		l.next++
		if len(l.found) == placeBatch {
			if err := l.place(); err != nil {
				return err
			}
		}
	}
	return l.place()
}

func (l *loader) readSet(d *decoder) (s set, err error) {
	head := d.uvarint()
	if head == 0 {
		return s, nil
	}
	s.members = int(head / 2)
	data := d.bytes(d.uvarint())
	switch {
	case d.err != nil:
		return s, d.err
	case head&1 != 0:
		if s.bitmap, err = readBitmap(data); err != nil {
			return s, err
		}
		if int(s.bitmap.GetCardinality()) != s.members || s.members == 0 || int(s.bitmap.Maximum()) >= l.header.Accounts {
			return s, errors.New("its bitmap does not have the members that the set states")
		}
		for it := s.bitmap.Iterator(); it.HasNext(); {
			l.counts[it.Next()>>groupBits]++
		}
	case s.members < largeFrom && l.countList(&s, data):
	default:
		return s, fmt.Errorf("a list of %d members in %d bytes is not valid", s.members, len(data))
	}
	return s, nil
}

// place places what was found, while the next sets are read. It first takes the result of the call
// before.
func (l *loader) place() error {
	if err := <-l.placed; err != nil {
		return err
	}
	found := l.found
	l.found, l.spare = l.spare[:0], found
	l.tasks.Go(func() error {
		l.placed <- l.placeAll(found)
		return nil
	})
	return nil
}

// settle waits until all that was found is placed.
func (l *loader) settle() error {
	err := <-l.placed
	l.placed <- err
	return err
}

func (l *loader) placeAll(found []foundSet) error {
	place := l.put
	if l.each != nil {
		place = l.pass
	}
	for _, s := range found {
		if err := place(s.ordinal, s.set); err != nil {
			return err
		}
	}
	return nil
}

// put gives the graph an Out set.
func (l *loader) put(ordinal uint32, s set) error {
	if !l.g.fitsLocked(s.bitmap != nil) {
		return l.tooLarge()
	}
	l.g.edges += int64(s.members)
	if x := l.g.indexes[2*l.table()]; s.bitmap != nil {
		x.setLarge(ordinal, s.bitmap)
	} else {
		x.placeCode(ordinal, s)
	}
	return nil
}

// countList reads the data of a list into s, and counts its members by subject. It says whether
// they are as many as s states, each an account, encoded as appendCode does. So a slot has room.
func (l *loader) countList(s *set, data []byte) bool {
	if len(data) == 0 {
		return false
	}
	s.low, s.code = uint(data[0]), data[1:]
	var end cursor
	l.list = s.appendBelow(l.list[:0], &end, uint32(l.header.Accounts))
	for _, member := range l.list {
		l.counts[member>>groupBits]++
	}
	return len(l.list) == s.members && s.low == lowBits(l.list) && len(s.code) <= int(end.at+7)/8
}

// readFlags reads the flags of a table, and makes its In sets: all its Out sets are there.
func (l *loader) readFlags(d *decoder) (err error) {
	if table := int(d.number(1)); table != l.table() || l.next != l.header.Accounts {
		return fmt.Errorf("flags of table %d after %d sets; expected table %d, after %d", table, l.next, l.table(), l.header.Accounts)
	}
	if err := l.settle(); err != nil {
		return err
	}
	out, in := l.g.indexes[2*l.table()], l.g.indexes[2*l.table()+1]
	for _, into := range []**roaring.Bitmap{&out.incomplete, &in.incomplete} {
		bitmap, err := readBitmap(d.bytes(d.number(4)))
		if err != nil {
			return err
		}
		*into = bitmap
	}
	if l.each == nil {
		err = l.g.invertLocked(l.table(), l.counts)
	}
	if errors.Is(err, errFull) {
		return l.tooLarge()
	}
	l.at, l.next = l.at+1, 0
	clear(l.counts)
	return err
}

// readBitmap copies a bitmap out of b.
func readBitmap(b []byte) (*roaring.Bitmap, error) {
	bitmap := roaring.New()
	if err := bitmap.UnmarshalBinary(b); err != nil {
		return nil, fmt.Errorf("read a bitmap: %w", err)
	}
	if err := bitmap.Validate(); err != nil && !bitmap.IsEmpty() {
		return nil, fmt.Errorf("read a bitmap: %w", err)
	}
	return bitmap, nil
}

func (l *loader) readRecords(d *decoder) error {
	if l.table() >= 0 {
		return errors.New("records come before the last set")
	}
	if l.each != nil {
		d.b = nil
	}
	for len(d.b) > 0 && d.err == nil {
		p := pair{uint32(d.number(4)), uint32(d.number(4)), uint32(d.number(4))}
		record := d.number(8)
		if int(p.source) >= len(l.header.Sources) || !l.g.indexes[2*p.source].contains(p.actor, p.subject) {
			return fmt.Errorf("it has a record of an edge that does not exist: %v", p)
		}
		l.g.more[p] = append(l.g.more[p], record)
	}
	return nil
}

// decoder reads a payload and keeps the first error.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) bytes(n uint64) []byte {
	if d.err != nil || n > uint64(len(d.b)) {
		d.b, d.err = nil, errShort
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.bytes(uint64(max(n, 0))); n <= 0 {
		d.b, d.err = nil, cmp.Or(d.err, errShort)
	}
	return v
}

// number reads a number of n bytes.
func (d *decoder) number(n uint64) (v uint64) {
	for i, b := range d.bytes(n) {
		v |= uint64(b) << (8 * i)
	}
	return v
}
