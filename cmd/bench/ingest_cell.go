package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// ingestResult is what a cell came to.
type ingestResult struct {
	cell    ingestCell
	seconds float64
	reading meterReading // of the first subscriber
	// that the relay made; up to half its window more or fewer than the server has read
	frames   int64
	server   time.Duration // CPU time of each
	relay    time.Duration
	clients  time.Duration
	resident int64              // the server's, most of what was seen while it counted, in bytes
	peak     int64              // and ever
	metrics  map[string]float64 // what the server's counters grew by
}

// rate is events a second.
func (r *ingestResult) rate() float64 { return float64(r.reading.events) / r.seconds }

// bench is the running parts of a cell.
type cellParts struct {
	relay, server *process
	status        string // URL of where the relay's stream is
	metrics       string // base URL of the server's metrics, "" if it has none
	meter         meter
}

// opsAFrame is about how many events a frame of the generated world comes to.
const opsAFrame = 1.064

// Of a relay that waits for nobody: how far a server may fall behind before it is thrown out.
const (
	ratedWindowFrames = "500000"
	ratedWindowBytes  = "1073741824"
)

// subscribeRepos is where a relay's stream is.
const subscribeRepos = "/xrpc/com.atproto.sync.subscribeRepos"

// relayArgs are the relay's, but for the truth.
func (f *ingestFlags) relayArgs(c *ingestCell) []string {
	generate := f.generate
	if c.rate > 0 {
		// The first time round commits were made before the stream began, and have no lag.
		generate = max(min(generate, int(float64(c.rate)*f.warm.Seconds()/2)), 500)
	}
	args := []string{"--listen", "127.0.0.1:0", "--wait-for-consumer", "--generate", strconv.Itoa(generate)}
	if c.jetstreams() {
		args = append(args, "--keep-record-keys") // a record is looked for by its path
	}
	if c.rate > 0 {
		return append(args, "--rate", fmt.Sprint(float64(c.rate)/opsAFrame), "--window-frames", ratedWindowFrames, "--window-bytes", ratedWindowBytes)
	}
	return append(args, "--window-frames", "20000")
}

// jetstreams says whether the server is Jetstream, or does what it does.
func (c *ingestCell) jetstreams() bool { return c.original || c.binary == benchItself }

// measure runs one cell in dir.
func (f *ingestFlags) measure(ctx context.Context, c *ingestCell, bin, dir string) (r *ingestResult, err error) {
	if c.cpus > 0 {
		unpin, err := pin(c.cpus)
		if err != nil {
			return nil, err
		}
		defer func() { err = unpin() }()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	checked := c.binary != "" && !c.jetstreams()
	var t *truth
	args := f.relayArgs(c)
	if checked {
		if t, err = newTruth(filepath.Join(dir, "truth")); err != nil {
			return nil, err
		}
		defer t.close()
		args = append(args, "--truth", t.name)
	}
	p := &cellParts{}
	if p.relay, err = startProcess(ctx, filepath.Join(bin, "relaysim"), args); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.relay.stop()) }()
	if t != nil {
		defer t.discard()
	}
	relay, err := p.relay.await(listening)
	if err != nil {
		return nil, err
	}
	p.status = "http" + strings.TrimPrefix(relay, "ws") + "/admin/status"
	address := relay + subscribeRepos + "?cursor=0"
	if c.binary != "" {
		if address, err = p.serve(ctx, c, bin, dir, relay); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, p.server.stop()) }()
	}
	return p.measure(ctx, c, f.warm, address, t)
}

// serve starts the server and returns where to subscribe.
func (p *cellParts) serve(ctx context.Context, c *ingestCell, bin, dir, relay string) (address string, err error) {
	data := filepath.Join(dir, "data")
	if c.original {
		return p.serveOriginal(ctx, c.binary, data, relay)
	}
	if c.binary == benchItself {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		if err := os.Mkdir(data, 0o755); err != nil {
			return "", err
		}
		if p.server, err = startProcess(ctx, self, []string{"jetstream", "-relay", relay, "-dir", data}); err != nil {
			return "", err
		}
		address, err = p.server.await(listening)
		return address + "/subscribe", err
	}
	args := append([]string{"serve", "--relay", relay, "--data-dir", data, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
		"--log-format", "json", "--min-free-disk", "256MiB"}, c.args...)
	if p.server, err = startProcess(ctx, filepath.Join(bin, c.binary), args); err != nil {
		return "", err
	}
	address, err = p.server.await(func(line string) (string, bool) {
		var said struct {
			Listen  string `json:"listen"`
			Metrics string `json:"metrics_listen"`
		}
		if json.Unmarshal([]byte(line), &said) != nil || said.Listen == "" {
			return "", false
		}
		p.metrics = "http://" + said.Metrics
		return "ws://" + said.Listen, true
	})
	return address + "/subscribe?cursor=0", err
}

