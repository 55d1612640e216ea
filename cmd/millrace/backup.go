package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern"
	"millrace/intern/kv/pebbleguard"
	"millrace/intern/kv/pebblekv"
	"millrace/replay"
	"millrace/replay/references"
)

func backupCommand() *command {
	c, fs := &backupConfig{}, newFlags("backup")
	fs.StringVar(&c.dataDir, "data-dir", "./data", "the server's data directory (`DIR`)")
	fs.StringVar(&c.to, "to", "", "directory to make (`DIR`); on the file system of --data-dir it takes a moment and at first no room")
	return &command{
		name: "millrace backup", summary: "copy the event log, the embedded UID store and the reference store, also of a running server",
		about: `A running server makes the copy itself: it is asked over its --metrics-listen address, which it leaves,
with a secret, in DIR/control.json. Whoever may read that file may ask. Without a running server the
stores are opened and copied here. The copy is a data directory: docs/operations.md says how to restore it.`,
		flags: fs, groups: []flagGroup{{"Flags", []string{"to", "data-dir"}}}, twins: []string{"data-dir"},
		check: c.check, run: c.run,
	}
}

// backupManifest is what is known of a backup. It is the file backup.json in it, and what a server
// answers.
type backupManifest struct {
	Dir      string    `json:"dir"`
	Made     time.Time `json:"made"`
	Version  string    `json:"version"`             // of the millrace that made it
	Stream   string    `json:"stream"`              // the log holds everything of it ...
	Epoch    uint32    `json:"epoch"`               //
	Seq      int64     `json:"seq"`                 // ... up to this number of the relay's
	TimeUS   int64     `json:"time_us"`             // newest stamp given out by then
	UIDStore string    `json:"uid_store,omitempty"` // ID; empty: UIDs are not in the backup
	Skipped  uint64    `json:"skipped,omitempty"`   // UIDs that were skipped in that store by then
	LeftOut  string    `json:"left_out,omitempty"`  // ID of a UID store that was there and is not the log's
}

// manifestFile is the name of backupManifest's file.
const manifestFile = "backup.json"

// backupConfig is what the flags of `millrace backup` set.
type backupConfig struct {
	dataDir string
	to      string
}

func (c *backupConfig) check([]string) error {
	if c.to == "" {
		return errors.New("--to is missing: name a directory that does not exist, to put the backup into")
	}
	return nil
}

func (c *backupConfig) run(ctx context.Context, _ []string, stdout, _ io.Writer) (err error) {
	if c.to, err = filepath.Abs(c.to); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	m, err := c.backUp(ctx)
	if err != nil {
		return fmt.Errorf("back up %s: %w", c.dataDir, adviseNewer(err, c.dataDir))
	}
	uids := "no UID store (interning is off, or UIDs are in FoundationDB)"
	switch {
	case m.UIDStore != "":
		uids = "UID store " + m.UIDStore
	case m.LeftOut != "":
		uids = fmt.Sprintf("no UID store (the log has UIDs of another than %s, which is in intern)", m.LeftOut)
	}
	fmt.Fprintf(stdout, "backed up to %s: the log up to seq %d of epoch %d, %s\n", m.Dir, m.Seq, m.Epoch, uids)
	return nil
}

// backUp copies the stores, or asks the server that has them open, or alone can reach --to. A
// server that was killed leaves control.json behind, and a copy of the directory has it.
func (c *backupConfig) backUp(ctx context.Context) (*backupManifest, error) {
	m, err := (&config{dataDir: c.dataDir}).makeBackup(c.to, func(dir string) (*backupManifest, error) {
		return c.copyStopped(ctx, dir)
	})
	if !isLocked(err) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return m, err
	}
	running, controlErr := readControl(c.dataDir)
	if controlErr != nil {
		return nil, controlErr
	}
	if running != nil {
		m, err := running.backUp(ctx, c.to, answerTimeout)
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, errNotOurs) {
			return m, err
		}
	}
	if !isLocked(err) {
		return nil, err
	}
	return nil, advise(fmt.Errorf("%s is in use by another process, which cannot be asked for a backup", c.dataDir),
		"It runs with --metrics-listen '', or is no server. Start it with --metrics-listen 127.0.0.1:6009, or stop it while the backup is made.")
}

