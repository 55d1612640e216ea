package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/replay"
	"millrace/translate"
)

// Log is what the pipeline asks of the event log. *replay.Log implements it.
type Log interface {
	Progress() replay.Progress
	StreamOfEpoch(epoch uint32) translate.Stream
	Seal(in replay.Input) (*replay.Block, error)
	Append(blocks ...*replay.Block) error
	SourceNumber(source []byte) (number uint32, ok bool)
}

// Resolver gives the events and references of a batch their UIDs, durable before it returns. It
// retries what can be retried, so an error ends the pipeline. One goroutine uses it.
type Resolver interface {
	Resolve(ctx context.Context, b *translate.Batch) error
}

// Config is what New needs. Log and InFlightBytes must be set.
type Config struct {
	Log           Log
	NewResolver   func() Resolver       // one per goroutine; nil: events get no UIDs
	Collections   []string              // exact NSIDs or prefixes that end in ".*"; none: all
	References    References            // nil: references are off
	Verify        *Verification         // nil: frames are not verified
	InFlightBytes int64                 // memory for what is between the relay's socket and the disk
	AppendBytes   int                   // of blocks that share one sync, about; 0: 8 MiB
	Now           func() time.Time      // wall clock; nil: time.Now
	Logger        *slog.Logger          // nil: nothing is logged
	Registerer    prometheus.Registerer // nil: metrics are not registered

	hooks testHooks
}

// testHooks are what tests set in Config. The zero value changes nothing.
type testHooks struct {
	blockBytes      int // bytes of frames at which a job is closed; 0: what InFlightBytes allows
	blockReferences int // that a block has at most, if not those of one frame; 0: what the log takes
}

// withDefaults returns c with its zeros filled.
func (c Config) withDefaults() Config {
	c.AppendBytes = cmp.Or(c.AppendBytes, 8<<20)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// validate names the first field that cannot be used.
func (c Config) validate() error {
	switch {
	case c.Log == nil:
		return errors.New("ingest: field Log: must be set")
	case c.References != nil && c.NewResolver == nil:
		return errors.New("ingest: field References: needs NewResolver")
	case c.Verify != nil && (c.Verify.Keys == nil || c.Verify.Chains == nil || c.Verify.Sample == 0):
		return errors.New("ingest: field Verify: Keys, Chains and Sample must be set")
	case c.InFlightBytes <= 0:
		return fmt.Errorf("ingest: field InFlightBytes: %d is not positive", c.InFlightBytes)
	case c.AppendBytes < 0:
		return fmt.Errorf("ingest: field AppendBytes: %d is negative", c.AppendBytes)
	}
	return nil
}
