//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// measureSubscribers is the rows of all scenarios for the table of what is to be reached.
func measureSubscribers(ctx context.Context, dir string, progress io.Writer) ([]reachRow, error) {
	f := defaultSubscribersFlags()
	if err := buildPrograms(ctx, &f, dir); err != nil {
		return nil, err
	}
	var rows []reachRow
	for _, s := range scenarios(&f) {
		r, err := measureScenario(ctx, &f, s, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		r.print(progress)
		rows = append(rows, r.row())
	}
	return rows, nil
}

// row sums a scenario up.
func (r *result) row() reachRow {
	row := reachRow{what: fmt.Sprintf("%s, %.0f frames/s", r.about, r.frames/r.seconds), met: true}
	exact := true
	var p99 time.Duration
	for _, c := range r.classes {
		if c.inTruth {
			exact = exact && c.wrong == 0
			p99 = max(p99, c.p99)
		}
	}
	if r.quiet {
		each := (r.rss - r.rssAlone) / int64(r.mix[0].n)
		row.what = fmt.Sprintf("%d %s", r.mix[0].n, r.about)
		row.ours, row.reach, row.met = fmt.Sprintf("%.1f KB each", float64(each)/1000), "< 40 KB each", each < 40_000
	} else {
		row.ours = fmt.Sprintf("%.2f cores (%.2f without them), p99 lag %s ms, %s", r.server, r.alone, ms(p99), mib(r.rssMost))
	}
	if r.reachCPU > 0 {
		row.reach, row.met = fmt.Sprintf("≤ %.2f cores", r.reachCPU), row.met && r.server <= r.reachCPU
	}
	if r.reachLag > 0 {
		if row.reach != "" {
			row.reach += ", "
		}
		row.reach, row.met = row.reach+"p99 < "+r.reachLag.String(), row.met && p99 < r.reachLag
	}
	if !exact {
		row.ours, row.met = row.ours+"; EVENTS WERE LOST", false
	}
	return row
}
