package replay

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
)

// maxSourceBytes is how long the source of a reference is at most: an NSID, ':', and a path of 512
// bytes.
const maxSourceBytes = 317 + 1 + 512

// maxSourceTableBytes bounds the text of all sources together. It comes from records, which nobody
// vouches for, and is in memory.
const maxSourceTableBytes = 8 << 20

// sourceTable has the numbers of the sources of references: collection, ':' and path. A number is
// given once, in memory. The next Append makes it durable: at the latest that of the first block
// that has it. It is safe for concurrent use.
type sourceTable struct {
	mu      sync.RWMutex
	numbers map[string]uint32 // guarded by mu
	sources []string          // by number - 1; guarded by mu
	bytes   int               // of sources; guarded by mu
	stored  int               // so many are in the store; Append's
}

func newSourceTable() *sourceTable { return &sourceTable{numbers: make(map[string]uint32)} }

// SourceNumber returns the number of a source, "app.bsky.feed.like:subject.uri". It gives it one if
// it has none. It returns false, and counts the reference as dropped, if the source is longer than
// maxSourceBytes. So it does if the log has as many sources as it may. It keeps nothing of source,
// and is safe for concurrent use.
func (l *Log) SourceNumber(source []byte) (number uint32, ok bool) {
	if number, ok = l.sources.number(source, l.cfg.ReadOnly); !ok {
		l.metrics.sourcesRefused.Inc()
	}
	return number, ok
}

// FindSource returns the number of a source; false if it has none.
func (l *Log) FindSource(source string) (number uint32, ok bool) {
	return l.sources.Find(source)
}

// SourceOf is the inverse of FindSource.
func (l *Log) SourceOf(number uint32) (source string, ok bool) {
	return l.sources.source(number)
}

// Find returns the number of a source; false if it has none.
func (t *sourceTable) Find(source string) (number uint32, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	number, ok = t.numbers[source]
	return number, ok
}

// Len returns how many sources have a number.
func (t *sourceTable) Len() int { return len(t.known()) }

func (t *sourceTable) source(number uint32) (source string, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if number == 0 || int(number) > len(t.sources) {
		return "", false
	}
	return t.sources[number-1], true
}

// number returns the number of a source, which it enters if it is new, unless that is not to be.
func (t *sourceTable) number(source []byte, readOnly bool) (number uint32, ok bool) {
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
	if len(source) == 0 || len(source) > maxSourceBytes || len(t.sources) == format.MaxSources || t.bytes+len(source) > maxSourceTableBytes {
		return 0, false
	}
	return t.enterLocked(string(source)), true
}

// enterLocked gives a source the next number.
func (t *sourceTable) enterLocked(source string) uint32 {
	t.sources = append(t.sources, source)
	t.bytes += len(source)
	number := uint32(len(t.sources))
	t.numbers[source] = number
	return number
}

// known returns the sources that have a number, in the order of those.
func (t *sourceTable) known() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sources
}

// put adds the sources to the batch that are not in the store, and returns all.
func (t *sourceTable) put(batch *pebble.Batch) ([]string, error) {
	known := t.known()
	for i := t.stored; i < len(known); i++ {
		number := uint32(i + 1)
		value := format.AppendTrailer([]byte(known[i]), format.RangeSource, int64(number))
		if err := batch.Set(format.SourceKey(number), value, nil); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// putSources adds the sources to the batch that are not in the store. Those of the blocks to be
// appended have had their numbers before those were sealed.
func (p *appendPass) putSources() (err error) {
	t := p.log.sources
	if p.sources, err = t.put(p.batch); err != nil || t.stored == len(p.sources) {
		return err
	}
	return p.next.raiseVersion(p.batch)
}

// NumberSources gives numbers to sources in a log that no process has open, and makes them durable.
// Those that SourceNumber would refuse get none. It uses the fields of cfg that Open needs for a
// read-only log. Errors: ErrNoLog, ErrInUse, those of Open and of the disk.
func NumberSources(cfg Config, sources []string) error {
	l, st, err := openClosed(cfg)
	if err != nil {
		return err
	}
	for _, source := range sources {
		l.sources.number([]byte(source), false)
	}
	batch := st.Pebble().NewBatch()
	defer st.CloseBatch(batch)
	if _, err = l.sources.put(batch); err == nil {
		err = l.snap.Load().next().raiseVersion(batch)
	}
	if err == nil {
		err = st.Commit(batch, true)
	}
	if err = errors.Join(err, st.Close()); err != nil {
		return fmt.Errorf("number sources: %w", err)
	}
	return nil
}

// sources reads the sources that have numbers.
func (o *opener) sources() error {
	it, err := o.store.NewIter(&pebble.IterOptions{LowerBound: format.RangeSource.Start(), UpperBound: format.RangeSource.End()})
	if err != nil {
		return fmt.Errorf("read the sources: %w", err)
	}
	defer it.Close()
	t := o.log.sources
	t.mu.Lock()
	defer t.mu.Unlock()
	for it.First(); it.Valid(); it.Next() {
		number, ok := format.ParseSourceKey(it.Key())
		if next := len(t.sources) + 1; !ok || int(number) != next {
			return corrupt(format.RangeSource, int64(next), fmt.Errorf("malformed key %x: %w", it.Key(), format.ErrMissing))
		}
		source, err := format.OpenTrailer(it.Value(), format.RangeSource, int64(number))
		if err != nil {
			return corrupt(format.RangeSource, int64(number), err)
		}
		if _, twice := t.numbers[string(source)]; twice {
			return corrupt(format.RangeSource, int64(number), fmt.Errorf("%.80q has two numbers", source))
		}
		t.enterLocked(string(source))
	}
	t.stored = len(t.sources)
	if err := it.Error(); err != nil {
		return fmt.Errorf("read the sources: %w", err)
	}
	return nil
}
