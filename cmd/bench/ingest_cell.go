package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// ingestResult is what a cell came to.
type ingestResult struct {
	cell     ingestCell
	seconds  float64
	reading  *meter        // of the first subscriber
	server   time.Duration // CPU time of each
	relay    time.Duration
	clients  time.Duration
	resident int64       // the server's, most of what was seen while it counted, in bytes
	peak     int64       // and ever
	blocks   blockCounts // that the server committed
}

// rate is events a second.
func (r *ingestResult) rate() float64 { return float64(r.reading.events) / r.seconds }

// each is CPU time an event, in microseconds.
func (r *ingestResult) each(cpu time.Duration) float64 {
	return float64(cpu.Nanoseconds()) / 1e3 / float64(max(r.reading.events, 1))
}

// eventsABlock is the mean of what the server committed; the baseline has no blocks.
func (r *ingestResult) eventsABlock() string {
	if r.blocks.blocks == 0 {
		return "–"
	}
	return grouped(r.blocks.events / r.blocks.blocks)
}

// cellParts is the running parts of a cell.
type cellParts struct {
	relay   *server
	server  *server
	meter   meter
	profile string // file for the server's CPU profile; "": none
}

// opsAFrame is about how many events a frame of the generated world comes to.
const opsAFrame = 1.064

// For a relay with a rate: how far a server may fall behind before it is disconnected.
const (
	ratedWindowFrames = "500000"
	ratedWindowBytes  = "1073741824"
)

// relayArgs are the relay's, but for the truth.
func (f *ingestFlags) relayArgs(c *ingestCell) []string {
	generate := f.generate
	if c.rate > 0 {
		// The first time round commits were made before the stream began, and have no lag.
		generate = max(min(generate, int(float64(c.rate)*f.warm.Seconds()/2)), 500)
	}
	args := []string{"--generate", strconv.Itoa(generate)}
	if c.group == groupJetstream {
		args = append(args, "--keep-record-keys") // a record is looked for by its path
	}
	if c.rate > 0 {
		return append(args, "--rate", fmt.Sprint(float64(c.rate)/opsAFrame), "--window-frames", ratedWindowFrames, "--window-bytes", ratedWindowBytes)
	}
	return append(args, "--window-frames", "20000")
}

// measure runs one cell in dir.
func (f *ingestFlags) measure(ctx context.Context, c *ingestCell, dir string) (r *ingestResult, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, args := &cellParts{}, f.relayArgs(c)
	var t *truth // nil: the baseline is not compared
	var to *os.File
	if c.group != groupJetstream {
		if t, to, err = newTruth(); err != nil {
			return nil, err
		}
		defer t.close()
	}
	p.relay, err = startRelay(ctx, f.relaysim(), to, args...)
	to.Close()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.relay.stop()) }()
	if t != nil {
		defer t.discard()
	}
	data, query := filepath.Join(dir, "data"), "cursor=0"
	switch c.group {
	case groupJetstream:
		query = ""
		p.server, err = startBaseline(ctx, p.relay.url(), data)
	case groupNoCgo:
		p.server, err = startMillrace(ctx, f.noCgo(), p.relay.url(), data, c.args...)
	default:
		p.server, err = startMillrace(ctx, f.millrace(), p.relay.url(), data, c.args...)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.server.stop()) }()
	if c.group == groupFull {
		p.profile = f.profile
	}
	return p.measure(ctx, c, f.warm, p.server.subscribe(query), t)
}

// measure subscribes, waits until the cell is warm, and counts.
func (p *cellParts) measure(ctx context.Context, c *ingestCell, warm time.Duration, address string, t *truth) (*ingestResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.subscribe(gctx, address, t) })
	for i := range c.subscribers {
		// A third each: compressed with everything that is ours, of one collection, and plain.
		with := []string{"&compress=true&extended=true", "&wantedCollections=app.bsky.feed.post", ""}[i%3]
		g.Go(func() error {
			_, err := stream(gctx, address+with, 1<<60)
			return err
		})
	}
	r := &ingestResult{cell: *c}
	err := pause(gctx, warm)
	if err == nil {
		err = p.count(gctx, r)
	}
	cancel()
	_ = g.Wait() // if a subscriber failed before, err is its error
	if err != nil {
		return nil, p.server.failed(err)
	}
	return r, nil
}

// count fills r in.
func (p *cellParts) count(ctx context.Context, r *ingestResult) error {
	before, err := p.sample()
	if err != nil {
		return err
	}
	p.meter.take()
	begun := time.Now()
	var profiled errgroup.Group
	if p.profile != "" {
		profiled.Go(func() error {
			profile, err := httpGet(p.server.metrics, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(r.cell.duration.Seconds())))
			return errors.Join(err, os.WriteFile(p.profile, profile, 0o644))
		})
	}
	for time.Since(begun) < r.cell.duration {
		if err := pause(ctx, min(200*time.Millisecond, r.cell.duration-time.Since(begun))); err != nil {
			return err
		}
		now, err := p.server.usage()
		if err != nil {
			return err
		}
		r.resident, r.peak = max(r.resident, now.rss), now.peak
	}
	r.reading = p.meter.take()
	r.seconds = time.Since(begun).Seconds()
	after, err := p.sample()
	if err != nil {
		return err
	}
	r.server, r.relay, r.clients = after.server.cpu-before.server.cpu, after.relay.cpu-before.relay.cpu, after.clients.cpu-before.clients.cpu
	r.blocks = blockCounts{after.blocks.blocks - before.blocks.blocks, after.blocks.events - before.blocks.events}
	return profiled.Wait()
}

// sample is what has been used up to some moment.
type sample struct {
	server, relay, clients usage
	frames                 int64
	blocks                 blockCounts
}

func (p *cellParts) sample() (s sample, err error) {
	var errs [5]error
	s.relay, errs[0] = p.relay.usage()
	s.clients, errs[1] = usageOf(os.Getpid())
	s.server, errs[2] = p.server.usage()
	s.frames, errs[3] = p.relay.messages()
	s.blocks, errs[4] = p.server.blocks()
	return s, errors.Join(errs[:]...)
}

// subscribe is the first subscriber: it holds what comes against the truth, if there is one.
func (p *cellParts) subscribe(ctx context.Context, address string, t *truth) error {
	c, err := dial(ctx, address, nil)
	if err != nil {
		return err
	}
	defer c.close()
	var last int64
	for {
		event, err := c.next()
		if err != nil {
			return err
		}
		if t == nil {
			p.meter.add(c.came, 0, 0)
			continue
		}
		want, err := t.next()
		if err != nil {
			return err
		}
		us, err := matchTruth(event, want)
		if err != nil {
			return fmt.Errorf("%w:\n got %s\nwant %s", err, event, want)
		}
		if us <= last {
			return fmt.Errorf("time_us %d comes after %d", us, last)
		}
		last = us
		p.meter.add(c.came, us, madeAt(event))
	}
}
