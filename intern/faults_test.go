package intern

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

var errStore = errors.New("the store's own error")

// failingStore fails its n-th call with errStore.
type failingStore struct {
	kv.Store
	n, calls int
}

type failingTxn struct {
	kv.Txn
	s *failingStore
}

func (s *failingStore) fails() error {
	if s.calls++; s.calls == s.n {
		return errStore
	}
	return nil
}

func (s *failingStore) Begin(ctx context.Context) (kv.Txn, error) {
	if err := s.fails(); err != nil {
		return nil, err
	}
	txn, err := s.Store.Begin(ctx)
	return &failingTxn{txn, s}, err
}

func (t *failingTxn) Get(ctx context.Context, keys, values [][]byte) error {
	return errors.Join(t.s.fails(), t.Txn.Get(ctx, keys, values))
}

func (t *failingTxn) Last(ctx context.Context, ranges []kv.Range, fn func(i int, p kv.Pair) error) error {
	return errors.Join(t.s.fails(), t.Txn.Last(ctx, ranges, fn))
}

// Scan fails behind the first pair.
func (t *failingTxn) Scan(ctx context.Context, r kv.Range, fn func(kv.Pair) (bool, error)) error {
	fails := t.s.fails()
	return errors.Join(fails, t.Txn.Scan(ctx, r, func(p kv.Pair) (bool, error) {
		more, err := fn(p)
		return more && fails == nil, err
	}))
}

func (t *failingTxn) Commit(ctx context.Context) error {
	if err := t.s.fails(); err != nil {
		return err
	}
	return t.Txn.Commit(ctx)
}

// TestEachFailedCall: each call of the store fails in turn, and the operation that needed it
// returns its error. No string or UID is missing instead, no damage is found, and no dump ends
// early.
func TestEachFailedCall(t *testing.T) {
	filled := func() kv.Store {
		store := simkv.New(simkv.Config{})
		in := openOn(t, store, Config{Alone: true, Workers: 1})
		resolve(t, in, "did:web:a.com", "did:plc:7iza6de2dwap2sbkpav7c6c6", "at://did:web:a.com/a.b.c/1", "at://did:web:b.com/a.b.d/3jzfcijpj2z2a", "at://jo.hn/a.b.c/x")
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		return store
	}
	read := filled()
	byName, _ := dumpStore(t, read)
	var names []string
	var uids []uint64
	for name, uid := range byName {
		names, uids = append(names, name), append(uids, uid)
	}
	export := func(s kv.Store) ([]byte, error) {
		f := create(t, "dump")
		_, err := Export(ctx, s, f, nil)
		b, readErr := os.ReadFile(f.Name())
		return b, errors.Join(err, readErr, f.Close(), os.Remove(f.Name()))
	}
	dump, err := export(read)
	if err != nil {
		t.Fatal(err)
	}
	opened := func(f func(in *Interner) (any, error)) func(kv.Store) (any, error) {
		return func(s kv.Store) (any, error) {
			in, err := Open(ctx, Config{Store: s, Alone: true, Workers: 1})
			if err != nil {
				return nil, err
			}
			got, err := f(in)
			return got, errors.Join(err, in.Close())
		}
	}
	for name, tc := range map[string]struct {
		store func() kv.Store // nil: read
		run   func(kv.Store) (any, error)
	}{
		"LookupStrings": {run: opened(func(in *Interner) (any, error) {
			got := make([]uint64, len(names))
			err := in.LookupStrings(ctx, names, got)
			return got, err
		})},
		"LookupUIDs": {run: opened(func(in *Interner) (any, error) {
			got := make([]string, len(uids))
			err := in.LookupUIDs(ctx, uids, got)
			return got, err
		})},
		"Count": {run: opened(func(in *Interner) (any, error) {
			n, err := in.Count(ctx)
			skipped, skippedErr := in.Skipped(ctx)
			return fmt.Sprint(n, skipped), errors.Join(err, skippedErr)
		})},
		"Verify": {run: func(s kv.Store) (any, error) {
			r, err := Verify(ctx, s, nil)
			return fmt.Sprintf("%+v", r), err
		}},
		"Export": {run: func(s kv.Store) (any, error) {
			return export(s)
		}},
		"SkipAhead": {store: filled, run: func(s kv.Store) (any, error) {
			n, err := SkipAhead(ctx, s, 100)
			return n, err
		}},
		"Import": {store: func() kv.Store { return simkv.New(simkv.Config{}) }, run: func(s kv.Store) (any, error) {
			sum, err := importDump(ctx, s, bytes.NewReader(dump), nil)
			return fmt.Sprintf("%+v", sum), err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var want any
			fails := 0
			for n := 0; ; n++ { // 0: none
				s := &failingStore{Store: read, n: n}
				if tc.store != nil {
					s.Store = tc.store()
				}
				got, err := tc.run(s)
				if n == 0 {
					want = got
				}
				switch {
				case err != nil && (n == 0 || !errors.Is(err, errStore)):
					t.Fatalf("call %d: %v", n, err)
				case err != nil:
					fails++
				case !cmp.Equal(want, got):
					t.Errorf("call %d fails, and there is no error: -want +got\n%s", n, cmp.Diff(want, got))
				}
				if n > 0 && s.calls < n {
					break
				}
			}
			if fails < 3 {
				t.Errorf("only %d calls fail", fails)
			}
		})
	}
}

