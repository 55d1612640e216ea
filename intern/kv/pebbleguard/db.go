package pebbleguard

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config is what Open needs. Dir, Store and Advice must be set.
type Config struct {
	Dir    string // made if absent
	FS     vfs.FS // nil: the real one
	Store  string // what errors call it: "event log"
	Advice string // what to do when it is damaged

	// Options tune Pebble. FS, Lock, ReadOnly, Logger and EventListener are Open's own.
	Options *pebble.Options

	ReadOnly  bool // changes nothing; there must be a database: ErrNoStore
	KeepGoing bool // with ReadOnly: damage is in DB.Damage, and fails neither Open nor the database
	AnyMark   bool // a mark ahead of the database is accepted

	// CheckMark compares the value of the high-water mark with the database, which is then open for
	// reading only. Its error says what is lost and what to do; it should wrap ErrLost. nil:
	// nothing is compared.
	CheckMark func(db *DB, mark []byte) error

	Logger *slog.Logger // nil: discard
}

// DB is an open database. Safe for concurrent use.
type DB struct {
	cfg  Config
	db   *pebble.DB
	lock *pebble.Lock
	held lockFile
	mark *Mark // nil if read only

	// Damage is, with Config.KeepGoing, what Open found wrong.
	Damage []error

	once    sync.Once
	failed  chan struct{}
	failure error // read only after failed is closed
}

// Open opens the database in cfg.Dir, or makes an empty one. Errors: ErrNoStore, ErrInUse, ErrLost,
// *CorruptionError, and those of the disk.
func Open(cfg Config) (*DB, error) {
	cfg.FS = cmp.Or(cfg.FS, vfs.Default)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	found, err := cfg.inspect()
	if err != nil {
		return nil, err
	}
	if !found.exists && cfg.ReadOnly {
		return nil, fmt.Errorf("%w in %s", ErrNoStore, cfg.Dir)
	}
	if cfg.KeepGoing {
		cfg.Advice = "" // of each problem
	}
	d := &DB{cfg: cfg, failed: make(chan struct{})}
	if err := d.openLocked(found); err != nil {
		if d.lock != nil {
			err = errors.Join(err, d.lock.Close())
		}
		return nil, err
	}
	return d, nil
}

// openLocked takes the lock and opens the database: read-only first, to check it, and then for
// writing.
func (d *DB) openLocked(found contents) (err error) {
	c := &d.cfg
	if !found.exists {
		if err := MakeDir(c.FS, c.Dir); err != nil {
			return fmt.Errorf("make %s: %w", c.Dir, err)
		}
	}
	fs := &guardFS{FS: c.FS, db: d, dir: c.FS.PathDir(c.FS.PathJoin(c.Dir, "x"))}
	if d.lock, err = pebble.LockDirectory(c.Dir, fs); err != nil {
		return err
	}
	if found, err = c.inspect(); err != nil { // another process may have made it
		return err
	}
	if found.exists {
		if err := d.openExisting(fs, found); err != nil || c.ReadOnly {
			return err
		}
	} else if err := c.beginCreating(); err != nil {
		return fmt.Errorf("make %s: %w", c.Dir, err)
	}
	if err := d.openPebble(fs, false); err != nil {
		return err
	}
	if !found.exists || found.creating {
		err = c.endCreating()
	}
	if err == nil {
		d.mark, err = d.openMark()
	}
	if err != nil {
		return errors.Join(err, d.Guard(d.db.Close))
	}
	fs.open.Store(true)
	return nil
}

// openExisting opens the database for reading only and looks at it. Unless that is all it was
// opened for, it is then closed again.
func (d *DB) openExisting(fs *guardFS, found contents) error {
	if err := d.cfg.checkNamed(found); err != nil {
		return err
	}
	mark, marked, err := readMark(d.cfg.FS, d.cfg.Dir)
	if err != nil {
		return err
	}
	if err := d.openPebble(fs, true); err != nil {
		return err
	}
	if err := d.look(mark, marked); err != nil {
		return errors.Join(err, d.closeReader())
	}
	if d.cfg.ReadOnly && !fs.addMissing(d.Damage) {
		return nil
	}
	if err := d.closeReader(); err != nil {
		return fmt.Errorf("look into %s: %w", d.cfg.Dir, err)
	}
	if d.cfg.ReadOnly {
		return d.openPebble(fs, true)
	}
	return nil
}

