package intern

import (
	"context"
	"testing"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// flaky is a store whose nth read from now fails.
type flaky struct {
	kv.Store
	reads int
}

type flakyTxn struct {
	kv.Txn
	s *flaky
}

func (s *flaky) Begin(c context.Context) (kv.Txn, error) {
	txn, err := s.Store.Begin(c)
	return &flakyTxn{txn, s}, err
}

func (t *flakyTxn) Get(c context.Context, keys, values [][]byte) error {
	if t.s.reads--; t.s.reads == 0 {
		return kv.ErrUnavailable
	}
	return t.Txn.Get(c, keys, values)
}

// TestFailureBetweenSequences has each read of a transaction that needs two sequences fail in turn:
// nothing of the attempt may be left over.
func TestFailureBetweenSequences(t *testing.T) {
	for n := range 8 {
		for seed := range uint64(6) {
			sim := simkv.New(simkv.Config{})
			store := &flaky{Store: sim}
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
			store.reads = n
			resolve(t, in, "did:web:1.com", "did:web:2.com", "did:web:3.com", "did:web:4.com", "did:web:5.com")
			checkStore(t, sim, nil)
		}
	}
}
