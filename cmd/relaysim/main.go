package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(mainRun(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// mainRun returns the exit code: 0 after a clean stop, 1 after a failure, 2 for a bad command line.
func mainRun(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "relaysim:", err)
		return 2
	}
	if o.listHostile {
		listHostile(stdout)
		return 0
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.logLevel}))
	if err := run(ctx, o, log, stdout); err != nil {
		fmt.Fprintln(stderr, "relaysim:", err)
		return 1
	}
	return 0
}