// copyStopped copies the stores of a server that does not run.
func (c *backupConfig) copyStopped(ctx context.Context, dir string) (*backupManifest, error) {
	source := config{dataDir: c.dataDir}
	if err := refuseNewer(ctx, c.dataDir); err != nil {
		return nil, err
	}
	dicts := shippedDictionaries()
	defer dicts.Close()
	at, err := replay.CheckpointClosed(replay.Config{Dir: source.logDir(), FS: &copyFS{vfs.Default, ctx, source.logDir()}, MaxOpenFiles: commandFiles(), Dictionaries: dicts}, filepath.Join(dir, "log"))
	if errors.Is(err, replay.ErrNoLog) {
		return nil, advise(err, "Give --data-dir the directory that the server is given.")
	}
	if err != nil {
		return nil, adviseStores(err)
	}
	m, err := manifestOf(at, c.dataDir)
	if err != nil {
		return nil, err
	}
	if err := copyReferences(ctx, source.referencesDir(), filepath.Join(dir, "refs")); err != nil {
		return nil, err
	}
	if err := source.copyStatic(dir); err != nil {
		return nil, err
	}
	return m, m.copyUIDs(ctx, source.internDir(), dir)
}

// copyReferences copies the reference store in from, if there is one; no process has it open.
func copyReferences(ctx context.Context, from, to string) error {
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	err := references.CheckpointClosed(references.Config{Dir: from, FS: &copyFS{vfs.Default, ctx, from}, OpenFiles: commandFiles()}, to)
	if errors.Is(err, pebbleguard.ErrNoStore) {
		return nil // a start that was killed was making it; the next one does
	}
	return err
}

// copyStatic puts the file of static edges into another data directory, if there is one. No process
// changes it once it has its name.
func (c *config) copyStatic(dir string) error {
	err := vfs.LinkOrCopy(vfs.Default, c.staticFile(), (&config{dataDir: dir}).staticFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// copyUIDs puts the embedded UID store in from, if there is one, into the backup in dir, which has
// the log; no process has it open. One that is not the log's stays out: no server starts with both.
func (m *backupManifest) copyUIDs(ctx context.Context, from, dir string) (err error) {
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return nil // --intern=off, or UIDs are kept elsewhere
	}
	log, err := lookAtLog(filepath.Join(dir, "log"), &lookFS{FS: vfs.Default})
	if err != nil {
		return err
	}
	store, err := pebblekv.Open(pebblekv.Config{Dir: from, FS: &copyFS{vfs.Default, ctx, from}, MaxOpenFiles: commandFiles()})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, store.Close()) }()
	interner, err := intern.Open(context.Background(), intern.Config{Store: store})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, interner.Close()) }()
	if log.UIDStore != "" && log.UIDStore != interner.StoreID() {
		m.LeftOut = interner.StoreID()
		return nil
	}
	m.UIDStore = interner.StoreID()
	if m.Skipped, err = interner.Skipped(context.Background()); err != nil {
		return err
	}
	return store.Checkpoint(filepath.Join(dir, "intern"))
}

// manifestOf describes a copy of dataDir whose log ends at the position. A copy of a backup, and of
// a restored directory whose UIDs were not skipped, is as old as what it was made of.
func manifestOf(at replay.Progress, dataDir string) (*backupManifest, error) {
	m := &backupManifest{
		Made: time.Now().UTC(), Version: thisBuild().version,
		Stream: at.Stream.String(), Epoch: at.Epoch, Seq: at.Seq, TimeUS: at.TimeUS,
	}
	of, err := readBackupManifest(dataDir)
	if of != nil {
		m.Made = of.Made
	}
	return m, err
}

