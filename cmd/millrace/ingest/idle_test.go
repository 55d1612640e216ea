package ingest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"millrace/consume"
	"millrace/consume/relaysim/testwait"
)

// A reader that finds nothing waits, while little comes, until the filling job is old enough, and
// then it is handed on. What came meanwhile is in it. A timer does it for a reader that cannot come
// back, for blocks after large ones, and for those that become large.
func TestPipelineIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		large := identityFrame(t, 0)
		// It is dropped, but not before it is in a block.
		large.Data = append(large.Data, make([]byte, maxLowRateBytes+1)...)
		err := runPipeline(t, log, func(ctx context.Context, p *Pipeline) error {
			seq := int64(0)
			handle := func(f consume.Frame) {
				t.Helper()
				seq++
				f.Seq = seq
				if err := p.Handle(ctx, f); err != nil {
					t.Error(err)
				}
			}
			for range 3 {
				begun := time.Now()
				handle(identityFrame(t, seq+1))
				if !p.Idle() {
					t.Error("the reader should look once more")
				}
				if slept := time.Since(begun); slept < maxBlockAge || slept > maxBlockAge+time.Millisecond {
					t.Errorf("it slept %v", slept)
				}
				handle(identityFrame(t, seq+1))
				if p.inFlight() != 1 {
					t.Error("the block was handed on too early")
				}
				if p.Idle() {
					t.Error("the reader need not look again")
				}
				synctest.Wait()
				if n := p.inFlight(); n != 0 {
					t.Errorf("%d blocks in flight", n)
				}
				if p.Idle() {
					t.Error("nothing fills, and the reader should look once more")
				}
			}
			if blocks := log.blocks(); len(blocks) != 3 || blocks[2].first != 5 || blocks[2].last != 6 {
				t.Errorf("blocks %+v", blocks)
			}

			landed := func(what string) {
				t.Helper()
				testwait.Elapse(withoutIdle + time.Millisecond)
				if n := p.inFlight(); n != 0 {
					t.Errorf("%s: %d blocks in flight", what, n)
				}
			}
			handle(identityFrame(t, seq+1))
			handle(large)
			landed("a block that became large")
			handle(identityFrame(t, seq+1))
			if begun := time.Now(); p.Idle() || time.Since(begun) > 0 {
				t.Error("the reader waited behind a large block")
			}
			landed("a block behind a large one")
			handle(identityFrame(t, seq+1))
			if !p.Idle() {
				t.Error("it does not wait again behind a small block")
			}
			landed("a reader that waits, and then skips without end")
			handle(identityFrame(t, seq+1))
			landed("a reader that skips without end")
			handle(identityFrame(t, seq+1))
			p.gate.set(false)
			stuck, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_ = p.Handle(stuck, identityFrame(t, seq+1))
			landed("a reader that is kept out")
			p.gate.set(true)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// A block is sealed when its oldest frame is maxBlockAge old, whether the reader waits meanwhile or
// not.
func TestBlockAge(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		for name, wait := range map[string]func(p *Pipeline){
			"a reader that waits":   func(p *Pipeline) { p.Idle(); p.Idle() },
			"one that comes by not": func(*Pipeline) {},
		} {
			log := &fakeLog{}
			cfg := Config{Log: log, InFlightBytes: 8 << 20}
			err := runPipelineWith(t, cfg, func(ctx context.Context, p *Pipeline) error {
				begun := time.Now()
				if err := p.Handle(ctx, identityFrame(t, 1)); err != nil {
					return err
				}
				waited := make(chan struct{})
				go func() { wait(p); close(waited) }()
				testwait.Elapse(maxBlockAge - ms)
				if len(log.blocks()) > 0 {
					t.Errorf("%s: a block within %v", name, time.Since(begun))
				}
				testwait.Elapse(2 * ms)
				if len(log.blocks()) != 1 {
					t.Errorf("%s: no block after %v", name, time.Since(begun))
				}
				<-waited
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestFlushAged: the filling job is handed on when it is old enough and no more than busyJobs are
// in flight. A timer, an idle reader or the end of another job does so.
func TestFlushAged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Now: time.Now})
		defer p.flush.Stop()
		p.flushAged() // nothing fills
		fill := func(inFlight int) {
			t.Helper()
			p.began = p.began[:0]
			for range inFlight - 1 {
				p.began = append(p.began, time.Now())
			}
			if err := p.Handle(t.Context(), identityFrame(t, 1)); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, handedOn bool) {
			t.Helper()
			synctest.Wait()
			if got := len(p.ordered) == 1 && p.filling == nil; got != handedOn || len(p.work) != len(p.ordered) {
				t.Errorf("%s: handed on: %t, want %t; %d in order, %d to be translated", what, got, handedOn, len(p.ordered), len(p.work))
			}
			if handedOn && len(p.ordered) == 1 {
				j := <-p.ordered
				if <-p.work != j {
					t.Errorf("%s: another job is translated", what)
				}
				p.releaseRaw(j)
				j.reset(0)
				p.free <- j
			}
		}

		fill(busyJobs)
		p.flush.Stop()
		testwait.Elapse(maxBlockAge / 2)
		p.flushAged()
		want("too young", false)
		testwait.Elapse(maxBlockAge/2 - time.Nanosecond)
		want("still too young", false)
		testwait.Elapse(time.Nanosecond)
		want("old enough by the timer", true)

		fill(busyJobs + 1)
		testwait.Elapse(2 * maxBlockAge)
		want("old, and many in flight", false)
		if p.Idle() {
			t.Error("an idle reader looks again where many are in flight")
		}
		want("old and many in flight, with an idle reader", false)
		part := newJob()
		part.done = make(chan struct{})
		p.landed([]*job{part})
		want("one of several blocks of a job landed", false)
		p.landed([]*job{newJob()})
		want("one landed", true)

		fill(busyJobs)
		p.flush.Stop()
		testwait.Elapse(2 * maxBlockAge)
		p.landed([]*job{newJob()})
		want("one landed, and few were in flight", false)
		if p.Idle() {
			t.Error("an idle reader looks again for a job that is handed on")
		}
		want("old, with an idle reader", true)

		fill(busyJobs)
		p.flush.Stop()
		testwait.Elapse(2 * maxBlockAge)
		if p.Idle() {
			t.Error("an idle reader looks again for a job that is handed on")
		}
		want("old, with an idle reader and as many in flight as may be", true)
	})
}
