package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/klauspost/cpuid/v2"
)

// table prints rows in Markdown, in columns, once it has all of them.
type table struct{ w *tabwriter.Writer }

// newTable begins a table whose columns have these heads. All but the first hold numbers.
func newTable(out io.Writer, heads ...string) *table {
	t := &table{tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)}
	fmt.Fprintln(t.w, "| "+strings.Join(heads, "\t| ")+"\t|")
	fmt.Fprintln(t.w, "|---\t|"+strings.Repeat("---:\t|", len(heads)-1))
	return t
}

func (t *table) row(cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(t.w, "| %v\t", c)
	}
	fmt.Fprintln(t.w, "|")
}

func (t *table) end() error {
	if err := t.w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(t.w)
	return err
}

// say reports what is at work.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// progress reports how far a part is, every five seconds.
type progress struct{ said time.Time }

func (p *progress) report(format string, args ...any) {
	if time.Since(p.said) > 5*time.Second {
		p.said = time.Now()
		say("  "+format, args...)
	}
}

// printMachine says what was measured on, and when.
func printMachine(out io.Writer) {
	fmt.Fprintf(out, "%s, %d CPUs, %s, %s\n\n", cmp.Or(cpuid.CPU.BrandName, runtime.GOARCH), runtime.NumCPU(), runtime.Version(), time.Now().UTC().Format(time.DateOnly))
}

// grouped writes a number with commas.
func grouped[T int | int64 | float64](n T) string {
	s := fmt.Sprintf("%.0f", float64(n))
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// mib writes bytes in MiB.
func mib(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }
