package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// options is the command line.
type options struct {
	listen   string
	logLevel slog.Level

	capture    string
	once       bool
	seed       uint64
	generate   int
	accounts   int
	population int
	keepKeys   bool
	clock      string

	rate            float64
	frames          int64
	waitForConsumer bool
	firstSeq        int64
	renumberAfter   int64

	windowFrames int64
	windowBytes  int64
	futureError  bool
	outdatedInfo bool

	truth       string
	truthAppend bool

	hostileEvery int64
	hostileKinds string
	listHostile  bool

	faultsEvery time.Duration
	faultKinds  string
	schedule    string
}

const usage = `relaysim is a simulated AT Protocol relay. It serves

  ws://ADDRESS/xrpc/com.atproto.sync.subscribeRepos[?cursor=N]

from a generated world of accounts with real signed repositories or, with --capture, from captured
frames. Its first line on standard output is "listening ws://ADDRESS".

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

// parseOptions reads the command line. Help goes to stdout, complaints to the error.
func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("relaysim", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	o.define(fs)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(stdout)
			fmt.Fprint(stdout, usage)
			fs.PrintDefaults()
		}
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o, o.validate()
}

func (o *options) define(fs *flag.FlagSet) {
	fs.StringVar(&o.listen, "listen", "127.0.0.1:2470", "`address` to serve on; port 0 takes a free one")
	fs.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error, on standard error")

	fs.StringVar(&o.capture, "capture", "", "send the frames in `file`: zstd of [u32 little-endian length][frame] and so on; default: a generated world")
	fs.BoolVar(&o.once, "once", false, "end after each frame was sent once; captured frames are then sent exactly as they are in the file")
	fs.Uint64Var(&o.seed, "seed", 1, "`number` from which everything random follows")
	fs.IntVar(&o.generate, "generate", 20_000, "`frames` of the generated world; they are real, signed commits the first time round")
	fs.IntVar(&o.accounts, "accounts", 4_000, "`number` of accounts of the generated world; a few do most")
	fs.IntVar(&o.population, "population", 100_000, "`number` of DIDs that repeated frames are spread over, those of the world among them")
	fs.BoolVar(&o.keepKeys, "keep-record-keys", false, "repeated frames keep their record keys, for a consumer that finds records by their path in the frame's tree, which has no others; a record is then created and deleted again and again")
	fs.StringVar(&o.clock, "clock", "wall", "where time and rev come from: wall, or virtual (1 ms a frame from 2026-01-01 on, so that the bytes sent follow from the flags alone)")

	fs.Float64Var(&o.rate, "rate", 0, "`frames` a second; 0: flat out")
	fs.Int64Var(&o.frames, "frames", 0, "stop after that many `messages` and keep connections open; 0: never")
	fs.BoolVar(&o.waitForConsumer, "wait-for-consumer", false, "do not begin before the first consumer is connected")
	fs.Int64Var(&o.firstSeq, "first-seq", 1, "`number` of the first frame; for going on after a restart")
	fs.Int64Var(&o.renumberAfter, "restart-numbering-after", 0, "after that many `messages`, and again after as many, close all connections and begin at 1; 0: never")

	fs.Int64Var(&o.windowFrames, "window-frames", 200_000, "`messages` kept for cursors")
	fs.Int64Var(&o.windowBytes, "window-bytes", 256<<20, "`bytes` kept for cursors")
	fs.BoolVar(&o.futureError, "future-cursor-error", false, "answer a cursor beyond the newest frame with FutureCursor; default: go live, as indigo's relay does")
	fs.BoolVar(&o.outdatedInfo, "outdated-cursor-info", false, "answer a cursor older than the window with an OutdatedCursor #info; default: just begin with the oldest frame")

	fs.StringVar(&o.truth, "truth", "", "write what a correct consumer must hold to `file`, one JSON line an event, ahead of the frames")
	fs.BoolVar(&o.truthAppend, "truth-append", false, "go on with an existing truth file")

	fs.Int64Var(&o.hostileEvery, "hostile-every", 0, "make one of so many `messages` a malformed one, all kinds in turn (the huge ones in one round of 64); 0: none")
	fs.StringVar(&o.hostileKinds, "hostile-kinds", "", "the `kinds` for --hostile-every, between commas; a kind may end in * ; default: all")
	fs.BoolVar(&o.listHostile, "list-hostile", false, "list the kinds of malformed messages, and end")

	fs.DurationVar(&o.faultsEvery, "faults-every", 0, "let something go wrong that often on average, drawn from the seed; 0: never")
	fs.StringVar(&o.faultKinds, "fault-kinds", "", "the admin `actions` for --faults-every, between commas; default: all after which a consumer can still hold everything, which excludes forget, restart-numbering and comeback")
	fs.StringVar(&o.schedule, "schedule", "", "write each fault to `file`, one JSON line each")
}

// validate names the first flag that cannot be.
func (o *options) validate() error {
	for _, f := range []struct {
		name string
		bad  bool
	}{
		{"generate", o.generate < 1},
		{"accounts", o.accounts < 2},
		{"population", o.population < 2},
		{"clock", o.clock != "wall" && o.clock != "virtual"},
		{"rate", o.rate < 0 || o.rate > 1e9},
		{"frames", o.frames < 0},
		{"first-seq", o.firstSeq < 1},
		{"restart-numbering-after", o.renumberAfter < 0},
		{"window-frames", o.windowFrames < 2},
		{"window-bytes", o.windowBytes < 2*chunkBytes},
		{"hostile-every", o.hostileEvery < 0},
		{"faults-every", o.faultsEvery < 0},
	} {
		if f.bad {
			return fmt.Errorf("--%s: value out of range", f.name)
		}
	}
	if o.verbatim() && (o.renumberAfter > 0 || o.hostileEvery > 0 || o.firstSeq != 1) {
		return errors.New("--capture with --once sends frames as they are: no --first-seq, --restart-numbering-after or --hostile-every")
	}
	return nil
}

// verbatim says that frames go out as they were captured.
func (o *options) verbatim() bool { return o.capture != "" && o.once }

// kinds returns the hostile kinds that are asked for.
func (o *options) kinds() ([]*hostileKind, error) {
	all := hostileKinds()
	if o.hostileKinds == "" {
		return all, nil
	}
	var chosen []*hostileKind
	for name := range strings.SplitSeq(o.hostileKinds, ",") {
		before := len(chosen)
		prefix, many := strings.CutSuffix(name, "*")
		for _, kind := range all {
			if kind.name == name || many && strings.HasPrefix(kind.name, prefix) {
				chosen = append(chosen, kind)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("--hostile-kinds: no kind is called %q; --list-hostile names them", name)
		}
	}
	return chosen, nil
}
