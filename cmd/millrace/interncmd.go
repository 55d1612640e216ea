package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"millrace/intern"
	"millrace/intern/kv/pebblekv"
)

// progressEvery is how often a long job on the UID store says how far it is.
const progressEvery = 2 * time.Second

func internCommand() *command {
	c := &command{name: "millrace intern", summary: "care for the UID store of servers that are not running"}
	for _, job := range []*internJob{
		{name: "export", summary: "write all UIDs to a file; begun again, it goes on where it stopped", file: true, reads: true, run: (*internRun).export},
		{name: "import", summary: "read such a file into an empty store; begun again, it goes on where it stopped", file: true, create: true, run: (*internRun).imports},
		{name: "verify", summary: "scan both directions: one string, one UID, counters above every UID", reads: true, run: (*internRun).verify},
		{name: "compact", summary: "rewrite the store to its final size", embedded: true, run: (*internRun).compact},
		{name: "skip-ahead", summary: "after restoring an older copy: raise every sequence, so that no UID is given twice", skips: true, run: (*internRun).skipAhead},
	} {
		c.subs = append(c.subs, job.command())
	}
	return c
}

// internJob is one of the sub-commands of `millrace intern`.
type internJob struct {
	name, summary string
	file          bool // it takes the name of a file
	create        bool // there need not be a store
	reads         bool // nothing is changed
	embedded      bool // it is for the embedded store only
	skips         bool
	run           func(r *internRun, ctx context.Context) error
}

func (job *internJob) command() *command {
	c := &command{
		name: "millrace intern " + job.name, summary: job.summary,
		flags: func() *flag.FlagSet { fs, _ := job.newFlags(); return fs },
		twins: internTwins(), run: job.start,
	}
	if job.file {
		c.args = "FILE"
	}
	return c
}

// internTwins are the server's variables that say where its store is.
func internTwins() []string { return []string{"data-dir", "intern", "fdb-cluster-file"} }

// internRun is what a job works with.
type internRun struct {
	store   closableStore
	file    string // of export and import
	by      uint64 // of skip-ahead; 0: by the age of the backup, if it is one
	dir     string // the data directory; "": the store is elsewhere
	stdout  io.Writer
	stderr  io.Writer
	printed time.Time
}

func (job *internJob) start(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	where, err := job.parse(args)
	if err != nil {
		return err
	}
	if job.create { // before a store is made for nothing
		if _, err := os.Stat(where.file); err != nil {
			return fmt.Errorf("read the dump: %w", err)
		}
	}
	changed := where.dataDir()
	if job.reads {
		changed = ""
	}
	if err := refuseNewer(ctx, changed); err != nil {
		return adviseNewer(err, changed)
	}
	store, err := where.open(ctx, job, stderr)
	if err != nil {
		return err
	}
	ended, err := noteCommand(changed, "intern "+job.name)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	defer func() { err = errors.Join(err, ended(store.Close())) }()
	r := &internRun{store: store, file: where.file, by: where.by, dir: where.dataDir(), stdout: stdout, stderr: stderr}
	return adviseNewer(job.run(r, ctx), where.dataDir())
}

// internFlags are the flags of a job.
type internFlags struct {
	data    string // data directory of the embedded store
	intern  choice
	cluster string
	file    string
	by      uint64
}

func (job *internJob) newFlags() (*flag.FlagSet, *internFlags) {
	p := &internFlags{intern: choice{"pebble", []string{"pebble", "fdb"}}}
	fs := flag.NewFlagSet("intern "+job.name, flag.ContinueOnError)
	fs.StringVar(&p.data, "data-dir", "./data", "the server's data directory (`DIR`)")
	fs.Var(&p.intern, "intern", "which UID store: pebble, the embedded one, or fdb, FoundationDB; stop every server that uses it")
	fs.StringVar(&p.cluster, "fdb-cluster-file", "", "cluster `file` of FoundationDB, with --intern=fdb")
	if job.skips {
		fs.Uint64Var(&p.by, "by", 0, "more UIDs (`number`) than one sequence gave out since the copy was made; left out: more than\n"+
			"is possible since the backup was made, or 2^32 if --data-dir is none")
	}
	return fs, p
}

func (job *internJob) parse(args []string) (*internFlags, error) {
	fs, p := job.newFlags()
	if err := parseFlags(fs, args, environOf(internTwins()...)); err != nil {
		return nil, err
	}
	switch {
	case job.file && fs.NArg() != 1, !job.file && fs.NArg() > 0:
		return nil, usageError{errors.New("usage: " + job.command().usageLine())}
	case p.intern.value == "fdb" && job.embedded:
		return nil, usageError{fmt.Errorf("millrace intern %s is for the embedded store; FoundationDB sees to its files itself", job.name)}
	case p.intern.value == "fdb" && !hasFoundation:
		return nil, usageError{errNoFoundation}
	}
	p.file = fs.Arg(0)
	return p, nil
}

// dataDir is the data directory of the embedded store, "" of another store.
func (p *internFlags) dataDir() string {
	if p.intern.value != "pebble" {
		return ""
	}
	return p.data
}

// open opens the store for the job. Unless the job creates one there must be one already. Jobs that
// only read change nothing.
func (p *internFlags) open(ctx context.Context, job *internJob, stderr io.Writer) (closableStore, error) {
	if p.intern.value == "fdb" {
		return openFoundation(ctx, p.cluster, slog.New(slog.NewTextHandler(stderr, nil)))
	}
	dir := (&config{dataDir: p.data}).internDir()
	if _, err := os.Stat(dir); !job.create && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no UID store in %s: name the server's --data-dir", dir)
	}
	if job.create {
		if err := os.MkdirAll(p.data, 0o755); err != nil {
			return nil, fmt.Errorf("make --data-dir: %w", err)
		}
	}
	store, err := pebblekv.Open(pebblekv.Config{
		Dir:           dir,
		CacheBytes:    128 << 20,
		MemTableBytes: 64 << 20,
		ReadOnly:      job.reads,
		KeepGoing:     job.name == "verify",
		AcceptLoss:    job.name == "skip-ahead",
	})
	if isLocked(err) {
		err = advise(err, "If a server uses it, stop the server first.")
	}
	if err != nil {
		return nil, err
	}
	return store, nil
}

// progress reports how many names or keys are done, now and then.
func (r *internRun) progress(done uint64) {
	if now := time.Now(); now.Sub(r.printed) >= progressEvery {
		r.printed = now
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
	var damage []error
	if store, ok := r.store.(*pebblekv.Store); ok {
		damage = store.Damage()
	}
	report, err := intern.Verify(ctx, r.store, r.progress)
	if err != nil {
		return errors.Join(append(damage, err)...)
	}
	for _, err := range damage {
		report.Problems++
		report.Examples = append(report.Examples, err.Error())
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
		return errors.New("compact is for the embedded store")
	}
	return store.Compact(ctx)
}

func (r *internRun) skipAhead(ctx context.Context) error {
	raised, err := r.skip(ctx)
	if err != nil {
		return err
	}
	if store, ok := r.store.(*pebblekv.Store); ok {
		if err := store.RaiseMark(); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.stdout, "raised %d sequences, and where unused ones begin, by %d\n", raised, r.by)
	if r.dir == "" {
		return nil
	}
	return markRestored(r.dir)
}

// skip raises the sequences by what --by says, else by the age of the backup that the directory is,
// else by the default.
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
