package references

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// version is the version of everything this package writes. A change that older code would misread
// raises it. Version 1 has neither links nor the status of accounts, version 2 no starts of chunks.
// They become this one when they are opened: links of version 2 are then built again.
const version = 3

// ErrNewerFormat means: a newer millrace wrote the store.
var ErrNewerFormat = errors.New("the reference store has a newer format")

// errPrefixBits means: the store was made for UIDs with another number of prefix bits.
var errPrefixBits = errors.New("the reference store has other prefix bits")

// state is how far the store has come. Each batch commits it.
type state struct {
	position  Position
	arrival   uint64 // the last number given
	inexactUS int64  // stamp of the first gap of the generation; 0: none
	syncs     syncs
}

// syncs is what is known of the accounts that are inexact since a #sync.
type syncs struct {
	accounts uint64
	firstUS  int64 // stamp of the first of these #sync, also if that account is exact again; 0: none
}

// changed counts an account that is inexact since after, and was since before.
func (s *syncs) changed(before, after int64) {
	switch {
	case before == 0 && after != 0:
		s.accounts++
		s.firstUS = cmp.Or(s.firstUS, after)
	case before != 0 && after == 0 && s.accounts > 0: // a store may be older than the count
		if s.accounts--; s.accounts == 0 {
			s.firstUS = 0
		}
	}
}

func appendFormat(dst []byte, prefixBits uint) []byte {
	return append(binary.BigEndian.AppendUint32(dst, version), byte(prefixBits))
}

// decodeFormat is the inverse of appendFormat. All versions begin with their number.
func decodeFormat(b []byte) (prefixBits uint, err error) {
	if len(b) < 4 {
		return 0, errShort
	}
	v := binary.BigEndian.Uint32(b)
	if v > version {
		return 0, fmt.Errorf("%w: version %d, and this millrace knows up to %d", ErrNewerFormat, v, version)
	}
	if v < 1 || len(b) != 5 || b[4] < 1 || b[4] > maxPrefixBits {
		return 0, errForm
	}
	return uint(b[4]), nil
}

func appendPosition(dst []byte, p Position) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(dst, p.Epoch), uint64(p.Seq))
}

func nextPosition(b []byte) (p Position, rest []byte, err error) {
	if len(b) < 12 {
		return p, nil, errShort
	}
	p = Position{Epoch: binary.BigEndian.Uint32(b), Seq: int64(binary.BigEndian.Uint64(b[4:]))}
	if p.Seq < 0 {
		return p, nil, errForm
	}
	return p, b[12:], nil
}

func appendGeneration(dst []byte, g *Generation) []byte {
	dst = appendPosition(binary.BigEndian.AppendUint32(dst, g.Number), g.From)
	return append(dst, g.Basis...)
}

func decodeGeneration(b []byte) (g Generation, err error) {
	if len(b) < 4 {
		return g, errShort
	}
	g.Number = binary.BigEndian.Uint32(b)
	g.From, b, err = nextPosition(b[4:])
	g.Basis = string(b)
	if err == nil && g.Number == 0 {
		err = errForm
	}
	return g, err
}

func appendState(dst []byte, s *state) []byte {
	dst = binary.BigEndian.AppendUint64(appendPosition(dst, s.position), s.arrival)
	return binary.BigEndian.AppendUint64(dst, uint64(s.inexactUS))
}

func decodeState(b []byte) (s state, err error) {
	s.position, b, err = nextPosition(b)
	if err != nil {
		return s, err
	}
	if len(b) != 16 {
		return s, errShort
	}
	s.arrival = binary.BigEndian.Uint64(b)
	inexact := binary.BigEndian.Uint64(b[8:])
	if inexact > math.MaxInt64 {
		return s, errForm
	}
	s.inexactUS = int64(inexact)
	return s, nil
}

func appendSyncs(dst []byte, s *syncs) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, s.accounts), uint64(s.firstUS))
}

func decodeSyncs(b []byte) (s syncs, err error) {
	if len(b) != 16 {
		return s, errShort
	}
	s = syncs{accounts: binary.BigEndian.Uint64(b), firstUS: int64(binary.BigEndian.Uint64(b[8:]))}
	if s.firstUS < 0 || (s.accounts == 0) != (s.firstUS == 0) {
		err = errForm
	}
	return s, err
}
