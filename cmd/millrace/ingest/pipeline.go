package ingest

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"millrace/consume"
	"millrace/replay"
	"millrace/translate"
)

const (
	// maxBlockAge is how old the oldest frame of a block may be when the block is sealed, if it was
	// not full before. A longer age makes fewer blocks and more lag.
	maxBlockAge = 5 * time.Millisecond
	// withoutIdle is that age at a low rate if Idle is not called: because frames are kept out, or
	// because messages without end follow that are skipped.
	withoutIdle = 2 * maxBlockAge
	// maxPositionAge is how long the position may be ahead of the log when frames bring no events.
	maxPositionAge = time.Second
	// maxJobBytes is how many bytes of frames a block may have. A block then fits into a core's own
	// cache, and the blocks in flight are a small lag at full speed.
	maxJobBytes = 1 << 20
	// jobsInFlight is how many blocks are between the socket and the disk at once.
	jobsInFlight = 8
	// busyJobs is how many of them are enough to keep every stage at work. While they are in flight
	// the job that takes frames goes on filling, however old it is.
	busyJobs = 4
	// rawsInFlight is how many blocks' frames are in memory at once: one is being filled while
	// others are translated. Behind that a job has no use for them.
	rawsInFlight = 3
	// internsInFlight is how many blocks ask for their UIDs at once. The UID store answers several
	// about as fast as one: they share its transactions and its syncs.
	internsInFlight = 4
	// maxLowRateBytes is how many bytes of frames a block, and the one before it, may have for the
	// reader to sleep while it fills. So many may wait in the socket, whose buffer holds more.
	maxLowRateBytes = 64 << 10
	// sleepOver makes a sleep of whole milliseconds one wait of the runtime's instead of two.
	sleepOver = 60 * time.Microsecond
	// workerShare: where several frames are translated at once, the JSON of one may have a
	// workerShare-th of a block. A frame with more is left to the ordering stage.
	workerShare = 4
)

// Pipeline takes frames to the durable log: batched, translated, interned and sealed in parallel,
// stamped and committed in the relay's order.
type Pipeline struct {
	cfg        Config
	metrics    *metrics
	blockBytes int                 // raw bytes that close a job; of JSON, that end a block
	frameBytes int                 // bytes of JSON that one frame may have
	room       *semaphore.Weighted // bytes of JSON free for jobs from the ordering stage to the disk

	free    chan *job   // unused jobs
	raws    chan []byte // unused buffers for frames
	work    chan *job   // to be translated
	ordered chan *job   // the same jobs in the relay's order
	interns chan *job   // stamped, to get UIDs
	seals   chan *job   // stamped, with UIDs, to be sealed
	commits chan *job   // the same jobs in order
	// likewise, to be hydrated once they have UIDs; nil: references are off
	hydrates chan *job

	gate  gate     // closed while the disk is short
	relay relayLag // how old frames are when they come

	mu      sync.Mutex
	filling *job        // takes the next frames; nil: none
	flush   *time.Timer // dispatches filling when it is as old as it may be
	lowRate bool        // little comes: Idle dispatches filling, flush seldom has to
	last    int         // bytes of the frames of the job that was dispatched last
	began   []time.Time // when the first frames of jobs in flight came, oldest first

	stamper *replay.Stamper // the ordering stage's own
	leftOut atomic.Int64    // events whose frames failed verification
}

// FrameAge returns the clock less the time of the frames that came in the last minute, as
// replay.Config.FrameAge asks. known is false if none came.
func (p *Pipeline) FrameAge() (age time.Duration, known bool) { return p.relay.age(p.cfg.Now()) }

// New makes a pipeline. Run must run for Handle to make progress.
func New(cfg Config) (*Pipeline, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Pipeline{
		cfg: cfg,
		// A job's JSON and its block come to about as much as its frames. An event has 60 bytes of
		// JSON at least: a block, a frame beyond it included, stays below replay.MaxBlockEvents.
		blockBytes: cmp.Or(cfg.hooks.blockBytes,
			int(min(max(cfg.InFlightBytes/(rawsInFlight+jobsInFlight), 128<<10), maxJobBytes))),
		free:       make(chan *job, jobsInFlight),
		raws:       make(chan []byte, rawsInFlight),
		work:       make(chan *job, jobsInFlight),
		ordered:    make(chan *job, jobsInFlight),
		interns:    make(chan *job, jobsInFlight),
		seals:      make(chan *job, jobsInFlight),
		commits:    make(chan *job, jobsInFlight),
		stamper:    replay.NewStamper(cfg.Log.Progress().TimeUS, cfg.Now),
		frameBytes: int(FrameJSONBytes(cfg.InFlightBytes)),
	}
	if cfg.References != nil {
		p.hydrates = make(chan *job, jobsInFlight)
	}
	p.room = semaphore.NewWeighted(int64(p.frameBytes))
	p.metrics = newMetrics(cfg.Registerer, p)
	for range jobsInFlight {
		p.free <- newJob()
	}
	for range rawsInFlight {
		p.raws <- nil // made when it is needed
	}
	p.flush = time.AfterFunc(time.Hour, p.flushAged)
	p.flush.Stop()
	return p, nil
}

