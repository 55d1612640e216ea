package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// worldSpan is how long before now a generated world begins, at most.
	worldSpan = time.Hour

	headerTimeout = 10 * time.Second
	maxHeader     = 16 << 10
)

var errShutdown = errors.New("relaysim is stopping")

// build makes the relay that o describes. The caller closes the truth file.
func build(o *options, log *slog.Logger) (*relay, error) {
	began := time.Now()
	kinds, err := o.kinds()
	if err != nil {
		return nil, err
	}
	templates, clk, err := o.templates(log)
	if err != nil {
		return nil, err
	}
	people := newPopulation(o.seed, o.population, newRand(o.seed, "population"))
	t, err := newTraffic(templates, clk, people, newRand(o.seed, "traffic"))
	if err != nil {
		return nil, err
	}
	t.keepKeys = o.keepKeys
	t.verbatim, t.once, t.fresh = o.verbatim(), o.once, o.capture != "" && !o.once
	firstSeq := o.firstSeq
	if t.verbatim {
		firstSeq = max(1, templates[0].original.seq)
	}
	var truth *truthFile
	if o.truth != "" {
		if truth, err = openTruth(o.truth, o.truthAppend); err != nil {
			return nil, err
		}
	}
	log.Info("stream made", "frames", len(templates), "duration", time.Since(began).Round(time.Millisecond))
	r := &relay{
		faults: &faults{}, log: log, futureError: o.futureError, outdatedInfo: o.outdatedInfo,
		conns: make(map[*conn]struct{}), truth: truth,
		hostile: newHostileMix(kinds, o.hostileEvery, clk, people, newRand(o.seed, "hostile")),
	}
	r.producer = newProducer(producerConfig{
		traffic: t, hostile: r.hostile, truth: truth, rate: o.rate, frames: o.frames,
		waitForConsumer: o.waitForConsumer, firstSeq: firstSeq, renumberAfter: o.renumberAfter,
		windowFrames: o.windowFrames, windowBytes: o.windowBytes, log: log,
	})
	return r, nil
}

// templates makes the frames to send, and the clock that times them.
func (o *options) templates(log *slog.Logger) ([]*template, *clock, error) {
	begin := time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)
	clk := virtualClock(begin.AddDate(0, 0, 1), time.Millisecond)
	if o.clock == "wall" {
		clk = wallClock()
		begin = time.Now().Add(-worldSpan - time.Duration(o.generate)*worldStep*2)
	}
	if o.capture == "" {
		templates, err := generate(worldConfig{
			seed: o.seed, accounts: o.accounts, frames: o.generate, begin: begin, truth: o.truth != "",
		})
		return templates, clk, err
	}
	frames, err := readCapture(o.capture)
	if err != nil {
		return nil, nil, err
	}
	return captureTemplates(frames, o.verbatim(), o.truth != "", log), clk, nil
}

// run serves until ctx ends.
func run(ctx context.Context, o *options, log *slog.Logger, stdout io.Writer) (err error) {
	r, err := build(o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.truth.close()) }()
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Fprintf(stdout, "listening ws://%s\n", listener.Addr())
	return r.serve(ctx, listener, o)
}

// serve serves on listener until ctx ends, and closes it.
func (r *relay) serve(ctx context.Context, listener net.Listener, o *options) error {
	server := &http.Server{Handler: r.handler(), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	group.Go(func() error { return r.producer.run(ctx) })
	if o.faultsEvery > 0 {
		group.Go(func() error { return r.runSchedule(ctx, o) })
	}
	group.Go(func() error {
		<-ctx.Done()
		r.disconnect(errShutdown)
		return server.Close()
	})
	err := group.Wait()
	r.disconnect(errShutdown)
	return err
}

// listHostile prints the library of malformed messages.
func listHostile(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	defer t.Flush()
	for _, kind := range hostileKinds() {
		reason := kind.reason
		if reason == "" {
			reason = "(served)"
		}
		fmt.Fprintf(t, "%s\t%s\n", kind.name, reason)
	}
}
