package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"millrace/intern"
	"millrace/intern/kv/pebblekv"
)

// progressEvery is how often a long job on the UID store says how far it is.
const progressEvery = 2 * time.Second

// internJob is one of the sub-commands of `millrace intern`.
type internJob struct {
	name, args, help string
	run              func(ctx context.Context, j *internRun) error
}

func internJobs() []internJob {
	return []internJob{
		{"export", "FILE", "write all UIDs to a file; begun again, it goes on where it stopped", func(ctx context.Context, r *internRun) error { return r.export(ctx) }},
		{"import", "FILE", "read such a file into an empty store; begun again, it goes on where it stopped", func(ctx context.Context, r *internRun) error { return r.imports(ctx) }},
		{"verify", "", "scan both directions: one string, one UID, counters above every UID", func(ctx context.Context, r *internRun) error { return r.verify(ctx) }},
		{"compact", "", "rewrite the store to its final size", func(ctx context.Context, r *internRun) error { return r.compact(ctx) }},
		{"skip-ahead", "", "after restoring an older copy: raise every sequence, so that no UID is given twice", func(ctx context.Context, r *internRun) error { return r.skipAhead(ctx) }},
	}
}

// internRun is what a job works with.
type internRun struct {
	store  *pebblekv.Store
	file   string // of export and import
	by     uint64 // of skip-ahead
	stdout io.Writer
	stderr io.Writer
	told   time.Time
}

func runIntern(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 || isHelpWord(args[0]) {
		printInternHelp(stdout)
		return nil
	}
	for _, job := range internJobs() {
		if job.name == args[0] {
			return job.start(ctx, args[1:], stdout, stderr)
		}
	}
	return usageError{fmt.Errorf("there is no millrace intern %.40q; try millrace intern --help", args[0])}
}

func isHelpWord(s string) bool { return strings.TrimLeft(s, "-") == "help" || s == "-h" }

func printInternHelp(w io.Writer) {
	fmt.Fprint(w, "millrace intern: care for the embedded UID store of a server that is not running\n\n")
	for _, job := range internJobs() {
		fmt.Fprintf(w, "  millrace intern %-10s %-5s  %s\n", job.name, job.args, job.help)
	}
	fmt.Fprint(w, "\n  --data-dir DIR  the server's data directory (default ./data, MILLRACE_DATA_DIR)\n"+
		"  --by N          of skip-ahead: more UIDs than one sequence gave out since the copy was made\n")
}

func (job internJob) start(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("intern "+job.name, flag.ContinueOnError)
	dataDir := fs.String("data-dir", "./data", "")
	by := fs.Uint64("by", intern.DefaultSkip, "")
	env := []string{}
	if dir, ok := os.LookupEnv(envName("data-dir")); ok {
		env = append(env, envName("data-dir")+"="+dir)
	}
	err = parseFlags(fs, args, env)
	if isHelp(err) {
		printInternHelp(stdout)
		return nil
	}
	if err != nil {
		return err
	}
	if want := len(strings.Fields(job.args)); fs.NArg() != want {
		return usageError{fmt.Errorf("usage: millrace intern %s [--data-dir DIR] %s", job.name, job.args)}
	}
	dir := (&config{dataDir: *dataDir}).internDir()
	if _, err := os.Stat(dir); job.name != "import" && errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no UID store in %s: name the server's --data-dir", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make --data-dir: %w", err)
	}
	store, err := pebblekv.Open(pebblekv.Config{Dir: dir, CacheBytes: 128 << 20, MemTableBytes: 64 << 20})
	if err != nil {
		return fmt.Errorf("open the UID store in %s: %w (stop the server that uses it)", dir, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return job.run(ctx, &internRun{store: store, file: fs.Arg(0), by: *by, stdout: stdout, stderr: stderr})
}

// progress tells how many names or keys are done, now and then.
func (r *internRun) progress(done uint64) {
	if now := time.Now(); now.Sub(r.told) >= progressEvery {
		r.told = now
		fmt.Fprintf(r.stderr, "%d\n", done)
	}
}

func (r *internRun) export(ctx context.Context) error {
	f, err := os.OpenFile(r.file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := intern.Export(ctx, r.store, f, r.progress)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", r.file, err)
	}
	r.summary("exported", s)
	return nil
}

func (r *internRun) imports(ctx context.Context) error {
	f, err := os.Open(r.file)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := intern.Import(ctx, r.store, f, r.progress)
	if err != nil {
		return err
	}
	r.summary("imported", s)
	return nil
}

func (r *internRun) summary(done string, s *intern.Summary) {
	fmt.Fprintf(r.stdout, "%s %d DIDs and URIs, %d collections, %d sequences, %d bytes; store %s, %d prefix bits\n",
		done, s.Names, s.Collections, s.Sequences, s.Bytes, s.StoreID, s.PrefixBits)
}

func (r *internRun) verify(ctx context.Context) error {
	report, err := intern.Verify(ctx, r.store, r.progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.stdout, "%d DIDs, %d URIs, %d keys, %d collections, %d sequences in use, %d problems\n",
		report.DIDs, report.URIs, report.Keys, report.Collections, report.Sequences, report.Problems)
	for _, p := range report.Examples {
		fmt.Fprintln(r.stdout, p)
	}
	if !report.Sound() {
		return errors.New("the UID store is damaged: restore a copy, then run millrace intern skip-ahead")
	}
	return nil
}

func (r *internRun) compact(ctx context.Context) error { return r.store.Compact(ctx) }

func (r *internRun) skipAhead(ctx context.Context) error {
	n, err := intern.SkipAhead(ctx, r.store, r.by)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.stdout, "raised %d sequences, and where unused ones begin, by %d\n", n, r.by)
	return nil
}
