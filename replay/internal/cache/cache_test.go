package cache

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func newTest() *Cache[int, []byte] {
	return New[int](Config[[]byte]{MaxBytes: 10_000, MaxCharges: 2, Size: func(b []byte) int64 { return int64(len(b)) }})
}

// load returns a loader of n bytes.
func load(n int) func() ([]byte, error) {
	return func() ([]byte, error) { return make([]byte, n), nil }
}

// TestBound: the cache stays within its bytes, and forgets what could not be loaded.
func TestBound(t *testing.T) {
	c := newTest()
	for i := range 1000 {
		if b, err := c.Get(i%90, load(100)); err != nil || len(b) != 100 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		if c.bytes > c.MaxBytes || c.recent.Len() != len(c.entries) {
			t.Fatalf("%d bytes, %d entries, %d in the list", c.bytes, len(c.entries), c.recent.Len())
		}
	}
	no := errors.New("no")
	if _, err := c.Get(5000, func() ([]byte, error) { return nil, no }); !errors.Is(err, no) {
		t.Errorf("a failed load returns %v", err)
	}
	if _, ok := c.Peek(5000); ok {
		t.Error("a failed load is remembered")
	}
	if b, err := c.Get(5000, load(1)); err != nil || len(b) != 1 {
		t.Errorf("after a failed load: %d bytes, %v", len(b), err)
	}
}

// TestCounts: what is there is a hit for each caller, and what must be loaded a miss.
func TestCounts(t *testing.T) {
	c := newTest()
	if _, ok := c.Peek(1); ok {
		t.Error("an empty cache has a value")
	}
	_, _ = c.Get(1, load(100))
	if b, ok := c.Peek(1); !ok || len(b) != 100 {
		t.Error("a value is not there")
	}
	_, _ = c.Get(1, load(7))
	if got, want := c.Stats(), (Stats{Bytes: 356, Hits: 2, Misses: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestCharges: what is charged takes room from the values, and gives it back.
func TestCharges(t *testing.T) {
	c := newTest()
	fill := func(k int) { _, _ = c.Get(k, load(2000)) }
	for k := range 4 {
		fill(k)
	}
	if c.Charge(5001) || len(c.Values()) != 4 {
		t.Errorf("more than half of the cache is charged, %d values are left", len(c.Values()))
	}
	if !c.Charge(4999) || !c.Charge(1) || len(c.Values()) != 2 {
		t.Errorf("with half of the cache charged, %d values are left, want 2", len(c.Values()))
	}
	if c.Charge(0) {
		t.Error("it takes a third charge")
	}
	fill(4)
	if s := c.Stats(); len(c.Values()) != 2 || s.Bytes > c.MaxBytes || s.Charges != 2 || s.Charged != 5000 {
		t.Errorf("%d values, %+v", len(c.Values()), s)
	}
	c.Charge(-4999)
	c.Charge(-1)
	fill(5)
	fill(6)
	if len(c.Values()) != 4 {
		t.Errorf("with nothing charged, there are %d values, want 4", len(c.Values()))
	}
}

// TestModel holds random use against a list, the most recent value first. Sizes are such that the
// bound is often reached exactly.
func TestModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		c := newTest()
		type value struct{ key, bytes int }
		var model []value
		var charges []int
		var want Stats
		for range 100 {
			k, n := rng.IntN(9), 500+250*rng.IntN(10)
			at := slices.IndexFunc(model, func(v value) bool { return v.key == k })
			use := func() {
				v := model[at]
				model = slices.Insert(slices.Delete(model, at, at+1), 0, v)
				want.Hits++
			}
			switch op := rng.IntN(8); {
			case op < 4:
				_, _ = c.Get(k, load(n-entryBytes))
				if at >= 0 {
					use()
				} else {
					model = slices.Insert(model, 0, value{k, n})
					want.Misses++
				}
			case op < 6:
				if _, ok := c.Peek(k); ok != (at >= 0) {
					t.Fatalf("key %d is there: %v", k, ok)
				}
				if at >= 0 {
					use()
				}
			case op == 6 && len(charges) > 0:
				c.Charge(-int64(charges[0]))
				want.Charged -= int64(charges[0])
				charges = charges[1:]
			default:
				room := len(charges) < c.MaxCharges && want.Charged+int64(n) <= c.MaxBytes/2
				if c.Charge(int64(n)) != room {
					t.Fatalf("%d is charged beside %v: %v", n, charges, !room)
				}
				if room {
					charges = append(charges, n)
					want.Charged += int64(n)
				}
			}
			want.Charges = len(charges)
			for {
				want.Bytes = want.Charged
				for _, v := range model {
					want.Bytes += int64(v.bytes)
				}
				if want.Bytes <= c.MaxBytes {
					break
				}
				model = model[:len(model)-1]
			}
			got := c.Stats()
			if got != want || len(c.entries) != len(model) || c.recent.Len() != len(model) {
				t.Fatalf("%+v, %d entries, %d in the list, not %+v, %d", got, len(c.entries), c.recent.Len(), want, len(model))
			}
		}
	}
}

// TestOnce: of many that want a value one loads it. If it panics, the others get an error.
func TestOnce(t *testing.T) {
	c := newTest()
	begun, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { _ = recover() }()
		_, _ = c.Get(1, func() ([]byte, error) { close(begun); <-end; panic("broken") })
	})
	<-begun
	for range 4 {
		wg.Go(func() {
			if _, err := c.Get(1, load(1)); err != nil && !errors.Is(err, errUnfilled) {
				t.Error(err)
			}
		})
	}
	close(end)
	wg.Wait()
	if b, err := c.Get(1, load(1)); err != nil || len(b) != 1 {
		t.Errorf("afterwards: %d bytes, %v", len(b), err)
	}
}

// TestPeekOfFailure: a value that is being loaded while it is looked for, and cannot be, is not
// there.
func TestPeekOfFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTest()
		end, no := make(chan struct{}), errors.New("no")
		go func() { _, _ = c.Get(1, func() ([]byte, error) { <-end; return []byte{1}, no }) }()
		synctest.Wait()
		peeked := false
		go func() {
			if b, ok := c.Peek(1); ok {
				t.Errorf("%x is there", b)
			}
			peeked = true
		}()
		if synctest.Wait(); peeked {
			t.Error("Peek does not wait for what is about to be there")
		}
		close(end)
		if synctest.Wait(); !peeked {
			t.Error("Peek waits on")
		}
	})
}
