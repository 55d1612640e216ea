package pebblekv

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv"
)

// TestLastOfNothing: a range without keys has no last one, whatever was in the caller's slice.
func TestLastOfNothing(t *testing.T) {
	s := open(t, vfs.NewMem())
	if err := set(t, s, "b"); err != nil {
		t.Fatal(err)
	}
	ranges := []kv.Range{{Begin: []byte("c"), End: []byte("d")}, {Begin: []byte("a"), End: []byte("b")}, {Begin: []byte("b"), End: []byte("c")}}
	pairs := make([]kv.Pair, len(ranges))
	for i := range pairs {
		pairs[i] = kv.Pair{Key: []byte("old"), Value: []byte("old")}
	}
	if err := kv.Once(t.Context(), s, func(txn kv.Txn) error { return txn.Last(t.Context(), ranges, pairs) }); err != nil {
		t.Fatal(err)
	}
	if pairs[0].Key != nil || pairs[1].Key != nil || string(pairs[2].Key) != "b" || string(pairs[2].Value) != "value" {
		t.Errorf("the last pairs: %q", pairs)
	}
}
