package intern

import (
	"bytes"
	"fmt"
)

// Lengths in bytes that the AT Protocol sets.
const (
	maxDID    = 2048
	maxHandle = 253
	maxNSID   = 317
	maxRKey   = 512
)

// InvalidError says which string of a batch is neither a valid DID nor a valid AT URI, and why.
type InvalidError struct {
	Index  int // in the batch; 0 for a single string
	Reason string
}

// Error returns the reason.
func (e *InvalidError) Error() string { return "neither a DID nor an AT URI: " + e.Reason }

// The check functions return "" for a valid string, else the reason. They accept what the atproto
// specifications' regular expressions accept (https://atproto.com/specs: did, handle, nsid,
// record-key), in one pass.

const (
	classAlnum  = 1 << iota // a-z A-Z 0-9
	classLower              // a-z
	classLetter             // a-z A-Z
	classDID                // may stand in a DID's identifier
	classDIDEnd             // may end it
	classRKey               // may stand in a record key
)

var classes = classTable() //nolint:gochecknoglobals // a table

func classTable() (t [256]uint8) {
	const lower, upper, digits = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
	for class, chars := range map[uint8]string{
		classAlnum:  lower + upper + digits,
		classLower:  lower,
		classLetter: lower + upper,
		classDID:    lower + upper + digits + "._-:%",
		classDIDEnd: lower + upper + digits + "._-",
		classRKey:   lower + upper + digits + "_~.:-",
	} {
		for _, c := range []byte(chars) {
			t[c] |= class
		}
	}
	return t
}

// all says whether every byte of s is of the class.
func all(s []byte, class uint8) bool {
	for _, c := range s {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}

func checkDID(s []byte) string {
	if len(s) > maxDID {
		return fmt.Sprintf("DID has %d bytes, more than %d", len(s), maxDID)
	}
	rest, ok := bytes.CutPrefix(s, []byte("did:"))
	method, id, _ := bytes.Cut(rest, []byte(":"))
	switch {
	case !ok:
		return `DID does not begin with "did:"`
	case len(method) == 0:
		return "DID has no method"
	case !all(method, classLower):
		return "DID's method is not all lower-case letters"
	case len(id) == 0 || !all(id, classDID):
		return "DID's identifier is empty or has a character that is not allowed"
	case classes[id[len(id)-1]]&classDIDEnd == 0:
		return "DID ends with a character that may not end it"
	}
	return ""
}

// checkLabels checks the labels of a handle or NSID, separated by dots: 1 to 63 letters, digits and
// inner hyphens. It returns their number, 0 if one is wrong.
func checkLabels(s []byte) int {
	labels, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			if classes[s[i]]&classAlnum == 0 && s[i] != '-' {
				return 0
			}
			continue
		}
		if i == start || i-start > 63 || s[start] == '-' || s[i-1] == '-' {
			return 0
		}
		labels++
		start = i + 1
	}
	return labels
}

func lastLabel(s []byte) []byte { return s[bytes.LastIndexByte(s, '.')+1:] }

func checkHandle(s []byte) string {
	switch {
	case len(s) > maxHandle:
		return fmt.Sprintf("handle has %d bytes, more than %d", len(s), maxHandle)
	case checkLabels(s) < 2:
		return "authority is neither a DID nor a handle of two or more valid labels"
	case classes[lastLabel(s)[0]]&classLetter == 0:
		return "handle's last label does not begin with a letter"
	}
	return ""
}

func checkNSID(s []byte) string {
	switch {
	case len(s) > maxNSID:
		return fmt.Sprintf("collection has %d bytes, more than %d", len(s), maxNSID)
	case checkLabels(s) < 3:
		return "collection is not an NSID of three or more valid labels"
	case classes[s[0]]&classLetter == 0:
		return "collection does not begin with a letter"
	}
	if name := lastLabel(s); classes[name[0]]&classLetter == 0 || !all(name, classAlnum) {
		return "collection's name is not a letter followed by letters and digits"
	}
	return ""
}

func checkRecordKey(s []byte) string {
	switch {
	case len(s) == 0 || len(s) > maxRKey:
		return fmt.Sprintf("record key has %d bytes, not 1 to %d", len(s), maxRKey)
	case string(s) == "." || string(s) == "..":
		return `record key is "." or ".."`
	case !all(s, classRKey):
		return "record key has a character that is not allowed"
	}
	return ""
}
