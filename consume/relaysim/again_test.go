package relaysim

import "testing"

// TestAgain: so many of the newest frames are sent once more, in order, also when the ring is full.
func TestAgain(t *testing.T) {
	for _, kept := range []int64{5, maxAgain, maxAgain + 7} {
		var a again
		for seq := int64(1); seq <= kept; seq++ {
			a.keep(&template{original: values{seq: seq}})
		}
		a.left = 3
		for want := kept - 2; want <= kept; want++ {
			if s := a.take(); s == nil || s.v.seq != want {
				t.Errorf("of %d frames, %+v comes instead of number %d", kept, s, want)
			}
		}
		if s := a.take(); s != nil {
			t.Errorf("of %d frames a fourth comes: %+v", kept, s)
		}
	}
}
