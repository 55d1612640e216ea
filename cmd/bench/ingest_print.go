package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// printIngest prints what the cells came to, in Markdown.
func printIngest(out io.Writer, results []*ingestResult, bare bareResources) error {
	fmt.Fprintf(out, "Bare: %s MB/s through a loopback socket in writes of 64 KiB; %s ms an fdatasync of 64 KiB (median of %d).\n\n",
		thousands(bare.socket/1e6), ms(bare.sync), bareSyncs)
	t := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| what\t| s\t| events/s\t| events a frame\t| bytes an event\t| CPU µs an event: server\t| relay\t| clients\t"+
		"| lag ms from stamp, p50\t| p99\t| from relay, p50\t| p99\t| resident MiB\t| peak\t| longest gap ms\t| over 100 ms\t|")
	fmt.Fprintln(t, "|---\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|")
	for _, r := range results {
		n := &r.reading
		fmt.Fprintf(t, "| %s\t| %.0f\t| %s\t| %.2f\t| %.0f\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %.0f\t| %.0f\t| %s\t| %d\t|\n",
			r.cell.name, r.seconds, thousands(r.rate()), float64(n.events)/float64(max(r.frames, 1)), float64(n.bytes)/float64(max(n.events, 1)),
			r.each(r.server), r.each(r.relay), r.each(r.clients),
			ms(n.stamp.quantile(0.5)), ms(n.stamp.quantile(0.99)), ms(n.relay.quantile(0.5)), ms(n.relay.quantile(0.99)),
			float64(r.resident)/(1<<20), float64(r.peak)/(1<<20), ms(n.gap), n.gaps)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	fmt.Fprintln(t, "| what\t| events a block\t| blocks a sync\t| stage µs an event: translate\t| intern\t| seal\t| commit\t"+
		"| reading blocked\t| Go allocations an event\t| bytes\t| GC cycles/s\t|")
	fmt.Fprintln(t, "|---\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|")
	for _, r := range results {
		if r.metrics == nil || r.metrics[blocksCommitted] == 0 {
			continue
		}
		m := r.metrics
		fmt.Fprintf(t, "| %s\t| %.0f\t| %.1f\t| %s\t| %s\t| %s\t| %s\t| %.0f %%\t| %.2f\t| %.0f\t| %.1f\t|\n", r.cell.name,
			m["millrace_pipeline_block_events_sum"]/m[blocksCommitted], m[blocksCommitted]/m[stageCount("commit")],
			r.stage("translate"), r.stage("intern"), r.stage("seal"), r.stage("commit"),
			100*m["millrace_pipeline_blocked_seconds_total"]/r.seconds,
			m["go_memstats_mallocs_total"]/float64(r.reading.events), m["go_memstats_alloc_bytes_total"]/float64(r.reading.events),
			m["go_gc_duration_seconds_count"]/r.seconds)
	}
	return t.Flush()
}

const blocksCommitted = "millrace_pipeline_block_events_count"

func stageCount(stage string) string {
	return `millrace_pipeline_stage_seconds_count{stage="` + stage + `"}`
}

// stage is the time an event spent being worked on in a stage, in microseconds. Stages that work on
// several blocks at once add up to more than the time that passed.
func (r *ingestResult) stage(stage string) string {
	return fmt.Sprintf("%.2f", r.metrics[`millrace_pipeline_stage_seconds_sum{stage="`+stage+`"}`]*1e6/float64(max(r.reading.events, 1)))
}

// each is CPU time an event, in microseconds.
func (r *ingestResult) each(cpu time.Duration) string {
	return fmt.Sprintf("%.2f", float64(cpu.Microseconds())/float64(max(r.reading.events, 1)))
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }
