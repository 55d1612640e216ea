package dict

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestNewFileReader: what a file is compressed with does not matter, as long as it fits into
// memory.
func TestNewFileReader(t *testing.T) {
	plain := bytes.Repeat([]byte("plain bytes, or not\n"), 200_000)
	var gz, zst bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, err := zstd.NewWriter(&zst, zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := g.Write(plain)
	_, err2 := z.Write(plain)
	if err := errors.Join(err1, err2, g.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	read := func(in []byte, window uint64) ([]byte, error) {
		r, err := NewFileReader(bytes.NewReader(in), window)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	for name, in := range map[string][]byte{"plain": plain, "gzip": gz.Bytes(), "zstd": zst.Bytes(), "short": plain[:3], "empty": nil} {
		want := plain
		if len(in) < 4 {
			want = in
		}
		if got, err := read(in, 1<<20); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d; %v", name, len(got), len(want), err)
		}
	}
	for name, in := range map[string][]byte{"gzip": gz.Bytes()[:8], "zstd": zst.Bytes()[:zst.Len()/2]} {
		if got, err := read(in, 1<<20); err == nil {
			t.Errorf("%s that is cut: %d bytes", name, len(got))
		}
	}
	if _, err := read(zst.Bytes(), 1<<19); !errors.Is(err, zstd.ErrWindowSizeExceeded) {
		t.Errorf("a larger window: %v", err)
	}
}
