package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker (make build).
var version = "dev"

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Once the first signal is taken the default behaviour returns: a second one ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, stdout, stderr)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "millrace:", err)
		return exitUsage
	default:
		fmt.Fprintln(stderr, "millrace:", err)
		return exitFailed
	}
}

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return usageError{errors.New("which sub-command? Try millrace --help")}
	}
	name, rest := args[0], args[1:]
	switch name {
	case "serve":
		return runServe(ctx, rest, stdout, stderr)
	case "tail":
		return runTail(ctx, rest, stdout, stderr)
	case "dict":
		return runDict(ctx, rest, stdout, stderr)
	case "uid":
		return runUID(ctx, rest, stdout, stderr)
	case "intern":
		return runIntern(ctx, rest, stdout, stderr)
	case "version", "--version", "-version":
		fmt.Fprintln(stdout, "millrace", version)
		return nil
	case "help", "--help", "-help", "-h":
		printHelp(stdout)
		return nil
	}
	return usageError{fmt.Errorf("there is no sub-command %.40q; try millrace --help", name)}
}

func printHelp(w io.Writer) {
	fmt.Fprint(w, `millrace: the AT Protocol firehose as JSON events, exact, replayable, with UIDs

  millrace serve     follow a relay, keep its events, serve them over websockets
  millrace tail      print events of a running server, or of any Jetstream
  millrace dict      train a zstd dictionary, or print what one is
  millrace uid       ask a running server what a UID stands for, or the reverse
  millrace intern    export, import, verify and otherwise care for the embedded UID store
  millrace version   print the version

millrace COMMAND --help is the manual of each.
`)
}

// isHelp tells whether parsing stopped because the manual was asked for.
func isHelp(err error) bool { return errors.Is(err, flag.ErrHelp) }