// failingFile fails its n-th call with errStore.
type failingFile struct {
	File
	n, calls int
}

func (f *failingFile) call(do func() (int64, error)) (int64, error) {
	if f.calls++; f.calls == f.n {
		return 0, errStore
	}
	return do()
}

func (f *failingFile) Read(b []byte) (int, error) {
	n, err := f.call(func() (int64, error) { n, err := f.File.Read(b); return int64(n), err })
	return int(n), err
}

func (f *failingFile) Write(b []byte) (int, error) {
	n, err := f.call(func() (int64, error) { n, err := f.File.Write(b); return int64(n), err })
	return int(n), err
}

func (f *failingFile) Seek(offset int64, whence int) (int64, error) {
	return f.call(func() (int64, error) { return f.File.Seek(offset, whence) })
}

func (f *failingFile) Truncate(size int64) error {
	_, err := f.call(func() (int64, error) { return 0, f.File.Truncate(size) })
	return err
}

// TestEachFailedFile: whichever call of a dump's file fails, its error is that of the export or
// import.
func TestEachFailedFile(t *testing.T) {
	store := simkv.New(simkv.Config{})
	filled(t, store, 20_000)
	dump := exported(t, store)
	for name, begun := range map[string]int{"export": 0, "export that goes on": len(dump) / 2, "export that is there": len(dump), "import": len(dump)} {
		for n := 0; ; n++ { // 0: none
			inner := create(t, "dump")
			_, err := inner.Write(dump[:begun])
			_, seekErr := inner.Seek(0, 0)
			if err := errors.Join(err, seekErr); err != nil {
				t.Fatal(err)
			}
			f := &failingFile{File: inner, n: n}
			if name == "import" {
				_, err = importDump(ctx, simkv.New(simkv.Config{}), f, nil)
			} else {
				_, err = Export(ctx, store, f, nil)
			}
			if reached := n > 0 && f.calls >= n; errors.Is(err, errStore) != reached || (err == nil) == reached {
				t.Errorf("%s: call %d fails: %v", name, n, err)
			}
			if _ = inner.Close(); f.calls < n {
				break
			}
		}
	}
}

// TestDamagedNumbers: a value that is more or less than one number is damage.
func TestDamagedNumbers(t *testing.T) {
	c := codec{prefixBits: 14}
	for name, read := range map[string]func(b []byte) error{
		"number": func(b []byte) error { _, err := number(b); return err },
		"UID":    func(b []byte) error { _, err := c.uidValue(b); return err },
	} {
		sound := map[string][]byte{"number": appendNumber(300), "UID": c.appendUID(nil, c.join(3, 300))}[name]
		for n := range len(sound) + 2 {
			b := append(bytes.Clone(sound), 0)[:n]
			if err := read(b); (err == nil) != (n == len(sound)) || err != nil && !errors.Is(err, errBroken) {
				t.Errorf("%s of %d bytes, not %d: %v", name, n, len(sound), err)
			}
		}
	}
}
