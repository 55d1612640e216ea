package relaysim

import (
	"errors"

	"millrace/consume/relaysim/cbor"
)

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
	if s.err != nil || major != cbor.Text || n > uint64(len(s.b)-s.at) {
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
		if major >= cbor.Bytes && major <= cbor.MapOf && n > uint64(len(s.b)-s.at) {
			s.err = errCBOR
			return
		}
		switch major {
		case cbor.Bytes, cbor.Text:
			s.at += int(n)
		case cbor.Array, cbor.MapOf:
			left += n * uint64(major-cbor.Array+1)
		case cbor.TagOf:
			left++
		}
	}
}
