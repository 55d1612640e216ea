package translate

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// jsonSafe marks the ASCII bytes that encoding/json writes as they are.
var jsonSafe = func() (table [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return table
}()

// appendQuoted appends s as a JSON string exactly as encoding/json writes it: with <, >, &, U+2028
// and U+2029 escaped. ok is false if s is not valid UTF-8; dst then holds part of it.
func appendQuoted(dst, s []byte) (_ []byte, ok bool) {
	dst = append(dst, '"')
	for start := 0; ; {
		i := start + safePrefix(s[start:])
		dst = append(dst, s[start:i]...)
		if i == len(s) {
			return append(dst, '"'), true
		}
		if c := s[i]; c < utf8.RuneSelf {
			dst = appendEscape(dst, c)
			start = i + 1
			continue
		}
		if dst, i = appendRunes(dst, s, i); i < 0 {
			return dst, false
		}
		start = i
	}
}

// quotedLen returns how many bytes appendQuoted appends.
func quotedLen(s []byte) int {
	var escape [6]byte
	n := len(`""`) + len(s)
	for i := safePrefix(s); i < len(s); i += 1 + safePrefix(s[i+1:]) {
		switch c := s[i]; {
		case c < utf8.RuneSelf:
			n += len(appendEscape(escape[:0], c)) - 1
		case bytes.HasPrefix(s[i:], []byte("\u2028")), bytes.HasPrefix(s[i:], []byte("\u2029")):
			n += len(`\u2028`) - len("\u2028")
		}
	}
	return n
}

// maxQuotedLen is the most that quotedLen returns for n bytes.
func maxQuotedLen(n int) int { return len(`""`) + 6*n }

// safePrefix returns how many bytes at the beginning of s are ASCII that needs no escape. It looks
// at eight at a time.
func safePrefix(s []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := binary.LittleEndian.Uint64(s[i:])
		// Each term has the high bit of a byte set if that byte is wanted, given that no byte of x
		// is above 0x7f. At worst it has that of a byte above a wanted one. The loop below finds
		// which.
		quoteAmp := (x | 0x04*ones) ^ '&'*ones
		angles := (x | 0x02*ones) ^ '>'*ones
		backslash := x ^ '\\'*ones
		found := x | (x - 0x20*ones) | (quoteAmp - ones) | (angles - ones) | (backslash - ones)
		if found&highs != 0 {
			break
		}
	}
	for i < len(s) && jsonSafe[s[i]] {
		i++
	}
	return i
}

// appendRunes appends the runes of s from i on that are not ASCII. It returns where it stopped, at
// an ASCII byte or the end, or -1 if it met invalid UTF-8.
func appendRunes(dst, s []byte, i int) ([]byte, int) {
	start := i
	for i < len(s) && s[i] >= utf8.RuneSelf {
		r, size := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && size == 1 {
			return dst, -1
		}
		if r == '\u2028' || r == '\u2029' {
			dst = append(dst, s[start:i]...)
			dst = append(dst, '\\', 'u', '2', '0', '2', byte('8'+r-'\u2028'))
			start = i + size
		}
		i += size
	}
	return append(dst, s[start:i]...), i
}

// appendEscape appends the escape of an ASCII byte that is not safe.
func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}
