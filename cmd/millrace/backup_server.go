package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay"
)

// control is how a command on the same machine reaches the server of a data directory. It is the
// file control.json there, which only the server's user, and root, may read; it exists while the
// server runs with --metrics-listen.
type control struct {
	Address string `json:"address"` // host:port of --metrics-listen
	Token   string `json:"token"`   // new with each start
}

const controlFile = "control.json"

// readControl returns nil if there is no such file.
func readControl(dataDir string) (*control, error) {
	c, err := readDataFile[control](dataDir, controlFile)
	if errors.Is(err, os.ErrPermission) {
		return nil, advise(err, runAsServer)
	}
	return c, err
}

// publish writes the file. What an earlier process left, which did not end in good order, is
// replaced.
func (c *control) publish(dataDir string) error { return writeDataFile(dataDir, controlFile, c, 0o600) }

// withdrawControl removes the file, if there is one.
func withdrawControl(dataDir string) error {
	if err := os.Remove(filepath.Join(dataDir, controlFile)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// controlFor makes the secret of a server whose metrics are served at addr. One that listens
// everywhere is reached on the loopback interface.
func controlFor(addr net.Addr) *control {
	address := addr.String()
	if a, err := netip.ParseAddrPort(address); err == nil && a.Addr().IsUnspecified() {
		address = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), a.Port()).String()
	}
	return &control{Address: address, Token: rand.Text()}
}

// backupRequest is the body of POST /backup.
type backupRequest struct {
	To string `json:"to"` // absolute path on the server's machine; must not exist
}

// maxBackupRequest bounds that body, in bytes.
const maxBackupRequest = 64 << 10

// backups answers POST /backup. It takes requests from this machine only, with the token.
type backups struct {
	token string
	make  func(to string) (*backupManifest, error)
	one   sync.Mutex // held while a backup is made
}

func (b *backups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !fromHere(r):
		http.Error(w, "backups can be asked for on the same machine only", http.StatusForbidden)
		return
	case subtle.ConstantTimeCompare([]byte(token), []byte(b.token)) != 1:
		http.Error(w, "the token of the data directory's "+controlFile+" is needed", http.StatusUnauthorized)
		return
	}
	var request backupRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBackupRequest)).Decode(&request); err != nil {
		http.Error(w, "the body is no request for a backup: "+err.Error(), http.StatusBadRequest)
		return
	}
	if !b.one.TryLock() {
		http.Error(w, "another backup is being made", http.StatusConflict)
		return
	}
	defer b.one.Unlock()
	m, err := b.make(request.To)
	if err != nil {
		http.Error(w, adviseMachine(err).Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(m) // the client is gone if it fails; the backup is there
}

// fromHere reports whether a request comes from the machine it came to.
func fromHere(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	if remote.Addr().IsLoopback() { // a mapped one is, too
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	to, err := netip.ParseAddrPort(local.String())
	return err == nil && to.Addr().Unmap() == remote.Addr().Unmap()
}

// backUp copies the reference store, the log and then the UID store. What the first lacks the log
// has, and each UID in the copies is in that of the UID store.
func (d *daemon) backUp(to string) (*backupManifest, error) {
	if !filepath.IsAbs(to) {
		return nil, fmt.Errorf("%.200q is no absolute path", to)
	}
	m, err := d.cfg.makeBackup(filepath.Clean(to), func(dir string) (*backupManifest, error) {
		at, err := d.copyLog(dir)
		if err != nil {
			return nil, err
		}
		if err := d.cfg.copyStatic(dir); err != nil {
			return nil, err
		}
		m, err := manifestOf(at, d.cfg.dataDir)
		if err != nil {
			return nil, err
		}
		if d.uids == nil {
			return m, m.copyUIDs(d.copying, d.cfg.internDir(), dir)
		}
		store, ok := d.uids.store.(interface{ Checkpoint(dir string) error })
		if !ok {
			return m, nil // it is not in the data directory
		}
		m.UIDStore = d.uids.storeID()
		if m.Skipped, err = d.uids.interner.Skipped(context.Background()); err != nil {
			return nil, err
		}
		return m, store.Checkpoint(filepath.Join(dir, "intern"))
	})
	if err != nil {
		d.logger.Warn("backup failed", "to", to, "err", err)
		return nil, err
	}
	d.logger.Info("backup made", "to", m.Dir, "epoch", m.Epoch, "seq", m.Seq)
	return m, nil
}

// storeFS is the file system of the store in a directory. A stop ends copies of it.
func (d *daemon) storeFS(dir string) vfs.FS {
	return &copyFS{cmp.Or(d.cfg.hooks.fs, vfs.Default), d.copying, dir}
}

// copyLog copies the reference store and then the log, which meanwhile keeps what the first copy
// lacks. A reference store that is there though references are off is not open.
func (d *daemon) copyLog(dir string) (at replay.Progress, err error) {
	refs := filepath.Join(dir, "refs")
	if d.refs == nil {
		err = copyReferences(d.copying, d.cfg.referencesDir(), refs)
	} else {
		d.copied.Store(new(d.refs.Position()))
		defer d.copied.Store(nil)
		err = d.refs.Checkpoint(refs)
	}
	if err != nil {
		return at, err
	}
	return d.log.Checkpoint(filepath.Join(dir, "log"))
}

// isWithin reports whether path is dir or below it. Symbolic links in the part that exists are
// followed.
func isWithin(path, dir string) bool {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return false // making it will fail
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return true
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	rel, err := filepath.Rel(dir, filepath.Join(parent, filepath.Base(path)))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
