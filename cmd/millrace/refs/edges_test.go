package refs

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"millrace/intern"
	"millrace/intern/kv/simkv"
	"millrace/replay/graph"
)

// edgeReader has a UID store of its own.
func edgeReader(t *testing.T) (*EdgeReader, *intern.Interner) {
	t.Helper()
	in, err := intern.Open(t.Context(), intern.Config{Store: simkv.New(simkv.Config{}), Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return &EdgeReader{UIDs: in}, in
}

// readEdges returns the edges of a file as pairs of DIDs, sorted.
func readEdges(t *testing.T, file []byte) (pairs [][2]string, err error) {
	t.Helper()
	r, in := edgeReader(t)
	var uids []uint64
	err = r.Read(t.Context(), bytes.NewReader(file), func(edges []graph.Edge) error {
		for _, e := range edges {
			uids = append(uids, e.Actor, e.Subject)
		}
		return nil
	})
	if err == nil && r.Lines.Load() != uint64(len(uids)/2) {
		t.Errorf("%d lines with %d edges", r.Lines.Load(), len(uids)/2)
	}
	for pair := range slices.Chunk(uids, 2) {
		names := make([]string, 2)
		if err := in.LookupUIDs(t.Context(), pair, names); err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, [2]string{names[0], names[1]})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1])) })
	return pairs, err
}

// TestEdges reads edges in each form, and names the line that is wrong.
func TestEdges(t *testing.T) {
	const a, b, c = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb", "did:web:example.com"
	many := strings.Repeat(a+","+b+"\n", 2*edgeBlock/(len(a)+len(b)+2))
	lines := strings.Count(many, "\n")
	for name, tc := range map[string]struct {
		file  string
		edges int // in the order a,b a,c b,a b,c, or as many
		wrong string
	}{
		"nothing":                {},
		"lines":                  {file: a + "," + b + "\n" + a + "," + c + "\n" + b + "," + a + "\n", edges: 3},
		"with names of columns":  {file: "actor,subject\n" + a + "," + b + "\n", edges: 1},
		"as Windows writes":      {file: "actor,subject\r\n" + a + "," + b + "\r\n" + a + "," + c + "\r\n", edges: 2},
		"in quotation marks":     {file: `"` + a + `","` + b + `"` + "\n", edges: 1},
		"without a last newline": {file: a + "," + b, edges: 1},
		"several blocks":         {file: many, edges: lines},
		"one field":              {file: a + "," + b + "\n" + a + "\n", wrong: "line 2:"},
		"empty lines":            {file: "\n" + a + "," + b + "\r\n\r\n" + a + "," + c + "\n\n", edges: 2},
		"wrong after empty ones": {file: a + "," + b + "\n\n\n" + a + "," + c + "\n" + a + ",x\n", wrong: `line 5: "x" is no DID`},
		"quoted names, a mark":   {file: "\ufeff\"actor\",\"subject\"\r\n" + a + "," + b + "\r\n", edges: 1},
		"a mark alone":           {file: "\ufeff" + a + "," + b + "\n", edges: 1},
		"three fields":           {file: a + "," + b + "," + c + "\n", wrong: "line 1:"},
		"an actor that is none":  {file: a + "," + b + "\n" + a + "," + c + "\n" + "at://x," + b + "\n", wrong: `line 3: "at://x" is no DID`},
		"a subject that is none": {file: "actor,subject\n" + a + "," + b + "\n" + a + ",did:\n", wrong: `line 3: "did:" is no DID`},
		"names of columns later": {file: a + "," + b + "\nactor,subject\n", wrong: `line 2: "actor" is no DID`},
		"wrong in a later block": {file: many + a + ",x\n", wrong: fmt.Sprintf(`line %d: "x" is no DID`, lines+1)},
		"a long line":            {file: a + "," + b + "\n" + a + "," + strings.Repeat("x", maxEdgeLine) + "\n", wrong: "line 2: it is longer than 8192 bytes"},
		"longer than a block":    {file: a + "," + b + "\n" + a + "," + strings.Repeat("x", edgeBlock) + "\n", wrong: "line 2: it is longer than 8192 bytes"},
	} {
		for form, encode := range map[string]func(string) []byte{
			"plain": func(s string) []byte { return []byte(s) },
			"gzip": func(s string) []byte {
				var b bytes.Buffer
				w := gzip.NewWriter(&b)
				_, err := w.Write([]byte(s))
				if err = errors.Join(err, w.Close()); err != nil {
					t.Fatal(err)
				}
				return b.Bytes()
			},
			"zstd": func(s string) []byte {
				w, err := zstd.NewWriter(nil)
				if err != nil {
					t.Fatal(err)
				}
				return w.EncodeAll([]byte(s), nil)
			},
		} {
			pairs, err := readEdges(t, encode(tc.file))
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("%s, %s: %v, want %q", name, form, err, tc.wrong)
				}
				continue
			}
			want := [][2]string{{a, b}, {a, c}, {b, a}}[:min(3, tc.edges)]
			if tc.edges > 3 {
				want = slices.Repeat(want[:1], tc.edges)
			}
			if err != nil || !slices.Equal(pairs, want) {
				t.Errorf("%s, %s: %v, %d edges: %.3q", name, form, err, len(pairs), pairs)
			}
		}
	}
}

// TestEdgesCut: a compressed file that is cut short is an error, as if a line were wrong.
func TestEdgesCut(t *testing.T) {
	var file bytes.Buffer
	w := gzip.NewWriter(&file)
	_, err := io.WriteString(w, strings.Repeat("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa,did:web:example.com\n", 1000))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{5, file.Len() - 20} { // the header of gzip, the lines
		if _, err := readEdges(t, file.Bytes()[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("of %d bytes: the error is %v", n, err)
		}
	}
}

// TestEdgesEnd: Read ends with the error of the function that takes the edges, or with its context.
func TestEdgesEnd(t *testing.T) {
	r, _ := edgeReader(t)
	file := strings.Repeat("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa,did:web:example.com\n", 100_000)
	failed := errors.New("failed")
	if err := r.Read(t.Context(), strings.NewReader(file), func([]graph.Edge) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("the error is lost: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	err := r.Read(ctx, strings.NewReader(file), func([]graph.Edge) error { stop(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("of a context that ended: %v", err)
	}
}
