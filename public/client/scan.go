package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

var errJSON = errors.New("not a JSON object as a server sends it")

// members walks the members of one JSON object. It checks the object's own structure; of a value
// that is an object or an array only where it ends.
type members struct {
	b     []byte
	at    int // of what is looked at next
	begun bool
	err   error
}

// next returns the next member: its name without the quotes, and its value with the offset of it.
// The slices alias m.b. It returns false at the end, and after an error, which is in m.err.
func (m *members) next() (name, value []byte, at int, ok bool) {
	if m.err != nil {
		return nil, nil, 0, false
	}
	open := byte(',')
	if !m.begun {
		open, m.begun = '{', true
	}
	switch c := m.token(); {
	case c == '}' && open == ',':
		if m.token() != 0 {
			m.err = errJSON
		}
		return nil, nil, 0, false
	case c != open:
		m.err = errJSON
		return nil, nil, 0, false
	}
	m.space()
	if open == '{' && m.at < len(m.b) && m.b[m.at] == '}' {
		m.at++
		return nil, nil, 0, false
	}
	nameEnd := skipString(m.b, m.at)
	if nameEnd < 0 {
		m.err = errJSON
		return nil, nil, 0, false
	}
	name = m.b[m.at+1 : nameEnd-1]
	m.at = nameEnd
	if m.token() != ':' {
		m.err = errJSON
		return nil, nil, 0, false
	}
	m.space()
	at = m.at
	if m.at = skipValue(m.b, at); m.at < 0 {
		m.err = errJSON
		return nil, nil, 0, false
	}
	return name, m.b[at:m.at:m.at], at, true
}

func (m *members) space() {
	for m.at < len(m.b) && isSpace(m.b[m.at]) {
		m.at++
	}
}

// token returns the next byte that is no space, 0 at the end.
func (m *members) token() byte {
	m.space()
	if m.at == len(m.b) {
		return 0
	}
	m.at++
	return m.b[m.at-1]
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// skipString returns the offset after the string that begins at i, -1 if none does or it does not
// end.
func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++ // ends at the opening quote at the latest
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the offset after the value that begins at i, -1 if it does not end or none
// begins.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	start := i
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && !isSpace(b[i]) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// skipNested is skipValue of an object or an array.
func skipNested(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// text returns the content of a JSON string. It aliases value unless there are escapes in it, or
// bytes that are no UTF-8, for which U+FFFD stands then, as encoding/json has it.
func text(value []byte) ([]byte, error) {
	if len(value) < 2 || value[0] != '"' {
		return nil, fmt.Errorf("%w: %.40q is no string", errJSON, value)
	}
	if bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value) {
		return value[1 : len(value)-1], nil
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", errJSON, err)
	}
	return []byte(s), nil
}
