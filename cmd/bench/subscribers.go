package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"millrace/consume/relaysim"
)

// subscribersFlags are the flags of bench subscribers.
type subscribersFlags struct {
	programs
	only      string
	seconds   time.Duration
	quiet     int
	memory    string
	dir       string
	jetstream string // program of Jetstream v1; "": it is left out
}

// scenario is one set of subscribers in front of one server.
type scenario struct {
	name, about string
	rate        float64 // frames a second
	mix         []class
}

// Scenarios that are special.
const (
	quietScenario    = "quiet"     // what counts is what each subscriber takes
	originalScenario = "jetstream" // the server is Jetstream v1
)

// class is a number of subscribers that ask for the same, or for lists of DIDs of the same length.
type class struct {
	name  string
	n     int
	query string
	dids  int // how many each asks for; its own draw of those that are in the stream
	// It has no cursor, and what it gets is not compared. Else it reads from the oldest event on.
	live bool
}

const oneCollection = "wantedCollections=app.bsky.feed.post&wantedKinds=commit"

func scenarios(f *subscribersFlags) []scenario {
	all := []scenario{
		{name: "mixed", about: "1,000 live subscribers", rate: 2000, mix: []class{
			{name: "unfiltered, compressed", n: 300, query: "compress=true"},
			{name: "one collection", n: 300, query: oneCollection},
			{name: "100 DIDs", n: 300, dids: 100},
			{name: "10,000 DIDs", n: 100, dids: 10_000},
		}},
		{name: "collection", about: "100 subscribers of one collection", rate: 2000, mix: []class{
			{name: "one collection", n: 100, query: oneCollection},
		}},
		{name: quietScenario, about: "subscribers that nothing matches", rate: 200, mix: []class{
			{name: "quiet", n: f.quiet, query: "wantedCollections=org.example.nothing&wantedKinds=commit"},
		}},
	}
	if f.jetstream != "" {
		all = append(all, scenario{name: originalScenario, about: "100 subscribers of one collection of Jetstream v1", rate: 2000,
			mix: []class{{name: "one collection", n: 100, query: "wantedCollections=app.bsky.feed.post", live: true}}})
	}
	return all
}

func runSubscribers(ctx context.Context, args []string, out io.Writer) (err error) {
	f := subscribersFlags{}
	fs := flag.NewFlagSet("bench subscribers", flag.ContinueOnError)
	fs.DurationVar(&f.seconds, "for", 20*time.Second, "how long is measured, once all are connected and live")
	fs.IntVar(&f.quiet, "quiet", 10_000, "`number` of quiet subscribers; each takes a file descriptor on either side")
	fs.StringVar(&f.memory, "memory", "2GiB", "the server's --memory, of which a twentieth is for clients, and half of that for filters: 100 times 10,000 DIDs take 26 MiB")
	fs.StringVar(&f.dir, "dir", "", "`directory` for the log and the truth; default: the system's for temporary files")
	fs.StringVar(&f.bin, "bin", "", "directory of millrace and relaysim; empty: they are built")
	fs.StringVar(&f.jetstream, "jetstream", "", "`program` of a Jetstream v1 server that you have built: the scenario jetstream is collection with it as the server")
	if err := parse(fs, args, &f.only, "mixed", "collection", quietScenario, originalScenario); err != nil {
		return err
	}
	if err := checkJetstream(&f.jetstream); err != nil {
		return err
	}
	if picked(f.only, originalScenario) && f.only != "" && f.jetstream == "" {
		return errors.New("the scenario jetstream needs -jetstream, the path of a Jetstream v1 server's program")
	}
	dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := f.build(ctx, dir, false); err != nil {
		return err
	}
	printMachine(out)
	for _, s := range scenarios(&f) {
		if !picked(f.only, s.name) {
			continue
		}
		r, err := f.measure(ctx, s, filepath.Join(dir, s.name))
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := r.print(out); err != nil {
			return err
		}
	}
	return nil
}

// result is what a scenario came to.
type result struct {
	scenario
	seconds float64    // length of the measurement
	frames  float64    // the relay made in that time
	alone   float64    // cores the server took without subscribers
	cores   [3]float64 // of server, relay and clients
	before  int64      // bytes resident without subscribers
	grown   int64      // of a server beside it that has no subscribers, since then; quiet only
	rss     int64      // with all connected
	classes []classResult
}

func (r *result) print(out io.Writer) error {
	fmt.Fprintf(out, "%s: %s, %.0f frames/s for %.0f s, everything on %d CPUs (load before it counts: run alone)\n\n", r.name, r.about,
		r.frames/r.seconds, r.seconds, runtime.NumCPU())
	each := ""
	if r.name == quietScenario {
		n := int64(r.mix[0].n)
		took := (r.rss - r.before - r.grown) / n
		each = fmt.Sprintf("; a server without subscribers grew by %s meanwhile; each takes %d bytes", mib(r.grown), took)
	}
	fmt.Fprintf(out, "- cores: server %.3f (%.3f without subscribers), relay %.3f, clients %.3f\n", r.cores[0], r.alone, r.cores[1], r.cores[2])
	fmt.Fprintf(out, "- resident MiB: server %s (%s without subscribers)%s\n\n", mib(r.rss), mib(r.before), each)
	t := newTable(out, "subscribers", "number", "events/s", "p50 ms", "p99 ms", "exact")
	for _, c := range r.classes {
		exact := "all"
		switch {
		case c.live:
			exact = "not compared"
		case c.wrong > 0:
			exact = fmt.Sprintf("NO: %d of %d: %s", c.wrong, c.n, c.example)
		}
		t.row(c.name, c.n, grouped(float64(c.events)/r.seconds), c.lag.p50(), c.lag.p99(), exact)
	}
	return t.end()
}

