package ingest

import (
	"context"
	"sync"
)

// gate lets callers through while it is open. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // non-nil while the gate is closed; set closes it
}

// wait returns once the gate is open or ctx ends.
func (g *gate) wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		closed := g.closed
		g.mu.Unlock()
		if closed == nil {
			return nil
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// set opens or closes the gate and reports whether that changed anything.
func (g *gate) set(open bool) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case open && g.closed != nil:
		close(g.closed)
		g.closed = nil
		return true
	case !open && g.closed == nil:
		g.closed = make(chan struct{})
		return true
	}
	return false
}
