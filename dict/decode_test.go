package dict

import (
	"bytes"
	"errors"
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
	const limit = 1000
	dec, err := NewDecoder(limit, BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	own, err := NewEncoder(BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	unsized := func(n int) []byte { return streamed(t, bytes.Repeat([]byte{'x'}, n)) }
	stored := func(n int) []byte { return appendStored(nil, make([]byte, n), 0) }
	event := own.Append(nil, []byte(testEvent))
	for _, tc := range []struct {
		name  string
		frame []byte
		want  error
	}{
		{"at the limit", own.Append(nil, make([]byte, limit)), nil},
		{"over the limit", own.Append(nil, make([]byte, limit+1)), errTooLarge},
		{"stored at the limit", stored(limit), nil},
		{"stored over the limit", stored(limit + 1), errTooLarge},
		{"without size, at the limit", unsized(limit), nil},
		{"without size, over the limit", unsized(limit + 1), errTooLarge},
		{"without size, a bomb", unsized(100 << 20), errTooLarge},
		{"another dictionary", appendStored(nil, []byte("x"), BuiltInID+1), errUnknownDictionary},
		{"no dictionary", appendStored(nil, []byte("x"), 0), nil},
		{"nothing", nil, ErrCorrupt},
		{"text", []byte(testEvent), ErrCorrupt},
		{"cut off", event[:len(event)-1], ErrCorrupt},
		{"header only", event[:8], ErrCorrupt},
		{"two frames", slices.Concat(event, event), ErrCorrupt},
		{"trailing byte", append(slices.Clone(event), 0), ErrCorrupt},
		{"skippable", append([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0}, "skip"...), ErrCorrupt},
		{"states more than its blocks hold", []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 200, 1, 0, 0}, ErrCorrupt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := dec.Append([]byte("before"), tc.frame)
			if !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if !bytes.HasPrefix(got, []byte("before")) || err != nil && len(got) != len("before") {
				t.Errorf("%d bytes, which are not what was there before", len(got))
			}
			if len(got) > len("before")+limit {
				t.Errorf("%d bytes, over the limit", len(got))
			}
		})
	}
}

// streamed returns a frame that does not state its size, and has a checksum.
func streamed(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := range slices.Chunk(content, 500) { // more than one write, so that no size is known
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
		if len(content) < 10_000 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
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
		for _, library := range []string{"libzstd", "klauspost"} {
			path := filepath.Join("testdata", "golden", strconv.Itoa(int(d.ID()))+"-"+library+".zst")
			if os.Getenv("MILLRACE_UPDATE_GOLDEN") != "" {
				writeGolden(t, path, library, d)
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

// writeGolden writes a golden frame unless there is one.
func writeGolden(t *testing.T, path, library string, d *Dictionary) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	i := slices.IndexFunc(Methods(), func(m Method) bool { return strings.HasPrefix(m.String(), library) })
	if i < 0 {
		t.Fatalf("this build has no %s", library)
	}
	e, err := Methods()[i].NewEncoder(d)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := os.WriteFile(path, e.Append(nil, []byte(testEvent)), 0o644); err != nil {
		t.Fatal(err)
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

// TestInspectFrame: inspectFrame reports a frame's dictionary and size before anything is decoded,
// and before memory is allocated for it.
func TestInspectFrame(t *testing.T) {
	const header = "\x28\xb5\x2f\xfd"
	for _, tc := range []struct {
		name  string
		frame string
		want  frameInfo
		err   string
	}{
		{"empty", header + "\x20\x00" + "\x01\x00\x00", frameInfo{sized: true}, ""},
		{"raw block", header + "\x20\x02" + "\x11\x00\x00" + "ab", frameInfo{sized: true, maxBytes: 2}, ""},
		{"RLE block", header + "\x20\x09" + "\x4b\x00\x00" + "a", frameInfo{sized: true, maxBytes: 9}, ""},
		{"dictionary", header + "\x22\x39\xc7\x00" + "\x01\x00\x00", frameInfo{id: BuiltInID, sized: true}, ""},
		{"unsized", header + "\x00\x38" + "\x4b\x00\x00" + "a", frameInfo{maxBytes: 9}, ""},
		{"unsized, two blocks", header + "\x00\x38" + "\x10\x00\x00" + "ab" + "\x15\x00\x00" + "ab", frameInfo{maxBytes: 2 + maxBlockBytes}, ""},
		{"checksum", header + "\x24\x00" + "\x01\x00\x00" + "1234", frameInfo{sized: true}, ""},
		{"checksum cut off", header + "\x24\x00" + "\x01\x00\x00" + "123", frameInfo{}, "checksum"},
		{"states too much", header + "\x20\x03" + "\x11\x00\x00" + "ab", frameInfo{}, "cannot hold the 3 bytes"},
		{"reserved block", header + "\x20\x00" + "\x07\x00\x00", frameInfo{}, "a block has the reserved type"},
		{"block cut off", header + "\x20\x02" + "\x11\x00\x00" + "a", frameInfo{}, "cut off in a block"},
		{"no last block", header + "\x20\x02" + "\x10\x00\x00" + "ab", frameInfo{}, "cut off in a block header"},
		{"one byte follows", header + "\x20\x00" + "\x01\x00\x00" + "x", frameInfo{}, "1 bytes follow"},
	} {
		got, err := inspectFrame([]byte(tc.frame))
		if tc.err == "" && (err != nil || got != tc.want) {
			t.Errorf("%s: %+v, %v; want %+v", tc.name, got, err, tc.want)
		}
		if tc.err != "" && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: error %v, want ErrCorrupt with %q", tc.name, err, tc.err)
		}
	}
}
