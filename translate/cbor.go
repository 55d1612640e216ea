package translate

import "encoding/binary"

// The major types of CBOR (RFC 8949, section 3.1).
const (
	majorUint   = 0
	majorNegInt = 1
	majorBytes  = 2
	majorText   = 3
	majorArray  = 4
	majorMap    = 5
	majorTag    = 6
	majorSimple = 7
)

// The low five bits of major type 7 that the AT Protocol's data can hold.
const (
	simpleFalse     = 20
	simpleTrue      = 21
	simpleNull      = 22
	simpleUndefined = 23
	simpleFloat16   = 25
	simpleFloat32   = 26
	simpleFloat64   = 27
)

// tagCID is the one tag of DAG-CBOR: a link.
const tagCID = 42

// failure is what went wrong first in a decoder.
type failure uint8

const (
	failNone      failure = iota
	failTruncated         // the input ends within an item
	failMalformed         // no CBOR, or CBOR of a form that this package refuses
	failTooLarge          // it is over a limit as JSON
)

// decoder reads CBOR items off a slice that it does not own. It keeps the first failure; after it
// every method returns zeros and the position is at the end.
type decoder struct {
	buf  []byte
	pos  int
	fail failure
}

// reset starts over on buf.
func (d *decoder) reset(buf []byte) {
	d.buf, d.pos, d.fail = buf, 0, failNone
}

func (d *decoder) setFail(f failure) {
	if d.fail == failNone {
		d.fail = f
	}
	d.pos = len(d.buf)
}

// rest returns how many bytes are left.
func (d *decoder) rest() int { return len(d.buf) - d.pos }

// head reads the head of an item: its major type, the low five bits of its first byte, and its
// argument. Arguments may be wider than they must be. Indefinite lengths fail.
func (d *decoder) head() (major, info byte, arg uint64) {
	if d.pos >= len(d.buf) {
		d.setFail(failTruncated)
		return 0, 0, 0
	}
	b := d.buf[d.pos]
	major, info = b>>5, b&0x1f
	if info < 24 {
		d.pos++
		return major, info, uint64(info)
	}
	return d.wideHead(major, info)
}

// wideHead is head for the items whose argument does not fit the first byte.
func (d *decoder) wideHead(major, info byte) (byte, byte, uint64) {
	if info > 27 {
		d.setFail(failMalformed)
		return 0, 0, 0
	}
	width := 1 << (info - 24)
	if d.rest() < 1+width {
		d.setFail(failTruncated)
		return 0, 0, 0
	}
	at := d.buf[d.pos+1:]
	d.pos += 1 + width
	switch width {
	case 1:
		return major, info, uint64(at[0])
	case 2:
		return major, info, uint64(binary.BigEndian.Uint16(at))
	case 4:
		return major, info, uint64(binary.BigEndian.Uint32(at))
	}
	return major, info, binary.BigEndian.Uint64(at)
}

// take returns the next n bytes. They alias the input.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(d.rest()) {
		d.setFail(failTruncated)
		return nil
	}
	b := d.buf[d.pos : d.pos+int(n)]
	d.pos += int(n)
	return b
}

// argument reads the head of an item of a major type and returns its argument.
func (d *decoder) argument(want byte) uint64 {
	major, _, n := d.head()
	if d.fail == failNone && major != want {
		d.setFail(failMalformed)
	}
	if d.fail != failNone {
		return 0
	}
	return n
}

// text reads a text string. The bytes alias the input and may be invalid UTF-8.
func (d *decoder) text() []byte { return d.stringOf(majorText) }

// bytes reads a byte string. They alias the input.
func (d *decoder) bytes() []byte { return d.stringOf(majorBytes) }

// stringOf reads a string of a major type.
func (d *decoder) stringOf(want byte) []byte {
	major, _, n := d.head()
	if d.fail == failNone && major != want {
		d.setFail(failMalformed)
	}
	if d.fail != failNone {
		return nil
	}
	return d.take(n)
}

// container reads the head of an array or map and returns the number of its elements or entries. A
// number that the rest of the input cannot hold fails.
func (d *decoder) container(want byte) int {
	n := d.argument(want)
	if !d.holds(want, n) {
		d.setFail(failTruncated)
		return 0
	}
	return int(n)
}

// holds reports whether the rest of the input is long enough for the n entries of an array or map.
func (d *decoder) holds(major byte, n uint64) bool {
	rest := uint64(d.rest())
	if major == majorMap {
		rest /= 2
	}
	return n <= rest
}

// skip passes over one item of any depth. It checks that the item is well formed, not what is in
// it, in time linear in its bytes and without recursion.
func (d *decoder) skip() {
	for items := uint64(1); items > 0; items-- {
		major, info, arg := d.head()
		if d.fail != failNone {
			return
		}
		switch major {
		case majorBytes, majorText:
			d.take(arg)
		case majorArray, majorMap:
			if !d.holds(major, arg) {
				d.setFail(failTruncated)
				return
			}
			items += arg
			if major == majorMap {
				items += arg
			}
		case majorTag:
			items++
		case majorSimple:
			if info < simpleFalse || info == 24 {
				d.setFail(failMalformed)
				return
			}
		}
	}
}

// raw passes over one item and returns its bytes. They alias the input.
func (d *decoder) raw() []byte {
	start := d.pos
	d.skip()
	if d.fail != failNone {
		return nil
	}
	return d.buf[start:d.pos]
}

// link reads a tagged byte string and returns its bytes, which linkCID takes. They alias the input.
func (d *decoder) link() []byte {
	if d.argument(majorTag) != tagCID {
		d.setFail(failMalformed)
	}
	return d.bytes()
}

// textOf returns the text that item, one whole item or nothing, is. It aliases item and may be
// invalid UTF-8.
func textOf(item []byte) (text []byte, ok bool) {
	d := decoder{buf: item}
	text = d.text()
	return text, d.fail == failNone
}

// flagOf returns the bool that item is.
func flagOf(item []byte) (flag, ok bool) {
	if len(item) != 1 {
		return false, false
	}
	flag = item[0] == majorSimple<<5|simpleTrue
	return flag, flag || item[0] == majorSimple<<5|simpleFalse
}

// isNull reports whether item is null or nothing.
func isNull(item []byte) bool {
	return len(item) == 0 || item[0] == majorSimple<<5|simpleNull
}
