package replay

import (
	"cmp"
	"fmt"

	"millrace/replay/internal/format"
)

// SourceNumber returns the number of a source, "app.bsky.feed.like:subject.uri". It gives it one if
// it has none. It returns false, and counts the reference as dropped, if the source is longer than
// logstore.MaxSourceBytes. So it does if the log has as many sources as it may. It keeps nothing of
// source, and is safe for concurrent use.
func (l *Log) SourceNumber(source []byte) (number uint32, ok bool) {
	if number, ok = l.blocks.sources.Number(source, l.cfg.ReadOnly); !ok {
		l.metrics.sourcesRefused.Inc()
	}
	return number, ok
}

// FindSource returns the number of a source; false if it has none.
func (l *Log) FindSource(source string) (number uint32, ok bool) {
	return l.blocks.sources.Find(source)
}

// SourceOf is the inverse of FindSource.
func (l *Log) SourceOf(number uint32) (source string, ok bool) {
	return l.blocks.sources.Source(number)
}

// putSources adds the sources to the batch that are not in the store. Those of the blocks to be
// appended have had their numbers before those were sealed.
func (p *appendCall) putSources() (err error) {
	var more bool
	if p.sources, more, err = p.log.blocks.sources.Put(p.batch); err != nil || !more {
		return err
	}
	return p.next.raiseVersion(p.batch, format.VersionReferences)
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
		l.blocks.sources.Number([]byte(source), false)
	}
	batch := st.Pebble().NewBatch()
	defer st.CloseBatch(batch)
	if _, _, err = l.blocks.sources.Put(batch); err == nil {
		err = l.snap.Load().next().raiseVersion(batch, format.VersionReferences)
	}
	if err == nil {
		err = st.Commit(batch, true)
	}
	if err = cmp.Or(err, st.Close()); err != nil {
		return fmt.Errorf("number sources: %w", err)
	}
	return nil
}
