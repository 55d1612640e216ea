// Package kvtest holds the tests that every store behind package kv must pass.
package kvtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"millrace/intern/kv"
)

// Run runs all tests, each on an empty store from open.
func Run(t *testing.T, open func(t *testing.T) kv.Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, kv.Store)
	}{
		{"ReadsWhatWasCommitted", readsWhatWasCommitted},
		{"ReadsOneState", readsOneState},
		{"ConflictOnRead", conflictOnRead},
		{"ConflictOnAbsentKey", conflictOnAbsentKey},
		{"NoConflict", noConflict},
		{"Last", last},
		{"Scan", scan},
		{"TooLarge", tooLarge},
		{"Context", contextEnds},
		{"Counter", counter},
		{"Transfers", transfers},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func begin(t *testing.T, s kv.Store) kv.Txn {
	t.Helper()
	txn, err := s.Begin(context.Background())
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	t.Cleanup(txn.Close)
	return txn
}

func get(t *testing.T, txn kv.Txn, keys ...string) []string {
	t.Helper()
	in, out := make([][]byte, len(keys)), make([][]byte, len(keys))
	for i, k := range keys {
		in[i] = []byte(k)
		out[i] = []byte("left over")
	}
	if err := txn.Get(context.Background(), in, out); err != nil {
		t.Fatalf("get: %v", err)
	}
	values := make([]string, len(keys))
	for i, v := range out {
		if values[i] = string(v); v == nil {
			values[i] = "none"
		}
	}
	return values
}

func commit(t *testing.T, txn kv.Txn, want error) {
	t.Helper()
	if err := txn.Commit(context.Background()); !errors.Is(err, want) {
		t.Fatalf("commit: %v, want %v", err, want)
	}
	txn.Close()
}

func put(t *testing.T, s kv.Store, pairs ...string) {
	t.Helper()
	txn := begin(t, s)
	for i := 0; i < len(pairs); i += 2 {
		txn.Set([]byte(pairs[i]), []byte(pairs[i+1]))
	}
	commit(t, txn, nil)
}

func readsWhatWasCommitted(t *testing.T, s kv.Store) {
	key, value := []byte("k1"), []byte("v1")
	txn := begin(t, s)
	txn.Set(key, value)
	key[1], value[1] = 'x', 'x' // the store has its own copies
	txn.Set([]byte("empty"), nil)
	commit(t, txn, nil)

	txn = begin(t, s)
	if got, want := get(t, txn, "absent", "empty", "k1"), []string{"none", "", "v1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	txn.Clear([]byte("k1"))
	txn.Set([]byte("dropped"), []byte("x"))
	txn.Close() // not committed

	txn = begin(t, s)
	if got, want := get(t, txn, "dropped", "k1"), []string{"none", "v1"}; !slices.Equal(got, want) {
		t.Errorf("after a transaction that was dropped: %q, want %q", got, want)
	}
	txn.Clear([]byte("k1"))
	commit(t, txn, nil)
	if got := get(t, begin(t, s), "k1"); got[0] != "none" {
		t.Errorf("cleared key has %q", got)
	}
}

func readsOneState(t *testing.T, s kv.Store) {
	put(t, s, "a", "1", "b", "1")
	txn := begin(t, s)
	a := get(t, txn, "a")
	put(t, s, "a", "2", "b", "2")
	if b := get(t, txn, "b"); a[0] != b[0] {
		t.Errorf("one transaction saw a=%s and b=%s", a[0], b[0])
	}
	commit(t, txn, nil) // it writes nothing, so nothing conflicts
}

func conflictOnRead(t *testing.T, s kv.Store) {
	put(t, s, "k", "1")
	txn := begin(t, s)
	get(t, txn, "k")
	put(t, s, "k", "2")
	txn.Set([]byte("other"), []byte("x"))
	commit(t, txn, kv.ErrConflict)
	if got := get(t, begin(t, s), "other"); got[0] != "none" {
		t.Errorf("a transaction that conflicted has written %q", got)
	}
}

func conflictOnAbsentKey(t *testing.T, s kv.Store) {
	txn := begin(t, s)
	get(t, txn, "k")
	put(t, s, "k", "2")
	txn.Set([]byte("k"), []byte("3"))
	commit(t, txn, kv.ErrConflict)
	if got := get(t, begin(t, s), "k"); got[0] != "2" {
		t.Errorf("k is %q, want 2", got)
	}
}

func noConflict(t *testing.T, s kv.Store) {
	put(t, s, "k", "1")
	txn := begin(t, s)
	get(t, txn, "k", "l")
	put(t, s, "m", "1") // not read
	if err := txn.Scan(context.Background(), kv.Range{Begin: []byte("a"), End: []byte("z")},
		func(kv.Pair) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	put(t, s, "n", "1") // scanned, but that is a snapshot read
	txn.Set([]byte("k"), []byte("2"))
	commit(t, txn, nil)

	one, two := begin(t, s), begin(t, s) // blind writes do not conflict
	get(t, one, "x")
	get(t, two, "y")
	one.Set([]byte("k"), []byte("3"))
	two.Set([]byte("k"), []byte("4"))
	commit(t, one, nil)
	commit(t, two, nil)
	if got := get(t, begin(t, s), "k"); got[0] != "4" {
		t.Errorf("k is %q, want 4", got)
	}
}

func last(t *testing.T, s kv.Store) {
	put(t, s, "b", "1", "d", "2", "f", "3", "gone", "x")
	txn := begin(t, s)
	txn.Clear([]byte("gone"))
	commit(t, txn, nil)
	txn = begin(t, s)
	get(t, txn, "d") // reads of both kinds mix
	ranges := []kv.Range{}
	for _, r := range [][2]string{{"a", "b"}, {"a", "b\x00"}, {"b", "f"}, {"d", "e"}, {"e", "f"}, {"a", "z"}, {"f\x00", "z"}} {
		ranges = append(ranges, kv.Range{Begin: []byte(r[0]), End: []byte(r[1])})
	}
	got := make([]string, len(ranges))
	err := txn.Last(context.Background(), ranges, func(i int, p kv.Pair) error {
		got[i] += string(p.Key) + string(p.Value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"", "b1", "d2", "d2", "", "f3", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	enough, calls := errors.New("enough"), 0
	if err := txn.Last(context.Background(), ranges, func(int, kv.Pair) error { calls++; return enough }); !errors.Is(err, enough) || calls != 1 {
		t.Errorf("after an error fn was called again, %d times in all, or it is lost: %v", calls, err)
	}
}

func scan(t *testing.T, s kv.Store) {
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprintf("k%04d", i))
	}
	for part := range slices.Chunk(want, 300) {
		txn := begin(t, s)
		for _, k := range part {
			txn.Set([]byte(k), []byte("v"+k))
		}
		commit(t, txn, nil)
	}
	for _, chunk := range []int{1, 7, 1000, 5000} {
		var got []string
		err := kv.ScanAll(context.Background(), s, kv.Range{Begin: []byte("k0100"), End: []byte("k0200")}, chunk, func(p kv.Pair) error {
			if !bytes.Equal(p.Value, append([]byte("v"), p.Key...)) {
				t.Errorf("%q has %q", p.Key, p.Value)
			}
			got = append(got, string(p.Key))
			return nil
		})
		if err != nil || !slices.Equal(got, want[100:200]) {
			t.Errorf("chunks of %d: %v, %d keys", chunk, err, len(got))
		}
	}
	stop := errors.New("stop")
	if err := kv.ScanAll(context.Background(), s, kv.Range{Begin: []byte("k"), End: []byte("l")}, 10, func(kv.Pair) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error of the callback became %v", err)
	}
}

func tooLarge(t *testing.T, s kv.Store) {
	l := s.Limits()
	txn := begin(t, s)
	txn.Set(make([]byte, l.Key+1), nil)
	commit(t, txn, kv.ErrTooLarge)
	txn = begin(t, s)
	txn.Set([]byte("k"), make([]byte, l.Value+1))
	commit(t, txn, kv.ErrTooLarge)
	txn = begin(t, s)
	for i := range l.Bytes/l.Value + 1 {
		txn.Set(fmt.Appendf(nil, "k%d", i), make([]byte, l.Value))
	}
	commit(t, txn, kv.ErrTooLarge)
	if got := get(t, begin(t, s), "k", "k0"); got[0] != "none" || got[1] != "none" {
		t.Error("a transaction over the limits was applied")
	}
	txn = begin(t, s)
	txn.Set(bytes.Repeat([]byte("k"), l.Key), make([]byte, l.Value))
	commit(t, txn, nil)
}

func contextEnds(t *testing.T, s kv.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	txn := begin(t, s)
	txn.Set([]byte("k"), []byte("v"))
	cancel()
	if err := txn.Commit(ctx); !errors.Is(err, context.Canceled) && err != nil {
		t.Errorf("commit: %v", err)
	}
	if _, err := s.Begin(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("begin: %v", err)
	}
}

// counter raises one counter from many goroutines: no increment may be lost.
func counter(t *testing.T, s kv.Store) {
	const workers, each = 8, 50
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				err := kv.Run(context.Background(), s, func(txn kv.Txn) error {
					value := make([][]byte, 1)
					if err := txn.Get(context.Background(), [][]byte{[]byte("n")}, value); err != nil {
						return err
					}
					n := 0
					_, _ = fmt.Sscan(string(value[0]), &n)
					txn.Set([]byte("n"), fmt.Appendf(nil, "%d", n+1))
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := get(t, begin(t, s), "n"); got[0] != fmt.Sprint(workers*each) {
		t.Errorf("counter is %s, want %d", got[0], workers*each)
	}
}

// transfers moves amounts between accounts: the sum stays, in every view.
func transfers(t *testing.T, s kv.Store) {
	const accounts, workers, each = 8, 6, 60
	var keys [][]byte
	txn := begin(t, s)
	for i := range accounts {
		keys = append(keys, fmt.Appendf(nil, "account%d", i))
		txn.Set(keys[i], []byte{100})
	}
	commit(t, txn, nil)
	seed := rand.Uint64()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range each {
				err := kv.Run(context.Background(), s, func(txn kv.Txn) error {
					values := make([][]byte, accounts)
					if err := txn.Get(context.Background(), keys, values); err != nil {
						return err
					}
					sum := 0
					for _, v := range values {
						sum += int(v[0])
					}
					if sum != 100*accounts {
						return fmt.Errorf("sum is %d", sum)
					}
					from, to := rng.IntN(accounts), rng.IntN(accounts)
					if from != to && values[from][0] > 0 && values[to][0] < 255 {
						txn.Set(keys[from], []byte{values[from][0] - 1})
						txn.Set(keys[to], []byte{values[to][0] + 1})
					}
					return nil
				})
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
	wg.Wait()
}