// makeBackup lets fill put a backup into a new directory. That gets the name of to only when it is
// whole and on disk; what is called to.partial is none. The stores have no room for it: a copy or
// removal of theirs would take it along. Nor may it have the name of a file of the server's.
func (c *config) makeBackup(to string, fill func(dir string) (*backupManifest, error)) (m *backupManifest, err error) {
	stores := []string{c.logDir(), c.internDir(), c.referencesDir(), c.chainsDir(), c.identitiesDir()}
	if name := filepath.Base(to); kindOf(name) != "" {
		stores = append(stores, filepath.Join(c.dataDir, name))
	}
	for _, ours := range stores {
		if isWithin(to, ours) {
			return nil, advise(fmt.Errorf("%s is within %s", to, ours), "Name a directory outside of the stores with --to.")
		}
	}
	if _, err := os.Lstat(to); err == nil {
		return nil, advise(fmt.Errorf("%s exists", to), "Name a directory that does not exist with --to.")
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--to: %w", err)
	}
	partial := to + ".partial"
	if err := os.Mkdir(partial, 0o750); err != nil {
		return nil, adviseMkdir(err, partial)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	if m, err = fill(partial); err != nil {
		return nil, err
	}
	m.Dir = to
	if err := writeDataFile(partial, manifestFile, m, 0o644); err != nil {
		return nil, err
	}
	if err := os.Rename(partial, to); err != nil {
		return nil, err
	}
	return m, syncDir(filepath.Dir(to))
}

func adviseMkdir(err error, partial string) error {
	switch {
	case errors.Is(err, os.ErrExist):
		return advise(fmt.Errorf("%s exists: a backup was interrupted, or is being made", partial), "Remove it if no backup is being made.")
	case errors.Is(err, os.ErrNotExist):
		return advise(err, "Make the directory above it first, on the machine, or in the container, that the server runs on.")
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return advise(err, "A running server makes the backup with its own rights, under systemd within its --data-dir: name a place where it may write.")
	}
	return err
}

// errNotOurs means: at the address in control.json something else answers.
var errNotOurs = errors.New("no server of this data directory answers at the address in control.json")

// answerTimeout is how long a server may take to answer a request for no backup.
const answerTimeout = 10 * time.Second

// backUp asks the server for a backup, after a request for none, which it answers within a time or
// not at all. A backup may take as long as copying the data takes.
func (c *control) backUp(ctx context.Context, to string, within time.Duration) (*backupManifest, error) {
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, _, err := c.ask(asking, nil)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case asking.Err() != nil:
		return nil, advise(fmt.Errorf("%s, which %s names, has not answered within %v", c.Address, controlFile, within),
			"If the server hangs, end it: without one the copy is made here.")
	case err != nil:
		return nil, err
	}
	body, err := json.Marshal(backupRequest{To: to})
	if err != nil {
		return nil, err
	}
	status, answer, err := c.ask(ctx, body)
	switch {
	case ctx.Err() != nil:
		return nil, advise(context.Cause(ctx), "The server goes on with the backup.")
	case err != nil:
		return nil, err
	}
	switch status {
	case http.StatusOK:
		m := &backupManifest{}
		if json.Unmarshal(answer, m) == nil && m.Dir == to {
			return m, checkSeen(to)
		}
	case http.StatusBadRequest, http.StatusForbidden, http.StatusConflict, http.StatusInternalServerError:
		return nil, fmt.Errorf("the server says: %s", strings.TrimSpace(string(answer)))
	}
	return nil, errNotOurs
}

// checkSeen returns an error if a backup that the server has made is not there for this process.
func checkSeen(to string) error {
	if _, err := os.Lstat(to); errors.Is(err, os.ErrNotExist) {
		return advise(fmt.Errorf("the server has made %s, where only it sees it", to),
			"It has file systems of its own, under systemd a /tmp that is gone when it stops. Name a directory within its --data-dir, and move it away.")
	}
	return nil
}

// ask sends a request and returns what answers it.
func (c *control) ask(ctx context.Context, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Address+"/backup", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	direct := &http.Client{Transport: &http.Transport{Proxy: nil}}
	defer direct.CloseIdleConnections()
	resp, err := direct.Do(req)
	if errors.Is(err, io.EOF) {
		return 0, nil, errors.New("the server ended before the backup was made")
	}
	if err == nil {
		defer resp.Body.Close()
		status = resp.StatusCode
		answer, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	}
	if err != nil {
		return 0, nil, fmt.Errorf("ask the server: %w", err)
	}
	return status, answer, nil
}
