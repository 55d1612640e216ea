package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"millrace/public/client"
)

func doctorCommand() *command {
	fs := newFlags("doctor")
	asJSON := fs.Bool("json", false, "print JSON")
	return &command{
		name: "millrace doctor", args: "DIR", summary: "say what a data directory holds, in what state, and what to do next, without changing it",
		about: `Contents and sizes, versions, the oldest and newest event, gaps, whether the log and the UID store belong together,
whether the server runs, was stopped or was killed, and advice. No event is read: millrace verify does that.
The stores of a running server are left alone; it is asked for the range of its log.
Exit code 0: nothing is wrong; 1: something is, or it could not be looked at; 2: wrong usage.`,
		flags: fs,
		run: func(ctx context.Context, args []string, stdout, _ io.Writer) error {
			return runDoctor(ctx, args[0], *asJSON, stdout)
		},
	}
}

func runDoctor(ctx context.Context, dir string, asJSON bool, stdout io.Writer) error {
	c, err := examine(ctx, dir)
	switch {
	case ctx.Err() != nil: // no store is in trouble for that
		return context.Cause(ctx)
	case errors.Is(err, os.ErrPermission):
		return advise(err, runAsServer)
	case err != nil:
		return advise(err, "Name the server's --data-dir.")
	}
	if asJSON {
		raw, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s\n", raw)
	} else {
		c.print(stdout)
	}
	if len(c.Trouble) > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

// runAsServer is what to do if files may not be read.
const runAsServer = "Run this as the user that the server runs as."

// States of a data directory.
const (
	stateEmpty   = "empty"
	stateForeign = "foreign" // it holds none of our stores
	stateRunning = "running" // a process has its stores open
	stateStopped = "stopped"
	stateKilled  = "killed"
	stateBackup  = "backup"  // no server has used it since the backup was made
	stateUnknown = "unknown" // stopped or killed, by a build that writes no run.json
)

// checkup is what millrace doctor finds.
type checkup struct {
	Dir       string          `json:"dir"`
	State     string          `json:"state"`
	Process   int             `json:"process,omitempty"` // that has the stores open; 0: not known
	Version   string          `json:"version"`           // of this millrace
	LastRun   *lastRun        `json:"last_run,omitempty"`
	Backup    *backupManifest `json:"backup,omitempty"`
	Contents  []content       `json:"contents"`
	FreeBytes int64           `json:"free_bytes"` // of the file system with the least
	storesFound
	Trouble []string `json:"trouble"` // what is wrong
	Advice  []string `json:"advice"`  // what to do next
}

// storesFound has what could be read of each store.
type storesFound struct {
	Log        *logFound   `json:"log,omitempty"`
	UIDs       *uidsFound  `json:"uid_store,omitempty"`
	References *refsFound  `json:"references,omitempty"`
	Graph      *graphFound `json:"graph,omitempty"`
}

// content is a file or directory of the data directory.
type content struct {
	Name   string `json:"name"`
	Is     string `json:"is"` // what it is; "": not ours
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	Pebble int    `json:"pebble_format,omitempty"` // format major version; 0: no store of Pebble's
}

// logFound is the event log. What a running server does not say is zero.
type logFound struct {
	Version      uint32        `json:"format_version,omitempty"`
	Relay        string        `json:"relay,omitempty"`
	Stream       string        `json:"stream,omitempty"`
	Epoch        uint32        `json:"epoch,omitempty"`
	Seq          int64         `json:"seq"` // everything up to it is there
	Oldest       *client.Point `json:"oldest,omitempty"`
	Newest       *client.Point `json:"newest,omitempty"`
	Events       int64         `json:"events"`
	Gaps         []client.Gap  `json:"gaps"`
	UIDStore     string        `json:"uid_store,omitempty"` // whose UIDs it holds
	References   string        `json:"references_after,omitempty"`
	Dictionaries []uint32      `json:"dictionaries,omitempty"` // the last one compresses new blocks

	newestUIDs []uint64
}

// uidsFound is the embedded UID store.
type uidsFound struct {
	Version    int    `json:"format_version"`
	ID         string `json:"store_id"`
	PrefixBits int    `json:"prefix_bits"`
	UIDs       uint64 `json:"uids"`
}

// refsFound is the reference store.
type refsFound struct {
	Version    uint32  `json:"format_version"`
	Generation uint32  `json:"generation"`
	Epoch      uint32  `json:"epoch"`
	Seq        int64   `json:"seq"` // the frame of the log that it has come to
	Links      bool    `json:"links"`
	LinksBuilt float64 `json:"links_built"` // 1: complete
}

// graphFound is the snapshot of the graph.
type graphFound struct {
	Epoch    uint32 `json:"epoch"`
	Seq      int64  `json:"seq"`
	Accounts int    `json:"accounts"`
}

// maxPrinted is how much of a directory's contents, and how many gaps, are printed.
const maxPrinted = 20

// wholeFrame is how the position ends that is after all events of a frame.
const wholeFrame = "-4294967295"

// print writes the report for people.
func (c *checkup) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", c.Dir, c.history())
	for i, e := range c.Contents {
		if i == maxPrinted {
			fmt.Fprintf(w, "  and %d more\n", len(c.Contents)-i)
			break
		}
		is := cmp.Or(e.Is, "not millrace's")
		if e.Pebble > 0 {
			is += fmt.Sprintf(", Pebble format %d", e.Pebble)
		}
		fmt.Fprintf(w, "  %-16s %10.1f MiB  %6d files  %s\n", e.Name, inMiB(e.Bytes), e.Files, is)
	}
	fmt.Fprintf(w, "  %-16s %10.1f MiB\n", "free disk", inMiB(c.FreeBytes))
	if c.Log != nil {
		c.Log.print(w)
	}
	if u := c.UIDs; u != nil {
		fmt.Fprintf(w, "UID store: format %d, store ID %s, %d prefix bits, %d UIDs\n", u.Version, u.ID, u.PrefixBits, u.UIDs)
	}
	if r := c.References; r != nil {
		links := "no links"
		if r.Links {
			links = fmt.Sprintf("links, %.0f %% built", 100*r.LinksBuilt)
		}
		fmt.Fprintf(w, "reference store: format %d, generation %d, at seq %d of epoch %d, %s\n", r.Version, r.Generation, r.Seq, r.Epoch, links)
	}
	if g := c.Graph; g != nil {
		fmt.Fprintf(w, "graph: snapshot at seq %d of epoch %d, %d accounts\n", g.Seq, g.Epoch, g.Accounts)
	}
	for _, lines := range []struct {
		word string
		all  []string
	}{{"trouble", c.Trouble}, {"advice", c.Advice}} {
		for _, s := range lines.all {
			fmt.Fprintf(w, "%s: %s\n", lines.word, s)
		}
	}
}

