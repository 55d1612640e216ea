package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/logstore"
	"millrace/replay/internal/pebblestore"
)

// Errors that callers branch on. They come wrapped; use errors.Is.
var (
	// ErrNoLog: there is no log in the directory.
	ErrNoLog = logstore.ErrNoLog
	// ErrInUse: the log's directory cannot be locked, most likely because another process has it
	// open.
	ErrInUse = pebbleguard.ErrInUse
)

// Defaults and limits of Run.
const (
	defaultProblemsKept = 100
	verifyPebbleBytes   = 64 << 20
	progressInterval    = time.Second
	maxVerifyWorkers    = 64
)

// Config is what Run needs. Dir must be set.
type Config struct {
	Dir          string // the log's own directory
	FS           vfs.FS // nil: the real file system
	OpenFiles    int    // tables and value files that are kept open; 0: 1,000
	Workers      int    // blocks checked at once; 0: one a processor
	ProblemsKept int    // how many problems the report spells out; 0: 100
	// Progress is called about once a second, from one goroutine; nil: never.
	Progress func(Progress)
	Logger   *slog.Logger // nil: discard
}

// Progress is how far Run has come.
type Progress struct {
	Blocks, Events int64
	// of blocks' parts before Pebble compresses them; TotalBytes 0: not known
	Bytes, TotalBytes int64
}

// Report is what Run found.
type Report struct {
	Blocks, Events, Bytes int64 // Bytes: of blocks' parts before Pebble compresses them
	Spans, Gaps           int64
	Dictionaries          int
	Oldest, Newest        int64 // stamps of the first and last event; 0: none
	Problems              int64
	// the first of them, in the log's order as far as they have a place in it
	Examples []Problem
}

// Sound says whether nothing is wrong.
func (r *Report) Sound() bool { return r.Problems == 0 }

// Problem is one thing that is wrong, and where.
type Problem struct {
	// which part of which key range: "index", "plain", "zstd", "seq", "span", "gap", "meta", ...
	Part string
	// the block's key (time_us of its last event), or that of another range's value; 0: none
	Block  int64
	Event  int   // within the block; -1: none
	Offset int64 // first wrong byte within the part; -1: not known
	Text   string
}

// String returns the problem on one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Part)
	if p.Block != 0 {
		fmt.Fprintf(&b, " %d", p.Block)
	}
	if p.Event >= 0 {
		fmt.Fprintf(&b, ", event %d", p.Event)
	}
	if p.Offset >= 0 {
		fmt.Fprintf(&b, ", byte %d", p.Offset)
	}
	// Pebble's errors have lines
	return b.String() + ": " + strings.Join(strings.Fields(p.Text), " ")
}

// Run checks a log that no process has open, whole and without changing it. Every value must be
// what was written. Stamps and positions must ascend. Columns and tables must say what the events'
// bytes say. The compressed events must be the plain ones, byte for byte, with dictionaries that
// the log has. Block pointers, spans, gaps and the progress record must fit the blocks. What is
// wrong is in the report. An error means that the check could not be made: ErrNoLog, ErrInUse,
// ctx's, the disk's, and that of a log of a newer version.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Dir == "" {
		return nil, errors.New("verify log: Config.Dir is not set")
	}
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	cfg.Workers = min(cfg.Workers, maxVerifyWorkers)
	if cfg.ProblemsKept <= 0 {
		cfg.ProblemsKept = defaultProblemsKept
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	fs := &watchedFS{FS: cfg.FS}
	if cfg.FS == nil {
		fs.FS = vfs.Default
	}
	st, err := logstore.Open(pebblestore.Config{Dir: cfg.Dir, FS: fs, ReadOnly: true, KeepGoing: true, Bytes: verifyPebbleBytes,
		OpenFiles: cfg.OpenFiles, Logger: cfg.Logger})
	if err != nil {
		return nil, fmt.Errorf("verify log: %w", err)
	}
	v := &verifier{cfg: cfg, fs: fs, db: st, report: &Report{}}
	err = v.run(ctx)
	// Stages may have met the first as damage, and the last as the end of their work.
	if err = errors.Join(cmp.Or(fs.err(), err, ctx.Err()), st.Close()); err != nil {
		return nil, fmt.Errorf("verify log in %s: %w", cfg.Dir, err)
	}
	return v.report, nil
}
