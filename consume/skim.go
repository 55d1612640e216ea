package consume

import (
	"encoding/binary"
	"math"
)

// CBOR major types, RFC 8949 section 3.1.
const (
	majorUint  = 0
	majorNint  = 1
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5
	majorTag   = 6
)

// readHead reads the head of the item at b[at]. next is the offset after it, -1 if there is no
// complete head or it is one that DAG-CBOR forbids (indefinite length, reserved). Heads longer than
// they need to be are taken. For floats arg is their bits.
func readHead(b []byte, at int) (major byte, arg uint64, next int) {
	if uint(at) >= uint(len(b)) {
		return 0, 0, -1
	}
	major, info := b[at]>>5, b[at]&0x1f
	at++
	if info < 24 {
		return major, uint64(info), at
	}
	rest := b[at:]
	switch {
	case info == 24 && len(rest) >= 1:
		return major, uint64(rest[0]), at + 1
	case info == 25 && len(rest) >= 2:
		return major, uint64(binary.BigEndian.Uint16(rest)), at + 2
	case info == 26 && len(rest) >= 4:
		return major, uint64(binary.BigEndian.Uint32(rest)), at + 4
	case info == 27 && len(rest) >= 8:
		return major, binary.BigEndian.Uint64(rest), at + 8
	}
	return 0, 0, -1
}

// skipItem returns the offset after the item at b[at] with all that it holds, -1 if it is not
// complete. Its time is linear in the bytes skipped (strings cost one step) at any depth, and it
// does not recurse.
func skipItem(b []byte, at int) int {
	for left := 1; left > 0; {
		major, arg, next := readHead(b, at)
		if next < 0 {
			return -1
		}
		left--
		room := len(b) - next
		switch major {
		case majorBytes, majorText:
			if arg > uint64(room) {
				return -1
			}
			next += int(arg)
			room -= int(arg)
		case majorArray:
			if arg > uint64(room) {
				return -1
			}
			left += int(arg)
		case majorMap:
			if arg > uint64(room)/2 {
				return -1
			}
			left += 2 * int(arg)
		case majorTag:
			left++
		}
		if left > room {
			return -1 // an item is at least one byte
		}
		at = next
	}
	return at
}

// readText returns the text string at b[at] and the offset after it, -1 if there is none. The
// bytes alias b; that they are UTF-8 is not checked.
func readText(b []byte, at int) (text []byte, next int) {
	major, n, next := readHead(b, at)
	if next < 0 || major != majorText || n > uint64(len(b)-next) {
		return nil, -1
	}
	end := next + int(n)
	return b[next:end:end], end
}

// findValue returns the offset of the value under key in the map at b[at], -1 if there is none. Of
// equal keys it takes the first, and it looks at nothing after it: the map may be cut off there.
func findValue(b []byte, at int, key string) int {
	major, pairs, at := readHead(b, at)
	if at < 0 || major != majorMap {
		return -1
	}
	for ; pairs > 0; pairs-- {
		name, value := readText(b, at)
		if value < 0 {
			return -1
		}
		if string(name) == key {
			return value
		}
		if at = skipItem(b, value); at < 0 {
			return -1
		}
	}
	return -1
}

// findText returns the text string under key in the map at b[at], nil if there is none. It aliases
// b.
func findText(b []byte, at int, key string) []byte {
	value := findValue(b, at, key)
	if value < 0 {
		return nil
	}
	text, _ := readText(b, value)
	return text
}

// findInt returns the integer under key in the map at b[at]; ok is false if there is none or it
// does not fit.
func findInt(b []byte, at int, key string) (n int64, ok bool) {
	value := findValue(b, at, key)
	if value < 0 {
		return 0, false
	}
	major, arg, next := readHead(b, value)
	switch {
	case next < 0 || arg > math.MaxInt64:
		return 0, false
	case major == majorUint:
		return int64(arg), true
	case major == majorNint:
		return -1 - int64(arg), true
	}
	return 0, false
}