// measure runs relay, server and subscribers from start to end.
func (f *subscribersFlags) measure(ctx context.Context, s scenario, dir string) (_ *result, err error) {
	const (
		settle = 4 * time.Second // connected, live, and the replay's garbage collected
		alone  = 5 * time.Second
	)
	frames := int64(s.rate * (alone + settle + f.seconds + connectTime(s) + 30*time.Second).Seconds())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	truth := filepath.Join(dir, "truth.jsonl")
	relay, err := f.relay(ctx, s, truth, frames)
	if err != nil {
		return nil, err
	}
	defer func() { _ = relay.stop() }()
	server, err := f.start(ctx, s, relay, filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.stop() }()
	control := server
	if s.name == quietScenario {
		if control, err = f.start(ctx, s, relay, filepath.Join(dir, "control")); err != nil {
			return nil, err
		}
		defer func() { _ = control.stop() }()
	}
	r := &result{scenario: s}
	if err := r.measureAlone(ctx, server, alone); err != nil {
		return nil, err
	}
	begun, err := control.usage()
	if err != nil {
		return nil, err
	}
	all, err := subscribeAll(ctx, s, server, truth)
	if err != nil {
		return nil, err
	}
	defer all.close()
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	if err := r.measure(ctx, f.seconds, all, server, relay); err != nil {
		return nil, err
	}
	ended, err := control.usage()
	if err != nil {
		return nil, err
	}
	r.grown = ended.rss - begun.rss
	var log *heldLog // nil: nothing is compared
	if s.name != originalScenario {
		if log, err = awaitEnd(ctx, relay, frames, server, truth); err != nil {
			return nil, err
		}
		all.drain(ctx, log)
	}
	all.close()
	for _, c := range r.mix {
		r.classes = append(r.classes, all.compare(c, log))
	}
	return r, nil
}

// relay starts the scenario's relay, which makes so many frames.
func (f *subscribersFlags) relay(ctx context.Context, s scenario, truth string, frames int64) (*server, error) {
	args := []string{"--truth", truth, "--rate", strconv.FormatFloat(s.rate, 'f', -1, 64), "--frames", strconv.FormatInt(frames, 10), "--log-level", "ERROR"}
	if s.name == originalScenario {
		args = append(args, "--keep-record-keys") // a record is looked for by its path
	}
	return startRelay(ctx, f.relaysim(), nil, args...)
}

// start starts the scenario's server.
func (f *subscribersFlags) start(ctx context.Context, s scenario, relay *server, data string) (*server, error) {
	if s.name == originalScenario {
		return startOriginal(ctx, f.jetstream, relay.url(), data)
	}
	return startMillrace(ctx, f.millrace(), relay.url(), data, "--memory", f.memory)
}

// connectTime is about how long it takes to connect all subscribers.
func connectTime(s scenario) time.Duration {
	n := 0
	for _, c := range s.mix {
		n += c.n + c.n*c.dids/100
	}
	return time.Duration(n) * time.Millisecond
}

func (r *result) measureAlone(ctx context.Context, server *server, d time.Duration) error {
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
	before, err := server.usage()
	if err != nil {
		return err
	}
	err = pause(ctx, d)
	after, usageErr := server.usage()
	r.alone, r.before = after.cores(before), after.rss
	return errors.Join(err, usageErr)
}

// measure takes the figures while everything runs.
func (r *result) measure(ctx context.Context, d time.Duration, all *subscribers, server, relay *server) error {
	parts := cellParts{relay: relay, server: server}
	all.snapshot(0)
	before, err := parts.sample()
	if err != nil {
		return err
	}
	if err := pause(ctx, d); err != nil {
		return err
	}
	after, err := parts.sample()
	all.snapshot(1)
	r.seconds = after.server.at.Sub(before.server.at).Seconds()
	r.frames = float64(after.frames - before.frames)
	r.cores = [3]float64{after.server.cores(before.server), after.relay.cores(before.relay), after.clients.cores(before.clients)}
	r.rss = after.server.rss
	return err
}

// awaitEnd waits for the relay's last frame and returns what the server holds, once it was found to
// be the truth.
func awaitEnd(ctx context.Context, relay *server, frames int64, server *server, truth string) (*heldLog, error) {
	for {
		made, err := relay.messages()
		if err != nil {
			return nil, err
		}
		if made >= frames {
			break
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	lines, err := relaysim.ReadTruth(truth)
	if err != nil {
		return nil, err
	}
	return readLog(ctx, server, lines)
}
