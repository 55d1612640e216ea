package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"millrace/cmd/millrace/refs"
	"millrace/replay/graph/feed"
)

func refsImportCommand() *command {
	c, fs := &importJob{}, newFlags("references import")
	c.register(fs)
	fs.StringVar(&c.asOf, "as-of", "", "time of which the files are, such as 2026-11-24T12:00:00Z (`TIME`): when the first of the repositories was\nfetched, or as export said; rows need it")
	return &command{
		name: "millrace references import", args: "FILE…", summary: "read what records point at from repositories, or from rows",
		about: `A file is a repository as a CAR file (com.atproto.sync.getRepo), or rows as NDJSON or CSV with did, collection, rkey,
path and subject (NDJSON's names in any case), those of an account together in one file; plain, or compressed with gzip
or zstd; - is standard input. A file replaces what is known of its accounts; if several files have an account, the
newest counts, or the first of equal age. What the log has of an account from then on is laid over the file; if the log
does not reach back that far, the file is refused as too old. A repository is as old as its last commit, unless --as-of
says when it was fetched; rows count as ten minutes older than it says, as clocks differ. A repository's blocks and
tree are checked, the signature of its commit is not. Begun again, an import passes over what it has done, and over
what is older. Exit code 1: some files or accounts were refused, as standard error says.`,
		flags: fs, twins: storeTwins(), check: c.check, run: c.run,
	}
}

// importJob is a run of `millrace references import`.
type importJob struct {
	storeFlags
	asOf string
	time time.Time // asOf

	to      *refs.Import
	reader  refs.Reader
	files   int
	refused int
	stderr  io.Writer
}

func (c *importJob) check(args []string) (err error) {
	if c.asOf != "" {
		if c.time, err = time.Parse(time.RFC3339, c.asOf); err != nil {
			return fmt.Errorf("--as-of %.40q is not a time such as 2026-11-24T12:00:00Z", c.asOf)
		}
		if c.time.After(time.Now().Add(time.Minute)) || c.time.Year() < 2020 {
			return fmt.Errorf("--as-of %s: give the time when the files were fetched or written", c.asOf)
		}
	}
	return c.storeFlags.check(args)
}

func (c *importJob) run(ctx context.Context, files []string, stdout, stderr io.Writer) error {
	for _, name := range files { // before a store is opened
		if name == "-" {
			continue
		}
		if _, err := os.Stat(name); err != nil {
			return err
		}
	}
	return c.with(refsImport, c.importFiles)(ctx, files, stdout, stderr)
}

func (c *importJob) importFiles(ctx context.Context, s *refsStores, files []string, stdout, stderr io.Writer) error {
	collections, err := s.follow(ctx)
	if err != nil {
		return err
	}
	c.stderr, c.reader.Collections = stderr, collections
	c.to, err = refs.NewImport(ctx, refs.ImportConfig{
		Store: s.store, UIDs: s.uids, Log: s.log, NumberSources: s.numberSources, AsOf: c.time,
		Refused: c.refuse, Progress: everySoOften(func() { c.say(stderr) }),
	})
	if err != nil {
		return err
	}
	for _, name := range files {
		if err := c.file(ctx, name); err != nil {
			c.say(stdout)
			return err
		}
	}
	err = c.to.Finish()
	c.say(stdout)
	if err == nil && c.refused > 0 {
		err = fmt.Errorf("%d files or accounts were refused", c.refused)
	}
	return err
}

func (c *importJob) refuse(what string, reason error) {
	c.refused++
	fmt.Fprintf(c.stderr, "%s: %v\n", what, reason)
}

// file imports a file. What is wrong with it is reported, and the next file comes.
func (c *importJob) file(ctx context.Context, name string) error {
	sink := &importSink{to: c.to}
	f, err := c.openFile(ctx, name)
	if err == nil {
		defer f.Close()
		c.files++
		err = c.checkRows(ctx, f)
	}
	if err == nil {
		if err := feed.Forget(c.config().graphFile()); err != nil {
			return err
		}
		err = c.reader.Read(ctx, f, sink)
	}
	switch {
	case err == nil, sink.err != nil: // the sink's error comes from the stores
		return sink.err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	c.refuse(name, err)
	return nil
}

// openFile opens a file that can be read twice. What cannot, a pipe, is copied.
func (c *importJob) openFile(ctx context.Context, name string) (*os.File, error) {
	if name == "-" {
		return refs.Spool(readUntil(ctx, os.Stdin), c.dataDir)
	}
	f, err := os.Open(name)
	if err != nil || rewind(f) == nil {
		return f, err
	}
	defer f.Close()
	return refs.Spool(readUntil(ctx, f), c.dataDir)
}

// checkRows reads rows to their end, so that of a file that is wrong nothing is imported. Of a
// repository nothing is before it was read anyway.
func (c *importJob) checkRows(ctx context.Context, f *os.File) error {
	is, err := refs.IsRepository(f)
	if err := errors.Join(err, rewind(f)); err != nil || is {
		return err
	}
	var check rowCheck
	if c.time.IsZero() {
		check.err = errors.New("rows do not say of which time they are: give --as-of TIME")
	}
	reader := refs.Reader{Collections: c.reader.Collections}
	return cmp.Or(reader.Read(ctx, f, check), check.err, rewind(f))
}

// rowCheck drops the rows of a file. Its error, if it has one, comes with the first.
type rowCheck struct{ err error }

func (c rowCheck) Begin(string, uint64) error { return c.err }
func (rowCheck) Add(*refs.Record) error       { return nil }

func rewind(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// importSink distinguishes errors of the import from those of a file.
type importSink struct {
	to  *refs.Import
	err error
}

func (s *importSink) Begin(did string, rev uint64) error {
	s.err = s.to.Begin(did, rev)
	return s.err
}

func (s *importSink) Add(r *refs.Record) error {
	s.err = s.to.Add(r)
	return s.err
}

// say prints how far the import is.
func (c *importJob) say(w io.Writer) {
	done, read := c.to.Done, c.reader.Counts
	fmt.Fprintf(w, "%d files; imported %d accounts with %d records and %d references, and %d events of the log over them; %d were there already, %d refused\n",
		c.files, done.Imported, done.Records, done.References, done.Laid, done.Known, done.Refused)
	if n := done.Excess + read.Excess; n > 0 {
		fmt.Fprintf(w, "%d references are over the limits\n", n)
	}
	if read.Filtered > 0 {
		fmt.Fprintf(w, "%d records are of collections that the server does not keep\n", read.Filtered)
	}
	for _, reason := range slices.Sorted(maps.Keys(read.Dropped)) {
		fmt.Fprintf(w, "%d records are dropped: %s\n", read.Dropped[reason], reason)
	}
}
