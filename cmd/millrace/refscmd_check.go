package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"

	"millrace/cmd/millrace/refs"
	"millrace/replay/links"
	"millrace/replay/references"
)

func refsVerifyCommand() *command {
	return &command{
		name: "millrace references verify", summary: "check the reference store's files, and its table against the log",
		about: `Every key and value is checked, and that each record has the row that its last event in the log says, or none.
Links, if they are complete, must be those of the rows.
Exit code 0: it is sound; 1: it is not, and how is on standard output, a line a problem; or it could not be checked.`,
		flags: func() *flag.FlagSet { fs, _ := newStoreCheckFlags("references verify"); return fs }, twins: []string{"data-dir"}, run: runRefsVerify,
	}
}

// newStoreCheckFlags returns the flags of a command that checks what is in a data directory.
func newStoreCheckFlags(name string) (*flag.FlagSet, *refsFlags) {
	p := &refsFlags{}
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.StringVar(&p.data, "data-dir", "./data", "the server's data directory (`DIR`)")
	return fs, p
}

// openStoreCheck opens what such a command checks.
func openStoreCheck(ctx context.Context, name string, args []string, stderr io.Writer) (*refsStores, error) {
	fs, p := newStoreCheckFlags(name)
	if err := parseFlags(fs, args, environOf("data-dir")); err != nil {
		return nil, err
	}
	if err := noArguments(fs); err != nil {
		return nil, err
	}
	return p.open(ctx, name, refsCheck, stderr)
}

func runRefsVerify(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := openStoreCheck(ctx, "references verify", args, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	held, err := s.store.Verify(ctx, sayCount(stderr, "keys"))
	if err != nil {
		return err
	}
	check := refs.Check{Store: s.store, Log: s.log, Events: s.log.Range().Events, Progress: sayCount(stderr, "events")}
	compared, err := check.Run(ctx)
	if err != nil {
		return err
	}
	linked, err := verifyLinks(ctx, s.store, stderr)
	if errors.Is(err, links.ErrBuilding) { // or there are none
		linked, err = new(links.Report), nil
	}
	if err != nil {
		return err
	}
	examples := slices.Concat(held.Examples, compared.Examples, linked.Examples)
	problems := held.Problems + compared.Problems + linked.Problems
	printProblems(stdout, examples, problems)
	if linked.Sets > 0 {
		fmt.Fprintln(stdout, linksFound(linked))
	}
	fmt.Fprintf(stdout, "%d records with %d references of %d accounts, %d purged, %d rows to be swept; %d records compared with %d events; %d problems\n",
		held.Rows, held.References, held.Accounts, held.Purged, held.Below, compared.Records, compared.Events, problems)
	if problems > 0 {
		return errors.New("the reference store is damaged: restore the data directory from a backup, or move its directory refs away; " +
			"the server then makes the table anew from the log, and what is older can be imported again")
	}
	return nil
}

func refsPurgeCommand() *command {
	return &command{
		name: "millrace references purge", args: "DID", summary: "forget what the records of an account point at",
		about: `Its rows go, and neither the log nor an import brings back what is of the same or an earlier revision, also
after the table was made anew. Later commits of the account count again. The log itself and its UIDs stay.`,
		flags: func() *flag.FlagSet { fs, _ := newRefsPurgeFlags(); return fs }, twins: refsTwins(), run: runRefsPurge,
	}
}

func newRefsPurgeFlags() (*flag.FlagSet, *refsFlags) {
	p := &refsFlags{}
	fs := flag.NewFlagSet("references purge", flag.ContinueOnError)
	p.register(fs)
	return fs, p
}

func runRefsPurge(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fs, p := newRefsPurgeFlags()
	if err := parseFlags(fs, args, environOf(refsTwins()...)); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return usageError{errors.New("usage: " + refsPurgeCommand().usageLine())}
	}
	did := fs.Arg(0)
	if err := errors.Join(checkDID(did), p.validate()); err != nil {
		return usageError{err}
	}
	s, err := p.open(ctx, "references purge", refsChange, stderr)
	if err != nil {
		return err
	}
	rows := 0
	defer func() {
		if err = errors.Join(err, s.close()); err == nil { // it is durable
			fmt.Fprintf(stdout, "purged %s: %d records are forgotten\n", did, rows)
		}
	}()
	uid, err := s.uidOf(ctx, did)
	if err != nil {
		return err
	}
	if _, err := s.follow(ctx); err != nil {
		return err
	}
	if _, err := s.store.RowsOf(ctx, uid, func(*references.Row) error { rows++; return nil }); err != nil {
		return err
	}
	b := references.Batch{Position: s.store.Position(), Changes: []references.Change{{Operation: references.Purge, Account: uid}}}
	if err := s.store.Hydrate(ctx, &b); err != nil {
		return err
	}
	return s.store.Apply(&b)
}
