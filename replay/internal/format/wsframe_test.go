package format

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// copyCompressor compresses nothing.
type copyCompressor struct{}

func (copyCompressor) Append(dst, src []byte) []byte { return append(dst, src...) }

// readFrame takes a frame apart as a websocket client does.
func readFrame(t *testing.T, frame []byte) (opcode byte, payload []byte) {
	t.Helper()
	n, header := int(frame[1]), 2
	switch n {
	case 126:
		n, header = int(binary.BigEndian.Uint16(frame[2:])), 4
		if n < 126 {
			t.Fatalf("length %d in two bytes", n)
		}
	case 127:
		n, header = int(binary.BigEndian.Uint64(frame[2:])), 10
		if n < 1<<16 {
			t.Fatalf("length %d in eight bytes", n)
		}
	}
	if len(frame) != header+n {
		t.Fatalf("a frame of %d bytes says that it has %d", len(frame), header+n)
	}
	return frame[0], frame[header:]
}

func TestFrames(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 124, 125, 126, 127, 65534, 65535, 65536, 70000} {
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = byte(rng.Uint32())
		}
		before := []byte("before")
		for opcode, frame := range map[byte][]byte{
			OpcodeText:   append(AppendFrameHeader(before, OpcodeText, n), payload...),
			OpcodeBinary: AppendCompressed(before, copyCompressor{}, payload),
		} {
			frame, ok := bytes.CutPrefix(frame, before)
			if !ok {
				t.Fatal("the prefix is gone")
			}
			if got, body := readFrame(t, frame); got != opcode || !bytes.Equal(body, payload) {
				t.Errorf("payload of %d bytes does not come back", n)
			}
			if !bytes.Equal(FramePayload(frame), payload) {
				t.Errorf("FramePayload of a frame of %d bytes", n)
			}
		}
	}
}
