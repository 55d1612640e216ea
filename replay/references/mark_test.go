package references

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv/pebbleguard"
)

// TestLostFlush cuts off the end of the manifest. Pebble takes it for the edit of a flush that a
// crash has ended. What Flush has made durable is not missed in silence.
func TestLostFlush(t *testing.T) {
	for name, tc := range map[string]struct {
		change Change // not in the log
		want   []uint64
	}{
		"import": {Change{Operation: Import, Account: 1, Rev: 5, Last: 5}, nil},
		"purge":  {Change{Operation: Purge, Account: 1, Rev: 5}, nil},
		"create": {like(1, 11, 2, 100), []uint64{10, 11}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			s := openTest(t, Config{FS: fs})
			do(t, s, 1, like(1, 10, 1, 100))
			_, err := s.Flush()
			b := &Batch{Position: s.Position(), Changes: []Change{tc.change}}
			if err = errors.Join(err, s.Hydrate(t.Context(), b), s.Apply(b), s.Close()); err != nil {
				t.Fatal(err)
			}
			manifest, text := readManifest(t, fs)
			lost := 0
			for cut := range len(text) {
				writeBytes(t, fs, manifest, text[:len(text)-cut])
				s, err := Open(Config{Dir: "refs", FS: fs, ReadOnly: true})
				if err != nil {
					if errors.Is(err, pebbleguard.ErrLost) {
						lost++
					}
					continue
				}
				if got := rows(t, s); !slices.Equal(got, tc.want) {
					t.Errorf("without the last %d bytes of the manifest: rows %v, want %v", cut, got, tc.want)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if lost == 0 {
				t.Error("wherever the manifest is cut off, nothing is lost")
			}
		})
	}
}

func readManifest(t *testing.T, fs vfs.FS) (name string, text []byte) {
	t.Helper()
	names, err := fs.List("refs")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, n := range names {
		if strings.HasPrefix(n, "MANIFEST-") {
			name = "refs/" + n
		}
	}
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err = io.ReadAll(f); err != nil {
		t.Fatal(err)
	}
	return name, text
}

func writeBytes(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
}
