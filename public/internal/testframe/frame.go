package testframe

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

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

// The CBOR that frames need.
type (
	field  struct{ key, value any }
	fields []field
	cidRef []byte
)

func appendCBOR(dst []byte, v any) []byte {
	head := func(major byte, n int) []byte {
		switch {
		case n < 24:
			return append(dst, major<<5|byte(n))
		case n < 1<<8:
			return append(dst, major<<5|24, byte(n))
		case n < 1<<16:
			return binary.BigEndian.AppendUint16(append(dst, major<<5|25), uint16(n))
		}
		return binary.BigEndian.AppendUint32(append(dst, major<<5|26), uint32(n))
	}
	switch v := v.(type) {
	case nil:
		return append(dst, 0xf6)
	case bool:
		if v {
			return append(dst, 0xf5)
		}
		return append(dst, 0xf4)
	case int:
		return head(0, v)
	case string:
		return append(head(3, len(v)), v...)
	case []byte:
		return append(head(2, len(v)), v...)
	case cidRef:
		dst = append(dst, 0xd8, 42)
		return appendCBOR(dst, append([]byte{0}, v...))
	case []any:
		dst = head(4, len(v))
		for _, e := range v {
			dst = appendCBOR(dst, e)
		}
		return dst
	case fields:
		dst = head(5, len(v))
		for _, f := range v {
			dst = appendCBOR(appendCBOR(dst, f.key), f.value)
		}
		return dst
	}
	panic(fmt.Sprintf("no CBOR for %T", v))
}

const frameTime = "2026-01-02T03:04:05.678Z"

func frameOf(kind string, body fields) []byte {
	return appendCBOR(appendCBOR(nil, fields{{"t", kind}, {"op", 1}}), body)
}

// Identity makes an identity event.
func Identity(did string) Frame {
	return func(seq int64) []byte {
		return frameOf("#identity", fields{{"did", did}, {"seq", int(seq)}, {"time", frameTime}, {"handle", "someone.test"}})
	}
}

// Account makes an account event; with a status the account is not active.
func Account(did, status string) Frame {
	return func(seq int64) []byte {
		body := fields{{"did", did}, {"seq", int(seq)}, {"time", frameTime}, {"active", status == ""}}
		if status != "" {
			body = append(body, field{"status", status})
		}
		return frameOf("#account", body)
	}
}

// Commit makes a commit that creates the same record under several keys, and then deletes that of the key gone unless
// it is empty.
func Commit(did, collection, text, gone string, rkeys ...string) Frame {
	record := appendCBOR(nil, fields{{"text", text}, {"$type", collection}})
	sum := sha256.Sum256(record)
	cid := append([]byte{1, 0x71, 0x12, 32}, sum[:]...)
	header := appendCBOR(nil, fields{{"roots", []any{cidRef(cid)}}, {"version", 1}})
	car := append(binary.AppendUvarint(nil, uint64(len(header))), header...)
	car = append(append(binary.AppendUvarint(car, uint64(len(cid)+len(record))), cid...), record...)
	var ops []any
	for _, rkey := range rkeys {
		ops = append(ops, fields{{"cid", cidRef(cid)}, {"path", collection + "/" + rkey}, {"action", "create"}})
	}
	if gone != "" {
		ops = append(ops, fields{{"cid", nil}, {"path", collection + "/" + gone}, {"action", "delete"}})
	}
	return func(seq int64) []byte {
		return frameOf("#commit", fields{
			{"ops", ops}, {"rev", "3kabcdefghi2a"}, {"seq", int(seq)}, {"repo", did}, {"time", frameTime},
			{"blobs", []any{}}, {"since", nil}, {"blocks", car}, {"commit", cidRef(cid)}, {"rebase", false}, {"tooBig", false},
		})
	}
}
