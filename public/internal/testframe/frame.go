package testframe

import "millrace/consume/relaysim/cbor"

// Frame makes a frame with a given sequence number.
type Frame func(seq int64) []byte

// DID returns a valid did:plc, one for each number.
func DID(n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	b := []byte("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")
	for i := len(b) - 1; n > 0; i-- {
		b[i] = alphabet[n%32]
		n /= 32
	}
	return string(b)
}

const (
	frameTime = "2026-01-02T03:04:05.678Z"
	frameRev  = "3kabcdefghi2a"
)

func frameOf(kind string, body cbor.Map) []byte {
	return cbor.Append(cbor.Append(nil, cbor.Map{{"t", kind}, {"op", 1}}), body)
}

// Identity makes an identity event.
func Identity(did string) Frame {
	return func(seq int64) []byte {
		return frameOf("#identity", cbor.Map{{"did", did}, {"seq", int(seq)}, {"time", frameTime}, {"handle", "someone.test"}})
	}
}

// Account makes an account event; with a status the account is not active.
func Account(did, status string) Frame {
	return func(seq int64) []byte {
		body := cbor.Map{{"did", did}, {"seq", int(seq)}, {"time", frameTime}, {"active", status == ""}}
		if status != "" {
			body = append(body, cbor.Pair{Key: "status", Value: status})
		}
		return frameOf("#account", body)
	}
}

// Sync makes a #sync event, with a CAR of one block.
func Sync(did string) Frame {
	block := cbor.Append(nil, cbor.Map{{"did", did}, {"rev", frameRev}})
	cid := cbor.CID(block)
	car := cbor.AppendCARSection(cbor.AppendCARHeader(nil, cid), cid, block)
	return func(seq int64) []byte {
		return frameOf("#sync", cbor.Map{{"did", did}, {"rev", frameRev}, {"seq", int(seq)}, {"time", frameTime}, {"blocks", car}})
	}
}

// Op is one operation of a commit: create, update or delete.
type Op struct {
	Action, Path string
	Record       cbor.Map // nil: of a delete
}

// Commit makes a commit that creates the same record under several keys, and then deletes that of
// the key gone unless it is empty.
func Commit(did, collection, text, gone string, rkeys ...string) Frame {
	var ops []Op
	for _, rkey := range rkeys {
		ops = append(ops, Op{"create", collection + "/" + rkey, cbor.Map{{"text", text}, {"$type", collection}}})
	}
	if gone != "" {
		ops = append(ops, Op{Action: "delete", Path: collection + "/" + gone})
	}
	return Ops(did, ops...)
}

// Ops makes a commit of operations.
func Ops(did string, ops ...Op) Frame {
	root := cbor.CID(nil)
	var blocks []byte
	var list []any
	for _, op := range ops {
		var link any
		if op.Record != nil {
			record := cbor.Append(nil, op.Record)
			root = cbor.CID(record)
			link = cbor.Link(root)
			blocks = cbor.AppendCARSection(blocks, root, record)
		}
		list = append(list, cbor.Map{{"cid", link}, {"path", op.Path}, {"action", op.Action}})
	}
	car := append(cbor.AppendCARHeader(nil, root), blocks...)
	return func(seq int64) []byte {
		return frameOf("#commit", cbor.Map{
			{"ops", list}, {"rev", frameRev}, {"seq", int(seq)}, {"repo", did}, {"time", frameTime},
			{"blobs", []any{}}, {"since", nil}, {"blocks", car}, {"commit", cbor.Link(root)}, {"rebase", false}, {"tooBig", false},
		})
	}
}
