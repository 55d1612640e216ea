package ingest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"millrace/consume"
)

// TestFullBlock: a block is handed on with the frame that fills it, whatever its age.
func TestFullBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frame := identityFrame(t, 1)
		p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Now: time.Now, hooks: testHooks{blockBytes: 3 * len(frame.Data)}})
		defer p.flush.Stop()
		for n, blocks := range []int{0, 0, 1, 1, 1, 2} {
			if err := p.Handle(t.Context(), frame); err != nil {
				t.Fatal(err)
			}
			if len(p.ordered) != blocks || (p.filling == nil) != (n%3 == 2) {
				t.Errorf("%d blocks after %d frames, want %d", len(p.ordered), n+1, blocks)
			}
		}
		other := identityFrame(t, 7)
		for n, epoch := range []uint32{1, 2, 2, 3} {
			other.Epoch = epoch
			if n == 2 {
				other.Gap = &consume.Gap{FromEpoch: 2, From: 7, ToEpoch: 2, To: 9}
			}
			for len(p.raws) == 0 { // as a worker gives back what it has translated
				p.releaseRaw(<-p.work)
			}
			if err := p.Handle(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			if len(p.ordered) != 2+n {
				t.Errorf("frame %d of another epoch, or behind a gap: %d blocks", n, len(p.ordered))
			}
			other.Gap = nil
		}
	})
}

// TestHandleEnds: whatever Handle waits for, it ends with its context and says why.
func TestHandleEnds(t *testing.T) {
	stopped := errors.New("stopped")
	for _, tc := range []struct {
		name      string
		large     bool
		hold      func(p *Pipeline)
		raws      int // free buffers afterwards
		handedOn  int
		mayHandle bool // the frame is taken in, as nothing is waited for
	}{
		{name: "nothing", hold: func(*Pipeline) {}, raws: rawsInFlight - 1, mayHandle: true},
		{name: "the gate", hold: func(p *Pipeline) { p.SetReading(false) }, raws: rawsInFlight},
		{name: "a buffer", hold: func(p *Pipeline) {
			for range rawsInFlight {
				<-p.raws
			}
		}},
		{name: "a job", hold: func(p *Pipeline) {
			for range jobsInFlight {
				<-p.free
			}
		}, raws: rawsInFlight},
		{name: "frames before a large one", large: true, hold: func(p *Pipeline) { <-p.raws }},
		{name: "the large frame itself", large: true, hold: func(*Pipeline) {}, handedOn: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Now: time.Now})
			defer p.flush.Stop()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(stopped) })
			tc.hold(p)
			f := identityFrame(t, 1)
			if tc.large {
				f.Data = append(f.Data, make([]byte, p.blockBytes)...)
			}
			err := p.Handle(ctx, f)
			if tc.mayHandle != (err == nil) || err != nil && !errors.Is(err, stopped) {
				t.Errorf("it waits for %s: %v", tc.name, err)
			}
			if (p.filling != nil) != tc.mayHandle || len(p.ordered) != tc.handedOn || len(p.work) != tc.handedOn {
				t.Errorf("it waits for %s: filling: %t, handed on: %d", tc.name, p.filling != nil, len(p.ordered))
			}
			if tc.raws > 0 && len(p.raws) != tc.raws {
				t.Errorf("it waits for %s: %d buffers are left, want %d", tc.name, len(p.raws), tc.raws)
			}
			cancel(nil)
		})
	}
}
