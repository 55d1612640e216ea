package cache

import (
	"errors"
	"sync"
	"testing"
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

// TestCounts: what is there is a hit, whoever asks, and what must be loaded a miss.
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
