package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"millrace/cmd/millrace/refs"
)

func refsExportCommand() *command {
	c, fs := &refsExport{format: choice{"ndjson", []string{"ndjson", "csv"}}}, newFlags("references export")
	c.register(fs)
	fs.Var(&c.dids, "did", "only of these accounts (`DID`s, separated by commas, may be repeated)")
	fs.Var(&c.sources, "source", "only of these sources (`collection:path`, such as app.bsky.feed.like:subject.uri;\nseparated by commas, may be repeated)")
	fs.Var(&c.format, "format", "form of a line")
	fs.StringVar(&c.out, "out", "", "write to this `file`, which gets its name when it is whole; left out: standard output")
	return &command{
		name: "millrace references export", summary: "write what records that are alive point at, as NDJSON or CSV",
		about: `Each line is a reference: did, collection, rkey, path and subject. The last line on standard error says --as-of
what TIME millrace references import may read it again. An import replaces all that is
known of the accounts, also of sources that --source leaves out.`,
		flags:  fs,
		groups: []flagGroup{{"What is written", []string{"did", "source", "format", "out"}}, {"Where it comes from", storeTwins()}},
		twins:  storeTwins(), check: c.check, run: c.with(refsRead, c.export),
	}
}

// refsExport is what the flags of `millrace references export` set.
type refsExport struct {
	storeFlags
	dids, sources list
	format        choice
	out           string
}

func (c *refsExport) check(args []string) error {
	for _, did := range c.dids {
		if err := checkDID(did); err != nil {
			return fmt.Errorf("--did: %w", err)
		}
	}
	for _, source := range c.sources {
		if !strings.Contains(source, ":") {
			return fmt.Errorf("--source %.100q is not collection:path", source)
		}
	}
	return c.storeFlags.check(args)
}

func (c *refsExport) export(ctx context.Context, s *refsStores, _ []string, stdout, stderr io.Writer) error {
	e := refs.Export{Store: s.store, Names: s.uids, Table: s.log, Progress: sayCount(stderr, "references")}
	for _, did := range c.dids {
		uid, err := s.uidOf(ctx, did)
		if err != nil {
			return err
		}
		e.Accounts = append(e.Accounts, uid)
	}
	if len(c.sources) > 0 {
		e.Sources = make(map[string]bool)
	}
	for _, source := range c.sources {
		if _, ok := s.log.FindSource(source); !ok {
			return fmt.Errorf("--source %s: the log has no reference of this source; one is COLLECTION:PATH, such as app.bsky.feed.like:subject.uri", source)
		}
		e.Sources[source] = true
	}
	asOf, err := s.asOf(ctx)
	if err != nil {
		return err
	}
	var rows uint64
	err = writeWhole(c.out, stdout, func(w io.Writer) error {
		rows, err = e.Run(ctx, refs.NewRowWriter(w, c.format.value))
		return err
	})
	if err != nil {
		return err
	}
	if us := s.store.InexactSince(); us != 0 {
		fmt.Fprintf(stderr, "what was deleted since %s may be among them, as there was a gap or a #sync; a server that imports them does not know that\n",
			time.UnixMicro(us).UTC().Format(time.RFC3339))
	}
	which := ""
	if e.Sources != nil {
		which = " of some sources, which replace all that an import finds of their accounts"
	}
	fmt.Fprintf(stderr, "exported %d references%s; import them --as-of %s\n", rows, which, asOf)
	return nil
}

// asOf says the time of the table: that of the newest event it has read, or before.
func (s *refsStores) asOf(ctx context.Context) (string, error) {
	us := s.log.Progress().TimeUS
	first, ahead, err := refs.FirstEvent(ctx, s.log, s.store.Position())
	if err != nil {
		return "", err
	}
	if ahead { // the log, of the table
		us = first - 1
	}
	if us > time.Now().UnixMicro() {
		return "the time when the server was stopped: its stamps are ahead of the clock", nil
	}
	return time.UnixMicro(us).UTC().Format(time.RFC3339Nano), nil
}

// writeWhole lets fill write to a file, which gets its name when it is whole and on disk, or to
// stdout if it has none, or is called -.
func writeWhole(name string, stdout io.Writer, fill func(w io.Writer) error) error {
	if name != "" && name != "-" {
		return replaceFile(name, 0o644, fill)
	}
	b := bufio.NewWriterSize(stdout, 1<<16)
	return cmp.Or(fill(b), b.Flush()) // a failed write fails both
}
