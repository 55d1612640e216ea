package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"millrace/dict"
	"millrace/dict/jetstream"
)

// timedFor is how long each cell of the table is measured.
const timedFor = 500 * time.Millisecond

// table measures, on events by authors that no training has seen, every encoder of this build with
// every dictionary that was a candidate, and prints it as Markdown.
func (m *material) table(w io.Writer, builtIn *dict.Dictionary) error {
	v1, err := dict.Parse(jetstream.Dictionary())
	if err != nil {
		return err
	}
	rows := []row{{"none", nil}, {"Jetstream's", v1}}
	add := func(name string, d *dict.Dictionary) { rows = append(rows, row{name, d}) }
	for _, size := range []int{4 << 10, 16 << 10, 32 << 10, 64 << 10, 110 << 10} {
		d, err := dict.Train(context.Background(), dict.TrainConfig{Events: m.trainEvents, MaxBytes: size})
		if err != nil {
			return err
		}
		add(fmt.Sprintf("trained, %d KiB", size>>10), d)
	}
	for _, size := range []int{0, 8 << 10, 16 << 10, 32 << 10} {
		d, _, err := m.dictionary(size)
		if err != nil {
			return err
		}
		add(fmt.Sprintf("templates and vocabulary, %d KiB", len(d.Bytes())>>10), d)
	}
	add(fmt.Sprintf("**built-in**, %d KiB", len(builtIn.Bytes())>>10), builtIn)

	return printTable(w, rows, func(e *dict.Encoder) string {
		composed, real := dict.Measure(e, m.heldEvents, timedFor), dict.Measure(e, m.realEvents, 0)
		return fmt.Sprintf("%.3f / %.3f, %.1f µs", composed.Ratio(), real.Ratio(), float64(composed.PerEvent.Nanoseconds())/1000)
	})
}

// records measures, on the events of all real records by authors that no training has seen, as they
// are in the corpus. They are nearly all posts, which the live mix is not, so that they compress worse.
func (m *material) records(w io.Writer, builtIn *dict.Dictionary) error {
	v1, err := dict.Parse(jetstream.Dictionary())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d events of real records:\n\n", len(m.held.events))
	rows := []row{{"none", nil}, {"Jetstream's", v1}, {"**built-in**", builtIn}}
	return printTable(w, rows, func(e *dict.Encoder) string {
		got := dict.Measure(e, m.held.events, timedFor)
		return fmt.Sprintf("%.3f, %.1f µs", got.Ratio(), float64(got.PerEvent.Nanoseconds())/1000)
	})
}

// row is a dictionary that is measured.
type row struct {
	name string
	d    *dict.Dictionary // nil: none
}

// printTable prints a row for each dictionary and a column for each encoder of this build.
func printTable(w io.Writer, rows []row, cell func(e *dict.Encoder) string) error {
	fmt.Fprint(w, "| dictionary |")
	for _, method := range dict.Methods() {
		fmt.Fprintf(w, " %s |", method)
	}
	fmt.Fprint(w, "\n|---|")
	for range dict.Methods() {
		fmt.Fprint(w, "---|")
	}
	fmt.Fprintln(w)
	for _, row := range rows {
		fmt.Fprintf(w, "| %s |", row.name)
		for _, method := range dict.Methods() {
			e, err := method.NewEncoder(row.d)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, " %s |", cell(e))
			e.Close()
		}
		fmt.Fprintln(w)
	}
	return nil
}
