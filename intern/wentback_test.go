package intern

import (
	"errors"
	"testing"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// setCounter makes n the last UID that a sequence has given out, as in an older copy of the store.
func setCounter(t *testing.T, store kv.Store, sequence uint32, n uint64) {
	t.Helper()
	err := kv.Run(ctx, store, func(txn kv.Txn) error { txn.Set(appendSequenceKey(nil, sequence), appendNumber(n)); return nil })
	if err != nil {
		t.Fatal(err)
	}
}

// TestOlderStore has an older copy of a store come back under an Interner: it gives no UID twice,
// not after an outage either, and says what to do.
func TestOlderStore(t *testing.T) {
	for name, outage := range map[string]bool{"at once": false, "after an outage": true} {
		t.Run(name, func(t *testing.T) {
			store := simkv.New(simkv.Config{})
			in := openOn(t, store, Config{Workers: 1})
			sequence, n := in.codec.split(resolve(t, in, "did:web:a.co", "did:web:b.co")[1])
			setCounter(t, store, sequence, n-1)
			if outage {
				failed := false
				in.store = &hookedStore{Store: store, beforeBegin: func() error {
					if failed {
						return nil
					}
					failed = true
					return kv.ErrUnavailable
				}}
			}
			uids := make([]uint64, 1)
			if err := resolveStrings(ctx, in, []string{"did:web:c.co"}, uids); !errors.Is(err, ErrWentBack) {
				t.Errorf("UID %d of sequence %d, %v", uids[0]&in.codec.maxN(), sequence, err)
			}
		})
	}
}

// TestCheckGiven has an Interner refuse UIDs that its store has yet to give, until they are
// skipped.
func TestCheckGiven(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{Workers: 1})
	uids := resolve(t, in, "did:web:a.co", "did:web:b.co")
	sequence, n := in.codec.split(uids[1])
	check := func(uids ...uint64) error { return in.CheckGiven(ctx, uids) }
	if err := errors.Join(check(), check(0), check(uids...)); err != nil {
		t.Error(err)
	}
	next, unused := in.codec.join(sequence, n+1), in.codec.join(sequence^1, 1)
	for _, uid := range []uint64{next, unused} {
		if err := check(uids[0], uid, uids[1]); !errors.Is(err, ErrWentBack) {
			t.Errorf("UID %x: %v", uid, err)
		}
	}
	if _, err := SkipAhead(ctx, store, 1); err != nil {
		t.Fatal(err)
	}
	if err := check(next, unused); err != nil {
		t.Errorf("skipped: %v", err)
	}
}

// TestNoHeader has Open write nothing into what is no UID store.
func TestNoHeader(t *testing.T) {
	store := simkv.New(simkv.Config{})
	setCounter(t, store, 1, 1)
	for range 2 {
		if _, err := Open(ctx, Config{Store: store}); !errors.Is(err, errNoHeader) {
			t.Errorf("%v", err)
		}
	}
}
