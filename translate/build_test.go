package translate

import "millrace/consume/relaysim/cbor"

// Short names for what the tests put into CBOR.
type (
	pair        = cbor.Pair
	cborMap     = cbor.Map
	cborRaw     = cbor.Raw
	cborLink    = cbor.Link
	cborTag     = cbor.Tag
	float16Bits = cbor.Float16
)

func cborOf(v any) []byte { return cbor.Append(nil, v) }

// cidOf returns the CID of a block in DAG-CBOR.
func cidOf(data []byte) []byte { return cbor.CID(data) }

// cidText returns the text form of a CID of version 1.
func cidText(cid []byte) string { return string(appendCID(nil, cid)) }

// carBlock is one block of a CAR, of which the CID need not fit the data.
type carBlock struct{ cid, data []byte }

func blockOf(data []byte) carBlock { return carBlock{cidOf(data), data} }

// carOf returns a CAR of the blocks. Its root is the first one.
func carOf(blocks ...carBlock) []byte {
	root := cidOf(nil)
	if len(blocks) > 0 {
		root = blocks[0].cid
	}
	car := cbor.AppendCARHeader(nil, root)
	for _, b := range blocks {
		car = cbor.AppendCARSection(car, b.cid, b.data)
	}
	return car
}

const (
	testDID  = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
	testRev  = "3mptbypluud2a"
	testTime = "2026-07-04T14:38:08.123Z"
	testSeq  = 31527015322
)

// testRecord returns a small valid record.
func testRecord(text string) []byte {
	return cborOf(cborMap{{"text", text}, {"$type", "app.bsky.feed.post"}})
}

// createOp, updateOp and deleteOp return elements of ops.
func createOp(path string, record []byte) cborMap {
	return cborMap{{"cid", cborLink(cidOf(record))}, {"path", path}, {"action", "create"}}
}

func updateOp(path string, record []byte) cborMap {
	return createOp(path, record).With("action", "update").With("prev", cborLink(cidOf([]byte("prev"))))
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

func syncBody() cborMap {
	car := carOf(blockOf(cborOf(cborMap{{"did", testDID}, {"rev", testRev}})))
	return cborMap{{"did", testDID}, {"rev", testRev}, {"seq", testSeq}, {"time", testTime}, {"blocks", car}}
}

// frameOf returns a frame of a type.
func frameOf(kind string, body any) []byte {
	return cbor.Append(cborOf(cborMap{{"t", kind}, {"op", 1}}), body)
}
