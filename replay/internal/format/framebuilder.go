package format

import (
	"strconv"

	"millrace/translate"
)

// FrameBuilder makes the frames of a variant that is not stored out of a block's plain ones.
type FrameBuilder struct {
	Ends []uint32 // of the plain frames
	// of events that are to carry their cursor and UIDs; nil: they are not
	Extended   *Index
	Stream     translate.Stream // of those cursors
	Compressor Compressor       // nil: uncompressed

	scratch []byte
}

// ExtraBytes is about what extended adds to an event.
const ExtraBytes = 128

// Append appends the frame of event i, whose plain frame is given.
func (b *FrameBuilder) Append(dst []byte, i int, plain []byte) []byte {
	payload := FramePayload(plain)
	if b.Extended != nil {
		b.scratch = appendExtended(b.scratch[:0], b.Extended, i, payload, b.Stream)
		payload = b.scratch
	}
	if b.Compressor != nil {
		return AppendCompressed(dst, b.Compressor, payload)
	}
	dst = AppendFrameHeader(dst, OpcodeText, len(payload))
	return append(dst, payload...)
}

// All makes the frames of all events, and says where they end.
func (b *FrameBuilder) All(plain []byte) (data []byte, ends []uint32) {
	room := len(plain) + ExtraBytes*len(b.Ends)
	if b.Compressor != nil {
		room /= 2
	}
	data, ends = make([]byte, 0, room), make([]uint32, len(b.Ends))
	for i, end := range b.Ends {
		data = b.Append(data, i, plain[FrameStart(b.Ends, i):end])
		ends[i] = uint32(len(data))
	}
	if cap(data) > len(data)+len(data)/8 {
		data = append(make([]byte, 0, len(data)), data...)
	}
	return data, ends
}

// appendExtended appends event i's JSON with its cursor and UIDs added at the end of the object.
func appendExtended(dst []byte, x *Index, i int, payload []byte, stream translate.Stream) []byte {
	dst = append(dst, payload[:len(payload)-1]...)
	dst = append(dst, `,"cursor":"`...)
	dst = translate.AppendPosition(dst, translate.Position{Stream: stream, Seq: x.Seq[i], Op: x.Op[i]})
	dst = append(dst, '"')
	did, uri := x.UIDs(i)
	if did != 0 || uri != 0 {
		dst = append(dst, `,"uids":{`...)
		if did != 0 {
			dst = append(dst, `"did":"`...)
			dst = strconv.AppendUint(dst, did, 10)
			dst = append(dst, '"')
		}
		if uri != 0 {
			if did != 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `"uri":"`...)
			dst = strconv.AppendUint(dst, uri, 10)
			dst = append(dst, '"')
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}
