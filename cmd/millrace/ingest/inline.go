package ingest

import (
	"context"
	"fmt"
)

// maxInlineBytes is how many bytes of frames a job may have to take the inline path: as many as are
// worked on in no longer than the next job needs to fill.
const maxInlineBytes = 64 << 10

// inlinePath takes a small job that found nothing else in flight through all stages in one
// goroutine. Each stage in another goroutine would have to be woken, which costs more than the work
// on a few events. It belongs to the ordering stage, so jobs behind it stay in order.
type inlinePath struct {
	p        *Pipeline
	resolver Resolver // nil: no UIDs
	as       stageContexts
}

func newInlinePath(ctx context.Context, p *Pipeline) *inlinePath {
	l := &inlinePath{p: p, as: newStageContexts(ctx)}
	if p.cfg.NewResolver != nil {
		l.resolver = p.cfg.NewResolver()
	}
	return l
}

// work makes j, which is translated and stamped, durable.
func (l *inlinePath) work(ctx context.Context, j *job) error {
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