// Handle takes one frame in; consume calls it in order from one goroutine. It blocks while
// every job is in flight or the disk is short, and that is the back-pressure.
func (p *Pipeline) Handle(ctx context.Context, f consume.Frame) error {
	if err := p.gate.wait(ctx); err != nil {
		return err
	}
	var gap *replay.Gap
	if f.Gap != nil {
		gap = &replay.Gap{
			From: translate.Position{Stream: p.cfg.Log.StreamOfEpoch(f.Gap.FromEpoch), Seq: f.Gap.From},
			To:   translate.Position{Stream: p.cfg.Log.StreamOfEpoch(f.Gap.ToEpoch), Seq: f.Gap.To},
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	large := len(f.Data) > p.blockBytes
	// A block is of one epoch, and a gap lies between two blocks.
	if p.filling != nil && (gap != nil || large || p.filling.epoch != f.Epoch) {
		p.dispatchLocked()
	}
	if large {
		return p.handleLargeLocked(ctx, f, gap)
	}
	if p.filling == nil {
		if err := p.fillLocked(ctx, f.Epoch, gap); err != nil {
			return err
		}
		if j := p.filling; j.raw == nil {
			j.raw = make([]byte, 0, p.blockBytes+p.blockBytes/8) // the last frame goes beyond
		}
		if p.lowRate {
			p.flush.Reset(withoutIdle)
		} else {
			p.flush.Reset(maxBlockAge)
		}
	}
	p.filling.add(f)
	if p.lowRate && len(p.filling.raw) > maxLowRateBytes {
		p.lowRate = false
		p.flush.Reset(p.filling.dueIn())
	}
	if len(p.filling.raw) >= p.blockBytes {
		p.dispatchLocked()
	}
	return nil
}

// fillLocked makes filling a job without frames, once there is a free one and a buffer for its
// frames. It gives mu back while it waits.
func (p *Pipeline) fillLocked(ctx context.Context, epoch uint32, gap *replay.Gap) error {
	p.mu.Unlock()
	raw, err := take(ctx, p.raws, p.metrics.blocked)
	var j *job
	if err == nil {
		if j, err = take(ctx, p.free, p.metrics.blocked); err != nil {
			p.raws <- raw
		}
	}
	p.mu.Lock()
	if err != nil {
		return err
	}
	j.raw, j.epoch, j.gap, j.began = raw, epoch, gap, time.Now()
	p.filling = j
	p.began = append(p.began, j.began)
	return nil
}

// Idle is consume's: everything that came was handled, and the next read would wait. While little
// comes it sleeps until the filling job is due. So its frames are read together instead of one by
// one, and nothing need be woken to dispatch it. It returns true if the caller must look once more
// whether something came.
func (p *Pipeline) Idle() (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filling == nil {
		return false
	}
	// The runtime waits for whole milliseconds, and for what is left once more.
	wait := p.filling.dueIn().Round(time.Millisecond)
	if wait <= 0 && len(p.began) <= busyJobs {
		p.dispatchLocked()
	}
	if wait <= 0 {
		return false
	}
	if !p.lowRate {
		if max(p.last, len(p.filling.raw)) > maxLowRateBytes || !p.flush.Stop() {
			return false
		}
		p.lowRate = true
		p.flush.Reset(withoutIdle)
	}
	if p.last > maxLowRateBytes { // more often, as the socket's buffer would be full
		nap := time.Duration(float64(maxBlockAge) * maxLowRateBytes / float64(p.last))
		wait = min(wait, max(nap.Truncate(time.Millisecond), time.Millisecond))
	}
	p.mu.Unlock()
	time.Sleep(wait + sleepOver)
	p.mu.Lock()
	return true
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
	return next(ctx, from)
}

// releaseRaw gives the buffer back of a job whose frames are translated.
func (p *Pipeline) releaseRaw(j *job) {
	raw := j.raw[:0]
	if j.borrowed {
		raw = nil
	}
	j.raw, j.borrowed = nil, false
	p.raws <- raw
}

// flushAged runs when the filling job has its full age.
func (p *Pipeline) flushAged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flushAgedLocked()
}

// flushAgedLocked dispatches the filling job if it is old enough and there is use for it. If there
// is not, landed calls again: so blocks grow with the load.
func (p *Pipeline) flushAgedLocked() {
	if p.filling == nil || len(p.began) > busyJobs {
		return
	}
	if wait := p.filling.dueIn(); wait > 0 {
		p.flush.Reset(wait)
		return
	}
	p.dispatchLocked()
}

// dispatchLocked hands the filling job on.
func (p *Pipeline) dispatchLocked() {
	j := p.filling
	p.filling = nil
	p.flush.Stop()
	p.last = len(j.raw)
	p.ordered <- j
	p.queue(p.work, j, stageTranslate)
}

// landed notes that these jobs, the oldest in flight, are durable.
func (p *Pipeline) landed(jobs []*job) {
	n := 0
	for _, j := range jobs {
		if j.done == nil { // of a job in several blocks the last one counts
			n++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	busy := len(p.began) > busyJobs
	p.began = append(p.began[:0], p.began[n:]...)
	if busy {
		p.flushAgedLocked()
	}
}

// Lag returns the age of the oldest frame that is not durable yet, 0 if all are.
func (p *Pipeline) Lag() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.began) == 0 {
		return 0
	}
	return time.Since(p.began[0])
}

// inFlight is how many blocks are filling or on their way to the disk.
func (p *Pipeline) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.began)
}

