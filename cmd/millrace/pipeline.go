package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"millrace/consume"
	"millrace/replay"
	"millrace/translate"
)

const (
	// maxBlockAge is how old the oldest frame of a block may be when the block is sealed: the price in
	// lag of everything that is done once per block.
	maxBlockAge = 5 * time.Millisecond
	// maxPositionAge is how long the position may be ahead of the log when frames bring no events.
	maxPositionAge = time.Second
	// jobsInFlight is how many blocks are between the socket and the disk at once.
	jobsInFlight = 8
	// internsInFlight is how many blocks ask for their UIDs at once. The UID store answers several about as
	// fast as one: they share its transactions and its syncs.
	internsInFlight = 4
	// maxBlockEvents ends a block at the next frame's end: with the most ops that a frame may have
	// (translate.MaxOps) it stays below what the log takes (replay's 65,535).
	maxBlockEvents = 32_768
	// maxGroup is how many sealed blocks share one sync.
	maxGroup = jobsInFlight
)

// eventLog is what the pipeline asks of the log.
type eventLog interface {
	Progress() replay.Progress
	StreamOfEpoch(epoch uint32) translate.Stream
	Seal(in replay.Input) (*replay.Block, error)
	Append(blocks ...*replay.Block) error
}

// resolver gives the events of a batch their UIDs, durable before it returns. It retries what can be
// retried, so an error ends the process. One goroutine uses it.
type resolver interface {
	Resolve(ctx context.Context, b *translate.Batch) error
}

type pipelineConfig struct {
	log           eventLog
	newResolver   func() resolver // nil: no UIDs
	collections   []string
	inFlightBytes int64
	appendBytes   int // of blocks that share one sync, about; 0: 8 MiB
	now           func() time.Time
	logger        *slog.Logger
	registerer    prometheus.Registerer
}

// pipeline takes frames to the durable log: batched, translated, interned and sealed in parallel, stamped
// and committed in the relay's order.
type pipeline struct {
	cfg        pipelineConfig
	metrics    *pipelineMetrics
	blockBytes int        // raw bytes that close a job
	limit      batchLimit // of a block

	free    chan *job // jobs that nobody uses
	work    chan *job // to be translated
	ordered chan *job // the same jobs in the relay's order
	interns chan *job // stamped, to get UIDs
	seals   chan *job // stamped, with UIDs, to be sealed
	commits chan *job // the same jobs in order

	gate  gate     // closed while the disk is short
	relay relayLag // how old frames are when they come

	mu       sync.Mutex
	open     *job        // being filled, nil if none
	flush    *time.Timer // dispatches open when it is maxBlockAge old
	opened   []time.Time // when the first frames of jobs in flight came, oldest first
	finished bool        // no frames come any more

	stamper *replay.Stamper // the ordering stage's own
}

func newPipeline(cfg pipelineConfig) *pipeline {
	cfg.appendBytes = cmp.Or(cfg.appendBytes, 8<<20)
	p := &pipeline{
		cfg: cfg,
		// A job holds its frames, their JSON and its block: about three times its raw bytes.
		blockBytes: int(min(max(cfg.inFlightBytes/(3*jobsInFlight), 128<<10), 4<<20)),
		limit:      batchLimit{events: maxBlockEvents},
		free:       make(chan *job, jobsInFlight),
		work:       make(chan *job, jobsInFlight),
		ordered:    make(chan *job, jobsInFlight),
		interns:    make(chan *job, jobsInFlight),
		seals:      make(chan *job, jobsInFlight),
		commits:    make(chan *job, jobsInFlight),
		stamper:    replay.NewStamper(cfg.log.Progress().TimeUS, cfg.now),
	}
	p.limit.bytes = 2 * p.blockBytes // JSON takes less than the frames it comes from, unless they are hostile
	p.metrics = newPipelineMetrics(cfg.registerer, p)
	for range jobsInFlight {
		p.free <- newJob()
	}
	p.flush = time.AfterFunc(time.Hour, p.flushAged)
	p.flush.Stop()
	return p
}

