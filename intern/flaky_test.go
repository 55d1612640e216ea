package intern

import (
	"testing"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// TestFailureBetweenSequences has each read of a transaction that needs two sequences fail in turn:
// nothing of the attempt may be left over.
func TestFailureBetweenSequences(t *testing.T) {
	for n := range 8 {
		for seed := range uint64(6) {
			sim := simkv.New(simkv.Config{})
			store := &hookedStore{Store: sim}
			in := openOn(t, store, Config{Workers: 1, PrefixBits: 2, Seed: seed + 1})
			err := kv.Run(ctx, sim, func(txn kv.Txn) error {
				for s := range uint32(4) {
					txn.Set(appendSequenceKey(nil, s), appendNumber(in.codec.maxN()-3))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			reads := n
			store.beforeGet = func() error {
				if reads--; reads == 0 {
					return kv.ErrUnavailable
				}
				return nil
			}
			resolve(t, in, "did:web:1.com", "did:web:2.com", "did:web:3.com", "did:web:4.com", "did:web:5.com")
			checkStore(t, sim, nil)
		}
	}
}
