package relaysim

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/klauspost/compress/zstd"
)

// maxCapturedFrame bounds a frame in a capture file: more than the protocol allows, so that such
// frames can be captured too.
const maxCapturedFrame = 16 << 20

// readCapture reads a capture file: [length, 4 bytes little-endian][frame] and so on, compressed
// with zstd if it begins with zstd's magic number.
func readCapture(name string) (frames [][]byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open capture: %w", err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if magic, _ := r.Peek(4); string(magic) == "\x28\xb5\x2f\xfd" {
		z, err := zstd.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("decompress capture: %w", err)
		}
		defer z.Close()
		r = bufio.NewReader(z)
	}
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			return frames, nil
		} else if err != nil {
			return nil, fmt.Errorf("read capture, frame %d: %w", len(frames), err)
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n > maxCapturedFrame {
			return nil, fmt.Errorf("read capture, frame %d: %d bytes, more than %d", len(frames), n, maxCapturedFrame)
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil, fmt.Errorf("read capture, frame %d: %w", len(frames), err)
		}
		frames = append(frames, frame)
	}
}

// captureTemplates makes templates of captured frames. Frames that cannot be taken apart can only
// be sent as they are. They are left out, and counted in the log, unless verbatim is set.
func captureTemplates(frames [][]byte, verbatim, withTruth bool, log *slog.Logger) []*template {
	templates := make([]*template, 0, len(frames))
	for _, frame := range frames {
		t, err := newTemplate(frame, withTruth)
		if err != nil {
			if !verbatim {
				continue
			}
			t = &template{}
		}
		if verbatim {
			t.raw = frame
		}
		templates = append(templates, t)
	}
	if left := len(frames) - len(templates); left > 0 {
		log.Warn("captured frames that cannot be renumbered are left out", "frames", left)
	}
	return templates
}
