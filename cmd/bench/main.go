// Command bench measures what millrace promises, one sub-command a subject.
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
		{"intern", "interning: schemes compared, load on the embedded store, hash collisions", runIntern},
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
