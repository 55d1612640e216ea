package relaysim

// again is a ring of the newest frames, to be sent once more.
type again struct {
	sent []sentFrame // a ring, from next on once it is full
	next int
	left int // so many of the newest are sent once more
}

// sentFrame is a template and what its holes were filled with.
type sentFrame struct {
	template *template
	v        values
}

// maxAgain is how many frames can be sent once more.
const maxAgain = 4096

// keep notes a frame, into memory that is used again, and returns it.
func (a *again) keep(t *template, v *values) *sentFrame {
	if len(a.sent) < maxAgain {
		a.sent = append(a.sent, sentFrame{})
	}
	s := &a.sent[a.next]
	a.next = (a.next + 1) % maxAgain
	did, at, rkeys := append(s.v.did[:0], v.did...), append(s.v.time[:0], v.time...), append(s.v.rkeys[:0], v.rkeys...)
	s.template, s.v = t, *v
	s.v.did, s.v.time, s.v.rkeys = did, at, rkeys
	return s
}

// take returns the next frame that must be sent once more; nil: none is.
func (a *again) take() *sentFrame {
	if a.left == 0 {
		return nil
	}
	s := &a.sent[(a.next-a.left+len(a.sent))%len(a.sent)]
	a.left--
	return s
}
