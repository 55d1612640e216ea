package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
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
	store  closableStore
	file   string // of export and import
	by     uint64 // of skip-ahead; 0: by the age of the backup, if it is one
	dir    string // the data directory; "": the store is elsewhere
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
	fmt.Fprint(w, "millrace intern: care for the UID store of servers that are not running\n\n")
	for _, job := range internJobs() {
		fmt.Fprintf(w, "  millrace intern %-10s %-5s  %s\n", job.name, job.args, job.help)
	}
	fmt.Fprint(w, "\n  --data-dir DIR  the server's data directory (default ./data, MILLRACE_DATA_DIR)\n"+
		"  --intern S      pebble, the embedded store (default), or fdb (MILLRACE_INTERN)\n"+
		"  --fdb-cluster-file FILE  with --intern=fdb (MILLRACE_FDB_CLUSTER_FILE); stop every server that shares the store\n"+
		"  --by N          of skip-ahead: more UIDs than one sequence gave out since the copy was made; left out: more than\n"+
		"                  is possible since the backup was made, and 2^32 if --data-dir is none\n")
}

func (job internJob) start(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	where, err := job.parse(args)
	if isHelp(err) {
		printInternHelp(stdout)
		return nil
	}
	if err != nil {
		return err
	}
	store, err := where.open(ctx, job.name == "import", stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return job.run(ctx, &internRun{store: store, file: where.file, by: where.by, dir: where.dataDir(), stdout: stdout, stderr: stderr})
}

// internPlace is what the flags of a job say.
type internPlace struct {
	dir     string // of the embedded store
	intern  choice
	cluster string
	file    string
	by      uint64
}

func (job internJob) parse(args []string) (*internPlace, error) {
	p := &internPlace{intern: choice{"pebble", []string{"pebble", "fdb"}}}
	fs := flag.NewFlagSet("intern "+job.name, flag.ContinueOnError)
	dataDir := fs.String("data-dir", "./data", "")
	fs.Var(&p.intern, "intern", "")
	fs.StringVar(&p.cluster, "fdb-cluster-file", "", "")
	fs.Uint64Var(&p.by, "by", 0, "")
	env := []string{} // the server's variables that say where its store is
	for _, name := range []string{"data-dir", "intern", "fdb-cluster-file"} {
		if value, ok := os.LookupEnv(envName(name)); ok {
			env = append(env, envName(name)+"="+value)
		}
	}
	if err := parseFlags(fs, args, env); err != nil {
		return nil, err
	}
	if want := len(strings.Fields(job.args)); fs.NArg() != want {
		return nil, usageError{fmt.Errorf("usage: millrace intern %s [--data-dir DIR] %s", job.name, job.args)}
	}
	p.dir, p.file = (&config{dataDir: *dataDir}).internDir(), fs.Arg(0)
	return p, nil
}

// dataDir is the data directory of the embedded store, "" of another store.
func (p *internPlace) dataDir() string {
	if p.intern.value != "pebble" {
		return ""
	}
	return filepath.Dir(p.dir)
}

// open opens the store. Unless create, there must be one already.
func (p *internPlace) open(ctx context.Context, create bool, stderr io.Writer) (closableStore, error) {
	if p.intern.value == "fdb" {
		return openFoundation(ctx, p.cluster, slog.New(slog.NewTextHandler(stderr, nil)))
	}
	if _, err := os.Stat(p.dir); !create && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no UID store in %s: name the server's --data-dir", p.dir)
	}
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o755); err != nil {
		return nil, fmt.Errorf("make --data-dir: %w", err)
	}
	store, err := pebblekv.Open(pebblekv.Config{Dir: p.dir, CacheBytes: 128 << 20, MemTableBytes: 64 << 20})
	if err != nil {
		return nil, advise(err, "If a server uses it, stop the server first.")
	}
	return store, nil
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

func (r *internRun) compact(ctx context.Context) error {
	store, ok := r.store.(*pebblekv.Store)
	if !ok {
		return usageError{errors.New("compact is for the embedded store; FoundationDB sees to its files itself")}
	}
	return store.Compact(ctx)
}

func (r *internRun) skipAhead(ctx context.Context) error {
	raised, err := r.skip(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.stdout, "raised %d sequences, and where unused ones begin, by %d\n", raised, r.by)
	if r.dir == "" {
		return nil
	}
	return markRestored(r.dir)
}

// skip raises the sequences by what --by says, else by the age of the backup that the directory is, else by the default.
func (r *internRun) skip(ctx context.Context) (raised int, err error) {
	if r.by == 0 && r.dir != "" {
		m, err := readBackupManifest(r.dir)
		if err != nil {
			return 0, err
		}
		if m != nil {
			r.by, raised, err = intern.SkipRestored(ctx, r.store, m.age())
			return raised, err
		}
	}
	if r.by == 0 {
		r.by = intern.DefaultSkip
	}
	return intern.SkipAhead(ctx, r.store, r.by)
}
