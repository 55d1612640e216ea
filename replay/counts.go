package replay

import (
	"sync/atomic"

	"millrace/replay/internal/counts"
)

const (
	// CountStep is how long one entry of a Count's Recent is.
	CountStep = counts.Step
	// CountSteps is how many entries Recent has at most: five minutes.
	CountSteps = counts.Steps
)

// Counts says which events were appended since the log was opened.
type Counts = counts.Counts

// Count is a number of events.
type Count = counts.Count

// CollectionCount is how many commits a collection had. If there were very many collections, the
// rare ones are moved to Other from time to time, and begin again at 0.
type CollectionCount = counts.CollectionCount

// Counts returns what was appended until now. It copies some hundred kilobytes at most, once per
// call.
func (l *Log) Counts() Counts {
	c := l.counts.Read(l.cfg.Monotonic())
	c.Until = l.cfg.Now()
	return c
}

// DiskBytes returns how much disk the log takes, its write-ahead log and what a compaction has yet
// to delete included. It is 0 once it is closed or has failed.
func (l *Log) DiskBytes() int64 {
	l.blocks.storeMu.RLock()
	defer l.blocks.storeMu.RUnlock()
	if l.blocks.closed {
		return 0
	}
	var bytes atomic.Int64 // Metrics may return after a failure, or never
	err := l.store.Guard(func() error {
		bytes.Store(int64(l.store.Pebble().Metrics().DiskSpaceUsage()))
		return nil
	})
	if err != nil {
		return 0
	}
	return bytes.Load()
}
