package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern"
	"millrace/intern/kv/pebbleguard"
	"millrace/intern/kv/pebblekv"
)

func internCommand() *command {
	export := &internJob{options: pebblekv.Config{ReadOnly: true}, do: (*internJob).export}
	imports := &internJob{create: true, do: (*internJob).imports}
	verify := &internJob{options: pebblekv.Config{ReadOnly: true, KeepGoing: true}, do: (*internJob).verify}
	compact := &internJob{do: (*internJob).compact}
	skip := &internJob{options: pebblekv.Config{AcceptLoss: true}, do: (*internJob).skipAhead}
	return &command{
		name: "millrace intern", summary: "care for the UID store of servers that are not running",
		subs: []*command{
			export.subCommand("export", "FILE", "write all UIDs to a file; begun again, it goes on where it stopped"),
			imports.subCommand("import", "FILE", "read such a file into an empty store; begun again, it goes on where it stopped"),
			verify.subCommand("verify", "", "scan both directions: one string, one UID, counters above every UID"),
			compact.subCommand("compact", "", "rewrite the store to its final size"),
			skip.subCommand("skip-ahead", "", "after restoring an older copy: raise every sequence, so that no UID is given twice"),
		},
	}
}

// internJob is one of the sub-commands of `millrace intern`.
type internJob struct {
	storeFlags
	by      uint64          // of skip-ahead; 0: left out, by the age of the backup, if it is one
	options pebblekv.Config // of the embedded store; read-only: nothing is changed
	create  bool            // there need not be a store
	do      func(j *internJob, ctx context.Context) error

	file           string       // of export
	dump           *intern.Dump // of import
	store          closableStore
	stdout, stderr io.Writer
}

func (j *internJob) subCommand(name, args, summary string) *command {
	fs := newFlags("intern " + name)
	j.register(fs)
	fs.Lookup("intern").Usage = "which UID store: pebble, the embedded one, or fdb, FoundationDB; stop every server that uses it"
	if name == "skip-ahead" {
		fs.Func("by", "more UIDs (`number`) than one sequence gave out since the copy was made; left out: more than is\n"+
			"possible since the backup was made, or if --data-dir is none 2^32 and more, the later the more", j.setBy)
	}
	return &command{name: "millrace intern " + name, args: args, summary: summary, flags: fs, twins: storeTwins(), check: j.check, run: j.run}
}

// setBy takes --by. 0 would be what leaving it out is.
func (j *internJob) setBy(s string) (err error) {
	if j.by, err = strconv.ParseUint(s, 10, 64); err != nil || j.by == 0 {
		return errors.New("it is no number of UIDs above 0")
	}
	return nil
}

func (j *internJob) check(args []string) error {
	if j.intern.value == "fdb" && j.command == "intern compact" {
		return errors.New("millrace intern compact is for the embedded store; FoundationDB sees to its files itself")
	}
	if slices.Contains(args, "-") { // it would be a file of this name
		return errors.New("a dump is read more than once, also by its export: name a file instead of -")
	}
	return j.storeFlags.check(args)
}

func (j *internJob) run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	j.stdout, j.stderr = stdout, stderr
	if len(args) > 0 {
		j.file = args[0]
	}
	if j.create { // before a store is made for nothing
		f, err := os.Open(j.file)
		if err != nil {
			return fmt.Errorf("read the dump: %w", err)
		}
		defer f.Close()
		if err := rewind(f); err != nil {
			return fmt.Errorf("a dump is read twice, and this one can be read once: %w", err)
		}
		if j.dump, err = intern.CheckDump(ctx, f); err != nil {
			return err
		}
	}
	dir := j.storeDir()
	changed := dir
	if j.options.ReadOnly {
		changed = ""
	}
	if err := refuseNewer(ctx, changed); err != nil {
		return adviseNewer(err, changed)
	}
	if j.create && dir != "" {
		if err := pebbleguard.MakeDir(vfs.Default, dir); err != nil {
			return fmt.Errorf("make --data-dir: %w", err)
		}
	}
	if j.store, err = j.openUIDs(ctx, j.options, j.create, stderr); err != nil {
		return err
	}
	ended, err := noteCommand(changed, j.command)
	if err != nil {
		return errors.Join(err, j.store.Close())
	}
	// Closing a store that has failed returns that failure again.
	defer func() { err = cmp.Or(err, ended(j.store.Close())) }()
	return adviseNewer(j.do(j, ctx), dir)
}

