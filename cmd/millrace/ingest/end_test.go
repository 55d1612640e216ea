package ingest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"millrace/consume/relaysim/testwait"
	"millrace/replay/chain"
	"millrace/replay/references"
	"millrace/translate"
	"millrace/translate/verify"
)

type brokenResolver struct{ err error }

func (r brokenResolver) Resolve(context.Context, *translate.Batch) error { return r.err }

// brokenReferences fails to hydrate or to apply.
type brokenReferences struct{ hydrate, apply error }

func (r brokenReferences) Hydrated() uint64                                 { return 0 }
func (r brokenReferences) Hydrate(context.Context, *references.Batch) error { return r.hydrate }
func (r brokenReferences) Apply(*references.Batch) error                    { return r.apply }

// TestQuietFailure: a failure of a UID store, the reference store, sealing or the log ends the
// pipeline at once, though the relay is silent.
func TestQuietFailure(t *testing.T) {
	broken := errors.New("broken")
	for name, cfg := range map[string]Config{
		"UIDs":    {Log: &fakeLog{}, NewResolver: func() Resolver { return brokenResolver{broken} }},
		"hydrate": {Log: &fakeLog{}, NewResolver: func() Resolver { return brokenResolver{} }, References: brokenReferences{hydrate: broken}},
		"apply":   {Log: &fakeLog{}, NewResolver: func() Resolver { return brokenResolver{} }, References: brokenReferences{apply: broken}},
		"seal":    {Log: &fakeLog{sealErr: broken}},
		"append":  {Log: &fakeLog{appendErr: broken}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg.InFlightBytes = 8 << 20
				err := runPipelineWith(t, cfg, func(ctx context.Context, p *Pipeline) error {
					if err := p.Handle(ctx, identityFrame(t, 1)); err != nil {
						return err
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute):
						t.Error("it still runs a minute after the failure")
					}
					return nil
				})
				if !errors.Is(err, broken) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// slowChains takes a minute to find an account.
type slowChains struct{ Chains }

func (slowChains) Get(chain.Account) (verify.State, error) {
	testwait.Elapse(time.Minute)
	return verify.State{}, nil
}

// TestFailureWhileOrdering: when the log fails, no stage closes the channel to which order, busy
// then, may still send. Events get no UIDs.
func TestFailureWhileOrdering(t *testing.T) {
	commit := signedFrames(t, 1)[0]
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		err := runPipelineWith(t, Config{Log: &fakeLog{appendErr: broken, appendTime: 2 * time.Second}, InFlightBytes: 8 << 20,
			Verify: &Verification{Keys: simKeys{t}, Chains: slowChains{&committedChains{}}, Sample: 1}},
			func(ctx context.Context, p *Pipeline) error {
				if err := p.Handle(ctx, identityFrame(t, 1)); err != nil {
					return err
				}
				testwait.Elapse(time.Second)
				if err := p.Handle(ctx, commit); err != nil {
					return err
				}
				testwait.Elapse(2 * time.Second)
				select {
				case j := <-p.seals:
					t.Errorf("seals has, or is closed: %v", j)
				default:
				}
				return nil
			})
		if !errors.Is(err, broken) {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestStagesEndWithTheCause: whatever a stage or Handle waits for, it ends with the cause once ctx
// ends, and not before.
func TestStagesEndWithTheCause(t *testing.T) {
	cause := errors.New("another stage has failed")
	frame := identityFrame(t, 1)
	large := frame
	large.Data = make([]byte, 2<<20)
	translated := func(p *Pipeline) *job { // one of two frames is
		j := newJob()
		j.add(frame)
		j.add(frame)
		j.from, j.to, j.batch.JSON = 0, 2, []byte("{}")
		j.translated <- struct{}{}
		return j
	}
	noRoom := func(p *Pipeline) { _ = p.room.Acquire(context.Background(), int64(p.frameBytes)) }
	noRaws := func(p *Pipeline) {
		for range rawsInFlight {
			<-p.raws
		}
	}
	noJobs := func(p *Pipeline) {
		for range jobsInFlight {
			<-p.free
		}
	}
	order := func(ctx context.Context, p *Pipeline) error { return p.order(ctx) }
	hydrate := func(ctx context.Context, p *Pipeline) error { return p.hydrate(ctx) }
	commit := func(ctx context.Context, p *Pipeline) error { return p.commit(ctx) }
	for name, tc := range map[string]struct {
		prepare func(p *Pipeline)
		wait    func(ctx context.Context, p *Pipeline) error
	}{
		"worker, work":           {func(*Pipeline) {}, func(ctx context.Context, p *Pipeline) error { return p.worker(ctx) }},
		"order, a job":           {func(*Pipeline) {}, order},
		"order, its translation": {func(p *Pipeline) { p.ordered <- newJob() }, order},
		"order, room":            {func(p *Pipeline) { noRoom(p); p.ordered <- translated(p) }, order},
		"order, room for a part": {func(p *Pipeline) { noRoom(p); j := translated(p); j.to = 1; p.ordered <- j }, order},
		"order, a part":          {func(p *Pipeline) { j := translated(p); j.to = 1; p.ordered <- j }, order},
		"intern, a job":          {func(*Pipeline) {}, func(ctx context.Context, p *Pipeline) error { return p.internAll(ctx) }},
		"hydrate, a job":         {func(*Pipeline) {}, hydrate},
		"hydrate, its UIDs":      {func(p *Pipeline) { p.hydrates <- newJob() }, hydrate},
		"commit, a job":          {func(*Pipeline) {}, commit},
		"commit, its sealing":    {func(p *Pipeline) { p.commits <- newJob() }, commit},
		"handle, the gate":       {func(p *Pipeline) { p.SetReading(false) }, send(frame)},
		"handle, a buffer":       {noRaws, send(frame)},
		"handle, a job":          {noJobs, send(frame)},
		"handle large, buffers":  {noRaws, send(large)},
		"handle large, a job":    {noJobs, send(large)},
		"handle large, its end":  {func(*Pipeline) {}, send(large)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, NewResolver: func() Resolver { return brokenResolver{} }, References: brokenReferences{}})
				tc.prepare(p)
				ctx, cancel := context.WithCancelCause(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- tc.wait(ctx, p) }()
				testwait.Elapse(time.Minute)
				select {
				case err := <-ended:
					t.Fatalf("it has ended: %v", err)
				default:
				}
				cancel(cause)
				if err := <-ended; !errors.Is(err, cause) {
					t.Errorf("it ends with %v", err)
				}
				if raws := len(p.raws); name == "handle, a job" && raws != rawsInFlight {
					t.Errorf("%d buffers are left, want %d", raws, rawsInFlight)
				}
			})
		})
	}
}

// TestNoTranslator: a pipeline that can make no translator ends with its error.
func TestNoTranslator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, run := range map[string]func(context.Context, *Pipeline) error{
			"worker": func(ctx context.Context, p *Pipeline) error { return p.worker(ctx) },
			"order":  func(ctx context.Context, p *Pipeline) error { return p.order(ctx) },
		} {
			p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Collections: []string{"not an NSID"}})
			j := newJob()
			j.add(identityFrame(t, 1))
			j.translated <- struct{}{}
			if p.ordered <- j; name == "worker" {
				p.work <- j
			}
			if err := run(t.Context(), p); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
}