// Handle takes one frame in; consume calls it in order from one goroutine. It blocks while
// every job is in flight or the disk is short, and that is the back-pressure.
func (p *pipeline) Handle(ctx context.Context, f consume.Frame) error {
	if err := p.gate.wait(ctx); err != nil {
		return err
	}
	var gap *replay.Gap
	if f.Gap != nil {
		gap = &replay.Gap{
			From: translate.Position{Stream: p.cfg.log.StreamOfEpoch(f.Gap.FromEpoch), Seq: f.Gap.From},
			To:   translate.Position{Stream: p.cfg.log.StreamOfEpoch(f.Gap.ToEpoch), Seq: f.Gap.To},
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A block is of one epoch, and a gap lies between two blocks.
	if p.open != nil && (gap != nil || p.open.epoch != f.Epoch) {
		p.dispatchLocked()
	}
	if p.open == nil {
		j, err := p.takeLocked(ctx)
		if err != nil {
			return err
		}
		j.epoch, j.gap, j.opened = f.Epoch, gap, time.Now()
		p.open = j
		p.opened = append(p.opened, j.opened)
		p.flush.Reset(maxBlockAge)
	}
	p.open.add(f)
	if len(p.open.raw) >= p.blockBytes {
		p.dispatchLocked()
	}
	return nil
}

// takeLocked waits for a free job. It gives mu back while it waits.
func (p *pipeline) takeLocked(ctx context.Context) (*job, error) {
	select {
	case j := <-p.free:
		return j, nil
	default:
	}
	p.mu.Unlock()
	defer p.mu.Lock()
	blocked := time.Now()
	defer func() { p.metrics.blocked.Add(time.Since(blocked).Seconds()) }()
	select {
	case j := <-p.free:
		return j, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// flushAged runs when the open job may be maxBlockAge old.
func (p *pipeline) flushAged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return
	}
	if wait := maxBlockAge - time.Since(p.open.opened); wait > 0 {
		p.flush.Reset(wait)
		return
	}
	p.dispatchLocked()
}

// dispatchLocked hands the open job on. The channels hold as many jobs as exist, so it never waits.
func (p *pipeline) dispatchLocked() {
	j := p.open
	p.open = nil
	p.flush.Stop()
	p.ordered <- j
	p.work <- j
}

// landed notes that these jobs, the oldest in flight, are durable.
func (p *pipeline) landed(jobs []*job) {
	n := 0
	for _, j := range jobs {
		if j.done == nil { // the first part of a job does not count, the last does
			n++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = append(p.opened[:0], p.opened[n:]...)
}

// lag returns the age of the oldest frame that is not durable yet, 0 if all are.
func (p *pipeline) lag() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.opened) == 0 {
		return 0
	}
	return time.Since(p.opened[0])
}

// finish says that no more frames come: what is in flight drains and Run returns. Safe twice.
func (p *pipeline) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return
	}
	p.finished = true
	if p.open != nil {
		p.dispatchLocked()
	}
	p.flush.Stop()
	close(p.work)
	close(p.ordered)
}

// Run works until finish was called and everything is durable, or until ctx ends.
func (p *pipeline) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range max(2, runtime.GOMAXPROCS(0)) {
		g.Go(func() error { return p.worker(ctx) })
	}
	g.Go(func() error { return p.order(ctx) })
	g.Go(func() error { return p.internAll(ctx) })
	g.Go(func() error { return p.commit(ctx) })
	return g.Wait()
}

