//go:build !race

package dict

import "testing"

// TestAppendDoesNotAllocate: an event is compressed into the caller's memory.
func TestAppendDoesNotAllocate(t *testing.T) {
	dec, err := NewDecoder(1<<20, BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	for name, e := range encoders(t, BuiltIn()) {
		src := []byte(testEvent)
		dst := make([]byte, 0, maxCompressedLen(len(src)))
		back := make([]byte, 0, 4096)
		e.Append(dst, src)
		if n := testing.AllocsPerRun(200, func() { e.Append(dst, src) }); n != 0 {
			t.Errorf("%s: Append allocates %v times", name, n)
		}
		frame := e.Append(nil, src)
		if n := testing.AllocsPerRun(200, func() {
			if _, err := dec.Append(back, frame); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: decoding allocates %v times", name, n)
		}
	}
}
