package postings

import "encoding/binary"

// Head is what is kept of a large set beside its members.
type Head struct {
	Records  uint64
	Accounts uint64 // distinct
	Tail     uint64 // where the last chunk starts
}

// Append appends the value of a head.
func (h Head) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, h.Records)
	dst = binary.AppendUvarint(dst, h.Accounts)
	return binary.AppendUvarint(dst, h.Tail)
}

// DecodeHead is the inverse of Head.Append.
func DecodeHead(b []byte) (h Head, err error) {
	for _, v := range [...]*uint64{&h.Records, &h.Accounts, &h.Tail} {
		if *v, b, err = NextUvarint(b); err != nil {
			return h, err
		}
	}
	if len(b) > 0 || h.Accounts > h.Records || h.Accounts == 0 && h.Records > 0 {
		err = errForm
	}
	return h, err
}

// AppendArrivals appends arrival numbers, which rise.
func AppendArrivals(dst []byte, arrivals []uint64) []byte {
	var last uint64
	for _, a := range arrivals {
		dst = binary.AppendUvarint(dst, a-last)
		last = a
	}
	return dst
}

// DecodeArrivals appends the numbers of b to dst.
func DecodeArrivals(dst []uint64, b []byte) ([]uint64, error) {
	var last uint64
	for len(b) > 0 {
		delta, rest, err := NextUvarint(b)
		if err != nil {
			return dst, err
		}
		if delta == 0 || last+delta < last {
			return dst, errForm
		}
		last += delta
		dst, b = append(dst, last), rest
	}
	return dst, nil
}
