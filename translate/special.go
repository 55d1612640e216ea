package translate

import (
	"bytes"
	"encoding/base64"
)

// specialKeys is a set of the keys that make a map stand for something else.
type specialKeys uint8

const (
	keyType specialKeys = 1 << iota
	keyLink
	keyBytes
	keyMimeType
)

// Those keys, as the prefix that entry has of them. None is longer than the prefix.
const (
	prefixType     = uint64('$')<<56 | 't'<<48 | 'y'<<40 | 'p'<<32 | 'e'<<24
	prefixLink     = uint64('$')<<56 | 'l'<<48 | 'i'<<40 | 'n'<<32 | 'k'<<24
	prefixBytes    = uint64('$')<<56 | 'b'<<48 | 'y'<<40 | 't'<<32 | 'e'<<24 | 's'<<16
	prefixMimeType = uint64('m')<<56 | 'i'<<48 | 'm'<<40 | 'e'<<32 | 'T'<<24 | 'y'<<16 | 'p'<<8 | 'e'
)

// specialKeyOf returns the set of the entry's key, empty if it is none of them.
func specialKeyOf(e *entry) specialKeys {
	switch {
	case e.prefix == prefixType && e.keyLen == uint32(len("$type")):
		return keyType
	case e.prefix == prefixMimeType && e.keyLen == uint32(len("mimeType")):
		return keyMimeType
	case e.prefix == prefixLink && e.keyLen == uint32(len("$link")):
		return keyLink
	case e.prefix == prefixBytes && e.keyLen == uint32(len("$bytes")):
		return keyBytes
	}
	return 0
}

// Beginnings of JSON that this package writes: links and blobs alone begin so.
const (
	linkObject  = `{"$link":"`
	bytesObject = `{"$bytes":"`
	blobObject  = `{"$type":"blob",`
)

// finishSpecial looks at a map of the given depth that has special keys. Its JSON is at
// dst[start:], entries are its entries in order. A map that stands for something else cannot be a
// record. The order of the tests is indigo's.
func (r *recordCoder) finishSpecial(dst []byte, start int, entries []entry, keys specialKeys, depth int) []byte {
	if keys&keyType != 0 && keys&(keyLink|keyBytes) == 0 {
		e := r.find(entries, "$type")
		text, isText := quoted(dst[e.value:e.end])
		if !isText || len(text) == 0 {
			r.setFail(failMalformed)
			return dst
		}
		if string(text) != "blob" {
			return dst
		}
	}
	var cid, mime *entry
	if keys == keyMimeType {
		cid, mime = r.find(entries, "cid"), r.find(entries, "mimeType")
		if len(entries) != 2 || cid == nil {
			return dst
		}
	}
	switch {
	case depth == 1:
		r.setFail(failMalformed)
	case keys&keyLink != 0:
		r.finishLink(dst, entries)
	case keys&keyBytes != 0:
		return r.finishBytes(dst, start, entries)
	case keys&keyType != 0:
		return r.finishBlob(dst, start, entries)
	default:
		return r.finishLegacyBlob(dst, start, cid, mime)
	}
	return dst
}

// find returns the entry of a key, or nil.
func (r *recordCoder) find(entries []entry, key string) *entry {
	for i := range entries {
		if string(r.keyOf(entries[i])) == key {
			return &entries[i]
		}
	}
	return nil
}

// finishLink checks a map with the key $link: it has no other, and its value is a CID's text.
func (r *recordCoder) finishLink(dst []byte, entries []entry) {
	cid, isText := quoted(dst[entries[0].value:entries[0].end])
	ok := false
	if isText {
		r.scratch, ok = validCIDText(cid, r.scratch)
	}
	if !ok || len(entries) != 1 {
		r.setFail(failMalformed)
	}
}

// finishBytes checks a map with the key $bytes, which has no other, and spells its base64 as we do.
func (r *recordCoder) finishBytes(dst []byte, start int, entries []entry) []byte {
	e := entries[0]
	if len(entries) != 1 || dst[e.value] != '"' {
		r.setFail(failMalformed)
		return dst
	}
	// Of what JSON escapes, base64 knows only the line breaks, which its decoder passes over.
	text := r.scratch[:0]
	for s := dst[e.value+1 : e.end-1]; len(s) > 0; s = s[1:] {
		if s[0] != '\\' {
			text = append(text, s[0])
			continue
		}
		if s = s[1:]; s[0] != 'n' && s[0] != 'r' { // an escape has two characters at least
			r.setFail(failMalformed)
			return dst
		}
	}
	length := len(text)
	text, err := base64.RawStdEncoding.AppendDecode(text, text)
	r.scratch = text
	if err != nil {
		r.setFail(failMalformed)
		return dst
	}
	dst = append(dst[:start], bytesObject...)
	dst = base64.RawStdEncoding.AppendEncode(dst, text[length:])
	return append(dst, `"}`...)
}

// finishBlob brings a map whose $type is blob into the form of a blob.
func (r *recordCoder) finishBlob(dst []byte, start int, entries []entry) []byte {
	ref, mime, size := r.find(entries, "ref"), r.find(entries, "mimeType"), r.find(entries, "size")
	if len(entries) != 4 || ref == nil || mime == nil || size == nil ||
		!bytes.HasPrefix(dst[ref.value:ref.end], []byte(linkObject)) || dst[mime.value] != '"' ||
		dst[size.value] < '0' || dst[size.value] > '9' {
		r.setFail(failMalformed)
		return dst
	}
	text := append(r.scratch[:0], blobObject...)
	text = append(append(text, dst[ref.start:ref.end]...), ',')
	text = append(append(text, dst[mime.start:mime.end]...), ',')
	text = append(append(text, dst[size.start:size.end]...), '}')
	r.scratch = text
	return append(dst[:start], text...)
}

// finishLegacyBlob brings a map of cid and mimeType alone into the form of a legacy blob.
func (r *recordCoder) finishLegacyBlob(dst []byte, start int, cid, mime *entry) []byte {
	if dst[mime.value] != '"' {
		r.setFail(failMalformed)
		return dst
	}
	value := dst[cid.value:cid.end]
	if text, isText := quoted(value); isText {
		var ok bool
		if r.scratch, ok = validCIDText(text, r.scratch); !ok {
			r.setFail(failMalformed)
		}
		return dst // cid sorts before mimeType, as the form has it
	}
	// A map that has the form of a link is none here, as indigo has it: the value must begin with a
	// tag.
	if !bytes.HasPrefix(value, []byte(linkObject)) || r.buf[cid.key+cid.keyLen]>>5 != majorTag {
		r.setFail(failMalformed)
		return dst
	}
	link := value[len(linkObject)-1 : len(value)-1] // the CID with its quotes
	text := append(r.scratch[:0], `{"cid":`...)
	text = append(append(text, link...), ',')
	text = append(append(text, dst[mime.start:mime.end]...), '}')
	r.scratch = text
	return append(dst[:start], text...)
}

// quoted returns what is between the quotes of a JSON string, escapes and all.
func quoted(json []byte) (text []byte, ok bool) {
	if json[0] != '"' {
		return nil, false
	}
	return json[1 : len(json)-1], true
}
