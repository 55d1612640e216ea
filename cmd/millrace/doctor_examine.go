package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern"
	"millrace/intern/kv/pebbleguard"
	"millrace/intern/kv/pebblekv"
	"millrace/public/client"
	"millrace/replay"
	"millrace/replay/graph"
	"millrace/replay/references"
	"millrace/translate"
)

// askTimeout is how long millrace doctor waits for the server of the directory.
const askTimeout = 2 * time.Second

// examine looks at a data directory. What is wrong with it is in the checkup. An error means that
// there is no such directory, or that it may not be read.
func examine(ctx context.Context, dir string) (*checkup, error) {
	c := &checkup{Dir: dir, Version: thisBuild().version, Trouble: []string{}, Advice: []string{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	ours, stores := false, []string{dir}
	for _, e := range entries {
		if e.Name() != "lost+found" {
			c.Contents = append(c.Contents, content{Name: e.Name(), Is: kindOf(e.Name())})
			ours = ours || kindOf(e.Name()) != ""
		}
	}
	for i := range c.Contents {
		if !ours {
			break // it may be large
		}
		e := &c.Contents[i]
		if e.measure(filepath.Join(dir, e.Name)); e.Pebble > 0 {
			stores = append(stores, filepath.Join(dir, e.Name))
		}
	}
	c.free(stores)
	switch {
	case len(c.Contents) == 0:
		c.State = stateEmpty
		c.advise("There is no data. millrace serve --data-dir " + dir + " begins here.")
	case !ours:
		c.State = stateForeign
		c.Trouble = append(c.Trouble, "it has files, but none of millrace's")
		c.advise("Name the server's --data-dir: the directory that holds log, not log itself.")
	default:
		c.LastRun, err = readDataFile[lastRun](dir, lastRunFile)
		c.fault(err)
		c.Backup, err = readBackupManifest(dir)
		c.fault(cmp.Or(err, (&config{dataDir: dir}).checkRestored()))
		c.look(ctx)
		c.judge()
	}
	return c, nil
}

// kindOf says what is called name in a data directory; "": nothing of ours.
func kindOf(name string) string {
	return map[string]string{
		"log": "event log", "intern": "UID store", "refs": "reference store", "graph.snapshot": "graph", "graph.static": "static edges of the graph",
		"chains": "last commits of accounts", "identities": "keys of accounts",
		lastRunFile: "the last run", controlFile: "for commands to a running server",
		manifestFile: "says that this is a backup", restoredFile: "says that this was a backup", dayFile: "the last day, for the page",
	}[strings.TrimPrefix(strings.TrimSuffix(name, ".tmp"), ".")]
}

// measure counts what is at path. What vanishes meanwhile, or may not be read, is not counted.
func (c *content) measure(path string) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // see above
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		if c.Is == "" && e.Name() == manifestFile {
			c.Is = "a backup"
		}
		c.Files++
		c.Bytes += info.Size()
		if rest, ok := strings.CutPrefix(e.Name(), "marker.format-version."); ok {
			_, format, _ := strings.Cut(rest, ".")
			c.Pebble, _ = strconv.Atoi(format)
		}
		return nil
	})
}

// free finds out how much disk is free where the directories are.
func (c *checkup) free(dirs []string) {
	least, ok := (&diskWatch{dirs: dirs, free: freeBytes, logger: slog.New(slog.DiscardHandler)}).look()
	if ok {
		c.FreeBytes = least.bytes
	}
	if ok && least.bytes < int64(newConfig().minFreeDisk) {
		c.Trouble = append(c.Trouble, fmt.Sprintf("less is free in %s than --min-free-disk is by default", least.dir))
		c.advise("Free some room: a server is not ready, trims its log early, and stops reading the relay before the disk is full.")
	}
}

// advise notes what to do, once.
func (c *checkup) advise(text string) {
	if !slices.Contains(c.Advice, text) {
		c.Advice = append(c.Advice, text)
	}
}

// fault notes an error, and the advice that it has.
func (c *checkup) fault(err error) {
	var has *advised
	switch err = adviseMachine(err); {
	case err == nil:
		return
	case errors.As(err, &has):
		err = has.err
		c.advise(has.advice)
	case errors.Is(err, os.ErrPermission):
		c.advise(runAsServer)
	default:
		c.advise("Copy the directory before you change it. millrace verify, millrace intern verify and millrace references verify name each damaged file.")
	}
	c.Trouble = append(c.Trouble, strings.Join(strings.Fields(err.Error()), " "))
}

