package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"millrace/cmd/millrace/refs"
	"millrace/dict"
	"millrace/intern"
	"millrace/intern/kv/pebblekv"
	"millrace/replay"
	"millrace/replay/references"
)

func referencesCommand() *command {
	return &command{
		name: "millrace references", summary: "import, export and check what records point at, of a server that is not running",
		subs: []*command{refsImportCommand(), refsExportCommand(), refsVerifyCommand(), refsPurgeCommand()},
	}
}

// refsStores are the stores of a server that does not run.
type refsStores struct {
	flags *storeFlags
	dicts *dict.Registry
	kv    closableStore    // nil: not needed
	uids  *intern.Interner // likewise
	log   *replay.Log
	store *references.Store
	ended func(error) error // nil: nothing is changed
}

// refsMode says what a command does with the stores. The log is only read, in all of them.
type refsMode uint8

const (
	refsCheck  refsMode = iota // without UIDs; damage does not end it
	refsRead                   // nothing is changed
	refsName                   // the UID store
	refsChange                 // the reference store
	refsImport                 // both
)

// refsJob is what a command does with the stores.
type refsJob func(ctx context.Context, s *refsStores, args []string, stdout, stderr io.Writer) error

// with returns a command's run that opens what the mode needs, lets do work, and closes it.
func (p *storeFlags) with(mode refsMode, do refsJob) func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		s, err := p.open(ctx, mode, stderr)
		if err != nil {
			return err
		}
		return cmp.Or(do(ctx, s, args, stdout, stderr), s.close())
	}
}

// open opens what the mode needs.
func (p *storeFlags) open(ctx context.Context, mode refsMode, stderr io.Writer) (s *refsStores, err error) {
	dir := p.config().referencesDir()
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no reference store in %s: name the --data-dir of a server that ran with --references=on", dir)
	}
	s = &refsStores{flags: p}
	defer func() {
		if err = adviseNewer(adviseStores(err), p.dataDir); err != nil {
			err = cmp.Or(err, s.close())
		}
	}()
	if mode > refsRead {
		if err := refuseNewer(ctx, p.dataDir); err != nil {
			return s, err
		}
	}
	gives := mode == refsName || mode == refsImport
	if gives && p.intern.value == "pebble" {
		if err := refuseBackup(p.dataDir); err != nil {
			return s, err
		}
	}
	if mode != refsCheck {
		if err := s.openUIDs(ctx, !gives, stderr); err != nil {
			return s, err
		}
	}
	cfg := references.Config{Dir: dir, ReadOnly: mode <= refsName, KeepGoing: mode == refsCheck,
		PebbleBytes: 256 << 20, OpenFiles: commandFiles()}
	if s.store, err = references.Open(cfg); err != nil {
		return s, err
	}
	s.dicts = shippedDictionaries()
	if err := s.openLog(); err != nil || mode <= refsRead {
		return s, err
	}
	s.ended, err = noteCommand(p.dataDir, p.command)
	return s, err
}

func (s *refsStores) openUIDs(ctx context.Context, readOnly bool, stderr io.Writer) (err error) {
	if s.kv, err = s.flags.openUIDs(ctx, pebblekv.Config{ReadOnly: readOnly}, false, stderr); err != nil {
		return err
	}
	s.uids, err = intern.Open(ctx, intern.Config{Store: s.kv, CacheBytes: 256 << 20, NameBytes: 256 << 20, Alone: readOnly})
	return err
}

func (s *refsStores) openLog() (err error) {
	cfg := s.logConfig()
	if s.uids != nil {
		cfg.UIDStore = s.uids.StoreID()
	}
	s.log, err = replay.Open(cfg)
	return err
}

func (s *refsStores) logConfig() replay.Config {
	return replay.Config{Dir: s.flags.config().logDir(), ReadOnly: true, MaxOpenFiles: commandFiles(), Dictionaries: s.dicts}
}

// numberSources gives numbers to sources. The log is opened anew; the other stores stay locked, so
// no server can start meanwhile.
func (s *refsStores) numberSources(sources []string) (refs.Log, error) {
	err := s.log.Close()
	s.log = nil
	if err == nil {
		err = replay.NumberSources(s.logConfig(), sources)
	}
	if err == nil {
		err = s.openLog()
	}
	return s.log, err
}

func (s *refsStores) close() (err error) {
	if s.log != nil {
		err = errors.Join(err, s.log.Close())
	}
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	if s.uids != nil {
		err = errors.Join(err, s.uids.Close())
	}
	if s.kv != nil {
		err = errors.Join(err, s.kv.Close())
	}
	if s.dicts != nil {
		s.dicts.Close()
	}
	if s.ended != nil {
		err = s.ended(err)
	}
	return err
}

// follow makes sure that the table is one that the server goes on with, and rolls it forward to the
// log's end. It returns the collections that the server keeps.
func (s *refsStores) follow(ctx context.Context) (collections []string, err error) {
	const start = "start the server once with --references=on and the flags that it is to have, stop it, and try again"
	g := s.store.Generation()
	skipped, err := s.uids.Skipped(ctx)
	if err != nil {
		return nil, err
	}
	rest, ok := strings.CutPrefix(g.Basis, basisOfUIDs(s.uids.StoreID(), skipped))
	if list, of := strings.CutPrefix(rest, basisCollections); of && list != "" {
		collections = strings.Split(list, ",")
	}
	from, on := s.log.References()
	end := s.log.Progress()
	at := s.store.Position()
	switch {
	case g.Number == 0 || !ok:
		return nil, fmt.Errorf("the table was made with another UID store, or before UIDs were skipped: %s", start)
	case !on:
		return nil, fmt.Errorf("the log has no references: %s", start)
	case at.Before(from) || (references.Position{Epoch: end.Epoch, Seq: end.Seq}).Before(at):
		return nil, fmt.Errorf("the log does not have what follows the table, which the server makes anew: %s", start)
	}
	return collections, s.store.Follow(ctx, s.log, nil)
}

// uidOf returns the UID of a DID that has one.
func (s *refsStores) uidOf(ctx context.Context, did string) (uint64, error) {
	uid, ok, err := s.uids.Lookup(ctx, did)
	if err == nil && !ok {
		err = fmt.Errorf("%s is not known to the UID store", did)
	}
	return uid, err
}

func checkDID(did string) error {
	if !strings.HasPrefix(did, "did:") {
		return fmt.Errorf("%.100q is no DID (did:…)", did)
	}
	return nil
}
