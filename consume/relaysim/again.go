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

// keep notes a frame, into memory that is used again, and returns it, with t's own values.
func (a *again) keep(t *template) *sentFrame {
	if len(a.sent) < maxAgain {
		a.sent = append(a.sent, sentFrame{})
	}
	s := &a.sent[a.next]
	a.next = (a.next + 1) % maxAgain
	used := s.v
	s.template, s.v = t, t.original
	s.v.did, s.v.time, s.v.rkeys = append(used.did[:0], s.v.did...), append(used.time[:0], s.v.time...), append(used.rkeys[:0], s.v.rkeys...)
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
