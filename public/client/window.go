package client

import "hash/maphash"

// maxWindow bounds the events that a window remembers: some 4 MB.
const maxWindow = 1 << 17

// window remembers the newest events by hash, to drop those that come again. A plain Jetstream has
// no better way: its cursors are times, inclusive, and another instance's stamps are others.
type window struct {
	hasher maphash.Hash // has one seed
	seen   map[uint64]struct{}
	order  []windowEntry
	spanUS int64
	newest int64
}

type windowEntry struct {
	hash   uint64
	timeUS int64
}

// hash returns a hash of the event but for its stamp and what a millrace adds to it.
func (w *window) hash(e *Event) uint64 {
	w.hasher.Reset()
	_, _ = w.hasher.Write(e.Raw[:e.timeAt]) // never fails
	_, _ = w.hasher.Write(e.Raw[e.timeEnd:e.plainEnd])
	return w.hasher.Sum64()
}

// add remembers the event, and says whether it is new.
func (w *window) add(e *Event) bool {
	h := w.hash(e)
	if _, ok := w.seen[h]; ok {
		return false
	}
	if w.seen == nil {
		w.seen = make(map[uint64]struct{})
	}
	w.newest = max(w.newest, e.TimeUS)
	for len(w.order) >= maxWindow || len(w.order) > 0 && w.order[0].timeUS < w.newest-w.spanUS {
		delete(w.seen, w.order[0].hash)
		w.order = w.order[1:]
	}
	w.seen[h] = struct{}{}
	w.order = append(w.order, windowEntry{h, e.TimeUS})
	return true
}

// forget empties the window.
func (w *window) forget() {
	clear(w.seen)
	w.order, w.newest = w.order[:0], 0
}