// storeDir is the data directory of the embedded store, "" of another store.
func (j *internJob) storeDir() string {
	if j.intern.value != "pebble" {
		return ""
	}
	return j.dataDir
}

func (j *internJob) export(ctx context.Context) error {
	f, err := os.OpenFile(j.file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := intern.Export(ctx, j.store, f, sayCount(j.stderr, "names"))
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", j.file, err)
	}
	j.summary("exported", s)
	if dir := j.storeDir(); dir != "" {
		if m, err := readBackupManifest(dir); m != nil || err != nil {
			fmt.Fprintf(j.stderr, "%s is a backup: run millrace intern skip-ahead once on the store that gets this dump, so that no UID is given twice\n", dir)
		}
	}
	return nil
}

func (j *internJob) imports(ctx context.Context) error {
	s, err := j.dump.Import(ctx, j.store, sayCount(j.stderr, "names"))
	if err != nil {
		return err
	}
	j.summary("imported", s)
	return nil
}

func (j *internJob) summary(done string, s *intern.Summary) {
	fmt.Fprintf(j.stdout, "%s %d DIDs and URIs, %d collections, %d sequences, %d bytes; store %s, %d prefix bits\n",
		done, s.Names, s.Collections, s.Sequences, s.Bytes, s.StoreID, s.PrefixBits)
}

func (j *internJob) verify(ctx context.Context) error {
	var damage []error
	if store, ok := j.store.(*pebblekv.Store); ok {
		damage = store.Damage()
	}
	report, err := intern.Verify(ctx, j.store, sayCount(j.stderr, "keys"))
	if err != nil {
		return errors.Join(append(damage, err)...)
	}
	for _, err := range damage {
		report.Problems++
		report.Examples = append(report.Examples, err.Error())
	}
	fmt.Fprintf(j.stdout, "%d DIDs, %d URIs, %d keys, %d collections, %d sequences in use, %d problems\n",
		report.DIDs, report.URIs, report.Keys, report.Collections, report.Sequences, report.Problems)
	for _, p := range report.Examples {
		fmt.Fprintln(j.stdout, p)
	}
	if !report.Sound() {
		return errors.New("the UID store is damaged: restore a copy, then run millrace intern skip-ahead")
	}
	return nil
}

func (j *internJob) compact(ctx context.Context) error {
	return j.store.(*pebblekv.Store).Compact(ctx) // check has refused another one
}

func (j *internJob) skipAhead(ctx context.Context) error {
	raised, err := j.skip(ctx)
	if err != nil {
		return err
	}
	if store, ok := j.store.(*pebblekv.Store); ok {
		if err := store.RaiseMark(); err != nil {
			return err
		}
	}
	fmt.Fprintf(j.stdout, "raised %d sequences, and where unused ones begin, by %d\n", raised, j.by)
	// The first start on a backup raises them once more, and keeps its reference store.
	if dir := j.storeDir(); dir != "" {
		m, err := readBackupManifest(dir)
		if _, none := os.Stat(filepath.Join(dir, "refs")); m == nil && none == nil {
			fmt.Fprintf(j.stderr, "the next start makes the reference store in %s anew, from the log: import older records again\n", dir)
		}
		if err != nil {
			return markRestored(dir)
		}
	}
	return nil
}

// skip raises the sequences by what --by says, else by the age of the backup that the directory is,
// else by what suits a copy of unknown age.
func (j *internJob) skip(ctx context.Context) (raised int, err error) {
	if j.by > 0 {
		return intern.SkipAhead(ctx, j.store, j.by)
	}
	if dir := j.storeDir(); dir != "" {
		if m, err := readBackupManifest(dir); err == nil && m != nil {
			j.by, raised, err = intern.SkipRestored(ctx, j.store, time.Since(m.Made))
			return raised, err
		}
	}
	j.by, raised, err = intern.SkipCopy(ctx, j.store, time.Now())
	return raised, err
}
