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
		return nil, adviseSkip(err, dir)
	}
	return m, err
}

// adviseSkip is for a backup whose age is unknown or cannot be.
func adviseSkip(err error, dir string) error {
	return advise(err, fmt.Sprintf("Run millrace intern skip-ahead --data-dir %s --by %d, and start again.", dir, uint64(intern.DefaultSkip)))
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

// age is how long ago the backup was made, by this machine's clock.
func (m *backupManifest) age() time.Duration { return time.Since(m.Made) }

// skipRestored raises the sequences of a UID store that was restored from a backup, so that no UID
// is given out twice. It needs the UID store and the log open, and comes before the first UID. It
// returns what is known of the backup, and nil if the directory is none or a later start skips.
// Until markRestored the next start raises them again.
func (d *daemon) skipRestored(ctx context.Context) (*backupManifest, error) {
	dir := d.cfg.dataDir
	m, err := readBackupManifest(dir)
	if m == nil || err != nil {
		return nil, err
	}
	logger := d.logger.With("made", m.Made, "seq", m.Seq, "epoch", m.Epoch)
	switch {
	case m.UIDStore == "":
		logger.Info("restored from a backup of the log only; if a shared UID store was restored as well, stop its servers and run millrace intern skip-ahead")
	case d.uids == nil:
		return nil, nil // with --intern=off no UID is given out; a later start skips
	default:
		n, raised, err := intern.SkipRestored(ctx, d.uids.store, m.age())
		if err != nil {
			return nil, adviseSkip(fmt.Errorf("restored from a backup of %v: %w", m.Made, err), dir)
		}
		logger.Info("restored from a backup: UIDs are skipped that may have been given out since", "uids", n, "sequences", raised)
	}
	if abs, err := filepath.Abs(dir); err == nil && abs == m.Dir {
		logger.Warn("this is the backup itself, not a copy: from now on it is a data directory and changes", "dir", abs)
	}
	return m, nil
}