func (d *DB) openPebble(fs vfs.FS, readOnly bool) error {
	opts := d.cfg.Options.Clone()
	opts.FS, opts.Lock, opts.ReadOnly = fs, d.lock, readOnly
	opts.DisableConsistencyCheck = true // checkFiles says what is wrong
	opts.Logger, opts.LoggerAndTracer = (*pebbleLogger)(d), nil
	opts.EventListener = d.events()
	if readOnly && !d.cfg.ReadOnly {
		opts.CacheSize = 1 << 20 // it is closed at once
	}
	err := d.Guard(func() error {
		db, err := pebble.Open(d.cfg.Dir, opts)
		d.db = db
		return err
	})
	if err != nil {
		return fmt.Errorf("open %s: %w", d.cfg.Dir, err)
	}
	return nil
}

// look compares the database, which is open for reading only, with its files and its mark.
func (d *DB) look(mark []byte, marked bool) error {
	damage := d.cfg.checkFiles(d.cfg.dataFiles(d.db))
	if marked && d.cfg.CheckMark != nil && !d.cfg.AnyMark {
		if err := d.cfg.CheckMark(d, mark); err != nil {
			damage = append(damage, err)
		}
	}
	if d.cfg.KeepGoing {
		d.Damage = damage
		return nil
	}
	if len(damage) > 1 {
		d.cfg.Logger.Error("the store is damaged", "store", d.cfg.Store, "problems", len(damage), "err", errors.Join(damage...))
	}
	if len(damage) > 0 {
		return damage[0]
	}
	return nil
}

func (d *DB) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			d.Fail(fmt.Errorf("background work of the store: %w", d.cfg.clean(err)))
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			if !d.cfg.KeepGoing {
				d.Fail(d.cfg.corrupt(info.Path, info.Details))
			}
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			d.cfg.Logger.Warn("disk is slow", "path", info.Path, "op", info.OpType.String(), "took", info.Duration)
		},
	}
}

// Pebble returns the database itself, for what has no wrapper here.
func (d *DB) Pebble() *pebble.DB { return d.db }

// Mark returns the high-water mark; nil if read only.
func (d *DB) Mark() *Mark { return d.mark }

// Fail records the first failure and closes what Failed returns.
func (d *DB) Fail(err error) {
	if !errors.As(err, new(*CorruptionError)) {
		err = fmt.Errorf("%w (%s, then start the process again: what was committed is safe)", err, adviceFor(err))
	}
	d.FailAdvised(err)
}

// adviceFor is what to do about a failure.
func adviceFor(err error) string {
	switch {
	case TooManyFiles(err):
		return "raise the limit of open files, LimitNOFILE= in the systemd unit or ulimit -n"
	case strings.Contains(err.Error(), syscall.EACCES.Error()): // Pebble passes some on as text only
		return "let the user that it runs as write there"
	}
	return "check the disk and its free space"
}

// FailAdvised is Fail for an error that says what to do. In a directory that is not ours any other
// failure follows from that.
func (d *DB) FailAdvised(err error) {
	d.once.Do(func() {
		d.failure = fmt.Errorf("%w: %w", ErrFailed, cmp.Or(d.moved(), err))
		close(d.failed)
	})
}

// Failed is closed when the database has failed.
func (d *DB) Failed() <-chan struct{} { return d.failed }

// Err returns the failure, which is an ErrFailed, nil while there is none.
func (d *DB) Err() error {
	select {
	case <-d.failed:
		return d.failure
	default:
		return nil
	}
}

// Guard runs f, which calls Pebble, in a goroutine of its own. It waits for f, or for the failure
// of the database, whichever is first; after a failure f may never return (see
// pebbleLogger.Fatalf). A panic of Pebble's is a failure too.
func (d *DB) Guard(f func() error) error {
	if err := d.Err(); err != nil {
		return err
	}
	done := d.begin(f, func(p any) error {
		d.Fail(fmt.Errorf("panic in the store: %v", p))
		return d.failure
	})
	select {
	case err := <-done:
		return cmp.Or(d.Err(), err)
	case <-d.failed:
		return d.failure
	}
}

// begin runs f, which calls Pebble, in a goroutine of its own, and returns where its error comes;
// panicked makes one of a panic. It is the one goroutine that need not end: Pebble may have stopped
// with a lock held.
func (d *DB) begin(f func() error, panicked func(p any) error) <-chan error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- panicked(p)
			}
		}()
		done <- d.cfg.clean(f())
	}()
	return done
}

