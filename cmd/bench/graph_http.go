package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/public"
	"millrace/replay/graph"
	"millrace/replay/references"
)

const (
	proofRate        = 4000 // requests a second, for the lag
	proofConnections = 8    // that are kept, for the rate
	proofClients     = 64   // and for the lag
	proofChanges     = 2000 // follows that begin or end in a second
	proofChecked     = 200  // answers compared with the graph's own
)

// graphView serves one graph that is complete.
type graphView struct{ graph *graph.Graph }

func (v graphView) Graph() (*graph.Graph, error)                    { return v.graph, nil }
func (v graphView) Source(name string) (number int, ok bool)        { return 0, name == graph.SourceFollow }
func (v graphView) Progress() (p graph.Progress)                    { return p }
func (v graphView) Wait(context.Context, references.Position) error { return nil }
func (v graphView) Since() (p references.Position)                  { return p }
func (v graphView) InexactSince() (us int64)                        { return 0 }

// graphName is the DID that stands for an account.
func graphName(uid uint64) string { return fmt.Sprintf("did:plc:aaaaaaaa%016x", uid) }

// proofs are questions for social proof: which of those that a viewer follows follow a subject.
type proofs struct {
	viewers []uint64
	rng     *rand.Rand
}

// one asks, and returns how many members there are.
func (p *proofs) one(client *httpClient, viewer, subject uint64) (members int, err error) {
	body, err := client.get("/graph/follows-following?" + url.Values{"viewer": {graphName(viewer)}, "subject": {graphName(subject)}}.Encode())
	if err != nil {
		return 0, err
	}
	var answer struct {
		Subjects []struct{ Count int }
		Complete bool
	}
	if err = json.Unmarshal(body, &answer); err != nil || len(answer.Subjects) != 1 || !answer.Complete {
		return 0, fmt.Errorf("the answer is not complete: %s", bytes.TrimSpace(body))
	}
	return answer.Subjects[0].Count, nil
}

// graphServer serves the snapshot until ctx ends; it runs in a process of its own. It compares some
// answers with the graph's, prints its address and the viewers, and changes the graph meanwhile.
func graphServer(ctx context.Context, f follows, name string, out io.Writer) (err error) {
	g, err := graph.Load(name, graphConfig())
	if err != nil {
		return err
	}
	defer g.Close()
	p := &proofs{rng: rand.New(rand.NewPCG(3, 4))}
	if p.viewers, err = graphViewers(ctx, g, f); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(name), "graph-http-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintln(out, "loaded")
	add := func(c *public.Config) error { c.Graph = graphView{g}; return nil }
	names := viewNames{count: 1_000_000, dids: true, name: graphName}
	return serveView(ctx, dir, names, add, func(ctx context.Context, host string) error {
		if err := p.check(ctx, g, host); err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(proofServer{host, p.viewers}); err != nil {
			return err
		}
		return p.change(ctx, g)
	})
}

// check compares answers with the graph's.
func (p *proofs) check(ctx context.Context, g *graph.Graph, host string) error {
	client, err := dialHTTP(ctx, host)
	if err != nil {
		return err
	}
	defer client.Close()
	for range proofChecked {
		viewer, subject := drawProof(p.rng, p.viewers)
		want, err := g.Count(ctx, graphProof(viewer, subject), graph.Limits{})
		if err != nil {
			return err
		}
		if got, err := p.one(client, viewer, subject); err != nil || got != want.Count {
			return errors.Join(err, fmt.Errorf("%s and %s: the answer has %d members, and the graph %d", graphName(viewer), graphName(subject), got, want.Count))
		}
	}
	return nil
}

