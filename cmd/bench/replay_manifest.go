package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// replayParams say what a kept log is made of. Whatever changes what would be made is here, so that
// a log made otherwise is made anew.
type replayParams struct {
	Generator     int   `json:"generator"` // raised with every change of how logs are made
	FormatVersion int   `json:"format_version"`
	Events        int64 `json:"events"`
}

// baselineEvents is how many of them, the oldest, the store laid out as Jetstream's has.
func (p *replayParams) baselineEvents() int64 { return p.Events / 5 }

const replayGenerator = 7

// world is how many frames the relay makes: real commits that are then repeated with fresh
// envelopes.
func (p *replayParams) world() int64 { return min(max(p.Events/10, 500), 20_000) }

// replayManifest is what is known of a kept log. It is written last: a log without one is not
// whole.
type replayManifest struct {
	Params replayParams `json:"params"`
	// a few more than were asked for: blocks are whole
	Events      int64              `json:"events"`
	OldestUS    int64              `json:"oldest_us"`
	NewestUS    int64              `json:"newest_us"`
	Others      int64              `json:"others"`      // identity and account events, which pass any filter of collections
	Collections map[string]int64   `json:"collections"` // events of each
	DIDs        []string           `json:"dids"`        // a thousand of those in the log, drawn at random
	DIDEvents   int64              `json:"did_events"`  // that are theirs
	Baseline    replayBaselinePart `json:"baseline"`
	Disk        int64              `json:"disk"` // bytes of tables, once compactions have come to rest
}

// replayBaselinePart is the part of the events, from the oldest on, that the store laid out as
// Jetstream's holds.
type replayBaselinePart struct {
	Events      int64            `json:"events"`
	Collections map[string]int64 `json:"collections"`
	Disk        int64            `json:"disk"`
}

// What is in the directory of a kept log.
const (
	manifestFile = "manifest.json"
	logDirectory = "log"
	baseline     = "baseline"
)

// readManifest returns the manifest of a kept log that was made with these parameters; nil: there
// is none.
func readManifest(dir string, p replayParams) (*replayManifest, error) {
	raw, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &replayManifest{}
	if json.Unmarshal(raw, m) == nil && m.Params == p {
		return m, nil
	}
	return nil, nil // written by another version, or with other parameters
}

func (m *replayManifest) write(dir string) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), raw, 0o644)
}

// removeKept removes what an earlier run made in dir, and nothing else.
func removeKept(dir string) error {
	for _, name := range []string{manifestFile, logDirectory, baseline} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
