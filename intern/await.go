package intern

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
)

// WaitingBytes is how much memory a string that waits for its UID takes, at most, beside its bytes.
const WaitingBytes = 112

// Waiting waits for the UIDs of strings. See Await.
type Waiting struct {
	registry *registry
	found    func(uid uint64)
	strings  []waitingString
}

// waitingString is a string that one Waiting waits for.
type waitingString struct {
	text string
	of   *Waiting
	next *waitingString // the same string of another; guarded by registry.mu
}

// registry has the strings that wait for their UIDs. Resolve asks it for each Name, and for the DID
// in it, before it returns.
type registry struct {
	strings atomic.Int64 // that wait; written under mu

	mu    sync.RWMutex
	first map[string]*waitingString // guarded by mu
}

// Await calls found with the UID of each of the strings. That is at once for those that have one.
// For the others it is as soon as Resolve has it for a Name or the DID in it, before that call
// returns. So a caller that uses the found UIDs misses no event that refers to the strings. It must
// read the events that Resolve has not returned yet when Await does. found may be called from any
// goroutine, more than once for a string, and even just after Close, or after Await has failed; it
// must not call the Interner. The strings are kept until Close. At most MaxLookup.
func (in *Interner) Await(ctx context.Context, strings []string, found func(uid uint64)) (*Waiting, error) {
	w := &Waiting{registry: &in.registry, found: found, strings: make([]waitingString, len(strings))}
	for i, s := range strings {
		w.strings[i] = waitingString{text: s, of: w}
	}
	w.registry.add(w)
	// What got its UID before the registry had the string is in the store.
	uids := make([]uint64, len(strings))
	if err := in.LookupStrings(ctx, strings, uids); err != nil {
		w.Close()
		return nil, err
	}
	for i, uid := range uids {
		if uid != 0 {
			w.registry.give([]byte(strings[i]), uid)
		}
	}
	return w, nil
}

// Close ends the wait. It is safe to call twice, and with a nil Waiting.
func (w *Waiting) Close() {
	if w != nil {
		w.registry.remove(w)
	}
}

func (r *registry) add(w *Waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		r.first = make(map[string]*waitingString)
	}
	for i := range w.strings {
		s := &w.strings[i]
		s.next = r.first[s.text]
		r.first[s.text] = s
	}
	r.strings.Store(int64(len(r.first)))
}

func (r *registry) remove(w *Waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range w.strings {
		s := &w.strings[i]
		first := r.first[s.text]
		if first == s {
			// Without it the map would keep its key, the bytes of a string that may be gone.
			delete(r.first, s.text)
			if s.next != nil {
				r.first[s.next.text] = s.next
			}
			continue
		}
		for ; first != nil; first = first.next {
			if first.next == s {
				first.next = s.next
				break
			}
		}
	}
	w.strings = nil
	r.forgetLocked()
}

// forgetLocked lets go of a map that is empty: maps never shrink.
func (r *registry) forgetLocked() {
	if len(r.first) == 0 {
		r.first = nil
	}
	r.strings.Store(int64(len(r.first)))
}

// waits says whether a string waits.
func (r *registry) waits() bool { return r.strings.Load() > 0 }

// resolved gives the UIDs of a DID, or of an AT URI and the DID in it, to those that wait for them.
func (r *registry) resolved(name []byte, did, uri uint64) {
	if rest, isURI := bytes.CutPrefix(name, []byte(schemeAT)); isURI {
		r.give(name, uri)
		name, _, _ = bytes.Cut(rest, []byte("/"))
	}
	r.give(name, did) // handles are not waited for
}

// give gives the UID of a string, 0 if it has none, to those that wait for it.
func (r *registry) give(text []byte, uid uint64) {
	r.mu.RLock()
	s := r.first[string(text)]
	r.mu.RUnlock()
	if s == nil || uid == 0 {
		return
	}
	r.mu.Lock()
	s = r.first[string(text)]
	delete(r.first, string(text))
	r.forgetLocked()
	r.mu.Unlock()
	for s != nil { // only this call has it: it is not in the map
		next := s.next
		s.of.found(uid)
		s = next
	}
}
