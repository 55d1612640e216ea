package verify

import (
	"encoding/binary"
	"math"

	"millrace/translate"
)

// commitVersion is the one version of commits.
const commitVersion = 3

// commit is a signed commit block. Its slices alias the CAR.
type commit struct {
	did, rev, sig []byte
	data          []byte // a CID of DAG-CBOR
	prev          []byte // a CID, or nil
}

// read reads a block. It returns false if that is no signed commit.
func (c *commit) read(block []byte) bool {
	*c = commit{}
	d := translate.NewDecoder(block)
	version, seen := uint64(0), 0
	for range d.Map() {
		seen++
		switch string(d.Text()) {
		case "did":
			c.did = d.Text()
		case "rev":
			c.rev = d.Text()
		case "sig":
			c.sig = d.Bytes()
		case "data":
			c.data = d.Link()
		case "prev":
			c.prev = d.LinkOrNull()
		case "version":
			version = d.Uint()
		default:
			return false
		}
	}
	_, ok := digestOf(c.data)
	return ok && d.Done() && seen <= 6 && version == commitVersion && c.did != nil && c.rev != nil && len(c.sig) > 0
}

// appendUnsigned appends what the signature is of: the commit in DAG-CBOR, without it.
func (c *commit) appendUnsigned(dst []byte) []byte {
	dst = append(dst, majorMap|5, majorText|3)
	dst = appendString(append(dst, "did"...), majorText, c.did)
	dst = appendString(append(dst, "\x63rev"...), majorText, c.rev)
	dst = appendLink(append(dst, "\x64data"...), c.data)
	dst = appendLink(append(dst, "\x64prev"...), c.prev)
	return append(dst, "\x67version\x03"...)
}

// The major types of CBOR that are written, in the high bits of an item's first byte.
const (
	majorBytes = 2 << 5
	majorText  = 3 << 5
	majorArray = 4 << 5
	majorMap   = 5 << 5
)

// appendHead appends the head of an item.
func appendHead(dst []byte, major byte, n int) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
}

func appendString(dst []byte, major byte, s []byte) []byte {
	return append(appendHead(dst, major, len(s)), s...)
}

const (
	cborNull  = 0xf6
	linkTag   = "\xd8\x2a"         // tag 42
	cidPrefix = "\x01\x71\x12\x20" // version 1, DAG-CBOR, SHA-256, of 32 bytes
)

// appendLink appends a link to a CID, or null.
func appendLink(dst, cid []byte) []byte {
	if cid == nil {
		return append(dst, cborNull)
	}
	dst = append(appendHead(append(dst, linkTag...), majorBytes, len(cid)+1), 0)
	return append(dst, cid...)
}

// appendDigest appends a link to a block of DAG-CBOR, or null for a zero digest.
func appendDigest(dst []byte, d Digest) []byte {
	if d == (Digest{}) {
		return append(dst, cborNull)
	}
	dst = append(dst, linkTag+"\x58\x25\x00"+cidPrefix...)
	return append(dst, d[:]...)
}

// digestOf returns the digest of the CID of a block of DAG-CBOR. ok is false for any other.
func digestOf(cid []byte) (d Digest, ok bool) {
	if len(cid) != len(cidPrefix)+len(d) || string(cid[:len(cidPrefix)]) != cidPrefix {
		return d, false
	}
	return Digest(cid[len(cidPrefix):]), true
}
