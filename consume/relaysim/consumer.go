package relaysim

// consumer is one connection's place in a window. The window's mutex guards it.
type consumer struct {
	w  *window
	at progress

	ended error // what it must report
}

// join adds a consumer that wants what comes after cursor, or what is new from now on if it has
// none.
func (w *window) join(cursor int64, live bool) (c *consumer, outdated, future bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c = &consumer{w: w, at: progress{ord: w.next, bytes: w.wireBytes}}
	if !live {
		c.at.ord, outdated, future = w.resumeLocked(cursor)
		c.at.bytes = w.wireBytes - w.bytesAfterLocked(c.at.ord)
	}
	w.consumers[c] = struct{}{}
	w.joined++
	w.signalLocked()
	return c, outdated, future
}

// bytesAfterLocked returns the bytes of the messages from ord on.
func (w *window) bytesAfterLocked(ord int64) (n int64) {
	for _, c := range w.chunks {
		switch {
		case c.first >= ord:
			n += int64(len(c.buf))
		case ord < c.first+int64(len(c.index)):
			n += int64(len(c.buf) - c.startLocked(ord))
		}
	}
	return n
}

// take returns the next messages, whole, up to about maxBytes, and their number. If there are
// none it returns a channel that is closed when there are.
func (c *consumer) take(maxBytes int) (wire []byte, frames int, more <-chan struct{}, err error) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.ended != nil {
		return nil, 0, nil, c.ended
	}
	if c.at.ord < w.oldest {
		return nil, 0, nil, errTooSlow
	}
	if c.at.ord == w.next {
		return nil, 0, w.published, w.closed
	}
	_, ch := w.findLocked(c.at.ord)
	from := ch.startLocked(c.at.ord)
	i := int(c.at.ord - ch.first)
	to := ch.index[i].end
	for i++; i < len(ch.index) && ch.index[i].end-from <= maxBytes; i++ {
		to = ch.index[i].end
	}
	frames = i - int(c.at.ord-ch.first)
	c.at.ord += int64(frames)
	c.at.bytes += int64(to - from)
	w.signalLocked()
	return ch.buf[from:to:to], frames, nil, nil
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
