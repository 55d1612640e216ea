package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// reachRow is one line of the table of what millrace is to reach. Cells that do not apply are
// empty.
type reachRow struct {
	what     string // the subject
	ours     string // what was measured
	baseline string // the same done the usual way, in the same run
	bare     string // what the resource gives that it must come down to
	ratio    string // ours by baseline, or by bare: says which
	reach    string // what was to be reached
	met      bool
}

// subject measures some rows of the table.
type subject struct {
	name string
	// measure works in dir, which is its own and empty, and may say on progress what it is at.
	measure func(ctx context.Context, dir string, progress io.Writer) ([]reachRow, error)
}

// subjects are measured one after the other, so that each has the machine to itself.
func subjects() []subject {
	return []subject{
		{"ingest", measureIngest},
		{"intern", measureIntern},
		{"replay", measureReplay},
		{"subscribers", measureSubscribers},
	}
}

// runAll measures every subject, or those that are named, and prints one table.
func runAll(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("bench all", flag.ContinueOnError)
	dir := f.String("dir", "", "`directory` to work in; default: the system's for temporary files")
	if err := f.Parse(args); err != nil {
		return err
	}
	for _, name := range f.Args() {
		if !slices.ContainsFunc(subjects(), func(s subject) bool { return s.name == name }) {
			return fmt.Errorf("there is no subject %q", name)
		}
	}
	var rows []reachRow
	begun := time.Now()
	for _, s := range subjects() {
		if f.NArg() > 0 && !slices.Contains(f.Args(), s.name) {
			continue
		}
		work, err := os.MkdirTemp(*dir, "millrace-bench-")
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s\n", s.name)
		got, err := s.measure(ctx, work, os.Stderr)
		if err := os.RemoveAll(work); err != nil {
			return err
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, got...)
	}
	fmt.Fprintf(out, "%s, %d CPUs, %s, %s; all in %s\n\n", cpuModel(), runtime.NumCPU(), runtime.Version(),
		begun.UTC().Format("2006-01-02"), time.Since(begun).Round(time.Second))
	return printRows(out, rows)
}

// printRows prints the table in Markdown.
func printRows(out io.Writer, rows []reachRow) error {
	t := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| what\t| ours\t| baseline\t| bare\t| ratio\t| reach\t| met\t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range rows {
		met := "no"
		switch {
		case r.reach == "":
			met = ""
		case r.met:
			met = "yes"
		}
		fmt.Fprintf(t, "| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t|\n", r.what, r.ours, r.baseline, r.bare, r.ratio, r.reach, met)
	}
	return t.Flush()
}

// cpuModel names the machine's processor.
func cpuModel() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// thousands writes a number with a separator, so that rates can be read.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
