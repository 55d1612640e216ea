package intern

import (
	"context"

	"millrace/intern/kv"
)

// hookedStore is a store that calls functions of a test around what its transactions do. Each may
// be nil. If a function called before an operation returns an error, that is the operation's error.
type hookedStore struct {
	kv.Store
	beforeBegin  func() error
	beforeGet    func() error
	afterGet     func()
	beforeCommit func() error
}

type hookedTxn struct {
	kv.Txn
	s *hookedStore
}

func runHook(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (s *hookedStore) Begin(c context.Context) (kv.Txn, error) {
	if err := runHook(s.beforeBegin); err != nil {
		return nil, err
	}
	txn, err := s.Store.Begin(c)
	return hookedTxn{txn, s}, err
}

func (t hookedTxn) Get(c context.Context, keys, values [][]byte) error {
	if err := runHook(t.s.beforeGet); err != nil {
		return err
	}
	err := t.Txn.Get(c, keys, values)
	if t.s.afterGet != nil {
		t.s.afterGet()
	}
	return err
}

func (t hookedTxn) Commit(c context.Context) error {
	if err := runHook(t.s.beforeCommit); err != nil {
		return err
	}
	return t.Txn.Commit(c)
}
