package replay

import "encoding/binary"

// Websocket frame headers (RFC 6455, section 5.2): one final, unmasked data frame a message.
const (
	opcodeText   byte = 0x80 | 0x1
	opcodeBinary byte = 0x80 | 0x2

	maxHeaderBytes = 10
	maxLen7        = 125
	maxLen16       = 1<<16 - 1
)

// appendHeader appends the header of a frame of n payload bytes: 2, 4 or 10 bytes.
func appendHeader(dst []byte, opcode byte, n int) []byte {
	switch {
	case n <= maxLen7:
		return append(dst, opcode, byte(n))
	case n <= maxLen16:
		dst = append(dst, opcode, maxLen7+1)
		return binary.BigEndian.AppendUint16(dst, uint16(n))
	}
	dst = append(dst, opcode, maxLen7+2)
	return binary.BigEndian.AppendUint64(dst, uint64(n))
}

// headerBytes returns the length of the header of a whole frame of n bytes.
func headerBytes(n int) int {
	switch {
	case n <= 2+maxLen7:
		return 2
	case n <= 4+maxLen16:
		return 4
	}
	return maxHeaderBytes
}

// payloadOf returns the payload of a whole frame, aliasing it.
func payloadOf(frame []byte) []byte { return frame[headerBytes(len(frame)):] }

// compressor is what makes the payload of a binary frame; *dict.Encoder is one.
type compressor interface {
	Append(dst, src []byte) []byte
}

// appendCompressed appends src as one binary frame.
func appendCompressed(dst []byte, enc compressor, src []byte) []byte {
	// Nearly every compressed event needs a header of 4 bytes, so that much is left for it; for the
	// others the payload is moved.
	const room = 4
	start := len(dst)
	dst = append(dst, make([]byte, room)...)
	dst = enc.Append(dst, src)
	n := len(dst) - start - room
	var head [maxHeaderBytes]byte
	header := appendHeader(head[:0], opcodeBinary, n)
	switch {
	case len(header) < room:
		copy(dst[start+len(header):], dst[start+room:])
		dst = dst[:start+len(header)+n]
	case len(header) > room:
		dst = append(dst, make([]byte, len(header)-room)...)
		copy(dst[start+len(header):], dst[start+room:start+room+n])
	}
	copy(dst[start:], header)
	return dst
}
