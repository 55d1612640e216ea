package dict

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestDecoderLimits(t *testing.T) {
	const limit, window = 300_000, 128 << 10
	dec, err := NewDecoder(len("before")+limit, BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	own, err := NewEncoder(BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	unsized := func(n, window int) []byte { return streamed(t, bytes.Repeat([]byte{'x'}, n), window) }
	stored := func(n int) []byte { return appendStored(nil, make([]byte, n), 0) }
	event := own.Append(nil, []byte(testEvent))
	for _, tc := range []struct {
		name  string
		frame []byte
		want  error
	}{
		{"at the limit", own.Append(nil, make([]byte, limit)), nil},
		{"over the limit", own.Append(nil, make([]byte, limit+1)), zstd.ErrDecoderSizeExceeded},
		{"stored at the limit", stored(limit), nil},
		{"stored over the limit", stored(limit + 1), zstd.ErrDecoderSizeExceeded},
		{"without size, at the limit", unsized(limit, window), nil},
		{"without size, over the limit", unsized(limit+7, window), zstd.ErrDecoderSizeExceeded},
		{"without size, a bomb", unsized(100<<20, window), zstd.ErrDecoderSizeExceeded},
		{"with a window over the limit", unsized(limit, 4<<20), zstd.ErrWindowSizeExceeded},
		{"another dictionary", appendStored(nil, []byte("x"), BuiltInID+1), zstd.ErrUnknownDictionary},
		{"no dictionary", appendStored(nil, []byte("x"), 0), nil},
		{"text", []byte(testEvent), zstd.ErrMagicMismatch},
		{"cut off", event[:len(event)-1], io.ErrUnexpectedEOF},
		{"header only", event[:8], io.ErrUnexpectedEOF},
		{"trailing byte", append(slices.Clone(event), 0), io.ErrUnexpectedEOF},
		{"states more than its blocks hold", []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 200, 1, 0, 0}, zstd.ErrFrameSizeMismatch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := dec.Append([]byte("before"), tc.frame)
			if !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if !bytes.HasPrefix(got, []byte("before")) || err != nil && len(got) != len("before") {
				t.Errorf("%d bytes, which are not what was there before", len(got))
			}
		})
	}
}

// streamed returns a frame that does not state its size, and has a checksum.
func streamed(t *testing.T, content []byte, window int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	for chunk := range slices.Chunk(content, 1<<16) { // more than one write, so that no size is known
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var h zstd.Header
	if err := h.Decode(b.Bytes()); err != nil || h.HasFCS {
		t.Fatalf("header of the streamed frame: size known %t, error %v", h.HasFCS, err)
	}
	return b.Bytes()
}

func TestNewDecoderRefuses(t *testing.T) {
	if _, err := NewDecoder(0); err == nil {
		t.Error("a limit of 0 is taken")
	}
}

// TestGolden holds what clients and logs out there rely on: frames that were once made with a
// shipped dictionary decode, for ever. Run with MILLRACE_UPDATE_GOLDEN=1 to make those of a new
// dictionary.
func TestGolden(t *testing.T) {
	for _, d := range Shipped() {
		dec, err := NewDecoder(1<<20, d)
		if err != nil {
			t.Fatal(err)
		}
		defer dec.Close()
		encoders := encoders(t, d)
		for library, e := range map[string]*Encoder{"libzstd": encoders["own"], "klauspost": encoders["klauspost"]} {
			path := filepath.Join("testdata", "golden", strconv.Itoa(int(d.ID()))+"-"+library+".zst")
			if _, err := os.Stat(path); Libzstd && err != nil && os.Getenv("MILLRACE_UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(path, e.Append(nil, []byte(testEvent)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			frame, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := dec.Append(nil, frame); err != nil || string(got) != testEvent {
				t.Errorf("%s: %q, error %v", path, got, err)
			}
			if len(frame) > len(testEvent)*6/10 {
				t.Errorf("%s: %d bytes of %d: it does not use the dictionary", path, len(frame), len(testEvent))
			}
		}
	}
}

// TestZstdCommand has the reference decoder take the frames of every encoder.
func TestZstdCommand(t *testing.T) {
	command, err := exec.LookPath("zstd")
	if err != nil {
		t.Skip("there is no zstd command")
	}
	dir := t.TempDir()
	d := BuiltIn()
	dictionary := filepath.Join(dir, "d.zdict")
	if err := os.WriteFile(dictionary, d.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, e := range encoders(t, d) {
		var want []byte
		var frames []byte
		for _, in := range []string{"", "x", testEvent, strings.Repeat(testEvent, 3000)} {
			frames = e.Append(frames, []byte(in))
			want = append(want, in...)
		}
		cmd := exec.Command(command, "-d", "-c", "-D", dictionary)
		cmd.Stdin = bytes.NewReader(frames)
		if got, err := cmd.Output(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: zstd -d gives %d bytes of %d, error %v", name, len(got), len(want), err)
		}
	}
}