// measure subscribes, waits until the cell is warm, and counts.
func (p *cellParts) measure(ctx context.Context, c *ingestCell, warm time.Duration, address string, t *truth) (*ingestResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.subscribe(gctx, address, t) })
	for i := 1; i < c.subscribers; i++ {
		// A third each: plain, compressed with everything that is ours, and of one collection.
		with := []string{"", "&compress=true&extended=true", "&wantedCollections=app.bsky.feed.post"}[i%3]
		g.Go(func() error { return discardFeed(gctx, address+with) })
	}
	r := &ingestResult{cell: *c}
	g.Go(func() error {
		defer cancel(errMeasured)
		if err := pause(gctx, warm); err != nil {
			return err
		}
		return p.count(gctx, r)
	})
	err := g.Wait()
	if context.Cause(ctx) == errMeasured && r.seconds > 0 { //nolint:errorlint // it is never wrapped
		return r, nil
	}
	if p.server != nil {
		return nil, p.server.failed(err)
	}
	return nil, err
}

var errMeasured = fmt.Errorf("measured") //nolint:gochecknoglobals // a sentinel

// count fills r in.
func (p *cellParts) count(ctx context.Context, r *ingestResult) error {
	before, err := p.sample(r)
	if err != nil {
		return err
	}
	p.meter.take()
	begun := time.Now()
	var profiled errgroup.Group
	if r.cell.profile != "" {
		profiled.Go(func() error {
			return download(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", p.metrics, int(r.cell.duration.Seconds())), r.cell.profile)
		})
	}
	for time.Since(begun) < r.cell.duration {
		if err := pause(ctx, min(200*time.Millisecond, r.cell.duration-time.Since(begun))); err != nil {
			return err
		}
		if p.server != nil {
			now, peak, err := p.server.resident()
			if err != nil {
				return err
			}
			r.resident, r.peak = max(r.resident, now), peak
		}
	}
	r.reading = p.meter.take()
	seconds := time.Since(begun).Seconds()
	after, err := p.sample(r)
	if err != nil {
		return err
	}
	r.frames = after.frames - before.frames
	r.server, r.relay, r.clients = after.server-before.server, after.relay-before.relay, after.clients-before.clients
	r.metrics = map[string]float64{}
	for name, v := range after.metrics {
		r.metrics[name] = v - before.metrics[name]
	}
	if err := profiled.Wait(); err != nil {
		return err
	}
	r.seconds = seconds
	return nil
}

// cellSample is what has been used up to some moment.
type cellSample struct {
	server, relay, clients time.Duration
	frames                 int64
	metrics                map[string]float64
}

func (p *cellParts) sample(r *ingestResult) (s cellSample, err error) {
	if s.relay, err = p.relay.cpu(); err != nil {
		return s, err
	}
	if s.clients, err = cpuOf(os.Getpid()); err != nil {
		return s, err
	}
	if s.frames, err = relayFrames(p.status); err != nil {
		return s, err
	}
	if p.server == nil {
		return s, nil
	}
	if s.server, err = p.server.cpu(); err != nil || p.metrics == "" {
		return s, err
	}
	s.metrics, err = scrape(p.metrics + "/metrics")
	return s, err
}

// subscribe is the first subscriber: it holds what comes against the truth, if there is one.
func (p *cellParts) subscribe(ctx context.Context, address string, t *truth) error {
	feed, err := dialFeed(ctx, address)
	if err != nil {
		return err
	}
	defer feed.conn.Close()
	var last int64
	for {
		event, err := feed.next()
		if err != nil {
			return err
		}
		if t == nil {
			p.meter.add(feed.came, len(event), 0, 0)
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
		p.meter.add(feed.came, len(event), us, madeAt(event))
	}
}

// discardFeed is a subscriber that reads and forgets.
func discardFeed(ctx context.Context, address string) error {
	feed, err := dialFeed(ctx, address)
	if err != nil {
		return err
	}
	defer feed.conn.Close()
	for {
		if _, err := feed.next(); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// scrape reads Prometheus metrics into a map from the name with its labels.
func scrape(address string) (map[string]float64, error) {
	response, err := http.Get(address) //nolint:noctx // on this machine, and done at once
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	metrics := map[string]float64{}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			metrics[line[:at]] = v
		}
	}
	return metrics, nil
}

// relayFrames returns how many frames a relay has made.
func relayFrames(address string) (int64, error) {
	response, err := http.Get(address) //nolint:noctx // on this machine, and done at once
	if err != nil {
		return 0, fmt.Errorf("ask the relay: %w", err)
	}
	defer response.Body.Close()
	var status struct{ Messages int64 }
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		return 0, fmt.Errorf("ask the relay: %w", err)
	}
	return status.Messages, nil
}

// download writes what an address answers to a file.
func download(ctx context.Context, address, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, response.Status)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, response.Body); err != nil {
		return err
	}
	return f.Close()
}
