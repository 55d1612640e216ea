package identity

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"golang.org/x/time/rate"
)

const (
	// maxQueue bounds the jobs that wait for each kind of worker. What comes while a queue is full
	// is dropped: the next call of Key for the account tries again.
	maxQueue = 4096
	// maxDID bounds the DIDs that are fetched: a did:plc has 32 bytes, a host name 253.
	maxDID = len("did:web:") + 253
	// plcRate bounds the requests a second to the PLC directory.
	plcRate = 100
)

// job is an account to be fetched. Directory.mu guards what changes.
type job struct {
	uid, check uint64
	did        string
	begun      bool
	outdated   bool // Changed was called after the fetch began
}

// outcome is how a fetch has ended.
type outcome uint8

const (
	found    outcome = iota // there is a key
	absent                  // there is no key
	failed                  // it is not known
	outdated                // Changed was called meanwhile: the result is not used

	numOutcomes
)

// result is what a job gives.
type result struct {
	outcome outcome
	key     atcrypto.PublicKey // nil unless found
}

// fetcher does the jobs with a fixed number of workers. did:web, whose hosts anybody may run and
// make slow, has workers of its own.
type fetcher struct {
	d        *Directory
	resolver *resolver
	plc, web chan *job
	limit    *rate.Limiter
	ready    chan struct{} // closed when the PLC directory can be asked: the export is read

	cancel context.CancelFunc
	wg     sync.WaitGroup // of the workers and prepare

	mu    sync.Mutex
	pause pause
}

func newFetcher(d *Directory, e *export) *fetcher {
	c := &d.cfg
	f := &fetcher{
		d: d, resolver: newResolver(c, d.cache.store, e),
		plc: make(chan *job, c.hooks.queue), web: make(chan *job, c.hooks.queue),
		limit: rate.NewLimiter(plcRate, plcRate), ready: make(chan struct{}),
	}
	if e != nil {
		f.limit.SetLimit(rate.Inf)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.wg.Go(func() { f.prepare(ctx, e) })
	for range c.hooks.concurrency {
		f.wg.Go(func() { f.workPLC(ctx) })
		f.wg.Go(func() { f.workWeb(ctx) })
	}
	return f
}

// stop ends all work and waits for it.
func (f *fetcher) stop() {
	f.cancel()
	f.wg.Wait()
	f.resolver.close()
}

// queueOf returns where jobs for a DID go, nil if it can have no key.
func (f *fetcher) queueOf(did string) chan<- *job {
	switch {
	case len(did) > maxDID:
		return nil
	case strings.HasPrefix(did, "did:plc:"):
		return f.plc
	case strings.HasPrefix(did, "did:web:"):
		return f.web
	}
	return nil
}

// prepare reads the export, if that has yet to be done. Until then jobs wait. If it cannot be read
// they wait for ever.
func (f *fetcher) prepare(ctx context.Context, e *export) {
	switch err := e.load(ctx, f.d.cache.store, f.d.cfg.source(e), f.d.cfg.Logger); {
	case err == nil:
		close(f.ready)
	case ctx.Err() == nil:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.pause.failures++
		f.d.cfg.Logger.Error("the PLC export cannot be used: no did:plc gets a key until a start with another --plc-export, or with --plc", "err", err)
	}
}

func (f *fetcher) workWeb(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-f.web:
			_ = f.do(ctx, j) // it is the account's
		}
	}
}

func (f *fetcher) workPLC(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-f.ready:
	}
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-f.plc:
			if f.wait(ctx) {
				f.observe(ctx, f.do(ctx, j))
			}
		}
	}
}

// do does a job. The error is that of the fetch.
func (f *fetcher) do(ctx context.Context, j *job) error {
	f.d.begin(j)
	began := time.Now()
	r := result{}
	key, err := f.resolver.resolve(ctx, j.did)
	switch {
	case err == nil:
		r.key = key
	case isAbsent(err):
		r.outcome = absent
	default:
		r.outcome = failed
	}
	f.d.metrics.fetchSeconds.Observe(time.Since(began).Seconds())
	f.d.finish(j, r)
	f.d.cfg.hooks.finished(j.did)
	return err
}

// wait waits until the PLC directory may be asked, and its rate allows it; false: ctx has ended.
func (f *fetcher) wait(ctx context.Context) bool {
	for {
		f.mu.Lock()
		left := time.Until(f.pause.until)
		f.mu.Unlock()
		if left <= 0 {
			return f.limit.Wait(ctx) == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(left):
		}
	}
}

// observe takes the error of a fetch from the PLC directory into account, unless ctx has ended it.
// What is logged of it is without the URL, which has a DID.
func (f *fetcher) observe(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.pause.failures
	f.pause.observe(time.Now(), err)
	var s *serverError
	switch {
	case before == 0 && errors.As(err, &s):
		f.d.cfg.Logger.Warn("the PLC directory fails; it is asked again after a while", "err", s.err)
	case before > 0 && f.pause.failures == 0:
		f.d.cfg.Logger.Info("the PLC directory answers again")
	}
}

// paused says whether the PLC directory is not being asked, as it has failed.
func (f *fetcher) paused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pause.failures > 0
}
