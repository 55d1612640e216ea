package translate

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// What the tests put into CBOR beside Go's own bool, int, uint64, string, []byte, []any and nil.
type (
	pair     struct{ key, value any }
	cborMap  []pair // in this order
	cborRaw  []byte // encoded already
	cborLink []byte // a link to this CID
	cborTag  struct {
		number uint64
		value  any
	}
	float16Bits uint16
)

// appendHead appends the head of an item, as short as can be.
func appendHead(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, major<<5|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major<<5|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major<<5|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major<<5|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major<<5|27), n)
}

func appendCBOR(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 0xf6)
	case bool:
		if v {
			return append(dst, 0xf5)
		}
		return append(dst, 0xf4)
	case int:
		if v < 0 {
			return appendHead(dst, majorNegInt, uint64(-1-v))
		}
		return appendHead(dst, majorUint, uint64(v))
	case uint64:
		return appendHead(dst, majorUint, v)
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, 0xfb), math.Float64bits(v))
	case float32:
		return binary.BigEndian.AppendUint32(append(dst, 0xfa), math.Float32bits(v))
	case float16Bits:
		return binary.BigEndian.AppendUint16(append(dst, 0xf9), uint16(v))
	case string:
		return append(appendHead(dst, majorText, uint64(len(v))), v...)
	case []byte:
		return append(appendHead(dst, majorBytes, uint64(len(v))), v...)
	case cborRaw:
		return append(dst, v...)
	case cborLink:
		return appendCBOR(append(dst, 0xd8, tagCID), append([]byte{0}, v...))
	case cborTag:
		return appendCBOR(appendHead(dst, majorTag, v.number), v.value)
	case []any:
		dst = appendHead(dst, majorArray, uint64(len(v)))
		for _, e := range v {
			dst = appendCBOR(dst, e)
		}
		return dst
	case cborMap:
		dst = appendHead(dst, majorMap, uint64(len(v)))
		for _, p := range v {
			dst = appendCBOR(appendCBOR(dst, p.key), p.value)
		}
		return dst
	}
	panic("no CBOR for this type")
}

func cborOf(v any) []byte { return appendCBOR(nil, v) }

// with returns m with the value of a key replaced, or added at the end.
func (m cborMap) with(key string, value any) cborMap {
	out := append(cborMap(nil), m...)
	for i := range out {
		if out[i].key == key {
			out[i].value = value
			return out
		}
	}
	return append(out, pair{key, value})
}

// without returns m without a key.
func (m cborMap) without(key string) cborMap {
	var out cborMap
	for _, p := range m {
		if p.key != key {
			out = append(out, p)
		}
	}
	return out
}

// cidOf returns the CID of a block in DAG-CBOR.
func cidOf(data []byte) []byte {
	sum := sha256.Sum256(data)
	return append([]byte{1, codecDAGCBOR, hashSHA256, 32}, sum[:]...)
}

// cidText returns the text form of a CID of version 1.
func cidText(cid []byte) string { return string(appendCID(nil, cid)) }

// carBlock is one block of a CAR, of which the CID need not fit the data.
type carBlock struct{ cid, data []byte }

func blockOf(data []byte) carBlock { return carBlock{cidOf(data), data} }

func appendSection(dst []byte, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	for _, p := range parts {
		dst = append(dst, p...)
	}
	return dst
}

// carOf returns a CAR of the blocks. Its root is the first one.
func carOf(blocks ...carBlock) []byte {
	root := cidOf(nil)
	if len(blocks) > 0 {
		root = blocks[0].cid
	}
	car := appendSection(nil, cborOf(cborMap{{"roots", []any{cborLink(root)}}, {"version", 1}}))
	for _, b := range blocks {
		car = appendSection(car, b.cid, b.data)
	}
	return car
}

const (
	testDID  = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
	testRev  = "3mptbypluud2a"
	testTime = "2026-07-04T14:38:08.123Z"
	testSeq  = 31527015322
)

// record returns a small valid record.
func testRecord(text string) []byte {
	return cborOf(cborMap{{"text", text}, {"$type", "app.bsky.feed.post"}})
}

// createOp, updateOp and deleteOp return elements of ops.
func createOp(path string, record []byte) cborMap {
	return cborMap{{"cid", cborLink(cidOf(record))}, {"path", path}, {"action", "create"}}
}

func updateOp(path string, record []byte) cborMap {
	return createOp(path, record).with("action", "update").with("prev", cborLink(cidOf([]byte("prev"))))
}

func deleteOp(path string) cborMap {
	return cborMap{{"cid", nil}, {"path", path}, {"action", "delete"}}
}

// commitBody returns the body of a #commit as relays send it, its keys in DAG-CBOR's order.
func commitBody(car []byte, ops ...any) cborMap {
	if ops == nil {
		ops = []any{}
	}
	return cborMap{
		{"ops", ops},
		{"rev", testRev},
		{"seq", testSeq},
		{"repo", testDID},
		{"time", testTime},
		{"blobs", []any{}},
		{"since", nil},
		{"blocks", car},
		{"commit", cborLink(cidOf([]byte("commit")))},
		{"rebase", false},
		{"tooBig", false},
	}
}

func identityBody() cborMap {
	return cborMap{{"did", testDID}, {"seq", testSeq}, {"time", testTime}, {"handle", "alice.example.com"}}
}

func accountBody() cborMap {
	return cborMap{{"did", testDID}, {"seq", testSeq}, {"time", testTime}, {"active", true}}
}

// frameOf returns a frame of a type.
func frameOf(kind string, body any) []byte {
	return appendCBOR(cborOf(cborMap{{"t", kind}, {"op", 1}}), body)
}
