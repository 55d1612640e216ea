package verify

import (
	"bytes"
	"runtime"
	"testing"

	"millrace/consume/relaysim/cbor"
	"millrace/translate"
)

// TestMemoryIsBounded: neither empty ops nor keys that have nearly all in common with the one
// before make a Verifier take many times the frame's bytes, nor keep them.
func TestMemoryIsBounded(t *testing.T) {
	g := newGenerator(1, testKey(1))
	value := g.record().id
	entries := []any{map[string]any{"p": 0, "k": bytes.Repeat([]byte("x"), 1001), "v": value, "t": nil}}
	for i := range 33_000 {
		entries = append(entries, map[string]any{"p": 1000, "k": []byte{'a' + byte(i%2)}, "v": value, "t": nil})
	}
	root := blockOf(cbor.Append(nil, map[string]any{"e": entries, "l": nil}))
	const manyOps = 5_000_000
	c := g.change("com.example.a/1")
	c.message.Ops = nil
	message := g.frame(c)
	none := []byte("cops\x80")
	if bytes.Count(message, none) != 1 {
		t.Fatal("no place for ops")
	}
	ops := append(cbor.AppendHead([]byte("cops"), cbor.Array, manyOps), bytes.Repeat([]byte{0xa0}, manyOps)...)
	for _, tc := range []struct {
		name    string
		message []byte
		want    Reason
	}{
		{"ops", bytes.Replace(message, none, ops, 1), InvalidOp},
		{"keys", g.ofRoot(root), InvalidTree},
	} {
		if _, _, ok := translate.ReadHeader(tc.message); !ok {
			t.Fatalf("%s: a frame of %d bytes is too large", tc.name, len(tc.message))
		}
		var v Verifier
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v.Open(tc.message)
		verdict := v.Check(nil, corpusNow())
		runtime.ReadMemStats(&after)
		// What grows step by step is allocated several times.
		if n := after.TotalAlloc - before.TotalAlloc; verdict.Reason != tc.want || n > 6*maxTreeBytes {
			t.Errorf("%s: %v after %d bytes for a frame of %d", tc.name, verdict.Reason, n, len(tc.message))
		}
		if n := max(cap(v.tree.items), cap(v.tree.entries), cap(v.frame.ops)); n > maxKept || cap(v.tree.keys) > 64*maxKept || v.frame.did != nil {
			t.Errorf("%s: a Verifier keeps the frame of %q, and room for %d", tc.name, v.frame.did, n)
		}
	}
}
