package translate

import "bytes"

// The limits of the identifiers, in bytes.
const (
	maxDIDBytes       = 2048
	maxHandleBytes    = 253
	maxNSIDBytes      = 317
	maxSegmentBytes   = 63 // of an NSID
	maxRecordKeyBytes = 512
	maxDatetimeBytes  = 64
	tidBytes          = 13
)

// Classes of bytes, as bits of byteClass.
const (
	classLower  = 1 << iota // a-z
	classUpper              // A-Z
	classDigit              // 0-9
	classDID                // what a DID's last part may hold
	classDIDEnd             // what it may end in
	classRKey               // what a record key may hold
	classTID                // what a TID may hold
)

const (
	classLetter   = classLower | classUpper
	classAlphaNum = classLetter | classDigit
)

var byteClass = func() (table [256]uint8) {
	classify := func(class uint8, chars string) {
		for i := range len(chars) {
			table[chars[i]] |= class
		}
	}
	const lower, upper, digit = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
	classify(classLower, lower)
	classify(classUpper, upper)
	classify(classDigit, digit)
	classify(classDID, lower+upper+digit+"._:%-")
	classify(classDIDEnd, lower+upper+digit+"._-")
	classify(classRKey, lower+upper+digit+"_~.:-")
	classify(classTID, lower+"234567")
	return table
}()

// allOf reports whether every byte of s is of the class.
func allOf(s []byte, class uint8) bool {
	for _, c := range s {
		if byteClass[c]&class == 0 {
			return false
		}
	}
	return true
}

// validDID reports whether s is a DID (https://atproto.com/specs/did), as indigo's syntax.ParseDID
// would. No byte of a valid DID is escaped in JSON.
func validDID(s []byte) bool {
	if len(s) > maxDIDBytes || !bytes.HasPrefix(s, []byte("did:")) {
		return false
	}
	rest := s[len("did:"):]
	method := bytes.IndexByte(rest, ':')
	if method <= 0 || !allOf(rest[:method], classLower) {
		return false
	}
	id := rest[method+1:]
	return len(id) > 0 && allOf(id, classDID) && byteClass[id[len(id)-1]]&classDIDEnd != 0
}

// validTID reports whether s is a TID (https://atproto.com/specs/tid): 64 bits in sortable base32,
// the top bit clear.
func validTID(s []byte) bool {
	return len(s) == tidBytes && s[0] <= 'j' && allOf(s, classTID)
}

// validRecordKey reports whether s is a record key (https://atproto.com/specs/record-key). No byte
// of a valid one is escaped in JSON.
func validRecordKey(s []byte) bool {
	if len(s) == 0 || len(s) > maxRecordKeyBytes || !allOf(s, classRKey) {
		return false
	}
	return string(s) != "." && string(s) != ".."
}

// validNSID reports whether s is an NSID (https://atproto.com/specs/nsid): a reversed domain name
// of at least two segments and a name. No byte of a valid one is escaped in JSON.
func validNSID(s []byte) bool {
	if len(s) > maxNSIDBytes {
		return false
	}
	segments := 0
	for start := 0; ; segments++ {
		length := bytes.IndexByte(s[start:], '.')
		if length < 0 {
			return segments >= 2 && validNSIDName(s[start:])
		}
		if !validNSIDSegment(s[start:start+length], segments == 0) {
			return false
		}
		start += length + 1
	}
}

// validHandle reports whether s is a handle (https://atproto.com/specs/handle): a domain name of at
// least two labels, the last of which begins with a letter.
func validHandle(s []byte) bool {
	if len(s) > maxHandleBytes {
		return false
	}
	for labels := 1; ; labels++ {
		label, rest, more := bytes.Cut(s, []byte{'.'})
		if !validNSIDSegment(label, !more) {
			return false
		}
		if !more {
			return labels > 1
		}
		s = rest
	}
}

const schemeAT = "at://"

// mayRefer reports whether s begins as a DID or an AT URI does.
func mayRefer(s []byte) bool {
	return len(s) > len(schemeAT) && (string(s[:4]) == "did:" || string(s[:5]) == schemeAT)
}

