package ingest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"millrace/consume"
	"millrace/replay/references"
	"millrace/translate"
)

// TestEndWithoutUIDs: without a UID store the ordering stage may hand a job to the sealers although
// the pipeline is to end by now.
func TestEndWithoutUIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Now: time.Now})
		ctx, cancel := context.WithCancel(context.Background())
		if err := p.Handle(ctx, consume.Frame{Epoch: 1, Seq: 1}); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		p.dispatchLocked()
		p.mu.Unlock()
		j := <-p.ordered
		cancel()
		ended := make(chan error, 1)
		go func() { ended <- p.internAll(ctx) }()
		synctest.Wait()
		_ = p.forward(context.Background(), j) // panics if the sealers' channel is closed
		close(p.interns)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

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
