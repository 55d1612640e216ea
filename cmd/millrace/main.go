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

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2

	exitInterrupted = 130 // by a signal, before the work was done
)

// exitCode is an error that says nothing but how the process is to end.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

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
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "millrace:", err)
		return exitUsage
	default:
		fmt.Fprintln(stderr, "millrace:", err)
		return exitFailed
	}
}

// command is one of millrace's sub-commands.
type command struct {
	name    string
	summary string // for millrace --help
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// commands returns them in the order of the manual.
func commands() []command {
	return []command{
		{"serve", "follow a relay, keep its events, serve them over websockets", runServe},
		{"tail", "print events of a running server, or of any Jetstream", runTail},
		{"dict", "train a zstd dictionary, or print what one is", runDict},
		{"uid", "ask a running server what a UID stands for, or the reverse", runUID},
		{"intern", "export, import, verify and otherwise care for the embedded UID store", runIntern},
		{"verify", "check a whole event log, and say what is wrong with it and where", runVerify},
		{"backup", "copy the event log and the embedded UID store, also of a running server", runBackup},
		{"version", "print the version and how it was built", runVersion},
	}
}

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return usageError{errors.New("which sub-command? Try millrace --help")}
	}
	name, rest := args[0], args[1:]
	switch name {
	case "--version", "-version":
		name = "version"
	case "help", "--help", "-help", "-h":
		printHelp(stdout)
		return nil
	}
	var names []string
	for _, c := range commands() {
		if c.name == name {
			return c.run(ctx, rest, stdout, stderr)
		}
		names = append(names, c.name)
	}
	return usageError{fmt.Errorf("there is no sub-command %.40q%s; try millrace --help", name, didYouMean(name, names))}
}

func printHelp(w io.Writer) {
	fmt.Fprint(w, "millrace: the AT Protocol firehose as JSON events, exact, replayable, with UIDs\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  millrace %-9s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\nmillrace COMMAND --help is the manual of each.\n")
}

// isHelp tells whether parsing stopped because the manual was asked for.
func isHelp(err error) bool { return errors.Is(err, flag.ErrHelp) }
