package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// lastRun says which build served a data directory last, and whether it closed the stores. It is
// the file run.json there. None is in a new directory, in a backup, and in one of an older build.
type lastRun struct {
	Version string    `json:"version"`
	Listen  string    `json:"listen"` // the public address
	Started time.Time `json:"started"`
	Stopped time.Time `json:"stopped,omitzero"` // zero: it runs, or was killed
}

const lastRunFile = "run.json"

// write writes the file, whole or not at all.
func (r *lastRun) write(dataDir string) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := filepath.Join(dataDir, lastRunFile)
	if err := os.Remove(name + ".tmp"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := writeSynced(name+".tmp", append(raw, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return err
	}
	return syncDir(dataDir)
}

// noteRun writes that a run has begun or ended. The server works without it.
func (d *daemon) noteRun() {
	if err := d.ran.write(d.cfg.dataDir); err != nil {
		d.logger.Warn(lastRunFile+" could not be written: millrace doctor will not know of this run", "err", err)
	}
}
