//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"
)

// subscribersFlags are the flags of `bench subscribers`.
type subscribersFlags struct {
	only     string
	rate     float64
	seconds  time.Duration
	quiet    int
	memory   string
	dir      string
	millrace string
	relaysim string

	jetstream string // program of Jetstream v1; "": it is left out
}

func defaultSubscribersFlags() subscribersFlags {
	return subscribersFlags{seconds: 20 * time.Second, quiet: 10_000, memory: "2GiB"}
}

// scenario is one set of subscribers in front of one server.
type scenario struct {
	name, about string
	rate        float64 // frames a second
	mix         []class
	quiet       bool     // what counts is what each takes
	original    bool     // the server is Jetstream v1
	flags       []string // further ones of millrace serve
	reachCPU    float64  // cores; 0: none was set
	reachLag    time.Duration
}

// class is a number of subscribers that ask for the same, or for lists of DIDs of the same length.
type class struct {
	name    string
	n       int
	query   string
	dids    int  // how many each asks for; its own draw of those that are in the stream
	pace    pace // how it reads
	live    bool // without a cursor; otherwise it gets all there is of its part of the log
	inTruth bool // what it got is compared, event by event
}

// pace is how fast a client reads.
type pace int

const (
	asItComes pace = iota
	tenASecond
	never
)

const oneCollection = "wantedCollections=app.bsky.feed.post&wantedKinds=commit"

func scenarios(f *subscribersFlags) []scenario {
	all := []scenario{
		{name: "mixed", about: "1,000 live subscribers", rate: cmp.Or(f.rate, 2000), reachCPU: 1, reachLag: 50 * time.Millisecond, mix: []class{
			{name: "unfiltered, compressed", n: 300, query: "compress=true", inTruth: true},
			{name: "one collection", n: 300, query: oneCollection, inTruth: true},
			{name: "100 DIDs", n: 300, dids: 100, inTruth: true},
			{name: "10,000 DIDs", n: 100, dids: 10_000, inTruth: true},
		}},
		{name: "collection", about: "100 subscribers of one collection", rate: cmp.Or(f.rate, 1000), reachCPU: 0.15, mix: []class{
			{name: "one collection", n: 100, query: oneCollection, inTruth: true},
		}},
		{name: "quiet", about: "subscribers that nothing matches", rate: cmp.Or(f.rate, 200), quiet: true, mix: []class{
			{name: "quiet", n: f.quiet, query: "wantedCollections=org.example.nothing&wantedKinds=commit", inTruth: true},
		}},
		{name: "slow", about: "100 slow subscribers beside 100 healthy ones", rate: cmp.Or(f.rate, 2000), reachLag: 50 * time.Millisecond,
			flags: []string{"--slow-timeout", "10s"},
			mix: []class{
				{name: "healthy, unfiltered", n: 100, inTruth: true},
				{name: "reads ten events a second", n: 50, pace: tenASecond},
				{name: "reads nothing", n: 50, pace: never},
			}},
	}
	if f.jetstream != "" {
		all = append(all, scenario{name: "jetstream", about: "100 subscribers of one collection of Jetstream v1", rate: cmp.Or(f.rate, 1000),
			original: true, mix: []class{{name: "one collection", n: 100, query: "wantedCollections=app.bsky.feed.post", live: true}}})
	}
	return all
}

