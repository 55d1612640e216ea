package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2

	exitInterrupted = 130 // by a signal, before the work was done
)

// exitCode is an error that says nothing but how the process ends.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// loggedError is an error that the log has, and standard error so.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

// sameSignal is how long after a signal others are taken for the same one: what sends it to a
// process may send it to its process group as well, as timeout(1) does.
const sameSignal = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	// Then the default behaviour returns: a second signal ends the process.
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// stopSignals are those that end the process in order. One that nohup has made the process ignore
// stays ignored.
func stopSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// checkedOutput keeps the first error of what is written to it. That a pipe's reader has left is
// none.
type checkedOutput struct {
	io.Writer
	err error
}

func (o *checkedOutput) Write(p []byte) (n int, err error) {
	n, err = o.Writer.Write(p)
	if o.err == nil && !errors.Is(err, syscall.EPIPE) {
		o.err = err
	}
	return n, err
}

// run is main without the process: it returns the exit code. A command whose output is lost has
// failed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &checkedOutput{Writer: stdout}
	err := dispatch(ctx, args, out, stderr)
	if err == nil && out.err != nil {
		err = fmt.Errorf("write the output: %w", out.err)
	}
	switch code, coded := errors.AsType[exitCode](err); {
	case err == nil:
		return exitOK
	case coded:
		return int(code)
	}
	if !errors.As(err, new(loggedError)) {
		for line := range strings.SplitSeq("millrace: "+err.Error(), "\n") {
			printLine(stderr, "%s", line)
		}
	}
	switch {
	case errors.As(err, new(usageError)):
		return exitUsage
	case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return exitInterrupted
	}
	return exitFailed
}
