package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Column codings; formats.go draws columns.
const (
	codingOffset byte = iota // value[i] = base + raw[i]
	codingDelta              // value[i] = value[i-1] + raw[i], the first from base
)

// number is what a column holds once decoded.
type number interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int64
}

// appendColumn appends the values, which must not be negative, as a column: id, coding, width,
// base as a uvarint, and width bytes a value, little-endian. Ascending columns come out smaller
// with delta.
func appendColumn[T number](dst []byte, id byte, delta bool, values []T) []byte {
	var base, most uint64
	if len(values) > 0 {
		base = uint64(values[0])
	}
	coding := codingDelta
	if !delta {
		coding = codingOffset
		for _, v := range values {
			base = min(base, uint64(v))
		}
	}
	from := base
	for _, v := range values {
		most = max(most, uint64(v)-from)
		if delta {
			from = uint64(v)
		}
	}
	width := widthOf(most)
	dst = append(dst, id, coding, byte(width))
	dst = binary.AppendUvarint(dst, base)
	from = base
	for _, v := range values {
		dst = appendUint(dst, uint64(v)-from, width)
		if delta {
			from = uint64(v)
		}
	}
	return dst
}

// widthOf returns how many bytes a value of at most most takes: 0, 1, 2, 4 or 8.
func widthOf(most uint64) int {
	switch {
	case most == 0:
		return 0
	case most <= math.MaxUint8:
		return 1
	case most <= math.MaxUint16:
		return 2
	case most <= math.MaxUint32:
		return 4
	}
	return 8
}

func appendUint(dst []byte, v uint64, width int) []byte {
	switch width {
	case 0:
		return dst
	case 1:
		return append(dst, byte(v))
	case 2:
		return binary.LittleEndian.AppendUint16(dst, uint16(v))
	case 4:
		return binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(dst, v)
}

// column is one that was found but not decoded yet. raw aliases the block's bytes.
type column struct {
	id     byte
	coding byte
	width  int
	base   uint64
	raw    []byte
}

// decoder walks over an encoded index and keeps its first error.
type decoder struct {
	b   []byte
	err error
}

var errShort = errors.New("cut short")

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

// end returns the first error, and one if bytes are left.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail(fmt.Errorf("%d bytes follow its end", len(d.b)))
	}
	return d.err
}

// take returns the next n bytes, aliasing the input; nil after an error.
func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail(errShort)
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) uint16() uint16 {
	if v := d.take(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if v := d.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if v := d.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// int64 reads a number that must fit, and not be negative.
func (d *decoder) int64() int64 {
	v := d.uint64()
	if v > math.MaxInt64 {
		d.fail(fmt.Errorf("number %d is above 2^63-1", v))
		return 0
	}
	return int64(v)
}

// uvarint reads a number of variable length.
func (d *decoder) uvarint() uint64 {
	v, k := binary.Uvarint(d.b)
	if k <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[k:]
	return v
}

// column reads the next column, of n values.
func (d *decoder) column(n int) column {
	c := column{id: d.byte(), coding: d.byte(), width: int(d.byte()), base: d.uvarint()}
	switch {
	case c.coding > codingDelta:
		d.fail(fmt.Errorf("column %d has unknown coding %d", c.id, c.coding))
	case c.width != 0 && c.width != 1 && c.width != 2 && c.width != 4 && c.width != 8:
		d.fail(fmt.Errorf("column %d has values of %d bytes", c.id, c.width))
	}
	c.raw = d.take(n * c.width)
	return c
}

// decode writes the column's values to dst, which has as many as the column. Values that do not fit
// T are cut; callers bound what matters.
func decode[T number](c column, dst []T) {
	numbers(c, dst)
	v := T(c.base)
	if c.coding == codingDelta {
		for i := range dst {
			v += dst[i]
			dst[i] = v
		}
	} else if v != 0 {
		for i := range dst {
			dst[i] += v
		}
	}
}

// decodeNext decodes the column that must come next.
func decodeNext[T number](d *decoder, id byte, dst []T) {
	c := d.column(len(dst))
	if d.err == nil && c.id != id {
		d.fail(fmt.Errorf("column %d where %d should be", c.id, id))
	}
	if d.err == nil {
		decode(c, dst)
	}
}

// numbers writes the column's numbers, without the base, to dst.
func numbers[T number](c column, dst []T) {
	raw := c.raw
	switch c.width {
	case 0:
		clear(dst)
	case 1:
		raw = raw[:len(dst)]
		for i := range dst {
			dst[i] = T(raw[i])
		}
	case 2:
		for i := range dst {
			dst[i] = T(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	case 4:
		for i := range dst {
			dst[i] = T(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	case 8:
		for i := range dst {
			dst[i] = T(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	}
}

// allZero says whether every value of the column is 0.
func (c column) allZero() bool { return c.width == 0 && c.base == 0 }