// look opens each store for reading only. What a server that was killed has in a write-ahead log is
// read into memory.
func (c *checkup) look(ctx context.Context) {
	files := &lookFS{FS: vfs.Default}
	for _, err := range c.lookAtStores(ctx, c.Dir, files) {
		switch {
		case isLocked(err):
			c.State = stateRunning
		case errors.As(err, new(*fs.PathError)):
			c.fault(err) // the other advice is for a server, which writes
		default:
			c.fault(adviseDataDir(err, c.Dir))
		}
	}
	at := config{dataDir: c.Dir}
	c.lookAtGraph(at.graphFile())
	c.lookAtStatic(at.staticFile())
	c.Process = files.holder
	switch {
	case c.State == stateRunning:
		c.ask(ctx)
	case c.has(controlFile) || c.LastRun != nil && c.LastRun.Stopped.IsZero():
		c.State = stateKilled
	case c.Backup != nil && (c.LastRun == nil || c.LastRun.Command != ""):
		c.State = stateBackup
	case c.LastRun != nil:
		c.State = stateStopped
	default:
		c.State = stateUnknown
	}
}

// lookAtStores opens each store that there is, for reading only, and returns their errors. One that
// a process was making when it was killed is none: the next start makes it. It may be a
// database already, but without a first value.
func (s *storesFound) lookAtStores(ctx context.Context, dir string, files vfs.FS) (errs []error) {
	at := config{dataDir: dir}
	for _, store := range []struct {
		path string
		look func() error
	}{
		{at.logDir(), func() (err error) { s.Log, err = lookAtLog(at.logDir(), files); return err }},
		{at.internDir(), func() (err error) { s.UIDs, err = lookAtUIDs(ctx, at.internDir(), files, s.Log); return err }},
		{at.referencesDir(), func() (err error) { s.References, err = lookAtReferences(at.referencesDir(), files); return err }},
		{at.chainsDir(), func() error { return lookAtCache(at.chainsDir(), "store of chains", files) }},
		{at.identitiesDir(), func() error { return lookAtCache(at.identitiesDir(), "identity cache", files) }},
	} {
		if _, err := os.Lstat(store.path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(store.path, "CREATING")); err == nil {
			continue
		}
		err := store.look()
		if errors.Is(err, replay.ErrNoLog) || errors.Is(err, intern.ErrEmpty) || errors.Is(err, pebbleguard.ErrNoStore) {
			if desc, peekErr := pebble.Peek(store.path, files); peekErr == nil && desc.Exists {
				continue
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// has says whether the directory has something of that name.
func (c *checkup) has(name string) bool {
	return slices.ContainsFunc(c.Contents, func(e content) bool { return e.Name == name })
}

func lookAtLog(dir string, files vfs.FS) (found *logFound, err error) {
	dicts := shippedDictionaries()
	defer dicts.Close()
	log, err := replay.Open(replay.Config{Dir: dir, FS: files, ReadOnly: true, MaxOpenFiles: commandFiles(), Dictionaries: dicts})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	about, err := log.About()
	if err != nil {
		return nil, err
	}
	at, held := log.Progress(), log.Range()
	found = &logFound{Version: about.Version, Relay: about.Relay, UIDStore: about.UIDStore, Stream: at.Stream.String(), Epoch: at.Epoch,
		Seq: at.Seq, Events: held.Events, Oldest: pointOf(held.Oldest), Newest: pointOf(held.Newest), Gaps: []client.Gap{}}
	if found.newestUIDs, err = log.NewestUIDs(); err != nil {
		return nil, err
	}
	for _, g := range held.Gaps {
		found.Gaps = append(found.Gaps, client.Gap{From: g.From.String(), To: g.To.String(), TimeUS: g.TimeUS})
	}
	if held.References != nil {
		found.References = held.References.Position.String()
	}
	for _, d := range log.Dictionaries() {
		found.Dictionaries = append(found.Dictionaries, d.ID)
	}
	return found, nil
}

func pointOf(p replay.Point) *client.Point {
	if p.Position == (translate.Position{}) {
		return nil
	}
	return &client.Point{TimeUS: p.TimeUS, Cursor: p.Position.String()}
}

// lookAtUIDs looks at the UID store of a log, which may be nil.
func lookAtUIDs(ctx context.Context, dir string, files vfs.FS, log *logFound) (found *uidsFound, err error) {
	store, err := pebblekv.Open(pebblekv.Config{Dir: dir, FS: files, ReadOnly: true, MaxOpenFiles: commandFiles()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	uids, err := intern.Open(ctx, intern.Config{Store: store, Alone: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, uids.Close()) }()
	n, err := uids.Count(ctx)
	if err == nil && log != nil && log.UIDStore == uids.StoreID() {
		err = uids.CheckGiven(ctx, log.newestUIDs)
	}
	return &uidsFound{Version: intern.FormatVersion, ID: uids.StoreID(), PrefixBits: uids.PrefixBits(), UIDs: n}, err
}

func lookAtReferences(dir string, files vfs.FS) (found *refsFound, err error) {
	store, err := references.Open(references.Config{Dir: dir, FS: files, ReadOnly: true, OpenFiles: commandFiles()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	at := store.Position()
	found = &refsFound{Generation: store.Generation().Number, Epoch: at.Epoch, Seq: at.Seq}
	if found.Version, err = store.FormatVersion(); err != nil {
		return nil, err
	}
	found.Links, found.LinksBuilt, err = store.LinksProgress()
	return found, err
}

// lookAtCache opens what a server with --verify needs, and can make anew.
func lookAtCache(dir, store string, files vfs.FS) error {
	db, err := pebbleguard.Open(pebbleguard.Config{Dir: dir, FS: files, ReadOnly: true, Store: store, Advice: "check the disk; move the directory away, and it is made anew",
		Options: &pebble.Options{FormatMajorVersion: pebble.FormatNewest}})
	if errors.Is(err, pebbleguard.ErrNoStore) {
		return nil // the directory is empty, and the next start fills it
	}
	if err != nil {
		return fmt.Errorf("open %s in %s: %w", store, dir, err)
	}
	return db.Close()
}

// lookAtGraph reads the header of the snapshot. One that cannot be used is no trouble.
func (c *checkup) lookAtGraph(file string) {
	h, err := graph.Peek(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		c.advise(fmt.Sprintf("%v: a server with --graph builds the graph anew.", err))
	default:
		c.Graph = &graphFound{Epoch: h.Position.Epoch, Seq: h.Position.Seq, Accounts: h.Accounts}
	}
}

// lookAtStatic reads the header of the file of static edges, without which no server with --graph
// starts.
func (c *checkup) lookAtStatic(file string) {
	h, err := graph.Peek(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return
	case err == nil && c.UIDs != nil && h.StoreID != c.UIDs.ID:
		err = fmt.Errorf("%s has UIDs of store %s, and store %s is in intern", file, h.StoreID, c.UIDs.ID)
	}
	if err != nil {
		c.Trouble = append(c.Trouble, fmt.Sprintf("%v: no server with --graph starts", err))
		c.advise("millrace graph remove drops the static edges; import them again after it.")
	}
}

// ask asks the running server what its log holds.
func (c *checkup) ask(ctx context.Context) {
	if c.LastRun == nil || !c.LastRun.Stopped.IsZero() || c.LastRun.Command != "" {
		return // it is no server, or of a build that writes no run.json
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	server, err := client.New(client.Config{URL: c.LastRun.Listen})
	if err != nil {
		return
	}
	if held, err := server.Range(ctx); err == nil {
		c.Log = &logFound{Oldest: held.Oldest, Newest: held.Newest, Gaps: held.Gaps}
	}
}

// judge says what does not fit together, and what to do next.
func (c *checkup) judge() {
	start := "It can be started"
	if l, u := c.Log, c.UIDs; l != nil && c.State != stateRunning {
		switch {
		case u != nil && l.UIDStore != "" && l.UIDStore != u.ID:
			c.Trouble = append(c.Trouble, fmt.Sprintf("the log has UIDs of store %s, but store %s is in intern: no server starts with --intern=pebble", l.UIDStore, u.ID))
			c.advise("Put the UID store back that the log was made with, start with --intern=off, or move log away to begin an empty one.")
		case u == nil && l.UIDStore != "" && !c.has("intern"):
			c.advise("The log has UIDs of store " + l.UIDStore + ", which is not here. With --intern=fdb it is in FoundationDB. Else put intern back; a copy that is older than the log needs millrace intern skip-ahead.")
			start += " with --intern=fdb or --intern=off"
		}
	}
	if len(c.Trouble) > 0 {
		return // that comes first
	}
	switch c.State {
	case stateRunning:
		if r := c.LastRun; r != nil && r.Command != "" && r.Stopped.IsZero() {
			c.advise("Wait until that command has ended.")
		} else if c.Log == nil {
			c.advise("Ask the server for more, with GET /cursors and /readyz, or stop it and look again.")
		} else {
			c.advise("Nothing needs to be done. GET /readyz says whether the server is well; stop it to look at its stores.")
		}
	case stateStopped:
		c.advise(start + ".")
	case stateKilled, stateUnknown:
		c.advise(start + ": what was committed is safe, and the relay is asked for what follows.")
	case stateBackup:
		c.advise("Copy it and start a server on the copy. The first start raises every sequence, so that no UID is given twice.")
	}
	if c.Backup != nil && c.Backup.UIDStore != "" && c.State != stateBackup {
		c.advise("It was restored from a backup, and has given out no UID yet: the next start without --intern=off raises every sequence.")
	}
	if l := c.Log; l != nil && l.Newest != nil && time.UnixMicro(l.Newest.TimeUS).After(time.Now().Add(time.Minute)) {
		c.advise("The newest event is stamped ahead of the clock. Set the clock, if it is behind; else it was ahead once, and until it gets there again " +
			"no event is trimmed by age. To begin anew, move log and refs away.")
	}
}
