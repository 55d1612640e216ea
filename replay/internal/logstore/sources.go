package logstore

import (
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// MaxSourceBytes is how long the source of a reference is at most: an NSID, ':', and a path of 512
// bytes.
const MaxSourceBytes = 317 + 1 + 512

// maxSourcesBytes bounds the text of all sources together. It is in memory, and comes from
// records, in which anything may be.
const maxSourcesBytes = 8 << 20

// Sources has the numbers of the sources of references: collection, ':' and path. A number is given
// once, in memory. The next batch makes it durable: at the latest that of the first block that has
// it. All but Put and Stored is safe for concurrent use.
type Sources struct {
	mu      sync.RWMutex
	numbers map[string]uint32 // guarded by mu
	sources []string          // by number - 1; guarded by mu
	bytes   int               // of sources; guarded by mu
	stored  int               // how many of sources are in the store
}

// NewSources returns an empty table.
func NewSources() *Sources { return &Sources{numbers: make(map[string]uint32)} }

// Find returns the number of a source; false if it has none.
func (t *Sources) Find(source string) (number uint32, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	number, ok = t.numbers[source]
	return number, ok
}

// Len returns how many sources have a number.
func (t *Sources) Len() int { return len(t.Known()) }

// Source is the inverse of Find.
func (t *Sources) Source(number uint32) (source string, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if number == 0 || int(number) > len(t.sources) {
		return "", false
	}
	return t.sources[number-1], true
}

// Number returns the number of a source, which it enters if it is new, unless that is not to be.
func (t *Sources) Number(source []byte, readOnly bool) (number uint32, ok bool) {
	t.mu.RLock()
	number, ok = t.numbers[string(source)]
	t.mu.RUnlock()
	if ok || readOnly {
		return number, ok
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if number, ok = t.numbers[string(source)]; ok {
		return number, ok
	}
	if len(source) == 0 || len(source) > MaxSourceBytes || len(t.sources) == format.MaxSources || t.bytes+len(source) > maxSourcesBytes {
		return 0, false
	}
	return t.enterLocked(string(source)), true
}

// enterLocked gives a source the next number.
func (t *Sources) enterLocked(source string) uint32 {
	t.sources = append(t.sources, source)
	t.bytes += len(source)
	number := uint32(len(t.sources))
	t.numbers[source] = number
	return number
}

// Known returns the sources that have a number, in the order of those.
func (t *Sources) Known() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sources
}

// Put adds the sources to the batch that are not in the store, and returns all. more says that it
// added some.
func (t *Sources) Put(batch *pebble.Batch) (known []string, more bool, err error) {
	known = t.Known()
	for i := t.stored; i < len(known); i++ {
		number := uint32(i + 1)
		value := format.AppendTrailer([]byte(known[i]), format.RangeSource, int64(number))
		if err := batch.Set(format.SourceKey(number), value, nil); err != nil {
			return nil, false, err
		}
	}
	return known, t.stored < len(known), nil
}

// Stored notes that n sources are in the store. No Put may be under way.
func (t *Sources) Stored(n int) { t.stored = n }

// Load reads the sources that have numbers in the store.
func (t *Sources) Load(st *pebblestore.Store) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := each(st, "sources", format.RangeSource, format.RangeSource.Start(), func(it *pebbleguard.Iterator) error {
		number, ok := format.ParseSourceKey(it.Key())
		if next := len(t.sources) + 1; !ok || int(number) != next {
			return Corrupt(format.RangeSource, int64(next), fmt.Errorf("malformed key %x: %w", it.Key(), format.ErrMissing))
		}
		source, err := format.OpenTrailer(it.Value(), format.RangeSource, int64(number))
		if err != nil {
			return Corrupt(format.RangeSource, int64(number), err)
		}
		if _, twice := t.numbers[string(source)]; twice {
			return Corrupt(format.RangeSource, int64(number), fmt.Errorf("%.80q has two numbers", source))
		}
		t.enterLocked(string(source))
		return nil
	})
	t.stored = len(t.sources)
	return err
}