// RelayLag returns how old frames were when they came: the median of the last minute, 0 if none
// came.
func (p *Pipeline) RelayLag() time.Duration { return p.relay.median(p.cfg.Now()) }

// SetReading lets frames in, or keeps Handle waiting, and reports whether that changed anything.
func (p *Pipeline) SetReading(on bool) (changed bool) { return p.gate.set(on) }

// Finish says that no more frames come: what is in flight drains and Run returns.
func (p *Pipeline) Finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filling != nil {
		p.dispatchLocked()
	}
	close(p.work)
	close(p.ordered)
}

// Run works until Finish was called and everything is durable, or until ctx ends.
func (p *Pipeline) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range max(2, runtime.GOMAXPROCS(0)) {
		g.Go(func() error { return p.worker(ctx) })
	}
	g.Go(func() error { return p.order(ctx) })
	if p.cfg.NewResolver != nil {
		g.Go(func() error { return p.internAll(ctx) })
	}
	if p.hydrates != nil {
		g.Go(func() error { return p.hydrate(ctx) })
	}
	g.Go(func() error { return p.commit(ctx) })
	return g.Wait()
}

// queue hands j to a stage. The channels hold as many jobs as exist, so it never waits.
func (p *Pipeline) queue(to chan<- *job, j *job, s stage) {
	p.metrics.stages[s].queued(j)
	to <- j
}