func runSubscribers(ctx context.Context, args []string, out io.Writer) error {
	f := defaultSubscribersFlags()
	fs := flag.NewFlagSet("bench subscribers", flag.ContinueOnError)
	fs.StringVar(&f.only, "only", "", "one `scenario`: mixed, collection, quiet, slow or jetstream; default: all")
	fs.Float64Var(&f.rate, "rate", 0, "`frames` a second, in place of the scenario's own")
	fs.DurationVar(&f.seconds, "for", f.seconds, "how long is measured, once all are connected and live")
	fs.IntVar(&f.quiet, "quiet", f.quiet, "`number` of quiet subscribers; each takes a file descriptor on either side")
	fs.StringVar(&f.memory, "memory", f.memory, "the server's --memory, of which a twentieth is for clients, and half of that for filters: 100 times 10,000 DIDs take 26 MiB")
	fs.StringVar(&f.dir, "dir", "", "`directory` for the log and the truth; default: the system's for temporary files")
	fs.StringVar(&f.millrace, "millrace", "", "the `program` to measure; default: built from this tree")
	fs.StringVar(&f.relaysim, "relaysim", "", "the relay's `program`; default: built from this tree")
	fs.StringVar(&f.jetstream, "jetstream", "", "`program` of a Jetstream v1 server that you have built: the scenario jetstream is collection with it as the server")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := checkJetstream(&f.jetstream); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := buildPrograms(ctx, &f, dir); err != nil {
		return err
	}
	found := false
	for _, s := range scenarios(&f) {
		if f.only != "" && s.name != f.only {
			continue
		}
		found = true
		r, err := measureScenario(ctx, &f, s, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.print(out)
	}
	if !found && f.only == "jetstream" {
		return errors.New("the scenario jetstream needs -jetstream and the program of a server")
	}
	if !found {
		return fmt.Errorf("no scenario %q", f.only)
	}
	return nil
}

// result is what a scenario came to.
type result struct {
	scenario
	seconds  float64 // measured
	frames   float64 // the relay made in that time
	alone    float64 // cores the server took before anybody subscribed
	server   float64 // cores
	relay    float64
	clients  float64
	rssAlone int64 // bytes, before anybody subscribed
	rss      int64 // with all connected
	rssMost  int64
	budget   float64 // bytes of clients' memory that the server counts, at its most
	kernel   int64   // bytes that the kernel's sockets take more, of both ends
	classes  []classResult
	ends     map[string]float64 // connections ended by the server's count, by reason
}

// classResult is what the subscribers of a class got.
type classResult struct {
	class
	events   int64
	bytes    int64
	reads    int64
	p50, p99 time.Duration
	most     time.Duration
	wrong    int    // subscribers that did not get exactly their part of the truth
	example  string // of what was wrong
}

func (r *result) print(out io.Writer) {
	fmt.Fprintf(out, "%s: %s, %.0f frames/s for %.0f s, everything on %d CPUs (load before it counts: run alone)\n\n", r.name, r.about,
		r.frames/r.seconds, r.seconds, runtime.NumCPU())
	fmt.Fprintf(out, "  server CPU  %.3f cores; %.3f without subscribers; relay %.3f, clients %.3f%s\n", r.server, r.alone, r.relay, r.clients,
		reach(r.reachCPU > 0, r.server < r.reachCPU, fmt.Sprintf("%.2f cores", r.reachCPU)))
	fmt.Fprintf(out, "  server RSS  %s; %s without subscribers; at most %s; %s of the clients' budget\n", mib(r.rss), mib(r.rssAlone), mib(r.rssMost), mib(int64(r.budget)))
	if r.quiet {
		n := int64(r.mix[0].n)
		each := (r.rss - r.rssAlone) / n
		fmt.Fprintf(out, "  each takes  %d bytes of RSS%s; the kernel's sockets %d bytes, both ends\n", each, reach(true, each <= 40<<10, "40,960 bytes"), r.kernel/n)
	}
	if len(r.ends) > 0 {
		fmt.Fprintf(out, "  ended       %v\n", r.ends)
	}
	fmt.Fprintf(out, "\n  %-26s %6s %12s %10s %9s %9s %9s  %s\n", "subscribers", "number", "events/s", "events/read", "p50 ms", "p99 ms", "most ms", "exact")
	for _, c := range r.classes {
		exact := "all"
		switch {
		case !c.inTruth:
			exact = "not judged"
		case c.wrong > 0:
			exact = fmt.Sprintf("NO: %d of %d: %s", c.wrong, c.n, c.example)
		}
		lag := ""
		if c.inTruth {
			lag = reach(r.reachLag > 0 && c.events > 0, c.p99 < r.reachLag, "p99 "+r.reachLag.String())
		}
		fmt.Fprintf(out, "  %-26s %6d %12.0f %10.1f %9s %9s %9s  %s%s\n", c.name, c.n, float64(c.events)/r.seconds, float64(c.events)/float64(max(c.reads, 1)),
			ms(c.p50), ms(c.p99), ms(c.most), exact, lag)
	}
	fmt.Fprintln(out)
}

func reach(set, met bool, limit string) string {
	switch {
	case !set:
		return ""
	case met:
		return "  (reach " + limit + ": met)"
	}
	return "  (reach " + limit + ": NOT MET)"
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// measureScenario runs relay, server and clients from start to end.
func measureScenario(ctx context.Context, f *subscribersFlags, s scenario, dir string) (_ *result, err error) {
	const settle = 4 * time.Second // connected, live, and the replay's garbage collected
	alone := 5 * time.Second
	total := alone + settle + f.seconds + connectTime(s) + 30*time.Second
	dir, err = os.MkdirTemp(dir, s.name)
	if err != nil {
		return nil, err
	}
	relay, err := startRelay(ctx, f, dir, &s, int64(s.rate*total.Seconds()))
	if err != nil {
		return nil, err
	}
	defer relay.kill()
	server, err := startServer(ctx, f, dir, relay.url, &s)
	if err != nil {
		return nil, err
	}
	defer server.kill()
	r := &result{scenario: s}
	if err := pause(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	before := server.usage()
	if err := pause(ctx, alone); err != nil {
		return nil, err
	}
	after := server.usage()
	r.alone, r.rssAlone = after.cores(before), after.rss
	kernel := socketBytes()

	set, err := connectSubscribers(ctx, s, server.addr, relay.truth)
	if err != nil {
		return nil, err
	}
	defer set.close()
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	if err := r.measure(ctx, f, set, server, relay); err != nil {
		return nil, err
	}
	r.kernel = socketBytes() - kernel
	if s.original {
		for _, c := range r.mix {
			r.classes = append(r.classes, set.judge(c, nil))
		}
		return r, nil
	}
	if r.ends, err = server.metrics("millrace_public_ends_total"); err != nil {
		return nil, err
	}
	return r, r.judge(ctx, set, server, relay)
}

// measure takes the figures while everything runs.
func (r *result) measure(ctx context.Context, f *subscribersFlags, set *subscriberSet, server *serverProcess, relay *relayProcess) error {
	set.measureFrom()
	s0, r0, c0, made := server.usage(), relay.usage(), ownUsage(), relay.messages()
	end := time.Now().Add(f.seconds)
	for time.Now().Before(end) {
		if err := pause(ctx, min(time.Second, time.Until(end))); err != nil {
			return err
		}
		r.rssMost = max(r.rssMost, server.usage().rss)
		used, err := server.metrics("millrace_public_client_bytes")
		if err != nil {
			return err
		}
		r.budget = max(r.budget, used[""])
	}
	s1, r1, c1 := server.usage(), relay.usage(), ownUsage()
	set.measureTo()
	r.seconds = s1.at.Sub(s0.at).Seconds()
	r.frames = float64(relay.messages() - made)
	r.server, r.relay, r.clients, r.rss = s1.cores(s0), r1.cores(r0), c1.cores(c0), s1.rss
	return nil
}

// judge compares what the clients got with the truth.
func (r *result) judge(ctx context.Context, set *subscriberSet, server *serverProcess, relay *relayProcess) error {
	set.drop(tenASecond, never) // they would hold the end up
	want, err := relay.end(ctx)
	if err != nil {
		return err
	}
	log, err := readLog(ctx, server.addr, want)
	if err != nil {
		return err
	}
	set.drain(ctx, log)
	for _, c := range r.mix {
		r.classes = append(r.classes, set.judge(c, log))
	}
	return nil
}

// connectTime is how long connecting takes, about.
func connectTime(s scenario) time.Duration {
	n := 0
	for _, c := range s.mix {
		n += c.n + c.n*c.dids/100
	}
	return time.Duration(n) * time.Millisecond
}

// percentiles of lags in microseconds, each with how many events had it.
type lagHistogram map[int64]int64

func (h lagHistogram) percentiles() (p50, p99, most time.Duration) {
	var total int64
	keys := make([]int64, 0, len(h))
	for us, n := range h {
		keys = append(keys, us)
		total += n
	}
	slices.Sort(keys)
	var seen int64
	for _, us := range keys {
		seen += h[us]
		d := time.Duration(us) * time.Microsecond
		if p50 == 0 && 2*seen >= total {
			p50 = d
		}
		if p99 == 0 && 100*seen >= 99*total {
			p99 = d
		}
		most = d
	}
	return p50, p99, most
}

var errNotExact = errors.New("what the server holds is not the truth")
