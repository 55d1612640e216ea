package relaysim

import (
	"bytes"
	"math"

	"millrace/consume/relaysim/cbor"
)

// Initial bytes of CBOR items that the data model has no use for.
const (
	indefiniteArray = 0x9f
	indefiniteMap   = 0xbf
	indefiniteBytes = 0x5f
	indefiniteText  = 0x7f
	breakByte       = 0xff
)

// field returns a post record with one more field, "x", of that encoded value.
func field(value []byte) []byte {
	return cbor.Append(nil, map[string]any{
		"$type": "app.bsky.feed.post", "text": "a record with a strange field", "x": cbor.Raw(value),
	})
}

// pairs returns a map of encoded keys and values, in the order given.
func pairs(items ...[]byte) []byte {
	return append(cbor.AppendHead(nil, cbor.MapOf, uint64(len(items)/2)), bytes.Join(items, nil)...)
}

func text(s string) []byte { return cbor.AppendText(nil, s) }

// nested returns arrays within arrays, depth of them.
func nested(depth int) []byte {
	b := make([]byte, depth)
	for i := range b {
		b[i] = 0x81
	}
	return append(b[:depth-1], 0x80)
}

// record makes a kind whose bad op has a bad record.
func record(name string, data []byte) *hostileKind {
	return amid(name, reasonRecord, func(k *messageBuilder) hostileOp { return k.put("create", "app.bsky.feed.post", data) })
}

// odd makes a kind with a record that is not canonical, but must be served.
func odd(name string, data []byte) *hostileKind {
	return amid(name, "", func(k *messageBuilder) hostileOp { return k.put("create", "app.bsky.feed.post", data) })
}

// shapeKinds are commits with one record that is wrong in maps, strings and lengths.
func shapeKinds() []*hostileKind {
	blobless := map[string]any{"$type": "app.bsky.feed.post", "text": "cut"}
	return []*hostileKind{
		record("record-empty", []byte{}),
		record("record-array", cbor.Append(nil, []any{"app.bsky.feed.post"})),
		record("record-text", text("app.bsky.feed.post")),
		record("record-number", cbor.AppendInt(nil, 5)),
		record("record-null", []byte{0xf6}),
		record("record-truncated", cbor.Append(nil, blobless)[:12]),
		record("record-depth-80", field(nested(80))),
		record("record-depth-5000", field(nested(5000))),
		record("record-duplicate-key", pairs(text("a"), text("1"), text("a"), text("2"))),
		record("record-duplicate-key-inner", field(pairs(text("a"), text("1"), text("a"), text("1")))),
		record("record-number-key", pairs(cbor.AppendInt(nil, 1), text("one"))),
		record("record-bytes-key", pairs(cbor.Append(nil, []byte("k")), text("bytes"))),
		record("record-utf8-value", field([]byte{0x62, 0xc3, 0x28})),
		record("record-utf8-surrogate", field([]byte{0x63, 0xed, 0xa0, 0x80})),
		record("record-utf8-overlong", field([]byte{0x62, 0xc0, 0xaf})),
		record("record-utf8-key", pairs([]byte{0x62, 0xff, 0xfe}, text("x"))),
		record("record-indefinite-map", append(append([]byte{indefiniteMap}, text("a")...), 0x01, breakByte)),
		record("record-indefinite-array", field([]byte{indefiniteArray, 0x01, breakByte})),
		record("record-indefinite-text", field([]byte{indefiniteText, 0x61, 'a', breakByte})),
		record("record-indefinite-bytes", field([]byte{indefiniteBytes, 0x41, 'a', breakByte})),
	}
}

