package format

import "encoding/binary"

// First bytes of websocket frames (RFC 6455, section 5.2): each is a whole, unmasked data message.
const (
	OpcodeText   byte = 0x80 | 0x1
	OpcodeBinary byte = 0x80 | 0x2
)

const (
	// MaxFrameHeaderBytes is the length of the longest header of an unmasked frame.
	MaxFrameHeaderBytes = 10

	maxLen7  = 125
	maxLen16 = 1<<16 - 1
)

// AppendFrameHeader appends the header of a frame of n payload bytes: 2, 4 or 10 bytes.
func AppendFrameHeader(dst []byte, opcode byte, n int) []byte {
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

// FrameHeaderBytes returns the length of the header of a frame that has n bytes with it.
func FrameHeaderBytes(n int) int {
	switch {
	case n <= 2+maxLen7:
		return 2
	case n <= 4+maxLen16:
		return 4
	}
	return MaxFrameHeaderBytes
}

// FramePayload returns the payload of a whole frame, aliasing it.
func FramePayload(frame []byte) []byte { return frame[FrameHeaderBytes(len(frame)):] }

// Compressor makes the payload of a binary frame: Append appends src, compressed, to dst.
// *dict.Encoder is one.
type Compressor interface {
	Append(dst, src []byte) []byte
}

// usualHeaderBytes is the length of the header that nearly every event needs. So much is left for
// it; if it is another, the payload is moved.
const usualHeaderBytes = 4

// AppendCompressed appends a binary frame whose payload is src, compressed.
func AppendCompressed(dst []byte, enc Compressor, src []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, usualHeaderBytes)...)
	return finishFrame(enc.Append(dst, src), start, OpcodeBinary)
}

// finishFrame puts the header at start, where usualHeaderBytes precede the payload.
func finishFrame(dst []byte, start int, opcode byte) []byte {
	n := len(dst) - start - usualHeaderBytes
	var head [MaxFrameHeaderBytes]byte
	header := AppendFrameHeader(head[:0], opcode, n)
	switch {
	case len(header) < usualHeaderBytes:
		copy(dst[start+len(header):], dst[start+usualHeaderBytes:])
		dst = dst[:start+len(header)+n]
	case len(header) > usualHeaderBytes:
		dst = append(dst, make([]byte, len(header)-usualHeaderBytes)...)
		copy(dst[start+len(header):], dst[start+usualHeaderBytes:start+usualHeaderBytes+n])
	}
	copy(dst[start:], header)
	return dst
}
