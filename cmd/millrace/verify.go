package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"millrace/replay/verify"
)

func verifyCommand() *command {
	c, fs := &verifyConfig{}, newFlags("verify")
	fs.StringVar(&c.dataDir, "data-dir", "./data", "the server's data directory (`DIR`)")
	fs.IntVar(&c.problems, "problems", 100, "print the first so many problems (`NUMBER`); all are counted")
	fs.IntVar(&c.workers, "workers", 0, "blocks checked at once (`NUMBER`); 0: one a processor")
	return &command{
		name: "millrace verify", summary: "check the event log of a server that is not running, without changing it",
		about: `Every value is compared with its checksum, columns with the events' bytes, compressed events with the plain ones, and
references, spans, gaps and the position with the blocks. Exit code 0: the log is whole; 1: it is damaged, and how
is on standard output, a line a problem; or it could not be checked. Progress goes to standard error.
(What the last second of commits lost is not seen: that looks like a crash before them. The log is then whole without
them, and the server asks the relay for them again. docs/operations.md says more.)`,
		flags: fs, twins: []string{"data-dir"}, check: c.check, run: c.run,
	}
}

// verifyConfig is what the flags of `millrace verify` set.
type verifyConfig struct {
	dataDir           string
	problems, workers int
}

func (c *verifyConfig) check([]string) error {
	if c.problems < 1 || c.workers < 0 {
		return errors.New("--problems must be at least 1, --workers at least 0")
	}
	return nil
}

func (c *verifyConfig) run(ctx context.Context, _ []string, stdout, stderr io.Writer) error {
	begun := time.Now()
	var at verify.Progress
	say := everySoOften(func() { printProgress(stderr, at, time.Since(begun)) })
	report, err := verify.Run(ctx, verify.Config{
		Dir: (&config{dataDir: c.dataDir}).logDir(), OpenFiles: commandFiles(),
		Workers: c.workers, ProblemsKept: c.problems,
		Progress: func(p verify.Progress) { at = p; say() },
	})
	switch {
	case errors.Is(err, verify.ErrInUse):
		return fmt.Errorf("%w: stop the server that uses --data-dir %s, or verify a copy", err, c.dataDir)
	case errors.Is(err, verify.ErrNoLog):
		return fmt.Errorf("%w: name the server's --data-dir", err)
	case err != nil:
		return adviseNewer(adviseStores(err), c.dataDir)
	}
	return printReport(stdout, report, time.Since(begun))
}

// printProgress prints how far a check is.
func printProgress(w io.Writer, at verify.Progress, took time.Duration) {
	if at.TotalBytes > 0 {
		fmt.Fprintf(w, "%5.1f %%, ", 100*float64(at.Bytes)/float64(at.TotalBytes))
	}
	fmt.Fprintf(w, "%d events, %.0f events/s\n", at.Events, float64(at.Events)/took.Seconds())
}

// printReport prints what was found. A damaged log is an error.
func printReport(w io.Writer, r *verify.Report, took time.Duration) error {
	printProblems(w, r.Examples, uint64(r.Problems))
	fmt.Fprintf(w, "%d events in %d blocks, %d bytes; %d spans, %d gaps, %d dictionaries; %d problems; %.1f s, %.0f events/s\n",
		r.Events, r.Blocks, r.Bytes, r.Spans, r.Gaps, r.Dictionaries, r.Problems, took.Seconds(), float64(r.Events)/took.Seconds())
	if !r.Sound() {
		return errors.New("the log is damaged: restore its directory from a copy, or move it away to start an empty log")
	}
	return nil
}
