package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/public"
	"millrace/replay/graph"
	"millrace/replay/references"
)

const (
	proofRate    = 4000 // requests a second, for the lag
	proofChanges = 2000 // follows that begin or end in a second
	proofChecked = 200  // answers compared with the graph's own
)

// graphView serves one graph that is complete.
type graphView struct{ graph *graph.Graph }

func (v graphView) Graph() (*graph.Graph, error)                    { return v.graph, nil }
func (v graphView) Source(name string) (number int, ok bool)        { return 0, name == graph.SourceFollow }
func (v graphView) Progress() (p graph.Progress)                    { return p }
func (v graphView) Wait(context.Context, references.Position) error { return nil }
func (v graphView) Since() (p references.Position)                  { return p }
func (v graphView) InexactSince() (us int64)                        { return 0 }

// graphProofs asks over HTTP which of those that a viewer follows follow a subject, while the graph
// changes. draw draws a viewer and a subject.
func graphProofs(ctx context.Context, t *table, g *graph.Graph, dir string, d time.Duration, draw func() (viewer, subject uint64)) (err error) {
	if dir, err = os.MkdirTemp(dir, "graph-http-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	add := func(c *public.Config) error { c.Graph = graphView{g}; return nil }
	return serveView(ctx, dir, 1_000_000, graphName, add, func(ctx context.Context, host string) error {
		p := &proofs{graph: g, draw: draw}
		if p.client, err = dialHTTP(ctx, host); err != nil {
			return err
		}
		defer p.client.Close()
		return p.measure(ctx, t, d)
	})
}

// graphName is the DID that stands for an account.
func graphName(uid uint64) string { return fmt.Sprintf("did:plc:aaaaaaaa%016x", uid) }

// proofs asks for social proof over one connection.
type proofs struct {
	graph  *graph.Graph
	draw   func() (viewer, subject uint64)
	client *httpClient
	took   lags
}

// measure measures as many requests as the server answers one by one, and then proofRate of them.
func (p *proofs) measure(ctx context.Context, t *table, d time.Duration) error {
	for range proofChecked {
		if err := p.check(ctx); err != nil {
			return err
		}
	}
	tasks, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	tasks.Go(func() error { return p.change(ctx) })
	tasks.Go(func() error {
		defer stop()
		return errors.Join(p.ask(t, d, 0), p.ask(t, d, time.Second/proofRate))
	})
	return tasks.Wait()
}

// check compares an answer with the graph's.
func (p *proofs) check(ctx context.Context) error {
	viewer, subject := p.draw()
	want, err := p.graph.Count(ctx, graph.Join(graph.And, graph.Of(0, graph.Out, viewer), graph.Of(0, graph.In, subject)), graph.Limits{})
	if err != nil {
		return err
	}
	if got, err := p.one(viewer, subject, time.Now()); err != nil || got != want.Count {
		return errors.Join(err, fmt.Errorf("%s and %s: the answer has %d members, and the graph %d", graphName(viewer), graphName(subject), got, want.Count))
	}
	return nil
}

// one does one request that was due at some time, and returns how many members there are.
func (p *proofs) one(viewer, subject uint64, due time.Time) (members int, err error) {
	body, err := p.client.get("/graph/follows-following?" + url.Values{"viewer": {graphName(viewer)}, "subject": {graphName(subject)}}.Encode())
	if err != nil {
		return 0, err
	}
	p.took.add(time.Since(due))
	var answer struct {
		Subjects []struct{ Count int }
		Complete bool
	}
	if err = json.Unmarshal(body, &answer); err != nil || len(answer.Subjects) != 1 || !answer.Complete {
		return 0, fmt.Errorf("the answer is not complete: %s", bytes.TrimSpace(body))
	}
	return answer.Subjects[0].Count, nil
}

// ask asks for so long, with one request due each every; 0: one after the other.
func (p *proofs) ask(t *table, d, every time.Duration) error {
	p.took.reset()
	before, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	n, members, begun := 0, 0, time.Now()
	for ; time.Since(begun) < d; n++ {
		due := time.Now()
		if every > 0 {
			due = begun.Add(time.Duration(n) * every)
			time.Sleep(time.Until(due))
		}
		viewer, subject := p.draw()
		found, err := p.one(viewer, subject, due)
		if err != nil {
			return err
		}
		members += found
	}
	after, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	cpu := (after.cpu - before.cpu).Seconds()
	what := "the first over HTTP beside 2,000 changes a second"
	if every > 0 {
		what = fmt.Sprintf("the same, %s requests a second", grouped(float64(n)/d.Seconds()))
	}
	t.row(what, grouped(float64(n)/cpu), fmt.Sprintf("%.1f", cpu/float64(n)*1e6), p.took.p50(), p.took.p99(), members/n)
	return nil
}

// change lets accounts follow others, and ends that a second later, until ctx is done.
func (p *proofs) change(ctx context.Context) error {
	const batches = 200 // a second, as many as a server's blocks
	tick := time.NewTicker(time.Second / batches)
	defer tick.Stop()
	r := rand.New(rand.NewPCG(5, 6))
	var open []graph.Change // follows to be ended
	for seq := int64(1); ; seq++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var changes []graph.Change
		for range proofChanges / batches / 2 {
			actor, _ := p.draw()
			changes = append(changes, graph.Change{Edge: graph.Edge{Actor: actor, Subject: graphUID(r.Uint64N(1 << 22)), Record: 1<<62 + uint64(seq)}})
		}
		open = append(open, changes...)
		if ends := len(open) - proofChanges/2; ends > 0 {
			for _, c := range open[:ends] {
				c.Remove = true
				changes = append(changes, c)
			}
			open = open[ends:]
		}
		if err := p.graph.Apply(references.Position{Epoch: 1, Seq: seq}, changes); err != nil {
			return err
		}
	}
}
