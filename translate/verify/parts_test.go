package verify

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"millrace/consume/relaysim/cbor"
	"millrace/translate"
)

// TestHeads: the head of an item is as short as DAG-CBOR demands.
func TestHeads(t *testing.T) {
	for n, want := range map[int]string{0: "40", 23: "57", 24: "5818", 255: "58ff", 256: "590100", 1<<16 - 1: "59ffff", 1 << 16: "5a00010000", 1<<31 - 1: "5a7fffffff"} {
		if got := hex.EncodeToString(appendHead([]byte("x"), majorBytes, n)); got != "78"+want {
			t.Errorf("%d bytes: %s, want %s", n, got[2:], want)
		}
	}
}

// TestParseTID reads TIDs as indigo does, and nothing else.
func TestParseTID(t *testing.T) {
	for _, s := range []string{"2222222222222", "3jzfcijpj2z2a", "jzzzzzzzzzzzz", "a7a7a7a7a7a7a"} {
		if n, ok := translate.ParseTID([]byte(s)); !ok || n != syntax.TID(s).Integer() {
			t.Errorf("%s is %d, %t", s, n, ok)
		}
	}
	for _, bad := range []string{"", "222222222222", "22222222222222", "k222222222222", "2222222222221", "2222222222228", "222222222222A", "222222222222`", "222222222222{"} {
		if n, ok := translate.ParseTID([]byte(bad)); ok {
			t.Errorf("%q is %d", bad, n)
		}
	}
}

// TestOps: what each action needs, and what it may not have.
func TestOps(t *testing.T) {
	one, two := []byte("one"), []byte("two")
	for _, tc := range []struct {
		action      string
		path        string
		value, prev []byte
		want        bool
	}{
		{"create", "a.b.c/d", one, nil, true}, {"create", "a.b.c/d", one, two, false}, {"create", "a.b.c/d", nil, nil, false},
		{"update", "a.b.c/d", one, two, true}, {"update", "a.b.c/d", one, nil, true}, {"update", "a.b.c/d", one, one, false}, {"update", "a.b.c/d", nil, nil, false}, {"update", "a.b.c/d", nil, two, false},
		{"delete", "a.b.c/d", nil, two, true}, {"delete", "a.b.c/d", nil, nil, true}, {"delete", "a.b.c/d", one, nil, false},
		{"move", "a.b.c/d", one, nil, false}, {"", "a.b.c/d", one, nil, false}, {"create", "a.b.c", one, nil, false},
	} {
		o := op{action: translate.ParseOperation([]byte(tc.action)), path: []byte(tc.path), value: tc.value, prev: tc.prev}
		if got := o.valid(); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
	if got := Reason(200).String(); got != "reason(200)" {
		t.Errorf("an unknown reason is %s", got)
	}
}

// TestFrameMembers: a member that is given twice, or is of another type, makes no frame, and too
// many ops are none.
func TestFrameMembers(t *testing.T) {
	read := func(kind string, body cbor.Map) Reason {
		var f frame
		return f.read(cbor.Append(cbor.Append(nil, cbor.Map{{Key: "op", Value: 1}, {Key: "t", Value: kind}}), body))
	}
	op := cbor.Map{{Key: "action", Value: "delete"}, {Key: "path", Value: "a.b.c/d"}, {Key: "cid", Value: nil}, {Key: "more", Value: "x"}}
	commit := cbor.Map{{Key: "repo", Value: "did:web:a"}, {Key: "rev", Value: "2222222222222"}, {Key: "blocks", Value: []byte("x")}, {Key: "ops", Value: []any{op}},
		{Key: "prevData", Value: nil}, {Key: "tooBig", Value: false}}
	sync := append(cbor.Map{{Key: "did", Value: "did:web:a"}}, commit[1:3]...)
	for kind, whole := range map[string]cbor.Map{"#commit": commit, "#sync": sync} {
		if got := read(kind, append(whole[:len(whole):len(whole)], cbor.Map{{Key: "more", Value: []any{1}}}...)); got != Valid {
			t.Fatalf("%s: %v", kind, got)
		}
		for i, m := range whole {
			if got := read(kind, append(whole[:len(whole):len(whole)], m)); got != InvalidFrame {
				t.Errorf("%s with %s twice: %v", kind, m.Key, got)
			}
			other := append(cbor.Map{}, whole...)
			if other[i].Value = 7; read(kind, other) != InvalidFrame {
				t.Errorf("%s with a number for %s: %v", kind, m.Key, read(kind, other))
			}
			if without := append(whole[:i:i], whole[i+1:]...); (read(kind, without) == InvalidFrame) != (i < 2) {
				t.Errorf("%s without %s: %v", kind, m.Key, read(kind, without))
			}
		}
	}
	// What a #commit alone has means nothing in a #sync.
	if got := read("#sync", append(sync[:len(sync):len(sync)], cbor.Map{{Key: "tooBig", Value: true}, {Key: "ops", Value: 7}}...)); got != Valid {
		t.Errorf("a #sync with members of a #commit: %v", got)
	}
	var many []any
	for i := range translate.MaxOps + 1 {
		many = append(many, cbor.Map{{Key: "action", Value: "delete"}, {Key: "path", Value: fmt.Sprint("a.b.c/", i)}, {Key: "cid", Value: nil}})
	}
	for n, want := range map[int]Reason{translate.MaxOps: Valid, translate.MaxOps + 1: InvalidOp} {
		other := append(cbor.Map{}, commit...)
		if other[3].Value = many[:n]; read("#commit", other) != want {
			t.Errorf("%d ops: %v", n, read("#commit", other))
		}
	}
	for _, bad := range [][]any{{op, op}, {cbor.Map{{Key: "path", Value: "a.b.c/d"}}}} {
		other := append(cbor.Map{}, commit...)
		if other[3].Value = bad; read("#commit", other) != InvalidOp {
			t.Errorf("ops %v: %v", bad, read("#commit", other))
		}
	}
}
