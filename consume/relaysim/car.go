package relaysim

import (
	"encoding/binary"

	"github.com/ipfs/go-cid"

	"millrace/consume/relaysim/cbor"
)

// appendCARHeader appends the header of a CAR (version 1) with one root.
func appendCARHeader(dst []byte, root cid.Cid) []byte {
	header := cbor.Append(nil, map[string]any{"roots": []any{root}, "version": 1})
	dst = binary.AppendUvarint(dst, uint64(len(header)))
	return append(dst, header...)
}

// appendCARBlock appends a block under id, whether or not that is its CID.
func appendCARBlock(dst []byte, id cid.Cid, data []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(id.ByteLen()+len(data)))
	dst = append(dst, id.KeyString()...)
	return append(dst, data...)
}
