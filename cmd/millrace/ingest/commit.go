package ingest

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"millrace/replay"
)

// maxGroup is how many jobs share one sync at most.
const maxGroup = jobsInFlight

// commit makes sealed jobs durable in order, as many at a time as are ready.
func (p *Pipeline) commit(ctx context.Context) error {
	profileAs(ctx, stageCommit)
	c := &committer{p: p}
	if p.cfg.Verify != nil {
		c.chains = &heldChains{cfg: p.cfg.Verify}
	}
	positions := time.NewTicker(maxPositionAge / 2)
	defer positions.Stop()
	for {
		j := c.next // gather took it from commits before it was sealed
		if c.next = nil; j == nil {
			var ok bool
			select {
			case j, ok = <-p.commits:
				if !ok {
					return c.flush(true)
				}
			case <-positions.C:
				if err := c.flush(true); err != nil {
					return err
				}
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := c.gather(ctx, j); err != nil {
			return err
		}
		due := false
		select {
		case <-positions.C:
			due = true
		default:
		}
		if err := c.flush(due); err != nil {
			return err
		}
	}
}

// committer collects jobs for one Append. It belongs to the commit stage.
type committer struct {
	p      *Pipeline
	next   *job // taken from commits before it was sealed
	jobs   []*job
	blocks []*replay.Block
	idle   *replay.Block // newest block without events, not yet appended
	chains *heldChains   // with Config.Verify, else nil
}

// gather takes j and those jobs directly after it that are sealed already.
func (c *committer) gather(ctx context.Context, j *job) error {
	if failed, err := next(ctx, j.sealed); failed != nil || err != nil {
		return cmp.Or(failed, err)
	}
	for bytes := 0; ; {
		c.p.metrics.stages[stageCommit].started(j)
		c.jobs = append(c.jobs, j)
		for _, b := range j.blocks {
			bytes += b.Bytes()
		}
		if len(c.jobs) == maxGroup || bytes >= c.p.cfg.AppendBytes {
			return nil
		}
		select {
		case j = <-c.p.commits:
		default:
			return nil
		}
		if j == nil {
			return nil // closed; the next receive returns that too
		}
		select {
		case err := <-j.sealed:
			if err != nil {
				return err
			}
		default:
			c.next = j
			return nil
		}
	}
}

// flush appends what was gathered. Blocks without events, which only move the position, wait for
// one with events or for the ticker (all), unless a gap must be recorded.
func (c *committer) flush(all bool) error {
	m := c.p.metrics
	for _, j := range c.jobs {
		c.chains.add(j)
		if len(j.batch.Events) == 0 && j.gap == nil {
			c.idle = j.blocks[0]
			continue
		}
		if c.idle != nil && j.gap != nil {
			c.blocks = append(c.blocks, c.idle) // the position before the gap
		}
		c.idle = nil
		c.blocks = append(c.blocks, j.blocks...)
		c.chains.cover()
	}
	if (all || c.chains.full()) && c.idle != nil {
		c.blocks = append(c.blocks, c.idle)
		c.idle = nil
		c.chains.cover()
	}
	if len(c.blocks) > 0 {
		start := time.Now()
		if err := c.chains.commit(); err != nil {
			return err
		}
		if err := c.p.cfg.Log.Append(c.blocks...); err != nil {
			return fmt.Errorf("append to the log: %w", err)
		}
		m.stages[stageCommit].done(start)
		m.groupBlocks.Observe(float64(len(c.blocks)))
	}
	if c.p.cfg.References != nil {
		if err := c.p.apply(c.jobs); err != nil {
			return err
		}
	}
	c.p.landed(c.jobs)
	for _, j := range c.jobs {
		c.p.room.Release(j.room)
		j.room = 0
		m.age.Observe(time.Since(j.began).Seconds())
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
