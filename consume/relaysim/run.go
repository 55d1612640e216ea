package relaysim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// New makes the relay that cfg describes, and its world, which takes a second or so. The caller
// must call Serve.
func New(cfg Config) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	began := time.Now()
	kinds, err := chooseHostile(cfg.HostileKinds)
	if err != nil {
		return nil, err
	}
	templates, w, clk, err := cfg.templates()
	if err != nil {
		return nil, err
	}
	if len(templates) == 0 {
		return nil, errors.New("no frames to send")
	}
	population := newPopulation(cfg.Seed, cfg.Population, newRand(cfg.Seed, "population"))
	t := &traffic{
		cfg: cfg, templates: templates, clock: clk, population: population, rng: newRand(cfg.Seed, "traffic"), deletable: make(map[string][]deletableRecord),
		churn:  newChurn(cfg.ChurnEvery, clk, cfg.Seed, cfg.Truth != ""),
		faulty: faultyMix{kinds: CommitFaults(), every: cfg.FaultyEvery, follows: make(map[string]bool)},
	}
	t.dropSyncs()
	if cfg.Signed {
		t.world = w
	}
	if cfg.verbatim() {
		cfg.FirstSeq = max(1, templates[0].original.seq)
	}
	var truth *truthFile
	if cfg.Truth != "" {
		if truth, err = openTruth(cfg.Truth, cfg.TruthReferences); err != nil {
			return nil, err
		}
	}
	cfg.Logger.Info("stream made", "frames", len(templates), "duration", time.Since(began).Round(time.Millisecond))
	hostile := &hostileMix{
		cadence: cadence{every: cfg.HostileEvery}, kinds: kinds, syncs: cfg.TruthSync,
		builder: &messageBuilder{clock: clk, population: population, rng: newRand(cfg.Seed, "hostile")},
	}
	return &Relay{cfg: cfg, conns: make(map[*conn]struct{}), producer: newProducer(cfg, t, hostile, truth)}, nil
}

// templates makes the frames to send, the world that they are of, if any, and the clock that times
// them.
func (cfg *Config) templates() ([]*template, *world, *clock, error) {
	begin := time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)
	clk := virtualClock(begin.AddDate(0, 0, 1), time.Millisecond)
	var now func() time.Time
	if cfg.Clock == "wall" {
		now = time.Now
		clk = &clock{now: now}
		begin = time.Now().Add(-worldSpan - time.Duration(cfg.Generate)*worldStep*2)
	}
	if cfg.Capture == "" {
		w := newWorld(worldConfig{seed: cfg.Seed, accounts: cfg.Accounts, begin: begin, truth: cfg.Truth != "", now: now})
		templates, err := w.frames(cfg.Generate)
		return templates, w, clk, err
	}
	frames, err := readCapture(cfg.Capture)
	if err != nil {
		return nil, nil, nil, err
	}
	return captureTemplates(frames, cfg.verbatim(), cfg.Truth != "", cfg.Logger), nil, clk, nil
}

// Serve serves on listener until ctx ends, then closes it, all connections and the truth file.
// Then it returns nil. It must be called once.
func (r *Relay) Serve(ctx context.Context, listener net.Listener) (err error) {
	defer func() { err = errors.Join(err, r.producer.truth.close()) }()
	server := &http.Server{Handler: r.handler(), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	group.Go(func() error { return r.producer.run(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		r.end()
		return server.Close()
	})
	return group.Wait()
}

// ListHostile prints the library of malformed messages, a line each: name, and what a correct
// consumer counts it as.
func ListHostile(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	defer t.Flush()
	for _, k := range hostileKinds() {
		fmt.Fprintf(t, "%s\t%s\n", k.name, cmp.Or(k.reason, "(served)"))
	}
}
