package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern"
	"millrace/intern/kv"
	"millrace/intern/kv/pebblekv"
	"millrace/replay"
	"millrace/translate"
)

// closableStore is a store that this process opened.
type closableStore interface {
	kv.Store
	Close() error
}

// uidStore is the store that UIDs come from, and what works on it.
type uidStore struct {
	interner *intern.Interner
	store    closableStore
}

// errNoFoundation says that this program cannot use FoundationDB.
var errNoFoundation = errors.New("--intern=fdb: this binary was built without -tags fdb; make build-fdb builds one with it, " +
	"or use --intern=pebble or off")

// internDir is where the embedded store is.
func (c *config) internDir() string { return filepath.Join(c.dataDir, "intern") }

// checkUIDStore returns an error if the embedded store would begin empty for a log that has UIDs
// already, before it is made. What is wrong with the log itself is for opening it to say.
func (c *config) checkUIDStore() error {
	if c.intern.value != "pebble" || !c.isEmpty(c.internDir()) {
		return nil
	}
	return c.checkEmptyUIDStore(c.internDir())
}

// checkSharedUIDStore is checkUIDStore of a store that is open.
func (c *config) checkSharedUIDStore(ctx context.Context, store kv.Store, location string) error {
	empty := true
	err := kv.Run(ctx, store, func(txn kv.Txn) error {
		return txn.Scan(ctx, kv.Range{Begin: []byte{0}, End: []byte{0xff}}, func(kv.Pair) (bool, error) { empty = false; return false, nil })
	})
	if err != nil || !empty {
		return err
	}
	return c.checkEmptyUIDStore(location)
}

// checkEmptyUIDStore returns an error if the log has UIDs, which an empty store has not given.
func (c *config) checkEmptyUIDStore(location string) error {
	switch found, err := lookAtLog(c.logDir(), &lookFS{FS: cmp.Or(c.hooks.fs, vfs.Default)}); {
	case isLocked(err):
		return adviseDataDir(err, c.dataDir)
	case err != nil || found.UIDStore == "":
		return nil //nolint:nilerr // opening it says what is wrong
	default:
		return advise(fmt.Errorf("the log belongs to another UID store: its UIDs are of store %s, and there is none in %s", found.UIDStore, location),
			"Put that back (a dump with millrace intern import, and if it is older than the log, millrace intern skip-ahead after it), give --intern=fdb if its UIDs are in FoundationDB or --intern=off for none, or move the log's directory away to begin an empty log.")
	}
}

// isEmpty tells whether a store's directory has no file, or is not there.
func (c *config) isEmpty(dir string) bool {
	names, err := cmp.Or(c.hooks.fs, vfs.Default).List(dir)
	return len(names) == 0 && (err == nil || errors.Is(err, os.ErrNotExist))
}

// openUIDs opens the UID store that cfg asks for. With --intern=off there is none: nil.
func (d *daemon) openUIDs(ctx context.Context, shares memoryShares) (*uidStore, error) {
	cfg := d.cfg
	if cfg.intern.value == "off" {
		return nil, nil
	}
	logger := d.logger.With("part", "intern")
	store, location, err := d.openUIDStore(ctx, shares, logger)
	if err != nil {
		return nil, err
	}
	u := &uidStore{store: store}
	if !u.embedded() {
		if err := cfg.checkSharedUIDStore(ctx, store, location); err != nil {
			return nil, cmp.Or(err, store.Close())
		}
	}
	u.interner, err = intern.Open(ctx, d.internConfig(store, shares, logger))
	if err != nil {
		return nil, cmp.Or(fmt.Errorf("open the UIDs in %s: %w", location, err), store.Close())
	}
	return u, nil
}

func (d *daemon) internConfig(store kv.Store, shares memoryShares, logger *slog.Logger) intern.Config {
	cfg := d.cfg
	scope := intern.ScopeAll
	if cfg.internScope.value == "dids" {
		scope = intern.ScopeDIDs
	}
	return intern.Config{
		Store:      store,
		PrefixBits: cfg.uidPrefixBits,
		CacheBytes: shares.strings - shares.names(cfg),
		NameBytes:  shares.names(cfg),
		Scope:      scope,
		Timeout:    cfg.internTimeout,
		Logger:     logger,
		Registerer: d.registry,
	}
}

