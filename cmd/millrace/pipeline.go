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
	"golang.org/x/sync/semaphore"

	"millrace/consume"
	"millrace/replay"
	"millrace/translate"
)

const (
	// maxBlockAge is how old the oldest frame of a block may be when the block is sealed, if it was not full
	// before: the price in lag of what is done once per block.
	maxBlockAge = 5 * time.Millisecond
	// maxPositionAge is how long the position may be ahead of the log when frames bring no events.
	maxPositionAge = time.Second
	// maxJobBytes is how many bytes of frames a block may have: what is done to it stays within a core's own cache, and those
	// in flight are a lag of some 30 ms at full speed, where four times that many would be 100.
	maxJobBytes = 1 << 20
	// jobsInFlight is how many blocks are between the socket and the disk at once.
	jobsInFlight = 8
	// busyJobs is how many of them are enough to keep every stage at work: while they are in flight the
	// open block stays open, however old it is, and fills.
	busyJobs = 4
	// rawsInFlight is how many blocks' frames are in memory at once: one is being filled while others are
	// translated. Behind that a job has no use for them.
	rawsInFlight = 3
	// internsInFlight is how many blocks ask for their UIDs at once. The UID store answers several about as
	// fast as one: they share its transactions and its syncs.
	internsInFlight = 4
	// maxCalmBytes is how many bytes of frames a block, and the one before it, may have for the reader to
	// sleep while it fills: so many may wait in the socket, whose buffer holds more.
	maxCalmBytes = 64 << 10
	// sleepOver makes a sleep of whole milliseconds one wait of the runtime's instead of two.
	sleepOver = 60 * time.Microsecond
	// workerShare is the part of a block that one frame's JSON may have where several are translated at once.
	// A frame of more is left to the ordering stage.
	workerShare = 4
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
	blockBytes int                 // raw bytes that close a job; of JSON, that end a block
	frameBytes int                 // of JSON that one frame may have
	room       *semaphore.Weighted // bytes of JSON, frameBytes in all, that jobs between order and the disk may have

	free    chan *job   // jobs that nobody uses
	raws    chan []byte // buffers for frames that nobody uses
	work    chan *job   // to be translated
	ordered chan *job   // the same jobs in the relay's order
	interns chan *job   // stamped, to get UIDs
	seals   chan *job   // stamped, with UIDs, to be sealed
	commits chan *job   // the same jobs in order

	gate  gate     // closed while the disk is short
	relay relayLag // how old frames are when they come

	mu       sync.Mutex
	open     *job        // being filled, nil if none
	flush    *time.Timer // dispatches open when it is as old as it may be
	calm     bool        // the reader calls Idle and little comes: it dispatches open, flush need not
	last     int         // bytes of the frames of the job that was dispatched last
	opened   []time.Time // when the first frames of jobs in flight came, oldest first
	finished bool        // no frames come any more

	stamper   *replay.Stamper // the ordering stage's own
	committer committer
}

// frameAge returns the clock less the time of the frames that came of late, as replay.FrameAge.
func (p *pipeline) frameAge() (age time.Duration, known bool) { return p.relay.age(p.cfg.now()) }

func newPipeline(cfg pipelineConfig) *pipeline {
	cfg.appendBytes = cmp.Or(cfg.appendBytes, 8<<20)
	p := &pipeline{
		cfg: cfg,
		// A job's JSON and its block come to about as much as its frames.
		// An event has 60 bytes of JSON at least: a block, a frame beyond it included, stays below replay.MaxBlockEvents.
		blockBytes: int(min(max(cfg.inFlightBytes/(rawsInFlight+jobsInFlight), 128<<10), maxJobBytes)),
		free:       make(chan *job, jobsInFlight),
		raws:       make(chan []byte, rawsInFlight),
		work:       make(chan *job, jobsInFlight),
		ordered:    make(chan *job, jobsInFlight),
		interns:    make(chan *job, jobsInFlight),
		seals:      make(chan *job, jobsInFlight),
		commits:    make(chan *job, jobsInFlight),
		stamper:    replay.NewStamper(cfg.log.Progress().TimeUS, cfg.now),
		frameBytes: int(frameJSONBytes(cfg.inFlightBytes)),
	}
	p.room = semaphore.NewWeighted(int64(p.frameBytes))
	p.metrics = newPipelineMetrics(cfg.registerer, p)
	p.committer.p, p.committer.turn = p, make(chan struct{}, 1)
	p.committer.turn <- struct{}{}
	for range jobsInFlight {
		p.free <- newJob()
	}
	for range rawsInFlight {
		p.raws <- nil // made when it is needed
	}
	p.flush = time.AfterFunc(time.Hour, p.flushAged)
	p.flush.Stop()
	return p
}

// Handle takes one frame in; consume calls it in order from one goroutine. It blocks while
// every job is in flight or the disk is short, and that is the back-pressure.
func (p *pipeline) Handle(ctx context.Context, f consume.Frame) error {
	if err := p.gate.wait(ctx, p.flushAged); err != nil { // as Idle is not called meanwhile
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
	large := len(f.Data) > p.blockBytes
	// A block is of one epoch, and a gap lies between two blocks.
	if p.open != nil && (gap != nil || large || p.open.epoch != f.Epoch) {
		p.dispatchLocked()
	}
	if large {
		return p.handleLargeLocked(ctx, f, gap)
	}
	if p.open == nil {
		if err := p.openLocked(ctx, f.Epoch, gap); err != nil {
			return err
		}
		if j := p.open; j.raw == nil {
			j.raw = make([]byte, 0, p.blockBytes+p.blockBytes/8) // the last frame goes beyond
		}
		if !p.calm {
			p.flush.Reset(maxBlockAge)
		}
	}
	p.open.add(f)
	if p.calm && len(p.open.raw) > maxCalmBytes {
		p.calm = false
		p.flush.Reset(p.open.dueIn())
	}
	if len(p.open.raw) >= p.blockBytes {
		p.dispatchLocked()
	}
	return nil
}

// openLocked makes open a job without frames. It gives mu back while it waits.
func (p *pipeline) openLocked(ctx context.Context, epoch uint32, gap *replay.Gap) error {
	j, err := p.takeLocked(ctx)
	if err != nil {
		return err
	}
	j.epoch, j.gap, j.opened = epoch, gap, time.Now()
	p.open = j
	p.opened = append(p.opened, j.opened)
	return nil
}

// Idle is consume's: everything that came was handled, and the next read would wait. While little comes it sleeps until
// the open block is to be dispatched, so that its frames are read together instead of one by one, and nobody need be
// woken to dispatch it. It returns true when it is to be looked once more whether something came.
func (p *pipeline) Idle() (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return false
	}
	// The runtime waits for whole milliseconds, and for what is left once more.
	wait := p.open.dueIn().Round(time.Millisecond)
	if wait <= 0 && len(p.opened) <= busyJobs {
		p.dispatchLocked()
	}
	if wait <= 0 {
		return false
	}
	if !p.calm {
		if max(p.last, len(p.open.raw)) > maxCalmBytes || !p.flush.Stop() {
			return false
		}
		p.calm = true
	}
	if p.last > maxCalmBytes { // more often, as the socket's buffer would be full
		nap := time.Duration(float64(maxBlockAge) * maxCalmBytes / float64(p.last))
		wait = min(wait, max(nap.Truncate(time.Millisecond), time.Millisecond))
	}
	p.mu.Unlock()
	time.Sleep(wait + sleepOver)
	p.mu.Lock()
	return true
}

// takeLocked waits for a free job and a buffer for its frames. It gives mu back while it waits.
func (p *pipeline) takeLocked(ctx context.Context) (*job, error) {
	p.mu.Unlock()
	defer p.mu.Lock()
	raw, err := take(ctx, p.raws, p.metrics.blocked)
	if err != nil {
		return nil, err
	}
	j, err := take(ctx, p.free, p.metrics.blocked)
	if err != nil {
		p.raws <- raw
		return nil, err
	}
	j.raw = raw
	return j, nil
}

// take receives from a channel and counts the time that it has to wait.
func take[T any](ctx context.Context, from <-chan T, blocked prometheus.Counter) (v T, err error) {
	select {
	case v = <-from:
		return v, nil
	default:
	}
	begun := time.Now()
	defer func() { blocked.Add(time.Since(begun).Seconds()) }()
	select {
	case v = <-from:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// releaseRaw gives the buffer back of a job whose frames are translated.
func (p *pipeline) releaseRaw(j *job) {
	raw := j.raw[:0]
	if j.borrowed {
		raw = nil
	}
	j.raw, j.borrowed = nil, false
	p.raws <- raw
}

// flushAged runs when the open job may be as old as it is to get.
func (p *pipeline) flushAged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flushAgedLocked()
}

// flushAgedLocked dispatches the open job if it is old enough and there is use for it. If there is not,
// landed calls again: so blocks grow with the load.
func (p *pipeline) flushAgedLocked() {
	if p.open == nil || len(p.opened) > busyJobs {
		return
	}
	if wait := p.open.dueIn(); wait > 0 {
		p.flush.Reset(wait)
		return
	}
	p.dispatchLocked()
}

// dispatchLocked hands the open job on.
func (p *pipeline) dispatchLocked() {
	j := p.open
	p.open = nil
	p.flush.Stop()
	p.last = len(j.raw)
	if j.alone = len(p.opened) == 1 && len(j.raw) <= maxAloneBytes; j.alone {
		p.queue(p.ordered, j, stageTranslate)
		return
	}
	p.ordered <- j
	p.queue(p.work, j, stageTranslate)
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
	busy := len(p.opened) > busyJobs
	p.opened = append(p.opened[:0], p.opened[n:]...)
	if busy {
		p.flushAgedLocked()
	}
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

// inFlight is how many blocks are open or on their way to the disk.
func (p *pipeline) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.opened)
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
	g.Go(func() error {
		profileAs(ctx, stageCommit)
		return p.commit(ctx)
	})
	return g.Wait()
}

// queue hands j to a stage. The channels hold as many jobs as exist, so it never waits.
func (p *pipeline) queue(to chan<- *job, j *job, s stage) {
	p.metrics.stages[s].queued(j)
	to <- j
}

// worker translates and seals. Sealing comes first, as it is nearer to the end.
func (p *pipeline) worker(ctx context.Context) error {
	t := p.newTranslator(min(p.blockBytes/workerShare, p.frameBytes))
	work, seals := p.work, p.seals
	as := newStageContexts(ctx)
	for work != nil || seals != nil {
		select {
		case j, ok := <-seals:
			if !ok {
				seals = nil
				continue
			}
			p.seal(j, &as)
			continue
		default:
		}
		select {
		case j, ok := <-seals:
			if !ok {
				seals = nil
				continue
			}
			p.seal(j, &as)
		case j, ok := <-work:
			if !ok {
				work = nil
				continue
			}
			as.enter(stageTranslate)
			p.metrics.stages[stageTranslate].started(j)
			if err := p.translate(j, t, false); err != nil {
				return err
			}
			if j.to == len(j.frames) {
				p.releaseRaw(j)
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
	if err := j.translate(t, p.blockBytes, whole); err != nil {
		return err
	}
	p.relay.observe(string(j.batch.Time), p.cfg.now())
	p.metrics.stages[stageTranslate].done(start)
	p.metrics.translated(&j.batch)
	return nil
}

func (p *pipeline) seal(j *job, as *stageContexts) {
	as.enter(stageSeal)
	start := p.metrics.stages[stageSeal].started(j)
	var err error
	if j.block, err = p.cfg.log.Seal(j.input()); cap(j.batch.JSON) > 2*p.blockBytes {
		j.batch.JSON = nil // its block has it all
	}
	p.metrics.stages[stageSeal].done(start)
	p.metrics.stages[stageCommit].queued(j)
	j.sealed <- err
}

// order stamps the jobs one after the other, as the relay sent them. A job whose frames come to more than
// one block is worked off a block at a time, the next translated when the one before is durable, so that
// a few frames that come to very much JSON cannot take more than their share of memory.
func (p *pipeline) order(ctx context.Context) error {
	defer close(p.commits)
	defer close(p.interns)
	t := p.newTranslator(p.frameBytes)
	l := newLoner(ctx, p)
	for {
		j, err := next(ctx, p.ordered)
		if j == nil {
			return err
		}
		if j.alone {
			l.as.enter(stageTranslate)
			p.metrics.stages[stageTranslate].started(j)
			if err := p.translate(j, t, true); err != nil {
				return err
			}
			if j.to == len(j.frames) {
				p.releaseRaw(j)
				p.stamp(j)
				if err := l.work(ctx, j); err != nil {
					return err
				}
				continue
			}
		} else {
			select {
			case <-j.translated:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		for j.to < len(j.frames) {
			if j.to > j.from {
				part := j.split()
				if err := p.forward(ctx, part); err != nil {
					return err
				}
				select {
				case <-part.done:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			if err := p.translate(j, t, true); err != nil {
				return err
			}
			if j.to == len(j.frames) {
				p.releaseRaw(j)
			}
		}
		if err := p.forward(ctx, j); err != nil {
			return err
		}
	}
}

// next returns the next job of a stage: nil once the channel is closed, or, with an error, once ctx ends. A stage
// that only waited for its channel would wait for frames when another has failed.
func next(ctx context.Context, from <-chan *job) (*job, error) {
	select {
	case j := <-from:
		return j, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// forward stamps j and hands it on, once there is room for its JSON.
func (p *pipeline) forward(ctx context.Context, j *job) error {
	j.room = int64(min(len(j.batch.JSON), p.frameBytes))
	if err := p.room.Acquire(ctx, j.room); err != nil {
		return context.Cause(ctx)
	}
	p.stamp(j)
	p.commits <- j
	if p.cfg.newResolver == nil {
		p.queue(p.seals, j, stageSeal)
		return nil
	}
	p.queue(p.interns, j, stageIntern)
	return nil
}

// internAll gets jobs their UIDs, several at once.
func (p *pipeline) internAll(ctx context.Context) error {
	defer close(p.seals)
	if p.cfg.newResolver == nil {
		<-p.interns // order hands jobs to the sealers itself, and closes this when it is through
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for range internsInFlight {
		r := p.cfg.newResolver()
		g.Go(func() error {
			profileAs(ctx, stageIntern)
			return p.intern(ctx, r)
		})
	}
	return g.Wait()
}

func (p *pipeline) intern(ctx context.Context, r resolver) error {
	for {
		j, err := next(ctx, p.interns)
		if j == nil {
			return err
		}
		start := p.metrics.stages[stageIntern].started(j)
		if len(j.batch.Events) > 0 {
			if err := r.Resolve(ctx, &j.batch); err != nil {
				return fmt.Errorf("intern: %w", err)
			}
			p.metrics.stages[stageIntern].done(start)
		}
		p.queue(p.seals, j, stageSeal)
	}
}

// stamp gives the gap, if there is one, and every event behind it their time_us.
func (p *pipeline) stamp(j *job) {
	if j.gap != nil {
		j.gap.TimeUS = p.stamper.Next()
	}
	p.stamper.StampBatch(&j.batch)
}
