package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"millrace/intern"
)

// restoredFile is what manifestFile is renamed to once UIDs may be given out from a restored
// directory.
const restoredFile = "restored.json"

// readBackupManifest returns what is known of the backup that dir is, and nil if dir is none.
func readBackupManifest(dir string) (*backupManifest, error) {
	m, err := readDataFile[backupManifest](dir, manifestFile)
	if err != nil && !errors.As(err, new(*fs.PathError)) { // it is damaged
		return nil, advise(err, fmt.Sprintf("Run millrace intern skip-ahead --data-dir %s, and start again.", dir))
	}
	return m, err
}

// refuseBackup returns an error for a command that gives out UIDs, if dir is a backup that no
// server has started on: its sequences are yet to be raised.
func refuseBackup(dir string) error {
	m, err := readBackupManifest(dir)
	if err != nil || m == nil || m.UIDStore == "" {
		return err
	}
	return advise(fmt.Errorf("%s is a backup, or was restored from one, and no server has started on it: UIDs would be given twice", dir),
		"Start a server on it once, stop it, and try again.")
}

// checkRestored returns an error for a restored backup without its log, where a server would begin
// an empty one.
func (c *config) checkRestored() error {
	m, err := readBackupManifest(c.dataDir)
	if err != nil || m == nil || !c.isEmpty(c.logDir()) {
		return nil //nolint:nilerr // begin says what is wrong
	}
	return advise(fmt.Errorf("%s is restored from a backup, and the log that it had up to seq %d is not in %s", c.dataDir, m.Seq, c.logDir()),
		fmt.Sprintf("Copy the backup again. To begin an empty log instead, run millrace intern skip-ahead, and remove %s.", manifestFile))
}

// markRestored records that the sequences of the restored dir are raised. Without a manifest it
// does nothing.
func markRestored(dir string) error {
	err := os.Rename(filepath.Join(dir, manifestFile), filepath.Join(dir, restoredFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// skipRestored raises the sequences of a UID store that was restored from a backup, so that no UID
// is given out twice. It comes before the first UID. It returns m, which is what is known of the
// backup, and nil if the directory is none or a later start skips. Until markRestored the next
// start raises them again.
func (d *daemon) skipRestored(ctx context.Context, m *backupManifest) (*backupManifest, error) {
	if m == nil {
		return nil, nil
	}
	dir := d.cfg.dataDir
	logger := d.logger.With("made", m.Made, "seq", m.Seq, "epoch", m.Epoch)
	switch {
	case m.UIDStore != "" && d.uids == nil:
		return nil, nil // with --intern=off no UID is given out; a later start skips
	case m.UIDStore == "" || !d.uids.embedded():
		logger.Info("restored from a backup of the log only; if a shared UID store was restored as well, stop its servers and run millrace intern skip-ahead")
	default:
		n, raised, err := intern.SkipRestored(ctx, d.uids.store, time.Since(m.Made))
		if err != nil {
			return nil, fmt.Errorf("restored from a backup of %v: %w", m.Made, err)
		}
		logger.Info("restored from a backup: UIDs are skipped that may have been given out since", "uids", n, "sequences", raised)
	}
	if abs, err := filepath.Abs(dir); err == nil && abs == m.Dir {
		logger.Warn("this is the backup itself, not a copy: from now on it is a data directory and changes", "dir", abs)
	}
	return m, nil
}
