package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// internRowURIs is enough for flushes and compactions to be part of it; larger stores: bench intern
// -only load.
const internRowURIs = 2_000_000

// measureIntern gives UIDs to new URIs in the embedded store.
func measureIntern(ctx context.Context, dir string, progress io.Writer) ([]reachRow, error) {
	store, err := openEmbedded(dir)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	in, err := openInterner(ctx, store, 4, nil)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	l := &loader{in: in, traffic: newTraffic(), block: 512, callers: 4}
	begun := time.Now()
	if err := l.run(ctx, internRowURIs); err != nil {
		return nil, err
	}
	rate := internRowURIs / time.Since(begun).Seconds()
	fmt.Fprintf(progress, "  %s new URIs/s\n", thousands(rate))
	if err := store.Compact(ctx); err != nil {
		return nil, err
	}
	each := float64(tableBytes(store.Metrics())) / internRowURIs
	return []reachRow{
		{
			what: fmt.Sprintf("new URIs given UIDs, embedded store, the first %s", thousands(internRowURIs)),
			ours: thousands(rate) + "/s", reach: "≥ 200,000/s", met: rate >= 200_000,
		},
		{
			what: "bytes of a URI on disk, both directions",
			ours: fmt.Sprintf("%.1f", each), reach: "≤ 45", met: each <= 45,
		},
	}, nil
}