// referenceAuthority returns the length of s if it is a DID. For an AT URI, as indigo's
// syntax.ParseATURI takes it, it returns that of its authority. Else it returns 0. See
// https://atproto.com/specs/at-uri-scheme.
func referenceAuthority(s []byte) int {
	rest, isURI := bytes.CutPrefix(s, []byte(schemeAT))
	if !isURI {
		if validDID(s) {
			return len(s)
		}
		return 0
	}
	authority, path, hasPath := bytes.Cut(rest, []byte{'/'})
	collection, rkey, hasKey := bytes.Cut(path, []byte{'/'})
	switch {
	case !validDID(authority) && (bytes.HasPrefix(authority, []byte("did:")) || !validHandle(authority)),
		hasPath && !validNSID(collection),
		hasKey && !validRecordKey(rkey):
		return 0
	}
	return len(authority)
}

// validNSIDSegment checks one segment of the domain name; the first begins with a letter.
func validNSIDSegment(s []byte, first bool) bool {
	if len(s) == 0 || len(s) > maxSegmentBytes {
		return false
	}
	begin, end := byteClass[s[0]], byteClass[s[len(s)-1]]
	if begin&classAlphaNum == 0 || end&classAlphaNum == 0 || first && begin&classLetter == 0 {
		return false
	}
	for _, c := range s {
		if byteClass[c]&classAlphaNum == 0 && c != '-' {
			return false
		}
	}
	return true
}

// validNSIDName checks the last segment: letters and digits, beginning with a letter.
func validNSIDName(s []byte) bool {
	return len(s) > 0 && len(s) <= maxSegmentBytes && byteClass[s[0]]&classLetter != 0 && allOf(s, classAlphaNum)
}

// validDatetime reports whether s is a date and time by RFC 3339 as the AT Protocol narrows it
// (https://atproto.com/specs/lexicon#datetime). indigo's syntax.ParseDatetime also takes a comma
// before the fraction and offsets of 24 hours. No byte of a valid one is escaped in JSON.
func validDatetime(s []byte) bool {
	const shape = "0000-00-00T00:00:00"
	if len(s) > maxDatetimeBytes || len(s) <= len(shape) {
		return false
	}
	for i := range len(shape) {
		if c := s[i]; shape[i] == '0' && byteClass[c]&classDigit == 0 || shape[i] != '0' && c != shape[i] {
			return false
		}
	}
	year := twoDigits(s)*100 + twoDigits(s[2:])
	month, day := twoDigits(s[5:]), twoDigits(s[8:])
	hour, minute, second := twoDigits(s[11:]), twoDigits(s[14:]), twoDigits(s[17:])
	if month < 1 || month > 12 || day < 1 || day > daysIn(month, year) || hour > 23 || minute > 59 || second > 59 {
		return false
	}
	offset, ok := zoneMinutes(skipFraction(s[len(shape):]))
	// A time on the first day of the year 0 may lie before it once its offset is taken off.
	beforeYearZero := year == 0 && month == 1 && day == 1 && hour*60+minute < offset
	return ok && !beforeYearZero
}

// skipFraction returns s without a leading fraction of a second of 1 to 20 digits. It returns nil
// where what follows the dot is no such fraction.
func skipFraction(s []byte) []byte {
	if len(s) == 0 || s[0] != '.' {
		return s
	}
	n := 1
	for n < len(s) && byteClass[s[n]]&classDigit != 0 {
		n++
	}
	if n == 1 || n > 21 {
		return nil
	}
	return s[n:]
}

// zoneMinutes returns the offset that s spells, in minutes: "Z", "+hh:mm" or "-hh:mm", but not
// "-00:00".
func zoneMinutes(s []byte) (minutes int, ok bool) {
	if len(s) == 1 && s[0] == 'Z' {
		return 0, true
	}
	if len(s) != len("+00:00") || s[0] != '+' && s[0] != '-' || s[3] != ':' ||
		!allOf(s[1:3], classDigit) || !allOf(s[4:6], classDigit) {
		return 0, false
	}
	hour, minute := twoDigits(s[1:]), twoDigits(s[4:])
	if hour > 23 || minute > 59 || s[0] == '-' && hour == 0 && minute == 0 {
		return 0, false
	}
	if s[0] == '-' {
		return -(hour*60 + minute), true
	}
	return hour*60 + minute, true
}

// twoDigits returns the number that the first two bytes of s, both digits, spell.
func twoDigits(s []byte) int { return int(s[0]-'0')*10 + int(s[1]-'0') }

// daysIn returns the number of days of a month of the Gregorian calendar.
func daysIn(month, year int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}