// panicked says what a panic of Pebble's means: a file that it does not expect.
func (d *DB) panicked(p any) error {
	err := d.cfg.corrupt("", fmt.Errorf("panic in the store: %v", p))
	if !d.cfg.KeepGoing {
		d.Fail(err)
	}
	return err
}

// Commit writes b, synced if sync is set. An error is the failure of the database: after one
// it is unknown what of b is on disk.
func (d *DB) Commit(b *pebble.Batch, sync bool) error {
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	return d.FailOn("commit", d.Guard(func() error { return d.db.Apply(b, opts) }))
}

// Update commits a batch that fill has filled, synced if sync is set; see Commit. After an error of
// fill nothing is written.
func (d *DB) Update(sync bool, fill func(b *pebble.Batch) error) error {
	b := d.db.NewBatch()
	defer d.CloseBatch(b)
	if err := fill(b); err != nil {
		return err
	}
	return d.Commit(b, sync)
}

// Flush writes what was committed to tables and syncs them: no crash takes it back. It is what
// makes commits durable without a write-ahead log. An error is the failure of the database.
func (d *DB) Flush() error { return d.FailOn("flush", d.Guard(d.db.Flush)) }

// CloseBatch gives the memory of b back, whether it was committed or not. After a failure it does
// not: a Commit of b that has returned may still be under way in Pebble, which holds b then.
func (d *DB) CloseBatch(b *pebble.Batch) {
	if d.Err() == nil {
		_ = b.Close() // it only says that b was closed before
	}
}

// FailOn makes an err that is not nil the failure of the database, and returns that failure.
func (d *DB) FailOn(what string, err error) error {
	if err != nil && !errors.Is(err, ErrFailed) {
		d.Fail(fmt.Errorf("%s: %w", what, err))
		return d.failure
	}
	return err
}

// Checkpoint makes a copy in dir, which must not exist: a database with everything that was
// committed before, or flushed, if there is no write-ahead log. It has no mark.
func (d *DB) Checkpoint(dir string) error {
	return d.Guard(func() error {
		if err := d.checkPlace(); err != nil {
			return err
		}
		return d.db.Checkpoint(dir, pebble.WithFlushedWAL())
	})
}

// Close closes the database. After a failure it leaves everything as it is: the process is about to
// end, and the next start recovers from what was synced.
func (d *DB) Close() error {
	if d.cfg.ReadOnly {
		return errors.Join(d.closeReader(), d.lock.Close())
	}
	if err := d.Err(); err != nil {
		return err
	}
	err := d.Guard(d.db.Close)
	if d.mark != nil {
		err = errors.Join(err, d.mark.close())
	}
	return errors.Join(err, d.lock.Close())
}

// closeReader closes a database that is open for reading only: also one that has failed, as it
// writes nothing. Of that the failure is no error of closing.
func (d *DB) closeReader() error {
	done := d.begin(d.db.Close, d.panicked)
	if d.Err() == nil {
		return <-done
	}
	select {
	case <-done: //nolint:errcheck // it may miss what the failure has kept open
	case <-time.After(failedCloseWait):
	}
	return nil
}

// failedCloseWait is how long the closing of a failed database is waited for (see begin).
const failedCloseWait = time.Second

// pebbleLogger is DB as Pebble's logger.
type pebbleLogger DB

// carrier is what Pebble's errors say of themselves when they carry details; see clean.
const carrier = "<corruption detail carrier>"

func message(format string, args []any) string {
	return strings.TrimRight(strings.ReplaceAll(fmt.Sprintf(format, args...), carrier, ""), "\n")
}

func (l *pebbleLogger) Infof(format string, args ...any) {
	l.cfg.Logger.Debug("pebble", "message", message(format, args))
}

func (l *pebbleLogger) Errorf(format string, args ...any) {
	l.cfg.Logger.Error("pebble", "message", message(format, args))
}

// Fatalf must not return: Pebble would go on as if the failed work had succeeded, and might delete
// files that only success makes superfluous. A library must not end the process either. So the
// goroutine stops here for good. Callers of Guard and readers of Failed get the failure.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	d := (*DB)(l)
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = d.cfg.clean(err)
		}
	}
	d.Fail(fmt.Errorf(format, args...))
	select {}
}
