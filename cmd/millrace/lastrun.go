package main

import "time"

// lastRun says which build had the stores of a data directory open for writing last, and whether it
// closed them. It is the file run.json there. None is in a new directory, in a backup, and in one
// of an older build.
type lastRun struct {
	Version string    `json:"version"`
	Command string    `json:"command,omitempty"` // "": serve
	Listen  string    `json:"listen,omitempty"`  // the public address of serve
	Started time.Time `json:"started"`
	Stopped time.Time `json:"stopped,omitzero"` // zero: it runs, or was killed
}

const lastRunFile = "run.json"

func (r *lastRun) write(dataDir string) error { return writeDataFile(dataDir, lastRunFile, r, 0o644) }

// noteCommand writes that a command has opened the stores of dataDir, if that is not "". What it
// returns writes that they are closed, unless there was an error.
func noteCommand(dataDir, command string) (ended func(error) error, err error) {
	if dataDir == "" {
		return func(err error) error { return err }, nil
	}
	r := &lastRun{Version: thisBuild().version, Command: command, Started: time.Now().UTC()}
	return func(err error) error {
		if err == nil {
			r.Stopped = time.Now().UTC()
			err = r.write(dataDir)
		}
		return err
	}, r.write(dataDir)
}

// by names the build, and the command if that was not serve.
func (r *lastRun) by() string {
	if r.Command == "" {
		return "millrace " + r.Version
	}
	return "millrace " + r.Command + " of version " + r.Version
}

// noteStop withdraws what the directory says of a run.
func (d *daemon) noteStop() {
	if d.control != nil {
		if err := withdrawControl(d.cfg.dataDir); err != nil {
			d.logger.Warn("a file that the server made is left in the data directory; the next start replaces it", "err", err)
		}
	}
	if d.ran != nil {
		d.ran.Stopped = time.Now().UTC()
		d.noteRun()
	}
}

// noteRun writes that a run has begun or ended. The server works without it.
func (d *daemon) noteRun() {
	if err := d.ran.write(d.cfg.dataDir); err != nil {
		d.logger.Warn(lastRunFile+" could not be written: millrace doctor will not know of this run", "err", err)
	}
}
