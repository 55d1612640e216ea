package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"millrace/cmd/millrace/refs"
	"millrace/replay/graph/feed"
	"millrace/replay/links"
	"millrace/replay/references"
)

func refsVerifyCommand() *command {
	return storeCheckCommand("references verify", "check the reference store's files, and its table against the log",
		`Every key and value is checked, and that each record has the row that its last event in the log says, or none.
Links, if they are complete, must be those of the rows.
Exit code 0: it is sound; 1: it is not, and how is on standard output, a line a problem; or it could not be checked.`, runRefsVerify)
}

// storeCheckCommand is a command that checks what is in a data directory.
func storeCheckCommand(name, summary, about string, do refsJob) *command {
	p, fs := &storeFlags{}, newFlags(name)
	fs.StringVar(&p.dataDir, "data-dir", "./data", "the server's data directory (`DIR`)")
	return &command{name: "millrace " + name, summary: summary, about: about, flags: fs, twins: []string{"data-dir"}, run: p.with(refsCheck, do)}
}

func runRefsVerify(ctx context.Context, s *refsStores, _ []string, stdout, stderr io.Writer) error {
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
	c, fs := &refsPurge{}, newFlags("references purge")
	c.register(fs)
	return &command{
		name: "millrace references purge", args: "DID", summary: "forget what the records of an account point at",
		about: `Its rows go, and neither the log nor an import brings back what is of the same or an earlier revision, also
after the table was made anew, unless DIR/refs was removed. Later commits of the account count again. The log itself
and its UIDs stay.`,
		flags: fs, twins: storeTwins(), check: c.check, run: c.run,
	}
}

// refsPurge is `millrace references purge`.
type refsPurge struct {
	storeFlags
	rows int // that were forgotten
}

func (c *refsPurge) check(args []string) error {
	return errors.Join(checkDID(args[0]), c.storeFlags.check(args))
}

func (c *refsPurge) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	err := c.with(refsChange, c.purge)(ctx, args, stdout, stderr)
	if err == nil { // it is durable
		fmt.Fprintf(stdout, "purged %s: %d records are forgotten\n", args[0], c.rows)
	}
	return err
}

func (c *refsPurge) purge(ctx context.Context, s *refsStores, args []string, _, _ io.Writer) error {
	uid, err := s.uidOf(ctx, args[0])
	if err != nil {
		return err
	}
	if _, err := s.follow(ctx); err != nil {
		return err
	}
	if _, err := s.store.RowsOf(ctx, uid, func(*references.Row) error { c.rows++; return nil }); err != nil {
		return err
	}
	known, _, err := s.store.Account(uid)
	if err != nil {
		return err
	}
	purge := references.Change{Operation: references.Purge, Account: uid}
	if known.Rev == 0 { // there is no commit of it: what is purged is of before the log's end
		// Stamps may be ahead of the clock that made the revs.
		purge.Rev = uint64(min(s.log.Progress().TimeUS, time.Now().UnixMicro())) << 10
	}
	b := references.Batch{Position: s.store.Position(), Changes: []references.Change{purge}}
	if err := feed.Forget(c.config().graphFile()); err != nil {
		return err
	}
	if err := s.store.Hydrate(ctx, &b); err != nil {
		return err
	}
	return s.store.Apply(&b)
}