// openUIDStore opens the store itself and says where it is. FoundationDB is waited for until ctx
// ends.
func (d *daemon) openUIDStore(ctx context.Context, shares memoryShares, logger *slog.Logger) (store closableStore, location string, err error) {
	cfg := d.cfg
	if cfg.hooks.uids != nil {
		return cfg.hooks.uids, "a test's store", nil
	}
	if cfg.intern.value == "fdb" {
		store, err = openFoundation(ctx, cfg.fdbCluster, true, logger)
		return store, "FoundationDB", err
	}
	memTable := min(shares.uids/4, 1<<30) // up to three are alive; Pebble takes less than 4 GiB
	store, err = pebblekv.Open(pebblekv.Config{
		Dir:           cfg.internDir(),
		FS:            d.storeFS(cfg.internDir()),
		MemTableBytes: memTable,
		CacheBytes:    shares.uids - 3*memTable,
		MaxOpenFiles:  d.files.storeFiles,
		Logger:        logger,
	})
	if err != nil {
		return nil, "", err
	}
	return store, cfg.internDir(), nil
}

// checkGiven returns an error if the UIDs of the log's newest events are to be given out again: an
// older copy of the store is back.
func (u *uidStore) checkGiven(ctx context.Context, log *replay.Log) error {
	if u == nil {
		return nil
	}
	uids, err := log.NewestUIDs()
	if err != nil {
		return err
	}
	return u.interner.CheckGiven(ctx, uids)
}

// embedded says whether the store is in the data directory, and not shared.
func (u *uidStore) embedded() bool {
	_, ok := u.store.(*pebblekv.Store)
	return ok
}

// storeID returns what logs record, "" without a store.
func (u *uidStore) storeID() string {
	if u == nil {
		return ""
	}
	return u.interner.StoreID()
}

// run waits until ctx is done, or the store has failed; then it returns why, and the process should
// stop.
func (u *uidStore) run(ctx context.Context) error {
	if u == nil {
		return nil
	}
	embedded, ok := u.store.(*pebblekv.Store)
	if !ok {
		return nil // FoundationDB's failures pass
	}
	select {
	case <-ctx.Done():
		return nil
	case <-embedded.Failed():
		return fmt.Errorf("UID store: %w", embedded.Err())
	}
}

// stringsTimeout is how long a subscriber that wants references waits for the UID store.
const stringsTimeout = 10 * time.Second

// strings sets strings[i] to what uids[i] stands for, "" if there is nothing, as
// replay.Config.Strings does.
func (u *uidStore) strings(uids []uint64, strings []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stringsTimeout)
	defer cancel()
	return u.interner.LookupUIDs(ctx, uids, strings)
}

func (u *uidStore) close() error {
	if u == nil {
		return nil
	}
	return errors.Join(u.interner.Close(), u.store.Close())
}

// batchResolver gives the events and the references of a batch their UIDs. One goroutine uses it.
type batchResolver struct {
	interner *intern.Interner
	requests []intern.Request
	results  []intern.Result
}

// Resolve implements ingest.Resolver.
func (r *batchResolver) Resolve(ctx context.Context, b *translate.Batch) error {
	r.requests = r.requests[:0]
	for i := range b.Events {
		r.requests = append(r.requests, intern.Request{DID: b.DID(i), Collection: b.Collection(i), RecordKey: b.RecordKey(i)})
	}
	for i := range b.References {
		r.requests = append(r.requests, intern.Request{Name: b.Subject(i)})
	}
	r.results = slices.Grow(r.results[:0], len(r.requests))[:len(r.requests)]
	if err := r.interner.Resolve(ctx, r.requests, r.results); err != nil {
		return err
	}
	for i, u := range r.results[:len(b.Events)] {
		b.Events[i].DIDUID, b.Events[i].URIUID, b.Events[i].NewURI = u.DIDUID, u.URIUID, u.New
	}
	for i, u := range r.results[len(b.Events):] {
		ref := &b.References[i]
		if ref.SubjectUID, ref.AuthorityUID = u.DIDUID, u.DIDUID; ref.IsURI() {
			ref.SubjectUID = u.URIUID
		}
	}
	clear(r.requests) // they point into the batch
	return nil
}
