package main

import (
	"context"
	"fmt"
)

// maxAloneBytes is how many bytes of frames a block may have to be worked on alone: as long as that takes
// no longer than the next one needs to fill.
const maxAloneBytes = 64 << 10

// loner takes a small block through all stages that found nothing else in flight. There is nothing to be done beside
// it, and each stage that is another goroutine would have to be woken, on another core if one is idle, which costs more
// than what it does for a few events. It belongs to the ordering stage, so that whatever comes behind keeps its place.
type loner struct {
	p        *pipeline
	resolver resolver // nil: no UIDs
	as       stageContexts
}

func newLoner(ctx context.Context, p *pipeline) *loner {
	l := &loner{p: p, as: newStageContexts(ctx)}
	if p.cfg.newResolver != nil {
		l.resolver = p.cfg.newResolver()
	}
	return l
}

// work makes j, which is translated and stamped, durable.
func (l *loner) work(ctx context.Context, j *job) error {
	p, events := l.p, len(j.batch.Events)
	if l.resolver != nil && events > 0 {
		l.as.enter(stageIntern)
		p.metrics.stages[stageIntern].queued(j)
		start := p.metrics.stages[stageIntern].started(j)
		if err := l.resolver.Resolve(ctx, &j.batch); err != nil {
			return fmt.Errorf("intern: %w", err)
		}
		p.metrics.stages[stageIntern].done(start)
	}
	p.metrics.stages[stageSeal].queued(j)
	p.seal(j, &l.as)
	if err := <-j.sealed; err != nil {
		return fmt.Errorf("seal block: %w", err)
	}
	l.as.enter(stageCommit)
	return p.committer.one(j)
}