// numberKinds have numbers that the data model does not.
func numberKinds() []*hostileKind {
	return []*hostileKind{
		record("record-float", field(cbor.Append(nil, 1.5))),
		record("record-float16", field([]byte{0xf9, 0x3e, 0x00})), // 1.5
		record("record-float32", field([]byte{0xfa, 0x3f, 0xc0, 0x00, 0x00})),
		record("record-nan", field(cbor.Append(nil, math.NaN()))),
		record("record-infinity", field(cbor.Append(nil, math.Inf(1)))),
		record("record-uint64", field(cbor.AppendHead(nil, cbor.Uint, 1<<63))),
		record("record-nint64", field(cbor.AppendHead(nil, cbor.NegInt, 1<<63))),
		record("record-nint64-least", field(cbor.AppendHead(nil, cbor.NegInt, math.MaxUint64))),
		record("record-bignum", field([]byte{0xc2, 0x49, 1, 0, 0, 0, 0, 0, 0, 0, 0})),
	}
}

// linkKinds have tags, links and blobs of wrong shape.
func linkKinds() []*hostileKind {
	link := blockCID([]byte("a blob"))
	tagged := func(content []byte) []byte { return append([]byte{0xd8, cbor.TagCID}, content...) }
	blob := func(change func(b map[string]any)) []byte {
		b := map[string]any{"$type": "blob", "ref": link, "mimeType": "image/png", "size": 9}
		change(b)
		return field(cbor.Append(nil, b))
	}
	return []*hostileKind{
		record("record-tag-time", field(append([]byte{0xc0}, text("2026-07-04T14:38:08Z")...))),
		record("record-tag-self", field(append([]byte{0xd9, 0xd9, 0xf7}, text("x")...))),
		record("record-cid-text", field(tagged(text(link.String())))),
		record("record-cid-without-zero", field(tagged(cbor.Append(nil, []byte(link.KeyString()))))),
		record("record-cid-empty", field(tagged([]byte{0x40}))),
		record("record-cid-cut", field(tagged(cbor.Append(nil, []byte("\x00"+link.KeyString()[:20]))))),
		record("record-link-number", field(cbor.Append(nil, map[string]any{"$link": 5}))),
		record("record-link-no-cid", field(cbor.Append(nil, map[string]any{"$link": "not a CID"}))),
		record("record-link-more", field(cbor.Append(nil, map[string]any{"$link": link.String(), "more": 1}))),
		record("record-blob-no-ref", blob(func(b map[string]any) { delete(b, "ref") })),
		record("record-blob-ref-text", blob(func(b map[string]any) { b["ref"] = link.String() })),
		record("record-blob-no-size", blob(func(b map[string]any) { delete(b, "size") })),
		record("record-blob-size-text", blob(func(b map[string]any) { b["size"] = "9" })),
		record("record-blob-mime-number", blob(func(b map[string]any) { b["mimeType"] = 9 })),
		record("record-blob-more", blob(func(b map[string]any) { b["more"] = true })),
		record("record-legacy-blob-cid", field(cbor.Append(nil, map[string]any{"cid": "nothing", "mimeType": "image/png"}))),
	}
}

// oddKinds are not canonical and yet right.
func oddKinds() []*hostileKind {
	link := blockCID([]byte("a legacy blob")).String()
	return []*hostileKind{
		odd("odd-key-order", pairs(text("text"), text("keys in no order"), text("a"), text("1"), text("$type"), text("app.bsky.feed.post"))),
		odd("odd-int-width", field([]byte{0x1b, 0, 0, 0, 0, 0, 0, 0, 7})),
		odd("odd-length-width", field(append([]byte{0x79, 0, 3}, "abc"...))),
		odd("odd-float-integral", field(cbor.Append(nil, 12.0))),
		odd("odd-float-negative", field(cbor.Append(nil, -3.0))),
		odd("odd-depth-40", field(nested(40))),
		odd("odd-int64-ends", field(cbor.Append(nil, []any{int64(math.MaxInt64), int64(math.MinInt64)}))),
		odd("odd-legacy-blob", field(cbor.Append(nil, map[string]any{"cid": link, "mimeType": "image/png"}))),
		odd("odd-html", field(text("<script>&amp;\u2028\u2029\u0000\u007f\"\\"))),
		odd("odd-bytes", field(cbor.Append(nil, []byte{0, 1, 2, 0xff}))),
		odd("odd-empty-strings", field(cbor.Append(nil, map[string]any{"": "", "a": []any{nil, false}}))),
	}
}
