package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"millrace/replay"
)

// runVerify checks the log of a server that does not run.
func runVerify(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("verify", flag.ContinueOnError)
	dataDir := fs.String("data-dir", "./data", "")
	problems := fs.Int("problems", 100, "")
	workers := fs.Int("workers", 0, "")
	env := []string{}
	if dir, ok := os.LookupEnv(envName("data-dir")); ok {
		env = append(env, envName("data-dir")+"="+dir)
	}
	err := parseFlags(fs, args, env)
	switch {
	case isHelp(err):
		printVerifyHelp(stdout)
		return nil
	case err != nil:
		return err
	case fs.NArg() > 0:
		return usageError{fmt.Errorf("unexpected argument %.40q; try millrace verify --help", fs.Arg(0))}
	case *problems < 1 || *workers < 0:
		return usageError{errors.New("--problems must be at least 1, --workers at least 0")}
	}
	p := verifyProgress{w: stderr, begun: time.Now(), told: time.Now()}
	report, err := replay.Verify(ctx, replay.VerifyConfig{
		Dir: (&config{dataDir: *dataDir}).logDir(), Workers: *workers, ProblemsKept: *problems, Progress: p.tell,
	})
	switch {
	case errors.Is(err, replay.ErrInUse):
		return fmt.Errorf("%w: stop the server that uses --data-dir %s, or verify a copy", err, *dataDir)
	case errors.Is(err, replay.ErrNoLog):
		return fmt.Errorf("%w: name the server's --data-dir", err)
	case err != nil:
		return err
	}
	return printReport(stdout, report, time.Since(p.begun))
}

func printVerifyHelp(w io.Writer) {
	fmt.Fprint(w, `millrace verify: check the event log of a server that is not running, without changing it

Every value is compared with its checksum, columns with the events' bytes, compressed events with the plain ones, and
references, spans, gaps and the position with the blocks. Exit code 0: the log is whole; 1: it is damaged, and how
is on standard output, a line a problem; or it could not be checked. Progress goes to standard error.
(If the very last commit before the server ended is damaged, that looks like a crash in the middle of it, and is not
seen: the log is then whole without it, and the server asks the relay for it again.)

  --data-dir DIR  the server's data directory (default ./data, MILLRACE_DATA_DIR)
  --problems N    print the first N problems; all are counted (default 100)
  --workers N     blocks checked at once (default one a processor)
`)
}

// verifyProgress tells how far a check is, now and then.
type verifyProgress struct {
	w           io.Writer
	begun, told time.Time
}

func (p *verifyProgress) tell(at replay.VerifyProgress) {
	if time.Since(p.told) < progressEvery {
		return
	}
	p.told = time.Now()
	if at.TotalBytes > 0 {
		fmt.Fprintf(p.w, "%5.1f %%, ", 100*float64(at.Bytes)/float64(at.TotalBytes))
	}
	fmt.Fprintf(p.w, "%d events, %.0f events/s\n", at.Events, float64(at.Events)/time.Since(p.begun).Seconds())
}

// printReport prints what was found. A damaged log is an error.
func printReport(w io.Writer, r *replay.VerifyReport, took time.Duration) error {
	for _, p := range r.Examples {
		fmt.Fprintln(w, p)
	}
	if more := r.Problems - int64(len(r.Examples)); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	fmt.Fprintf(w, "%d events in %d blocks, %d bytes; %d spans, %d gaps, %d dictionaries; %d problems; %.1f s, %.0f events/s\n",
		r.Events, r.Blocks, r.Bytes, r.Spans, r.Gaps, r.Dictionaries, r.Problems, took.Seconds(), float64(r.Events)/took.Seconds())
	if !r.Sound() {
		return errors.New("the log is damaged: restore its directory from a copy, or move it away to start an empty log")
	}
	return nil
}
