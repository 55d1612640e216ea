package replay

import (
	"errors"
	"fmt"

	"millrace/replay/internal/pebblestore"
)

// Checkpoint makes a copy of the log in dir, which must not exist; Open takes it. It has everything
// that was committed before the call, and perhaps some blocks that are committed during it, each
// whole. It returns where the copy ends, as Open of it finds. Appending and reading go on
// meanwhile. Tables are linked where dir is on the log's file system, so that it takes a moment,
// and copied else. Until it is done no file of the log is deleted. Errors: errReadOnly, ErrClosed,
// ErrFailed, and those of the disk, after which there is no dir.
func (l *Log) Checkpoint(dir string) (Progress, error) {
	if l.cfg.ReadOnly {
		return Progress{}, fmt.Errorf("checkpoint: %w", errReadOnly)
	}
	l.blocks.storeMu.RLock() // Close waits for it
	defer l.blocks.storeMu.RUnlock()
	if l.blocks.closed {
		return Progress{}, fmt.Errorf("checkpoint: %w", ErrClosed)
	}
	if err := l.store.Checkpoint(dir); err != nil {
		return Progress{}, fmt.Errorf("checkpoint: %w", err)
	}
	at, err := l.progressOf(dir)
	if err != nil {
		return Progress{}, errors.Join(fmt.Errorf("open the checkpoint: %w", err), l.cfg.FS.RemoveAll(dir))
	}
	return at, nil
}

// checkpointPebbleBytes is the memory of the look at a copy's position.
const checkpointPebbleBytes = 8 << 20

// progressOf returns where the copy of the log in dir ends.
func (l *Log) progressOf(dir string) (Progress, error) {
	c, err := Open(Config{Dir: dir, ReadOnly: true, Dictionaries: l.cfg.Dictionaries, FS: l.cfg.FS, PebbleBytes: checkpointPebbleBytes})
	if err != nil {
		return Progress{}, err
	}
	at := c.Progress()
	return at, c.Close()
}

// CheckpointClosed is Log.Checkpoint of a log that no process has open. Of cfg it needs what Open
// of a log to be read only needs. Errors: ErrNoLog, ErrInUse, those of Open and of the disk.
func CheckpointClosed(cfg Config, dir string) (Progress, error) {
	l, st, err := openClosed(cfg)
	if err != nil {
		return Progress{}, err
	}
	// Pebble makes checkpoints of databases that may be written only. Nothing but Pebble's own is.
	if err := st.Checkpoint(dir); err != nil {
		_ = st.Close() // the first error says more
		return Progress{}, fmt.Errorf("checkpoint: %w", err)
	}
	return l.Progress(), st.Close()
}

// openClosed opens the store of a log that no process has open, to be written. It returns the log
// too, as it was read; that is closed again.
func openClosed(cfg Config) (*Log, *pebblestore.Store, error) {
	cfg.ReadOnly = true
	l, err := Open(cfg)
	if err != nil {
		return nil, nil, err
	}
	if err := l.Close(); err != nil {
		return nil, nil, err
	}
	cfg = cfg.withDefaults()
	cfg.ReadOnly = false
	st, err := openStore(&cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	return l, st, nil
}