// worker translates and seals. Sealing comes first, as it is nearer to the end.
func (p *Pipeline) worker(ctx context.Context) error {
	t := p.newTranslator(min(p.blockBytes/workerShare, p.frameBytes))
	work, seals := p.work, p.seals
	for work != nil || seals != nil {
		var j *job // nil: its channel is closed
		sealing := true
		select {
		case j = <-seals:
		default:
			select {
			case j = <-seals:
			case j = <-work:
				sealing = false
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		switch {
		case j == nil && sealing:
			seals = nil
		case j == nil:
			work = nil
		case sealing:
			p.seal(ctx, j)
		default:
			profileAs(ctx, stageTranslate)
			p.metrics.stages[stageTranslate].started(j)
			if err := p.translate(j, t, false); err != nil {
				return err
			}
			j.translated <- struct{}{}
		}
	}
	return nil
}

// translate fills j's batch, as job.translate does. Once all frames are in it, it gives their
// buffer back.
func (p *Pipeline) translate(j *job, t *frameTranslator, whole bool) error {
	start := time.Now()
	if err := j.translate(t, p.blockBytes, whole); err != nil {
		return err
	}
	p.relay.observe(string(j.batch.Time), p.cfg.Now())
	p.metrics.stages[stageTranslate].done(start)
	p.metrics.translated(&j.batch)
	if j.to == len(j.frames) {
		p.releaseRaw(j)
	}
	return nil
}

func (p *Pipeline) seal(ctx context.Context, j *job) {
	profileAs(ctx, stageSeal)
	start := p.metrics.stages[stageSeal].started(j)
	var err error
	if p.cfg.References == nil {
		err = p.sealBlock(j, j.input())
	} else {
		err = p.sealReferences(j)
	}
	j.batch.Release(2 * p.blockBytes) // its blocks have it all
	p.metrics.stages[stageSeal].done(start)
	p.metrics.stages[stageCommit].queued(j)
	j.sealed <- err
}

func (p *Pipeline) sealBlock(j *job, in replay.Input) error {
	b, err := p.cfg.Log.Seal(in)
	if err != nil {
		return fmt.Errorf("seal block: %w", err)
	}
	j.blocks = append(j.blocks, b)
	return nil
}

// order stamps the jobs one after the other, as the relay sent them. A job whose frames come to
// more than one block is worked off a block at a time. The next is translated when the one before
// is durable. So a few frames with very much JSON cannot take more than their share of memory.
func (p *Pipeline) order(ctx context.Context) error {
	defer close(p.commits)
	if p.cfg.NewResolver == nil {
		defer close(p.seals)
	} else {
		defer close(p.interns)
	}
	if p.hydrates != nil {
		defer close(p.hydrates)
	}
	t := p.newTranslator(p.frameBytes)
	for {
		j, err := next(ctx, p.ordered)
		if j == nil {
			return err
		}
		if _, err := next(ctx, j.translated); err != nil {
			return err
		}
		for j.to < len(j.frames) {
			if j.to > j.from {
				first := j.split()
				if err := p.forward(ctx, first); err != nil {
					return err
				}
				if _, err := next(ctx, first.done); err != nil {
					return err
				}
			}
			if err := p.translate(j, t, true); err != nil {
				return err
			}
		}
		if err := p.forward(ctx, j); err != nil {
			return err
		}
	}
}

// next receives from a channel: the zero value once it is closed or, with an error, once ctx ends.
// A stage that only waited for its channel would wait for frames when another has failed.
func next[T any](ctx context.Context, from <-chan T) (v T, err error) {
	select {
	case v = <-from:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// forward stamps j and hands it on, once there is room for its JSON and references. A job that
// needs more takes all the room.
func (p *Pipeline) forward(ctx context.Context, j *job) error {
	if p.cfg.Verify != nil {
		if err := p.follow(j); err != nil {
			return err
		}
	}
	j.room = int64(min(j.batch.Bytes(), p.frameBytes))
	if err := p.room.Acquire(ctx, j.room); err != nil {
		return context.Cause(ctx)
	}
	if j.gap != nil {
		j.gap.TimeUS = p.stamper.Next()
	}
	p.stamper.StampBatch(&j.batch)
	p.commits <- j
	if p.hydrates != nil {
		p.hydrates <- j
	}
	if p.cfg.NewResolver == nil {
		p.queue(p.seals, j, stageSeal)
	} else {
		p.queue(p.interns, j, stageIntern)
	}
	return nil
}

// internAll gets jobs their UIDs, several at once.
func (p *Pipeline) internAll(ctx context.Context) error {
	if p.hydrates == nil {
		defer close(p.seals)
	}
	g, ctx := errgroup.WithContext(ctx)
	for range internsInFlight {
		r := p.cfg.NewResolver()
		g.Go(func() error { return p.intern(ctx, r) })
	}
	return g.Wait()
}

func (p *Pipeline) intern(ctx context.Context, r Resolver) error {
	profileAs(ctx, stageIntern)
	for {
		j, err := next(ctx, p.interns)
		if j == nil {
			return err
		}
		start := p.metrics.stages[stageIntern].started(j)
		if p.hydrates != nil {
			j.changes.batch.Since = p.cfg.References.Hydrated()
		}
		if len(j.batch.Events) > 0 {
			if err := r.Resolve(ctx, &j.batch); err != nil {
				return fmt.Errorf("intern: %w", err)
			}
			p.metrics.stages[stageIntern].done(start)
		}
		if p.hydrates == nil {
			p.queue(p.seals, j, stageSeal)
			continue
		}
		p.gatherChanges(j)
		p.metrics.stages[stageHydrate].queued(j)
		j.interned <- struct{}{}
	}
}
