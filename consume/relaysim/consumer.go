package relaysim

// consumer is one connection's place in a window. The window's mutex guards it.
type consumer struct {
	w     *window
	at    int64  // ordinal of the message that comes next
	wire  []byte // what it has taken; its own
	ended error  // what it must report
}

// join adds a consumer that wants what comes after cursor, or what is new from now on if it has
// none.
func (w *window) join(cursor int64, live bool) (c *consumer, outdated, future bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c = &consumer{w: w, at: w.next}
	if !live {
		c.at, outdated, future = w.resumeLocked(cursor)
	}
	w.consumers[c] = struct{}{}
	w.joined++
	w.signalLocked()
	return c, outdated, future
}

// take returns the next messages, whole, up to about maxBytes. They are valid until the next take.
// If there are none it returns a channel that is closed when there are.
func (c *consumer) take(maxBytes int64) (wire []byte, more <-chan struct{}, err error) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.ended != nil {
		return nil, nil, c.ended
	}
	if c.at < w.oldest {
		return nil, nil, errTooSlow
	}
	if c.at == w.next {
		return nil, w.published, w.closed
	}
	to, end := c.at+1, w.markLocked(c.at).bytes+maxBytes
	for to < w.next && w.markLocked(to+1).bytes <= end {
		to++
	}
	c.wire = w.appendLocked(c.wire[:0], c.at, to)
	c.at = to
	w.signalLocked()
	return c.wire, nil, nil
}

// leave ends the consumer.
func (c *consumer) leave() {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, in := w.consumers[c]; in {
		delete(w.consumers, c)
		if len(w.consumers) == 0 {
			w.reached = c.at
		}
		w.signalLocked()
	}
}
