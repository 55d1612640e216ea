// Command relaysim is a simulated AT Protocol relay: package consume/relaysim behind flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"millrace/consume/relaysim"
)

const usage = `relaysim is a simulated AT Protocol relay. It serves

  ws://ADDRESS/xrpc/com.atproto.sync.subscribeRepos[?cursor=N]

from a generated world of accounts with real signed repositories or, with --capture, from captured
frames. Its first line on standard output is "listening ws://ADDRESS". GET http://ADDRESS/DID is a PLC
directory with the keys that the accounts sign with.

The stream is made ahead, and then repeated with fresh envelopes (seq, time, rev, record keys of creates,
DIDs drawn from a skewed population) for as long as it runs. With --rate frames are due at fixed times,
and a consumer that the window has left behind is sent ConsumerTooSlow. Without it the stream runs flat
out: as fast as the slowest consumer takes it, never more than half a window ahead of it, or of the place
where the last one left while nobody is connected; so none is left behind. What counts as taken is what was
written to its socket, whose buffers hold some megabytes: a window that is to outlast a consumer's crash must
be some times larger.

POST /admin/ACTION makes things happen on a running relay; GET /admin/ lists the actions and GET /admin/status
says where the stream is.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(mainRun(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// mainRun returns the exit code: 0 after a clean stop, 1 after a failure, 2 for a bad command line.
func mainRun(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var (
		cfg         relaysim.Config
		listen      string
		logLevel    slog.Level
		listHostile bool
	)
	fs := flag.NewFlagSet("relaysim", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&listen, "listen", "127.0.0.1:2470", "`address` to serve on; port 0 takes a free one")
	fs.TextVar(&logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error, on standard error")
	fs.BoolVar(&listHostile, "list-hostile", false, "list the kinds of malformed messages, and end")
	cfg.DefineFlags(fs)
	err := fs.Parse(args)
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err == nil {
		err = cfg.Validate()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(stdout)
		fmt.Fprint(stdout, usage)
		fs.PrintDefaults()
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "relaysim:", err)
		return 2
	case listHostile:
		relaysim.ListHostile(stdout)
		return 0
	}
	cfg.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: logLevel}))
	if err := run(ctx, cfg, listen, stdout); err != nil {
		fmt.Fprintln(stderr, "relaysim:", err)
		return 1
	}
	return 0
}

// run serves until ctx ends.
func run(ctx context.Context, cfg relaysim.Config, listen string, stdout io.Writer) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on --listen: %w", err)
	}
	defer listener.Close()
	relay, err := relaysim.New(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening ws://%s\n", listener.Addr())
	return relay.Serve(ctx, listener)
}
