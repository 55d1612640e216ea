package chain

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/translate/verify"
)

const (
	formatNumber  = 2
	rangeState    = 3
	positionBytes = 4 + 8
	stateBytes    = 8 + len(verify.Digest{})
)

// meta is the store's own value, under metaKey.
type meta struct {
	version uint32
	sample  uint64
	at      Position
}

func metaKey() []byte { return []byte{1} }
func undoKey() []byte { return []byte{2} }

func stateKey(account Account) []byte { return append([]byte{rangeState}, account[:]...) }

// setState sets the state of an account. The zero state removes it.
func setState(b *pebble.Batch, account Account, state verify.State) error {
	if state == (verify.State{}) {
		return b.Delete(stateKey(account), nil)
	}
	return b.Set(stateKey(account), appendState(nil, state), nil)
}

func appendState(dst []byte, s verify.State) []byte {
	return append(binary.LittleEndian.AppendUint64(dst, s.Rev), s.Data[:]...)
}

func decodeState(b []byte) (verify.State, error) {
	if len(b) != stateBytes {
		return verify.State{}, fmt.Errorf("the state of an account has %d bytes, not %d", len(b), stateBytes)
	}
	return verify.State{Rev: binary.LittleEndian.Uint64(b), Data: verify.Digest(b[8:])}, nil
}

func appendPosition(dst []byte, p Position) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(dst, p.Epoch), uint64(p.Seq))
}

func decodePosition(b []byte) Position {
	return Position{binary.LittleEndian.Uint32(b), int64(binary.LittleEndian.Uint64(b[4:]))}
}

func appendMeta(dst []byte, m meta) []byte {
	dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(dst, m.version), m.sample)
	return appendPosition(dst, m.at)
}

// decodeMeta decodes what appendMeta appended; the zero meta is that of anything else.
func decodeMeta(b []byte) (m meta) {
	if len(b) == 4+8+positionBytes {
		m = meta{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint64(b[4:]), decodePosition(b[12:])}
	}
	return m
}

// appendUndo appends the position that changes were made from, and each account's state before.
func appendUndo(dst []byte, from Position, changes []Change) []byte {
	dst = appendPosition(dst, from)
	for i := range changes {
		dst = appendState(append(dst, changes[i].Account[:]...), changes[i].Before)
	}
	return dst
}

// decodeUndo decodes what appendUndo appended. Other bytes give a position that no log has.
func decodeUndo(b []byte) (from Position, replaced []Change) {
	const changeBytes = len(Account{}) + stateBytes
	if len(b) < positionBytes || (len(b)-positionBytes)%changeBytes != 0 {
		return Position{Seq: -1}, nil
	}
	from = decodePosition(b)
	for b = b[positionBytes:]; len(b) > 0; b = b[changeBytes:] {
		account, value := Account(b), b[len(Account{}):changeBytes]
		state, _ := decodeState(value) // only another length is an error
		replaced = append(replaced, Change{Account: account, Before: state})
	}
	return from, replaced
}
