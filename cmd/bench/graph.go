package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"time"

	"millrace/replay/graph"
)

// follows says how many accounts and follows are generated.
type follows struct {
	accounts int
	mean     float64
	uid      func(n uint64) uint64 // of an account
}

// each calls do with the follows of one account after the other. The number an account has, and
// the accounts it picks, follow power laws: few have most. Nothing of it is kept.
func (f follows) each(do func(actor uint64, subjects []uint64) error) error {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[uint64]bool{}
	var subjects []uint64
	for actor := range f.accounts {
		want := int(f.mean * 0.35 * math.Pow(1-r.Float64(), -0.65)) // Pareto, of mean f.mean
		clear(seen)
		subjects = subjects[:0]
		for range min(want, f.accounts/20, 20_000) {
			// With the cube the first of 5.5 million accounts gets 0.6 % of all follows.
			rank := uint64(math.Pow(r.Float64(), 3) * float64(f.accounts))
			if !seen[rank] {
				seen[rank] = true
				subjects = append(subjects, f.uid(rank))
			}
		}
		if err := do(f.uid(uint64(actor)), subjects); err != nil {
			return err
		}
	}
	return nil
}

// graphUID spreads numbers as UIDs are; account 0 is the one with most followers.
func graphUID(n uint64) uint64 { return (n + 1) * 0x9e3779b97f4a7c15 >> 1 }

func runGraph(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench graph", flag.ContinueOnError)
	accounts := flags.Int("accounts", 5_500_000, "accounts")
	mean := flags.Float64("mean", 30.8, "follows of an account")
	dir := flags.String("dir", os.TempDir(), "where the snapshot is written")
	child := flags.String("child", "", "measure one cell in this process: build, serve, http or rows")
	duration := flags.Duration("duration", 5*time.Second, "of each measurement")
	if err := flags.Parse(args); err != nil {
		return err
	}
	name := filepath.Join(*dir, "bench.graph")
	whole := follows{*accounts, *mean, graphUID}
	switch *child {
	case "build":
		return graphBuild(ctx, whole, name, out)
	case "serve":
		return graphServe(ctx, whole, name, *duration, out)
	case "http":
		return graphHTTP(ctx, args, *duration, out)
	case "server":
		return graphServer(ctx, whole, name, out)
	case "rows":
		return graphRows(ctx, follows{max(*accounts/50, 1000), *mean, accountUID}, *dir, out)
	case "":
	default:
		return fmt.Errorf("there is no cell %q", *child)
	}
	printMachine(out)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	defer os.Remove(name)
	for _, cell := range []string{"build", "serve", "http", "rows"} {
		fmt.Fprintf(out, "%s\n", cell)
		cmd := exec.CommandContext(ctx, self, append([]string{"graph", "-child", cell}, args...)...)
		cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = childAttributes(), out, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", cell, err)
		}
	}
	return nil
}

func graphConfig() graph.Config {
	return graph.Config{Sources: []string{"app.bsky.graph.follow:subject"}, StoreID: "bench"}
}

// graphBuild builds the graph of a stream and saves it.
func graphBuild(ctx context.Context, f follows, name string, out io.Writer) error {
	g, err := graph.New(graphConfig())
	if err != nil {
		return err
	}
	defer g.Close()
	began, record := time.Now(), uint64(0)
	var changes []graph.Change
	filler := g.Fill()
	err = f.each(func(actor uint64, subjects []uint64) error {
		for _, subject := range subjects {
			record++
			changes = append(changes, graph.Change{Edge: graph.Edge{Actor: actor, Subject: subject, Record: record}})
		}
		if len(changes) < 4096 {
			return nil
		}
		err := filler.Add(changes)
		changes = changes[:0]
		return errors.Join(err, ctx.Err())
	})
	if err = errors.Join(err, filler.Add(changes), filler.End()); err != nil {
		return err
	}
	built := time.Since(began)
	s := g.Stats()
	fmt.Fprintf(out, "  %s accounts, %s follows, %s incomplete sets; built in %.1f s (generator included); %s bytes by its own count\n",
		grouped(s.Accounts), grouped(s.Edges), grouped(s.Incomplete), built.Seconds(), grouped(s.Bytes))
	if err := printResident(out, "after the build"); err != nil {
		return err
	}
	began = time.Now()
	if err := g.Save(ctx, name); err != nil {
		return err
	}
	fmt.Fprintf(out, "  snapshot saved in %.1f s\n", time.Since(began).Seconds())
	return nil
}

func printResident(out io.Writer, when string) error {
	debug.FreeOSMemory()
	u, err := usageOf(os.Getpid())
	if err == nil {
		fmt.Fprintf(out, "  resident %s %s bytes, peak %s\n", when, grouped(u.rss), grouped(u.peak))
	}
	return err
}

// graphServe loads the snapshot and evaluates in one goroutine, so that a rate is that of a core.
func graphServe(ctx context.Context, f follows, name string, d time.Duration, out io.Writer) error {
	began := time.Now()
	g, err := graph.Load(name, graphConfig())
	if err != nil {
		return err
	}
	defer g.Close()
	fmt.Fprintf(out, "  loaded in %.2f s\n", time.Since(began).Seconds())
	if err := printResident(out, "after the load"); err != nil {
		return err
	}
	viewers, err := graphViewers(ctx, g, f)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(3, 4))
	var times lags
	n, members := 0, 0
	before, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	for began = time.Now(); time.Since(began) < d; n++ {
		start := time.Now()
		found, err := g.Eval(ctx, graphProof(drawProof(r, viewers)), graph.Limits{})
		if err != nil {
			return err
		}
		times.add(time.Since(start))
		members += found.Count
	}
	after, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %s social proofs a second and core, of accounts with %d to %d follows and one of the 500 largest; p50 %s ms, p99 %s ms; %d members\n",
		grouped(float64(n)/(after.cpu-before.cpu).Seconds()), leastFollows, mostFollows, times.p50(), times.p99(), members/n)
	return nil
}

// A viewer has leastFollows to mostFollows follows: about a thousand.
const leastFollows, mostFollows = 900, 1100

// graphViewers finds viewers.
func graphViewers(ctx context.Context, g *graph.Graph, f follows) (viewers []uint64, err error) {
	for n := 0; n < f.accounts && len(viewers) < 2000; n++ {
		uid := graphUID(uint64(n))
		r, err := g.Count(ctx, graph.Of(0, graph.Out, uid), graph.Limits{})
		if err != nil {
			return nil, err
		}
		if r.Count >= leastFollows && r.Count <= mostFollows {
			viewers = append(viewers, uid)
		}
	}
	if len(viewers) == 0 {
		return nil, errors.New("no account has about a thousand follows: more accounts are needed")
	}
	return viewers, nil
}

// drawProof draws a question for social proof: a viewer, and one of the 500 largest accounts.
func drawProof(r *rand.Rand, viewers []uint64) (viewer, subject uint64) {
	return viewers[r.IntN(len(viewers))], graphUID(r.Uint64N(500))
}

// graphProof is the accounts that a viewer follows and that follow a subject.
func graphProof(viewer, subject uint64) *graph.Expr {
	return graph.Join(graph.And, graph.Of(0, graph.Out, viewer), graph.Of(0, graph.In, subject))
}