func (l *logFound) print(w io.Writer) {
	if l.Version > 0 {
		fmt.Fprintf(w, "event log: format %d, relay %s, stream %s, at seq %d of epoch %d, %d events\n", l.Version, l.Relay, l.Stream, l.Seq, l.Epoch, l.Events)
		fmt.Fprintf(w, "  UID store %s, dictionaries %v, references after %s\n", cmp.Or(l.UIDStore, "none"), l.Dictionaries,
			cmp.Or(strings.TrimSuffix(l.References, wholeFrame), "none"))
	} else {
		fmt.Fprintln(w, "event log, as its server says:")
	}
	for _, end := range []struct {
		word string
		at   *client.Point
	}{{"oldest", l.Oldest}, {"newest", l.Newest}} {
		if end.at != nil {
			fmt.Fprintf(w, "  %s event %s of %s\n", end.word, end.at.Cursor, stampText(end.at.TimeUS))
		}
	}
	if more := len(l.Gaps) - maxPrinted; more > 0 {
		fmt.Fprintf(w, "  %d older gaps\n", more)
	}
	for _, g := range l.Gaps[max(len(l.Gaps)-maxPrinted, 0):] {
		fmt.Fprintf(w, "  gap from %s to %s, %s\n", g.From, g.To, stampText(g.TimeUS))
	}
}

// history says in what state the directory is, and since when.
func (c *checkup) history() string {
	begun, ended := "", ""
	switch r := c.LastRun; {
	case r == nil:
	case r.Stopped.IsZero():
		begun = fmt.Sprintf(", by %s, which started at %s", r.by(), timeText(r.Started))
	default: // what came after it has not written its name
		ended = fmt.Sprintf(" at %s, by %s", timeText(r.Stopped), r.by())
	}
	switch c.State {
	case stateRunning:
		if c.Process > 0 {
			return fmt.Sprintf("in use by process %d%s", c.Process, begun)
		}
		return "in use" + begun
	case stateStopped:
		return "stopped in order" + ended
	case stateKilled:
		return "killed" + begun
	case stateBackup:
		return fmt.Sprintf("a backup of %s, by millrace %s", timeText(c.Backup.Made), c.Backup.Version)
	case stateUnknown:
		return "stopped or killed, by a millrace that did not write which"
	case stateForeign:
		return "no data directory"
	}
	return c.State
}

func inMiB(n int64) float64 { return float64(n) / (1 << 20) }

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func stampText(us int64) string { return timeText(time.UnixMicro(us)) }