// change lets accounts follow others, and ends that a second later, until ctx is done.
func (p *proofs) change(ctx context.Context, g *graph.Graph) error {
	const batches = 200 // a second, as many as a server's blocks
	tick := time.NewTicker(time.Second / batches)
	defer tick.Stop()
	var open []graph.Change // follows to be ended
	for seq := int64(1); ; seq++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var changes []graph.Change
		for range proofChanges / batches / 2 {
			actor, _ := drawProof(p.rng, p.viewers)
			changes = append(changes, graph.Change{Edge: graph.Edge{Actor: actor, Subject: graphUID(p.rng.Uint64N(1 << 22)), Record: 1<<62 + uint64(seq)}})
		}
		open = append(open, changes...)
		if ends := len(open) - proofChanges/2; ends > 0 {
			for _, c := range open[:ends] {
				c.Remove = true
				changes = append(changes, c)
			}
			open = open[ends:]
		}
		if err := g.Apply(references.Position{Epoch: 1, Seq: seq}, changes); err != nil {
			return err
		}
	}
}

// graphHTTP asks a server in another process while its graph changes.
func graphHTTP(ctx context.Context, args []string, d time.Duration, out io.Writer) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server, err := startProcess(exec.CommandContext(ctx, self, append(append([]string{"graph"}, args...), "-child", "server")...))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if err := server.await(func(line string) bool { return line == "loaded" }); err != nil {
		return err
	}
	c := &proofClient{process: server}
	serves := func(line string) bool { return json.Unmarshal([]byte(line), &c.proofServer) == nil && c.Host != "" }
	if err := server.await(serves); err != nil {
		return err
	}
	t := newTable(out, fmt.Sprintf("over HTTP, beside %s changes a second", grouped(proofChanges)), "connections", "per second and core of the server", "CPU us each", "p50", "p99", "members")
	err = c.ask(ctx, t, "the first, one after the other", proofConnections, d, 0)
	if err == nil {
		err = c.ask(ctx, t, fmt.Sprintf("the same, %s due a second", grouped(proofRate)), proofClients, d, time.Second/proofRate)
	}
	return errors.Join(err, t.end())
}

// proofServer is what a server prints.
type proofServer struct {
	Host    string
	Viewers []uint64
}

// proofClient asks a server over several connections.
type proofClient struct {
	*process
	proofServer

	took          lags
	next, members atomic.Int64
}

// ask asks for so long, with one request due each every, on whichever connection is free; 0: on
// each connection one after the other. A request's time begins when it is due. If a connection is
// idle then, it begins when the timer fires, so that the timer's delay does not count.
func (c *proofClient) ask(ctx context.Context, t *table, what string, connections int, d, every time.Duration) error {
	c.took = lags{}
	c.next.Store(0)
	c.members.Store(0)
	before, err := c.usage()
	if err != nil {
		return err
	}
	begun := time.Now()
	tasks, ctx := errgroup.WithContext(ctx)
	for n := range connections {
		tasks.Go(func() error { return c.connection(ctx, uint64(n), begun, d, every) })
	}
	if err := tasks.Wait(); err != nil {
		return err
	}
	after, err := c.usage()
	if err != nil {
		return err
	}
	cpu, n := (after.cpu - before.cpu).Seconds(), c.next.Load()
	t.row(what, connections, grouped(float64(n)/cpu), fmt.Sprintf("%.1f", cpu/float64(n)*1e6), c.took.p50(), c.took.p99(), c.members.Load()/n)
	return nil
}

func (c *proofClient) connection(ctx context.Context, number uint64, begun time.Time, d, every time.Duration) error {
	client, err := dialHTTP(ctx, c.Host)
	if err != nil {
		return err
	}
	defer client.Close()
	p := &proofs{viewers: c.Viewers, rng: rand.New(rand.NewPCG(5, number))}
	for {
		due := time.Now()
		if every > 0 {
			due = begun.Add(time.Duration(c.next.Load()) * every)
		}
		if due.Sub(begun) >= d {
			return nil
		}
		if n := c.next.Add(1) - 1; every > 0 {
			if due = begun.Add(time.Duration(n) * every); time.Until(due) > 0 {
				time.Sleep(time.Until(due))
				due = time.Now()
			}
		}
		viewer, subject := drawProof(p.rng, p.viewers)
		found, err := p.one(client, viewer, subject)
		if err != nil {
			return err
		}
		c.took.add(time.Since(due))
		c.members.Add(int64(found))
	}
}
