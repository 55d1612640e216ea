package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// command is one sub-command.
type command struct {
	name, about string
	run         func(ctx context.Context, args []string, out io.Writer) error
}

func commands() []command {
	return []command{
		{"all", "what millrace is to reach (docs/performance.md), every subject after the other, one table", runAll},
		{"ingest", "from the relay's socket to the durable log and a live subscriber", runIngest},
		{"jetstream", "the baseline of ingest, as a process of its own", runJetstream},
		{"intern", "interning: schemes compared, load on the embedded store", runIntern},
		{"replay", "replays of a log of ten million events, beside the usual way and the bare socket", runReplay},
		{"subscribers", "fan-out: CPU, lag, memory and exactness with many subscribers of live, quiet and slow subscribers", runSubscribers},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
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
		fmt.Fprintf(os.Stderr, "  %-10s %s\n", c.name, c.about)
	}
	if len(args) > 0 && args[0] != "-h" && args[0] != "--help" {
		return fmt.Errorf("no command %q", args[0])
	}
	return flag.ErrHelp
}
