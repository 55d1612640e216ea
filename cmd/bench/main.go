package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// command is one sub-command.
type command struct {
	name, about string
	run         func(ctx context.Context, args []string, out io.Writer) error
}

func commands() []command {
	return []command{
		{"ingest", "from the relay's socket to the durable log and a live subscriber", runIngest},
		{"intern", "interning: schemes compared, load on a store, several instances on one", runIntern},
		{"links", "links made, served over HTTP and built from the record table, and what they take on disk", runLinks},
		{"replay", "replays of a log of ten million events, beside the usual way and the bare socket", runReplay},
		{"graph", "edges between accounts in memory: bytes, start, evaluations", runGraph},
		{"subscribers", "CPU, lag, memory and exactness with many live and quiet subscribers", runSubscribers},
		{"jetstream", "the baseline of ingest and replay, as a process of its own", runJetstream},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		for _, c := range commands() {
			if c.name == args[0] {
				return c.run(ctx, args[1:], out)
			}
		}
	}
	fmt.Fprintln(os.Stderr, "usage: bench COMMAND [flags]; bench COMMAND -h lists the flags")
	for _, c := range commands() {
		fmt.Fprintf(os.Stderr, "  %-11s %s\n", c.name, c.about)
	}
	if len(args) > 0 && args[0] != "-h" && args[0] != "--help" {
		return fmt.Errorf("there is no command %q", args[0])
	}
	return flag.ErrHelp
}

// parts are the parts of a subject, by the names that -only picks them by.
type parts []struct {
	name string
	run  func(ctx context.Context) error
}

func (parts parts) names() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// run runs the parts that are picked, one after the other.
func (parts parts) run(ctx context.Context, only string) error {
	begun := time.Now()
	for _, p := range parts {
		if !picked(only, p.name) {
			continue
		}
		say("%s, at %.0f s", p.name, time.Since(begun).Seconds())
		if err := p.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// picked says whether -only picks a part. An empty one picks all.
func picked(only, part string) bool {
	return only == "" || slices.Contains(strings.Split(only, ","), part)
}

// parse parses the flags of a subject. If it has parts, -only picks some of them.
func parse(fs *flag.FlagSet, args []string, only *string, parts ...string) error {
	if len(parts) > 0 {
		fs.StringVar(only, "only", *only, "of "+strings.Join(parts, ", ")+", between commas; empty: all")
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	for part := range strings.SplitSeq(*only, ",") {
		if part != "" && !slices.Contains(parts, part) {
			return fmt.Errorf("-only: %q is not of %s", part, strings.Join(parts, ", "))
		}
	}
	return nil
}

// programs is where the programs are that are measured.
type programs struct{ bin string }

func (p programs) millrace() string { return filepath.Join(p.bin, "millrace") }
func (p programs) relaysim() string { return filepath.Join(p.bin, "relaysim") }
func (p programs) noCgo() string    { return filepath.Join(p.bin, "millrace-nocgo") }

// build builds them, unless p.bin has them already.
func (p *programs) build(ctx context.Context, dir string, noCgo bool) error {
	if p.bin != "" {
		return nil
	}
	p.bin = dir
	if err := goBuild(ctx, "1", dir+string(filepath.Separator), "millrace/cmd/millrace", "millrace/cmd/relaysim"); err != nil || !noCgo {
		return err
	}
	return goBuild(ctx, "0", p.noCgo(), "millrace/cmd/millrace")
}

func goBuild(ctx context.Context, cgo, to string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-buildvcs=false", "-o", to}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build (run this from the module's directory): %w\n%s", err, out)
	}
	return nil
}
