package relaysim

import (
	"flag"
	"fmt"
	"io"
)

// DefineFlags defines a flag for each field of c in fs, with the defaults. The flags write to c.
func (c *Config) DefineFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.Capture, "capture", "", "send the frames in `file`: zstd of [u32 little-endian length][frame] and so on; default: a generated world")
	fs.BoolVar(&c.Once, "once", false, "end after each frame was sent once; captured frames are then sent exactly as they are in the file")
	fs.Uint64Var(&c.Seed, "seed", 1, "`number` from which everything random follows")
	fs.IntVar(&c.Generate, "generate", 20_000, "`frames` of the generated world; they are real, signed commits the first time round")
	fs.IntVar(&c.Accounts, "accounts", 4_000, "`number` of accounts of the generated world; a few do most")
	fs.IntVar(&c.Population, "population", 100_000, "`number` of DIDs that repeated frames are spread over, those of the world among them")
	fs.BoolVar(&c.KeepKeys, "keep-record-keys", false, "repeated frames keep their record keys, for a consumer that finds records by their path in the frame's tree, which has no others; a record is then created and deleted again and again")
	fs.BoolVar(&c.Signed, "signed", false, "the world goes on after --generate frames: real, signed commits for as long as it runs, which take a hundred times as long to make as repeated frames")
	fs.StringVar(&c.Clock, "clock", "wall", "where time and rev come from: wall, or virtual (1 ms a frame from 2026-01-01 on, so that the bytes sent follow from the flags alone)")

	fs.Float64Var(&c.Rate, "rate", 0, "`frames` a second; 0: flat out")
	fs.Int64Var(&c.Frames, "frames", 0, "stop after that many `messages` and keep connections open; 0: never")
	fs.BoolVar(&c.WaitForConsumer, "wait-for-consumer", false, "do not begin before the first consumer is connected")
	fs.Int64Var(&c.FirstSeq, "first-seq", 1, "`number` of the first frame; for going on after a restart")

	fs.Int64Var(&c.WindowFrames, "window-frames", 200_000, "`messages` kept for cursors")
	fs.Int64Var(&c.WindowBytes, "window-bytes", 256<<20, "`bytes` kept for cursors")
	fs.BoolVar(&c.FutureError, "future-cursor-error", false, "answer a cursor beyond the newest frame with FutureCursor; default: go live, as indigo's relay does")
	fs.BoolVar(&c.OutdatedInfo, "outdated-cursor-info", false, "answer a cursor older than the window with an OutdatedCursor #info; default: just begin with the oldest frame")

	fs.StringVar(&c.Truth, "truth", "", "write what a correct consumer must hold to `file`, one JSON line an event, ahead of the frames: epoch (counts new numberings, from 0), seq, op, and event (the JSON with time_us 0)")
	fs.BoolVar(&c.TruthSync, "truth-sync", false, "the truth file also has the events of #sync frames, for a consumer that takes them")
	fs.BoolVar(&c.TruthReferences, "truth-references", false, "the lines of the truth file also say which DIDs and AT URIs a record has as values (references: pairs of path and value), which a changed or deleted one had (had), and whether the record has come before (repeated); empty ones are left out; takes memory for each record")

	fs.Int64Var(&c.ChurnEvery, "churn-every", 0, "make one of so many `messages` one of a few accounts that create, update and delete few records rich in references again and again, and are deleted and return; 0: none")
	fs.Int64Var(&c.HostileEvery, "hostile-every", 0, "make one of so many `messages` a malformed one, all kinds in turn (the huge ones in one round of 64); 0: none")
	fs.StringVar(&c.HostileKinds, "hostile-kinds", "", "the `kinds` for --hostile-every, between commas; a kind may end in * ; default: all")

	fs.Int64Var(&c.FaultyEvery, "faulty-every", 0, "with --signed, make one of so many `messages`, or the next that can be, a commit that verification finds wrong, all faults in turn; 0: none")
}

// ParseFlags returns the Config that the flags of DefineFlags make, for callers without flags of
// their own.
func ParseFlags(args []string) (Config, error) {
	var c Config
	fs := flag.NewFlagSet("relaysim", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.DefineFlags(fs)
	if err := fs.Parse(args); err != nil {
		return Config{}, err
	}
	if fs.NArg() > 0 {
		return Config{}, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return c, nil
}
