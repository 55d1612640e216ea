package dict

import "encoding/binary"

// maxWindowBytes is the largest window that a frame of ours declares, and the length up to which a
// frame is a single segment. It is what Jetstream's own encoder is set to.
const maxWindowBytes = 1 << windowLog

const windowLog = 17

// maxBlockBytes is the most content that one block of a frame holds (RFC 8878, section 3.1.1.2.4).
const maxBlockBytes = 128 << 10

// maxCompressedLen returns an upper bound of the frame that Encoder.Append makes of n bytes. Append
// does not allocate if dst has that much room.
func maxCompressedLen(n int) int {
	return n + n>>8 + 64
}

// appendStored appends a frame that holds src uncompressed, with the header that Append promises.
// It is for what no encoder is needed for, and for when an encoder fails: it cannot.
func appendStored(dst, src []byte, id uint32) []byte {
	dst = appendHeader(dst, len(src), id)
	for {
		n := min(len(src), maxBlockBytes)
		header := uint32(n) << 3 // type 0: raw
		if n == len(src) {
			header |= 1
		}
		dst = append(dst, byte(header), byte(header>>8), byte(header>>16))
		dst = append(dst, src[:n]...)
		src = src[n:]
		if len(src) == 0 {
			return dst
		}
	}
}

// appendHeader appends the header of a frame of n content bytes.
func appendHeader(dst []byte, n int, id uint32) []byte {
	const (
		singleSegment = 1 << 5
		// windowByte's upper five bits are the window's logarithm above 10.
		windowByte = (windowLog - 10) << 3
	)
	dst = append(dst, 0x28, 0xb5, 0x2f, 0xfd)
	at := len(dst)
	dst = append(dst, 0)
	if n <= maxWindowBytes {
		dst[at] |= singleSegment
	} else {
		dst = append(dst, windowByte)
	}
	switch {
	case id == 0:
	case id < 1<<8:
		dst[at] |= 1
		dst = append(dst, byte(id))
	case id < 1<<16:
		dst[at] |= 2
		dst = binary.LittleEndian.AppendUint16(dst, uint16(id))
	default:
		dst[at] |= 3
		dst = binary.LittleEndian.AppendUint32(dst, id)
	}
	switch {
	case n < 256:
		dst = append(dst, byte(n))
	case n < 256+1<<16:
		dst[at] |= 1 << 6
		dst = binary.LittleEndian.AppendUint16(dst, uint16(n-256))
	case uint64(n) < 1<<32:
		dst[at] |= 2 << 6
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	default:
		dst[at] |= 3 << 6
		dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
	}
	return dst
}
