package relaysim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Limits of one batch, so that commands and consumers are not kept waiting.
const (
	batchFrames = 256
	batchBytes  = 256 << 10
)

// maxBehind bounds how much a rated producer catches up after it could not run.
const maxBehind = time.Second

// numbering is one unbroken run of sequence numbers with the messages that are left of it.
type numbering struct {
	epoch uint32
	seq   int64 // the newest number given
	win   *window
}

// producer numbers the messages and puts them into the window.
type producer struct {
	cfg      Config
	traffic  *traffic
	hostile  *hostileMix // nil: none
	truth    *truthFile  // nil: none
	commands chan func()
	current  atomic.Pointer[numbering] // now, for those outside of run; they leave seq alone
	made     atomic.Int64              // messages so far
	shown    atomic.Int64              // of them, those that are in the truth file and in the window

	// Owned by run:
	now     *numbering
	old     *numbering // the one before
	epochs  uint32     // numberings so far
	batch   batch
	due     time.Time // when the next frame is due, with a rate
	burst   int64     // frames that are due at once
	stalled time.Time // nothing is produced before
	started bool
}

// newProducer makes a producer that begins with the number cfg.FirstSeq.
func newProducer(cfg Config, t *traffic, h *hostileMix, truth *truthFile) *producer {
	p := &producer{cfg: cfg, traffic: t, hostile: h, truth: truth, commands: make(chan func())}
	p.begin(cfg.FirstSeq - 1)
	return p
}

// begin starts a numbering after seq.
func (p *producer) begin(seq int64) {
	p.now = &numbering{epoch: p.epochs, seq: seq, win: newWindow(seq, p.cfg.WindowFrames, p.cfg.WindowBytes)}
	p.epochs++
	p.current.Store(p.now)
}

// do runs f between two frames, in the producer's goroutine, and returns its error.
func (p *producer) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case p.commands <- func() { done <- f() }:
		return <-done
	case <-ctx.Done():
		return errors.New("the producer has stopped")
	}
}

// run produces until ctx ends, or the truth file fails.
func (p *producer) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	p.due = time.Now()
	for {
		n, wait := p.allowed(time.Now())
		if n > 0 {
			made, err := p.produce(n)
			if err != nil {
				return err
			}
			p.spend(made)
			wait = 0
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case f := <-p.commands:
			f()
		case <-p.now.win.moved:
		case <-timer.C:
		}
	}
}

// allowed says how many frames may be produced now and, if that is none, when to ask again at
// the latest.
func (p *producer) allowed(now time.Time) (frames int64, wait time.Duration) {
	const idle = time.Minute
	left := int64(batchFrames)
	if p.cfg.Frames > 0 {
		left = min(left, p.cfg.Frames-p.made.Load())
	}
	if left <= 0 || p.traffic.done() {
		return 0, idle
	}
	if wait := p.stalled.Sub(now); wait > 0 {
		p.due = p.stalled
		return 0, wait
	}
	lead, leadBytes, joined := p.now.win.lead()
	if !p.started && p.cfg.WaitForConsumer && joined == 0 {
		p.due = now
		return 0, idle
	}
	p.started = true
	if p.burst > 0 {
		return min(left, p.burst), 0
	}
	if p.cfg.Rate > 0 {
		return p.rated(now, left)
	}
	if lead >= p.cfg.WindowFrames/2 || leadBytes >= p.cfg.WindowBytes/2 {
		return 0, idle
	}
	return min(left, p.cfg.WindowFrames/2-lead), 0
}

// rated says how many frames are due.
func (p *producer) rated(now time.Time, left int64) (frames int64, wait time.Duration) {
	if p.due.Before(now.Add(-maxBehind)) {
		p.due = now.Add(-maxBehind)
	}
	if wait := p.due.Sub(now); wait > 0 {
		return 0, wait
	}
	return min(left, 1+int64(now.Sub(p.due).Seconds()*p.cfg.Rate)), 0
}

// spend takes frames that were made off what is due.
func (p *producer) spend(made int64) {
	switch {
	case p.burst > 0:
		p.burst -= made
	case p.cfg.Rate > 0:
		p.due = p.due.Add(time.Duration(float64(made) / p.cfg.Rate * float64(time.Second)))
	}
}

// produce makes up to n messages, publishes them, and says how many there were.
func (p *producer) produce(n int64) (made int64, err error) {
	p.batch.reset()
	for made < n && len(p.batch.wire) < batchBytes && !p.traffic.done() {
		p.one()
		made++
	}
	return made, p.flush()
}

// one adds one message to the batch.
func (p *producer) one() {
	if h := p.hostile; h != nil && h.isDue() {
		p.now.seq = h.append(&p.batch, h.nextKind(), p.now.epoch, p.now.seq)
	} else {
		p.traffic.append(&p.batch, p.now.epoch, p.now.seq+1)
		p.now.seq = max(p.now.seq, p.batch.entries[len(p.batch.entries)-1].seq)
	}
	p.made.Add(1)
}

// flush writes the batch's truth, then shows its messages to the consumers.
func (p *producer) flush() error {
	if len(p.batch.entries) == 0 {
		return nil
	}
	if err := p.truth.write(p.batch.truth); err != nil {
		return err
	}
	p.now.win.publish(&p.batch)
	p.shown.Store(p.made.Load())
	p.batch.reset()
	return nil
}

// renumber begins a new numbering after seq, and ends all connections. The old one is kept for
// comeback.
func (p *producer) renumber(seq int64) {
	old := p.now
	p.begin(seq)
	p.old = old
	old.win.close(errRenumbering)
	p.cfg.Logger.Info("numbering began anew", "epoch", p.now.epoch, "old_seq", old.seq, "seq", seq)
}

// comeback returns to the numbering before this one, as a host does that was away for a while.
func (p *producer) comeback() error {
	if p.old == nil {
		return errors.New("there is no older numbering to come back to")
	}
	p.now, p.old = p.old, p.now
	p.now.win.reopen()
	p.current.Store(p.now)
	p.old.win.close(errRenumbering)
	p.cfg.Logger.Info("old numbering came back", "epoch", p.now.epoch, "seq", p.now.seq)
	return nil
}

// repeat sends the newest n messages of the window again, under their old numbers.
func (p *producer) repeat(n int64) (int, error) {
	messages := p.now.win.newest(n)
	p.batch.reset()
	for _, m := range messages {
		p.batch.wire = append(p.batch.wire, m...)
		p.batch.entries = append(p.batch.entries, entry{end: len(p.batch.wire)})
	}
	return len(messages), p.flush()
}

// inject sends one hostile message now.
func (p *producer) inject(kind *hostileKind) error {
	p.batch.reset()
	p.now.seq = p.hostile.append(&p.batch, kind, p.now.epoch, p.now.seq)
	p.made.Add(1)
	if err := p.flush(); err != nil {
		return fmt.Errorf("inject %s: %w", kind.name, err)
	}
	return nil
}
