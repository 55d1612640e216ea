package relaysim

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
)

// Config says what a simulated relay sends, how fast, and what goes wrong. Its zero value is a
// generated world, sent as fast as possible. The flags that DefineFlags makes say in detail what
// the fields mean.
type Config struct {
	Capture    string // file of captured frames; "": a generated world
	Once       bool   // end after each frame was sent once
	Seed       uint64 // everything random follows from it; 0: 1
	Generate   int    // frames of the generated world; 0: 20,000
	Accounts   int    // of the generated world; 0: 4,000
	Population int    // DIDs of repeated frames; 0: 100,000
	KeepKeys   bool   // repeated frames keep their record keys
	Signed     bool   // no frames are repeated: the world goes on
	Clock      string // "wall", or "virtual": the bytes sent follow from Config alone; "": wall

	Rate            float64 // frames a second; 0: as many as possible
	Frames          int64   // stop after that many messages; 0: never
	WaitForConsumer bool    // begin when the first consumer is connected
	FirstSeq        int64   // number of the first frame; 0: 1

	WindowFrames int64 // messages kept for cursors; 0: 200,000
	WindowBytes  int64 // bytes kept for cursors; 0: 256 MiB
	FutureError  bool  // answer a cursor beyond the newest frame with FutureCursor; else go live
	OutdatedInfo bool  // answer a cursor older than the window with an OutdatedCursor #info

	Truth     string // file of what a correct consumer must hold; "": none
	TruthSync bool   // also for consumers of #sync
	// lines say what records refer to and referred to; all that are alive are in memory
	TruthReferences bool

	ChurnEvery int64 // one of so many messages changes few records again and again; 0: none

	HostileEvery int64  // one of so many messages is a malformed one; 0: none
	HostileKinds string // which kinds, between commas; "": all

	FaultyEvery int64 // one of so many messages is a commit that verification finds wrong; 0: none

	Logger *slog.Logger // nil: nothing is logged
}

// withDefaults returns c with its zeros filled.
func (c Config) withDefaults() Config {
	c.Seed = cmp.Or(c.Seed, 1)
	c.Generate = cmp.Or(c.Generate, 20_000)
	c.Accounts = cmp.Or(c.Accounts, 4_000)
	c.Population = cmp.Or(c.Population, 100_000)
	c.Clock = cmp.Or(c.Clock, "wall")
	c.FirstSeq = cmp.Or(c.FirstSeq, 1)
	c.WindowFrames = cmp.Or(c.WindowFrames, 200_000)
	c.WindowBytes = cmp.Or(c.WindowBytes, 256<<20)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate names the field that cannot be, by its flag. Zeros are fine.
func (c Config) Validate() error {
	c = c.withDefaults()
	for _, f := range []struct {
		name string
		bad  bool
	}{
		{"generate", c.Generate < 1},
		{"accounts", c.Accounts < 2},
		{"population", c.Population < 2},
		{"clock", c.Clock != "wall" && c.Clock != "virtual"},
		{"rate", c.Rate < 0 || c.Rate > 1e9},
		{"frames", c.Frames < 0},
		{"first-seq", c.FirstSeq < 1},
		{"window-frames", c.WindowFrames < 2},
		{"window-bytes", c.WindowBytes < 2*chunkBytes},
		{"churn-every", c.ChurnEvery < 0},
		{"hostile-every", c.HostileEvery < 0},
		{"faulty-every", c.FaultyEvery < 0},
	} {
		if f.bad {
			return fmt.Errorf("--%s: value out of range", f.name)
		}
	}
	if c.Signed && (c.Capture != "" || c.Once) {
		return errors.New("--signed is for a generated world without end: no --capture or --once")
	}
	if c.FaultyEvery > 0 && !c.Signed {
		return errors.New("--faulty-every needs --signed")
	}
	if c.verbatim() && (c.HostileEvery > 0 || c.ChurnEvery > 0 || c.FirstSeq != 1) {
		return errors.New("--capture with --once sends frames as they are: no --first-seq, --hostile-every or --churn-every")
	}
	return nil
}

// verbatim says that frames go out as they were captured.
func (c *Config) verbatim() bool { return c.Capture != "" && c.Once }
