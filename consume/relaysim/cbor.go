package relaysim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ipfs/go-cid"
)

// The major types of CBOR (RFC 8949, section 3.1).
const (
	majorUint   = 0
	majorNegInt = 1
	majorBytes  = 2
	majorText   = 3
	majorArray  = 4
	majorMap    = 5
	majorTag    = 6
	majorOther  = 7
)

const tagCID = 42

// rawCBOR is a value that is already encoded.
type rawCBOR []byte

// appendHead appends the initial bytes of an item in the shortest form.
func appendHead(dst []byte, major byte, n uint64) []byte {
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

// appendText appends a text string.
func appendText[S string | []byte](dst []byte, s S) []byte {
	return append(appendHead(dst, majorText, uint64(len(s))), s...)
}

// appendInt appends an integer.
func appendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return appendHead(dst, majorNegInt, uint64(-1-n))
	}
	return appendHead(dst, majorUint, uint64(n))
}

// appendValue appends v as canonical DAG-CBOR. It knows the types that the data model has, and rawCBOR;
// any other type is a bug.
func appendValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 0xf6)
	case bool:
		if v {
			return append(dst, 0xf5)
		}
		return append(dst, 0xf4)
	case int:
		return appendInt(dst, int64(v))
	case int64:
		return appendInt(dst, v)
	case string:
		return appendText(dst, v)
	case []byte:
		return append(appendHead(dst, majorBytes, uint64(len(v))), v...)
	case cid.Cid:
		dst = appendHead(dst, majorTag, tagCID)
		dst = appendHead(dst, majorBytes, uint64(v.ByteLen()+1))
		return append(append(dst, 0), v.KeyString()...)
	case []any:
		dst = appendHead(dst, majorArray, uint64(len(v)))
		for _, e := range v {
			dst = appendValue(dst, e)
		}
		return dst
	case map[string]any:
		dst = appendHead(dst, majorMap, uint64(len(v)))
		for _, k := range canonicalKeys(v) {
			dst = appendValue(appendText(dst, k), v[k])
		}
		return dst
	case rawCBOR:
		return append(dst, v...)
	}
	panic(fmt.Sprintf("relaysim: no CBOR for %T", v))
}

// canonicalKeys returns the keys of m, the shorter first, those of one length in byte order.
func canonicalKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		if a < b {
			return -1
		}
		return 1
	})
	return keys
}

var errCBOR = errors.New("malformed CBOR")

// scanner walks over encoded CBOR without building values. After the first error it stays where it
// is and returns zeros.
type scanner struct {
	b   []byte
	at  int
	err error
}

// head reads the initial bytes of an item. Indefinite lengths are an error.
func (s *scanner) head() (major byte, n uint64) {
	if s.err != nil || s.at >= len(s.b) {
		s.err = errCBOR
		return 0, 0
	}
	major, info := s.b[s.at]>>5, s.b[s.at]&31
	s.at++
	if info < 24 {
		return major, uint64(info)
	}
	width := 1 << (info - 24)
	if info > 27 || len(s.b)-s.at < width {
		s.err = errCBOR
		return 0, 0
	}
	for _, c := range s.b[s.at : s.at+width] {
		n = n<<8 | uint64(c)
	}
	s.at += width
	return major, n
}

// text reads a text string. It aliases the input.
func (s *scanner) text() []byte {
	major, n := s.head()
	if s.err != nil || major != majorText || n > uint64(len(s.b)-s.at) {
		s.err = errCBOR
		return nil
	}
	from := s.at
	s.at += int(n)
	return s.b[from:s.at:s.at]
}

// count reads the head of an array or map.
func (s *scanner) count(want byte) int {
	major, n := s.head()
	if s.err != nil || major != want || n > uint64(len(s.b)-s.at) {
		s.err = errCBOR
		return 0
	}
	return int(n)
}

// skip passes one item with all that is in it.
func (s *scanner) skip() {
	for left := uint64(1); left > 0 && s.err == nil; left-- {
		major, n := s.head()
		rest := uint64(len(s.b) - s.at)
		switch major {
		case majorBytes, majorText:
			if n > rest {
				s.err = errCBOR
				return
			}
			s.at += int(n)
		case majorArray, majorMap:
			if n > rest {
				s.err = errCBOR
				return
			}
			left += n * uint64(major-majorArray+1)
		case majorTag:
			left++
		}
	}
}
