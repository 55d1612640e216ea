package intern

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// smallStore takes transactions of a few writes only, and fails a commit. It notes the most bytes
// that a transaction has written.
type smallStore struct {
	kv.Store
	writes  int   // that a transaction may have
	over    error // of one that has more
	commits int   // that succeed before one that does not
	broken  error // of that one; nil: none fails
	most    atomic.Int64
}

type smallTxn struct {
	kv.Txn
	s      *smallStore
	writes int
	bytes  int64
}

func (s *smallStore) Begin(c context.Context) (kv.Txn, error) {
	txn, err := s.Store.Begin(c)
	return &smallTxn{Txn: txn, s: s}, err
}

func (t *smallTxn) Set(key, value []byte) {
	t.writes++
	t.bytes += int64(len(key) + len(value))
	t.s.most.Store(max(t.s.most.Load(), t.bytes))
	t.Txn.Set(key, value)
}

func (t *smallTxn) Commit(c context.Context) error {
	if t.writes > t.s.writes {
		return t.s.over
	}
	if t.s.commits--; t.s.broken != nil && t.s.commits == -1 {
		return t.s.broken
	}
	return t.Txn.Commit(c)
}

// TestSplit: what does not fit into one transaction goes into smaller ones. An error of one of them
// is that of the call, and later calls find none of its strings lost.
func TestSplit(t *testing.T) {
	broken := errors.New("broken")
	var names []string
	for i := range maxDirect + 6 {
		names = append(names, fmt.Sprintf("did:web:%d.example.com", i))
	}
	for name, over := range map[string]error{"too large": kv.ErrTooLarge, "too old": kv.ErrTooOld} {
		for commits := 0; ; commits++ {
			sim := simkv.New(simkv.Config{})
			store := &smallStore{Store: sim, writes: 1 << 30}
			in := openOn(t, store, Config{Workers: 1})
			store.writes, store.over, store.commits, store.broken = 20, over, commits, broken
			uids := make([]uint64, len(names))
			err := resolveStrings(ctx, in, names, uids)
			if err != nil && !errors.Is(err, broken) {
				t.Fatalf("%s, broken after %d commits: %v", name, commits, err)
			}
			store.broken = nil
			want := make(map[string]uint64)
			for i, uid := range resolve(t, in, names...) {
				if want[names[i]] = uid; err == nil && uid != uids[i] {
					t.Errorf("%s: %s has the UIDs %d and %d", name, names[i], uids[i], uid)
				}
			}
			checkStore(t, sim, want)
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
			if err == nil {
				if commits < len(names)/20 {
					t.Errorf("%s: %d commits are enough", name, commits)
				}
				break
			}
		}
	}
	store := &smallStore{Store: simkv.New(simkv.Config{}), writes: 1 << 30}
	in := openOn(t, store, Config{Workers: 1})
	store.writes, store.over = 0, kv.ErrTooLarge
	if err := resolveStrings(ctx, in, names, make([]uint64, len(names))); !errors.Is(err, kv.ErrTooLarge) {
		t.Errorf("not even one string fits: %v", err)
	}
}
