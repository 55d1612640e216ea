package admission

import "testing"

func isGranted(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestChunks(t *testing.T) {
	c := NewChunks(30)
	for range 2 {
		if !isGranted(c.Take(10)) {
			t.Fatal("a free chunk was not granted")
		}
	}
	c.Add(25) // one of them is a single large event
	first, second, third := c.Take(10), c.Take(10), c.Take(10)
	if c.Release(10); isGranted(first) {
		t.Fatal("a chunk was granted beyond the bytes")
	}
	if c.Release(25); !isGranted(first) || !isGranted(second) || isGranted(third) {
		t.Fatalf("granted: %t %t %t, want the first two", isGranted(first), isGranted(second), isGranted(third))
	}
	if c.Cancel(third, 10); c.free != 0 {
		t.Errorf("the end of a wait gives %d bytes, which nobody took", c.free)
	}
	c.Cancel(second, 10) // it was granted
	c.Release(10)
	c.Release(10)
	if c.free != 30 || len(c.waiting) != 0 {
		t.Errorf("%d bytes are free, and %d wait", c.free, len(c.waiting))
	}
	big := c.Take(40)
	small := c.Take(10)
	if isGranted(big) || isGranted(small) {
		t.Error("who asked later got it first")
	}
	if c.Cancel(big, 40); !isGranted(small) {
		t.Error("nobody waits before it, and it was not granted")
	}
}
