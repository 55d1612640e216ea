package relaysim

import (
	"context"
	"sync"
	"time"
)

// dripInterval is the time between two writes of a dripping connection.
const dripInterval = 10 * time.Millisecond

// faults is what is wrong with the relay's connections at the moment. It is safe for concurrent
// use.
type faults struct {
	mu        sync.Mutex
	stallTo   time.Time // nothing is written before this time
	dripTo    time.Time // dripBytes at a time are written before this time
	dripBytes int       // in one write
}

// stall stops all writing for d.
func (f *faults) stall(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stallTo = time.Now().Add(d)
}

// drip slows all writing to bytesPerSecond for d.
func (f *faults) drip(bytesPerSecond int, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dripTo = time.Now().Add(d)
	f.dripBytes = max(1, bytesPerSecond*int(dripInterval/time.Millisecond)/1000)
}

// state returns how much may be written at now at most, and how long to wait before.
func (f *faults) state(now time.Time) (bytes int, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case now.Before(f.stallTo):
		return 0, f.stallTo.Sub(now)
	case now.Before(f.dripTo):
		return f.dripBytes, dripInterval
	}
	return writeBytes, 0
}

// shaper lets the data of one connection through as the faults allow.
type shaper struct {
	faults *faults

	mu  sync.Mutex
	cut int // bytes until the connection breaks; -1: it does not
}

// breakAfter breaks the connection after n more bytes of data, wherever in a frame that is.
func (g *shaper) breakAfter(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = n
}

// allow says how many of n bytes go through, and whether the connection breaks then.
func (g *shaper) allow(n int) (int, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut < 0 {
		return n, false
	}
	n = min(n, g.cut)
	g.cut -= n
	return n, g.cut == 0
}

// pass gives data frames to write, as much at a time and as late as the faults allow.
func (g *shaper) pass(ctx context.Context, wire []byte, write func(wire []byte) error) error {
	for len(wire) > 0 {
		n, wait := g.faults.state(time.Now())
		if wait > 0 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(wait):
			}
		}
		n, broken := g.allow(min(n, len(wire)))
		if err := write(wire[:n]); err != nil {
			return err
		}
		if broken {
			return errDisconnect
		}
		wire = wire[n:]
	}
	return nil
}