// worker translates and seals. Sealing comes first, as it is nearer to the end.
func (p *pipeline) worker(ctx context.Context) error {
	t := p.newTranslator(p.limit.bytes)
	work, seals := p.work, p.seals
	for work != nil || seals != nil {
		select {
		case j, ok := <-seals:
			if !ok {
				seals = nil
				continue
			}
			p.seal(j)
			continue
		default:
		}
		select {
		case j, ok := <-seals:
			if !ok {
				seals = nil
				continue
			}
			p.seal(j)
		case j, ok := <-work:
			if !ok {
				work = nil
				continue
			}
			if err := p.translate(j, t, false); err != nil {
				return err
			}
			j.translated <- struct{}{}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// newTranslator makes a translator that drops frames of more than maxJSONBytes.
func (p *pipeline) newTranslator(maxJSONBytes int) *frameTranslator {
	return &frameTranslator{
		make: func() (translator, error) {
			return translate.New(translate.Config{Collections: p.cfg.collections, MaxFrameJSONBytes: maxJSONBytes})
		},
		panics: p.metrics.panics,
		logger: p.cfg.logger,
	}
}

// translate fills j's batch, as job.translate does.
func (p *pipeline) translate(j *job, t *frameTranslator, whole bool) error {
	start := time.Now()
	if err := j.translate(t, p.limit, whole); err != nil {
		return err
	}
	p.relay.observe(string(j.batch.Time), p.cfg.now())
	p.metrics.translated(&j.batch, time.Since(start))
	return nil
}

func (p *pipeline) seal(j *job) {
	start := time.Now()
	var err error
	j.block, err = p.cfg.log.Seal(j.input())
	p.metrics.stage.seal.Observe(time.Since(start).Seconds())
	j.sealed <- err
}

// order stamps the jobs one after the other, as the relay sent them. A job whose frames come to more than
// one block is worked off a block at a time, the next translated when the one before is durable, so that
// a few frames that come to very much JSON cannot take more than their share of memory.
func (p *pipeline) order(ctx context.Context) error {
	defer close(p.commits)
	defer close(p.interns)
	t := p.newTranslator(translate.MaxFrameJSONBytes)
	for j := range p.ordered {
		select {
		case <-j.translated:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for j.to < len(j.frames) {
			if j.to > j.from {
				part := j.split()
				p.forward(part)
				select {
				case <-part.done:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			if err := p.translate(j, t, true); err != nil {
				return err
			}
		}
		p.forward(j)
	}
	return nil
}

// forward stamps j and hands it on.
func (p *pipeline) forward(j *job) {
	p.stamp(j)
	p.interns <- j
	p.commits <- j
}

// internAll gets jobs their UIDs, several at once.
func (p *pipeline) internAll(ctx context.Context) error {
	defer close(p.seals)
	if p.cfg.newResolver == nil {
		for j := range p.interns {
			p.seals <- j
		}
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for range internsInFlight {
		r := p.cfg.newResolver()
		g.Go(func() error { return p.intern(ctx, r) })
	}
	return g.Wait()
}

func (p *pipeline) intern(ctx context.Context, r resolver) error {
	for j := range p.interns {
		if len(j.batch.Events) > 0 {
			start := time.Now()
			if err := r.Resolve(ctx, &j.batch); err != nil {
				return fmt.Errorf("intern: %w", err)
			}
			p.metrics.stage.intern.Observe(time.Since(start).Seconds())
		}
		p.seals <- j
	}
	return nil
}

// stamp gives the gap, if there is one, and every event behind it their time_us.
func (p *pipeline) stamp(j *job) {
	if j.gap != nil {
		j.gap.TimeUS = p.stamper.Next()
	}
	p.stamper.StampBatch(&j.batch)
}

// commit makes sealed jobs durable in order, as many at a time as are ready.
func (p *pipeline) commit(ctx context.Context) error {
	c := committer{p: p}
	positions := time.NewTicker(maxPositionAge / 2)
	defer positions.Stop()
	for {
		select {
		case j, ok := <-p.commits:
			if !ok {
				return c.flush(true)
			}
			if err := c.gather(ctx, j); err != nil {
				return err
			}
			if err := c.flush(false); err != nil {
				return err
			}
		case <-positions.C:
			if err := c.flush(true); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// committer collects jobs for one Append.
type committer struct {
	p      *pipeline
	jobs   []*job
	blocks []*replay.Block
	idle   *replay.Block // newest block without events, not yet appended
}

// gather takes j and every job behind it that is sealed already.
func (c *committer) gather(ctx context.Context, j *job) error {
	bytes := 0
	for {
		select {
		case err := <-j.sealed:
			if err != nil {
				return fmt.Errorf("seal block: %w", err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		c.jobs = append(c.jobs, j)
		if bytes += j.block.Bytes(); len(c.jobs) == maxGroup || bytes >= c.p.cfg.appendBytes {
			return nil
		}
		select {
		case next, ok := <-c.p.commits:
			if !ok {
				return nil // the next receive sees it too
			}
			j = next
		default:
			return nil
		}
	}
}

// flush appends what was gathered. Blocks without events, which only move the position, wait for one
// with events or for the ticker (all), unless a gap must be recorded.
func (c *committer) flush(all bool) error {
	m := c.p.metrics
	for _, j := range c.jobs {
		if len(j.batch.Events) == 0 && j.gap == nil {
			c.idle = j.block
			continue
		}
		if c.idle != nil && j.gap != nil {
			c.blocks = append(c.blocks, c.idle) // the position before the gap
		}
		c.idle = nil
		c.blocks = append(c.blocks, j.block)
	}
	if all && c.idle != nil {
		c.blocks = append(c.blocks, c.idle)
		c.idle = nil
	}
	if len(c.blocks) > 0 {
		start := time.Now()
		if err := c.p.cfg.log.Append(c.blocks...); err != nil {
			return fmt.Errorf("append to the log: %w", err)
		}
		m.stage.commit.Observe(time.Since(start).Seconds())
	}
	c.p.landed(c.jobs)
	for _, j := range c.jobs {
		m.age.Observe(time.Since(j.opened).Seconds())
		m.blockEvents.Observe(float64(len(j.batch.Events)))
		if j.done != nil {
			close(j.done)
			continue
		}
		j.reset(2 * c.p.blockBytes)
		c.p.free <- j
	}
	clear(c.blocks)
	c.jobs, c.blocks = c.jobs[:0], c.blocks[:0]
	return nil
}
