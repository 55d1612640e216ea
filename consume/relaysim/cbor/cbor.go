// Package cbor writes CBOR for the simulated relay and for tests: frames, CARs and records, right
// or wrong on purpose. It is pure, and has no state. The program itself writes no CBOR.
package cbor

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
)

// The major types (RFC 8949, section 3.1).
const (
	Uint   = 0
	NegInt = 1
	Bytes  = 2
	Text   = 3
	Array  = 4
	MapOf  = 5
	TagOf  = 6
)

// TagCID is the tag of a link to a CID.
const TagCID = 42

// What Append takes beside Go's own types.
type (
	// Pair is a key and its value.
	Pair = struct{ Key, Value any }
	// Map is a map in this order, with any keys.
	Map []Pair
	// Raw is encoded already.
	Raw []byte
	// Link is a link to the CID of these bytes.
	Link []byte
	// Tag is a tagged value.
	Tag = struct {
		Number uint64
		Value  any
	}
	// Float16 is the bits of a half-precision number.
	Float16 uint16
)

// AppendHead appends the initial bytes of an item of a major type, as short as can be.
func AppendHead(dst []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

// AppendText appends a text string.
func AppendText[S string | []byte](dst []byte, s S) []byte {
	return append(AppendHead(dst, Text, uint64(len(s))), s...)
}

// AppendInt appends an integer.
func AppendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return AppendHead(dst, NegInt, uint64(-1-n))
	}
	return AppendHead(dst, Uint, uint64(n))
}

// Append appends v. Go maps get canonical DAG-CBOR key order, a Map keeps its own. A value with a
// method Bytes is a CID, and becomes a link. A type that it does not know is a bug.
func Append(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 0xf6)
	case bool:
		if v {
			return append(dst, 0xf5)
		}
		return append(dst, 0xf4)
	case int:
		return AppendInt(dst, int64(v))
	case int64:
		return AppendInt(dst, v)
	case uint64:
		return AppendHead(dst, Uint, v)
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, 0xfb), math.Float64bits(v))
	case float32:
		return binary.BigEndian.AppendUint32(append(dst, 0xfa), math.Float32bits(v))
	case Float16:
		return binary.BigEndian.AppendUint16(append(dst, 0xf9), uint16(v))
	case string:
		return AppendText(dst, v)
	case []byte:
		return append(AppendHead(dst, Bytes, uint64(len(v))), v...)
	case Raw:
		return append(dst, v...)
	case Link:
		dst = AppendHead(AppendHead(dst, TagOf, TagCID), Bytes, uint64(len(v)+1))
		return append(append(dst, 0), v...)
	case interface{ Bytes() []byte }:
		return Append(dst, Link(v.Bytes()))
	case Tag:
		return Append(AppendHead(dst, TagOf, v.Number), v.Value)
	case []any:
		dst = AppendHead(dst, Array, uint64(len(v)))
		for _, e := range v {
			dst = Append(dst, e)
		}
		return dst
	case Map:
		dst = AppendHead(dst, MapOf, uint64(len(v)))
		for _, p := range v {
			dst = Append(Append(dst, p.Key), p.Value)
		}
		return dst
	case map[string]any:
		dst = AppendHead(dst, MapOf, uint64(len(v)))
		for _, k := range CanonicalKeys(v) {
			dst = Append(AppendText(dst, k), v[k])
		}
		return dst
	}
	panic(fmt.Sprintf("cbor: cannot encode %T", v))
}

// CanonicalKeys returns the keys of m, the shorter first, those of one length in byte order.
func CanonicalKeys(m map[string]any) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
}

// With returns m with the value of a key replaced, or added at the end.
func (m Map) With(key string, value any) Map {
	out := slices.Clone(m)
	for i := range out {
		if out[i].Key == key {
			out[i].Value = value
			return out
		}
	}
	return append(out, Pair{key, value})
}

// Without returns m without a key.
func (m Map) Without(key string) Map {
	return slices.DeleteFunc(slices.Clone(m), func(p Pair) bool { return p.Key == key })
}
