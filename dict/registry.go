package dict

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// maxDictionaries bounds a Registry. A log keeps a dictionary only as long as it has blocks made
// with it. So dozens would mean dozens of changes within one retention.
const maxDictionaries = 64

// Registry knows dictionaries by their IDs and has one shared Encoder and Decoder for each. It is
// safe for concurrent use.
type Registry struct {
	stored *Dictionary

	mu     sync.Mutex
	byID   map[uint32]*entry
	closed bool
}

// entry is a dictionary and, once they were asked for, its encoder and its decoder.
type entry struct {
	d   *Dictionary
	enc *Encoder
	dec *Decoder
}

// NewRegistry returns a registry of stored, which is the dictionary that new blocks are compressed
// with, and others.
func NewRegistry(stored *Dictionary, others ...*Dictionary) (*Registry, error) {
	r := &Registry{stored: stored, byID: make(map[uint32]*entry)}
	for _, d := range append([]*Dictionary{stored}, others...) {
		if err := r.Add(d); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Add makes d known. Adding the same dictionary again changes nothing; a different one with the
// same ID is refused, because clients keep dictionaries by ID.
func (r *Registry) Add(d *Dictionary) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have, ok := r.byID[d.id]; ok {
		if have.d.sum != d.sum {
			return fmt.Errorf("two different dictionaries have the ID %d (SHA-256 %x and %x): train the newer one anew with another ID",
				d.id, have.d.sum[:4], d.sum[:4])
		}
		return nil
	}
	if len(r.byID) == maxDictionaries {
		return fmt.Errorf("dictionary %d is one too many: %d can be served at most, those that the log needs included: go on with one of them", d.id, maxDictionaries)
	}
	r.byID[d.id] = &entry{d: d}
	return nil
}

// Stored returns the dictionary that new blocks are compressed with.
func (r *Registry) Stored() *Dictionary { return r.stored }

// Get returns the dictionary with the given ID.
func (r *Registry) Get(id uint32) (*Dictionary, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.byID[id]
	if !ok {
		return nil, false
	}
	return e.d, true
}

// All returns all dictionaries by ascending ID.
func (r *Registry) All() []*Dictionary {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Dictionary, 0, len(r.byID))
	for _, id := range slices.Sorted(maps.Keys(r.byID)) {
		all = append(all, r.byID[id].d)
	}
	return all
}

// Encoder returns the shared encoder of the dictionary with the given ID, made when first asked
// for. The registry closes it; the caller must not. An unknown ID is errUnknownDictionary.
func (r *Registry) Encoder(id uint32) (*Encoder, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.entryLocked(id, "encoder")
	if err != nil {
		return nil, err
	}
	if e.enc == nil {
		e.enc, err = NewEncoder(e.d)
	}
	return e.enc, err
}

// maxShared bounds what a shared decoder makes of a frame.
const maxShared = 64 << 20

// Decoder returns the shared decoder of frames made with that dictionary, or without one, of at
// most maxShared bytes of content. Errors are as those of Encoder.
func (r *Registry) Decoder(id uint32) (*Decoder, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.entryLocked(id, "decoder")
	if err != nil {
		return nil, err
	}
	if e.dec == nil {
		e.dec, err = NewDecoder(maxShared, e.d)
	}
	return e.dec, err
}

// entryLocked returns the dictionary with the given ID, for which a coder is asked.
func (r *Registry) entryLocked(id uint32, coder string) (*entry, error) {
	e, ok := r.byID[id]
	if !ok {
		return nil, fmt.Errorf("%w: %d", errUnknownDictionary, id)
	}
	if r.closed {
		return nil, fmt.Errorf("%s of dictionary %d: the registry is closed", coder, id)
	}
	return e, nil
}

// Close closes all encoders and decoders. It waits for calls that still run and is safe to call
// twice.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, e := range r.byID {
		if e.enc != nil {
			e.enc.Close()
		}
		if e.dec != nil {
			e.dec.Close()
		}
	}
}
