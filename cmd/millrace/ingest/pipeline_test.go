package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/events"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	"github.com/ipfs/go-cid"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume"
	"millrace/consume/relaysim/testwait"
	"millrace/replay"
	"millrace/translate"
)

// fakeLog remembers what was sealed and appended, and fails or is slow on demand.
type fakeLog struct {
	sealErr    error
	appendErr  error
	appendTime time.Duration // of each Append

	mu      sync.Mutex
	sealed  map[*replay.Block]sealedInput
	appends [][]sealedInput
}

// sealedInput is what the log kept of an Input.
type sealedInput struct {
	epoch       uint32
	first, last int64
	gap         *replay.Gap
	seqs        []int64
	timeUS      []int64
	uids        []uint64
}

func (l *fakeLog) Progress() replay.Progress               { return replay.Progress{Epoch: 1} }
func (l *fakeLog) StreamOfEpoch(e uint32) translate.Stream { return translate.Stream(e) }

func (l *fakeLog) SourceNumber([]byte) (uint32, bool) { return 1, true }

func (l *fakeLog) Seal(in replay.Input) (*replay.Block, error) {
	if l.sealErr != nil {
		return nil, l.sealErr
	}
	s := sealedInput{epoch: in.Epoch, first: in.FirstSeq, last: in.LastSeq, gap: in.Gap}
	for i := range in.Batch.Events {
		s.seqs = append(s.seqs, in.Batch.Events[i].Seq)
		s.timeUS = append(s.timeUS, in.Batch.Events[i].TimeUS)
		s.uids = append(s.uids, in.Batch.Events[i].DIDUID)
	}
	b := &replay.Block{}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sealed == nil {
		l.sealed = map[*replay.Block]sealedInput{}
	}
	l.sealed[b] = s
	return b, nil
}

func (l *fakeLog) Append(blocks ...*replay.Block) error {
	time.Sleep(l.appendTime)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.appendErr != nil {
		return l.appendErr
	}
	var group []sealedInput
	for _, b := range blocks {
		group = append(group, l.sealed[b])
	}
	l.appends = append(l.appends, group)
	return nil
}

// blocks returns everything appended, in order.
func (l *fakeLog) blocks() []sealedInput {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []sealedInput
	for _, group := range l.appends {
		all = append(all, group...)
	}
	return all
}

// identityFrame is a frame of one event; emptyFrame is one of none.
func identityFrame(t testing.TB, seq int64) consume.Frame {
	return frameOf(t, seq, "#identity", &comatproto.SyncSubscribeRepos_Identity{
		Did: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Seq: seq, Time: "2026-11-20T00:00:00Z",
	})
}

func emptyFrame(t testing.TB, seq int64) consume.Frame {
	return frameOf(t, seq, "#commit", &comatproto.SyncSubscribeRepos_Commit{
		Repo: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Rev: "3k4duaz5vfs2b", Seq: seq, Time: "2026-11-20T00:00:00Z",
		TooBig: true, Blocks: []byte{}, Blobs: []lexutil.LexLink{}, Commit: linkOf(t, nil).link,
	})
}

func frameOf(t testing.TB, seq int64, typ string, body interface {
	MarshalCBOR(w io.Writer) error
}) consume.Frame {
	t.Helper()
	var buf bytes.Buffer
	header := events.EventHeader{Op: events.EvtKindMessage, MsgType: typ}
	if err := errors.Join(header.MarshalCBOR(&buf), body.MarshalCBOR(&buf)); err != nil {
		t.Fatal(err)
	}
	return consume.Frame{Epoch: 1, Seq: seq, Type: typ, Data: buf.Bytes()}
}

func newPipeline(t *testing.T, cfg Config) *Pipeline {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runPipeline runs a pipeline over log in a bubble of its own, feeds it, and returns Run's error.
func runPipeline(t *testing.T, log *fakeLog, feed func(ctx context.Context, p *Pipeline) error) error {
	t.Helper()
	return runPipelineWith(t, Config{Log: log, InFlightBytes: 8 << 20}, feed)
}

func runPipelineWith(t *testing.T, cfg Config, feed func(ctx context.Context, p *Pipeline) error) error {
	t.Helper()
	cfg.Now, cfg.Logger = time.Now, slog.New(slog.DiscardHandler)
	p := newPipeline(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel() // as the daemon stops reading when the pipeline has ended
		ended <- p.Run(ctx)
	}()
	if err := feed(ctx, p); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	p.Finish()
	err := <-ended
	if err == nil && !p.room.TryAcquire(int64(p.frameBytes)) {
		t.Error("jobs that are durable have kept room")
	}
	return err
}

// send returns what gives a pipeline these frames.
func send(frames ...consume.Frame) func(ctx context.Context, p *Pipeline) error {
	return func(ctx context.Context, p *Pipeline) error {
		for _, f := range frames {
			if err := p.Handle(ctx, f); err != nil {
				return err
			}
		}
		return nil
	}
}

// A block is sealed when its oldest frame is five milliseconds old, ends with a frame, and follows
// the one before it. Nothing is lost at the end.
func TestPipelineBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		err := runPipeline(t, log, func(ctx context.Context, p *Pipeline) error {
			for seq := int64(1); seq <= 20; seq++ {
				if err := p.Handle(ctx, identityFrame(t, seq)); err != nil {
					return err
				}
				testwait.Elapse(2 * time.Millisecond)
			}
			if lag := p.Lag(); lag > maxBlockAge {
				t.Errorf("the oldest frame is %v old", lag)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		next, lastUS := int64(1), int64(0)
		for i, b := range log.blocks() {
			if b.first != next || b.last < b.first || len(b.seqs) != int(b.last-b.first+1) || len(b.seqs) > 3 {
				t.Fatalf("block %d holds %d to %d, want it from %d on, three frames at most", i, b.first, b.last, next)
			}
			for _, us := range b.timeUS {
				if us <= lastUS {
					t.Fatalf("block %d: time_us %d after %d", i, us, lastUS)
				}
				lastUS = us
			}
			next = b.last + 1
		}
		if next != 21 {
			t.Errorf("the log ends before frame %d, want 21", next)
		}
	})
}

// Frames without events move the position once a second; a gap among them is recorded at its place.
func TestPipelinePositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		err := runPipeline(t, log, func(ctx context.Context, p *Pipeline) error {
			for seq := int64(1); seq <= 1030; seq++ { // four seconds and a bit
				f := emptyFrame(t, seq)
				if seq%300 == 0 || seq == 1030 {
					testwait.Elapse(20 * time.Millisecond) // so that it has its own block
					f = identityFrame(t, seq)
				}
				if seq == 200 {
					f.Gap = &consume.Gap{FromEpoch: 1, From: 150, ToEpoch: 1, To: 200}
				}
				if err := p.Handle(ctx, f); err != nil {
					return err
				}
				testwait.Elapse(4 * time.Millisecond)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		blocks := log.blocks()
		if n := len(blocks); n < 8 || n > 16 {
			t.Errorf("%d positions committed in four seconds", n)
		}
		if last := blocks[len(blocks)-1].last; last != 1030 {
			t.Errorf("the position is %d, want 1030", last)
		}
		gaps := 0
		for i, b := range blocks {
			if i > 0 && b.last <= blocks[i-1].last {
				t.Errorf("block %d ends at %d, the one before it at %d", i, b.last, blocks[i-1].last)
			}
			if b.gap == nil {
				continue
			}
			gaps++
			if b.first != 200 || b.gap.To.Seq != 200 || b.gap.TimeUS == 0 || i == 0 || blocks[i-1].last != 199 {
				t.Errorf("the gap %+v is in block %d, which begins at %d", b.gap, i, b.first)
			}
		}
		if gaps != 1 {
			t.Errorf("%d gaps, want 1", gaps)
		}
	})
}

// An epoch never shares a block with another.
func TestPipelineEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		frames := make([]consume.Frame, 10)
		for i := range frames {
			frames[i] = identityFrame(t, int64(i+1))
			frames[i].Epoch = uint32(1 + (i+1)/6)
		}
		if err := runPipeline(t, log, send(frames...)); err != nil {
			t.Fatal(err)
		}
		if b := log.blocks(); len(b) != 2 || b[0].last != 5 || b[1].epoch != 2 || b[1].first != 6 {
			t.Errorf("blocks %+v, want one an epoch", b)
		}
	})
}

// While the log is slow a fixed number of jobs is in flight and Handle waits; then all goes on.
// Blocks that age meanwhile grow instead of becoming more.
func TestPipelineBackPressure(t *testing.T) {
	const frames = 100
	for name, blockBytes := range map[string]int{"full": 1, "aged": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, most := &fakeLog{appendTime: time.Second}, 0
				cfg := Config{Log: log, InFlightBytes: 8 << 20, hooks: testHooks{blockBytes: blockBytes}}
				err := runPipelineWith(t, cfg, func(ctx context.Context, p *Pipeline) error {
					for seq := int64(1); seq <= frames; seq++ {
						if err := p.Handle(ctx, identityFrame(t, seq)); err != nil {
							return err
						}
						most = max(most, p.inFlight())
						testwait.Elapse(20 * time.Millisecond) // older than a block may get
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				events, groups, largest := 0, 0, 0
				for _, g := range log.appends {
					groups = max(groups, len(g))
				}
				for _, b := range log.blocks() {
					events += len(b.seqs)
					largest = max(largest, len(b.seqs))
				}
				blocks := len(log.blocks())
				if events != frames || groups < 2 {
					t.Errorf("%d events, at most %d blocks a sync; want %d, and several a sync", events, groups, frames)
				}
				if full := blockBytes == 1; full && (blocks != frames || most != jobsInFlight) {
					t.Errorf("%d blocks, %d in flight at most; want a block a frame and %d in flight", blocks, most, jobsInFlight)
				} else if !full && (largest < 40 || most > busyJobs+1) {
					t.Errorf("the largest block has %d frames, %d were in flight; want a second's worth and %d", largest, most, busyJobs+1)
				}
			})
		})
	}
}

// slowResolver gives UIDs after a while, later for earlier calls.
type slowResolver struct {
	mu    *sync.Mutex
	calls *int
	fail  error
}

func (r slowResolver) Resolve(ctx context.Context, b *translate.Batch) error {
	r.mu.Lock()
	*r.calls++
	wait := time.Duration(100-*r.calls%4*20) * time.Millisecond
	r.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	for i := range b.Events {
		b.Events[i].DIDUID = uint64(b.Events[i].Seq)
	}
	return r.fail
}

// Blocks that get their UIDs out of order are committed in order, each with its own. A UID store
// that fails for good stops the pipeline.
func TestPipelineInterns(t *testing.T) {
	for _, fail := range []error{nil, errors.New("the store is damaged")} {
		synctest.Test(t, func(t *testing.T) {
			log := &fakeLog{}
			slow := slowResolver{&sync.Mutex{}, new(int), fail}
			cfg := Config{
				Log: log, InFlightBytes: 8 << 20,
				NewResolver: func() Resolver { return slow },
				hooks:       testHooks{blockBytes: 1}, // a job each
			}
			err := runPipelineWith(t, cfg, func(ctx context.Context, p *Pipeline) error {
				for seq := int64(1); seq <= 40; seq++ {
					if err := p.Handle(ctx, identityFrame(t, seq)); err != nil {
						return err
					}
					testwait.Elapse(10 * time.Millisecond)
				}
				return nil
			})
			if fail != nil {
				if !errors.Is(err, fail) {
					t.Errorf("Run returned %v, want %v", err, fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			blocks := log.blocks()
			for i, b := range blocks {
				if b.first != int64(i+1) || len(b.uids) != 1 || b.uids[0] != uint64(i+1) {
					t.Fatalf("block %d begins at %d and has the UIDs %v", i, b.first, b.uids)
				}
			}
			if len(blocks) != 40 {
				t.Errorf("%d blocks, want 40", len(blocks))
			}
		})
	}
}

// A log that fails, at sealing or at appending, stops the pipeline with its error.
func TestPipelineFailures(t *testing.T) {
	for name, log := range map[string]*fakeLog{
		"seal":   {sealErr: errors.New("no encoder")},
		"append": {appendErr: errors.New("sync failed")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := runPipeline(t, log, send(identityFrame(t, 1)))
				if want := errors.Join(log.sealErr, log.appendErr); err == nil || !errors.Is(err, log.sealErr) && !errors.Is(err, log.appendErr) {
					t.Errorf("Run returned %v, want %v", err, want)
				}
			})
		})
	}
}

// Handle gives up when its context ends, also at a closed gate.
func TestPipelineGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		err := runPipeline(t, log, func(ctx context.Context, p *Pipeline) error {
			p.gate.set(false)
			limited, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := p.Handle(limited, identityFrame(t, 1)); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("through a closed gate: %w", err)
			}
			p.gate.set(true)
			return p.Handle(ctx, identityFrame(t, 2))
		})
		if err != nil {
			t.Fatal(err)
		}
		if b := log.blocks(); len(b) != 1 || b[0].first != 2 {
			t.Errorf("blocks %+v, want frame 2 alone", b)
		}
	})
}

// panicky is a translator with a bug: it panics in the middle of every second frame, and is of no
// use from then on.
type panicky struct {
	translator
	calls  *int
	broken bool
}

func (p *panicky) AppendFrame(dst *translate.Batch, frame []byte) {
	if p.broken {
		return
	}
	p.translator.AppendFrame(dst, frame)
	if *p.calls++; *p.calls%2 == 0 {
		p.broken = true
		dst.References = append(dst.References, translate.Reference{})
		panic("index out of range")
	}
}

// A frame on which translate panics is dropped whole, all its neighbours are kept.
func TestTranslatePanics(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20, Registerer: reg})
	ft, calls := p.newTranslator(0), 0
	sound := ft.make
	ft.make = func() (translator, error) {
		real, err := sound()
		return &panicky{translator: real, calls: &calls}, err
	}
	j := newJob()
	for seq := int64(1); seq <= 7; seq++ {
		j.add(identityFrame(t, seq))
	}
	if err := j.translate(ft, p.blockBytes, true); err != nil {
		t.Fatal(err)
	}
	var seqs []int64
	size := 0
	for i, e := range j.batch.Events {
		seqs = append(seqs, e.Seq)
		size += len(j.batch.Payload(i))
	}
	if fmt.Sprint(seqs) != "[1 3 5 7]" || len(j.batch.References) > 0 || len(j.batch.JSON) != size || j.batch.Counts.Events[translate.EventIdentity] != 4 {
		t.Errorf("frames %v are kept, %d counted", seqs, j.batch.Counts.Events[translate.EventIdentity])
	}
	if n := gather(t, reg)["millrace_translate_panics_total"]; n != 3 {
		t.Errorf("%v panics are counted, want 3", n)
	}
}

// deletesFrame is a small frame of n events.
func deletesFrame(t testing.TB, seq int64, n int) consume.Frame {
	ops := make([]*comatproto.SyncSubscribeRepos_RepoOp, n)
	for i := range ops {
		ops[i] = &comatproto.SyncSubscribeRepos_RepoOp{Action: "delete", Path: "a.b.c/x"}
	}
	return frameOf(t, seq, "#commit", &comatproto.SyncSubscribeRepos_Commit{
		Repo: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Rev: "3k4duaz5vfs2b", Seq: seq, Time: "2026-11-20T00:00:00Z",
		Ops: ops, Blobs: []lexutil.LexLink{}, Blocks: []byte{}, Commit: lexutil.LexLink(testCID(t)),
	})
}

func testCID(t testing.TB) cid.Cid {
	c, err := cid.Decode("bafyreiguce4jh7kcbmof3pmcvasifqtw24b6isakj5ve5ga2b4z4alpc4i")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Frames that come to much JSON make several blocks out of one job, and at no time more than one
// such block is in flight. Their neighbours come before and after them as they should.
func TestPipelineHostileBursts(t *testing.T) {
	for _, inFlightBytes := range []int64{
		8 << 20, // one frame of 1,023 deletes comes to more JSON than a worker may make of it
		1 << 30, // several come to more than a block may
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &fakeLog{}
			counts := slices.Concat([]int{1}, slices.Repeat([]int{1023}, 30), []int{1, 1023, 1000, 2})
			frames := make([]consume.Frame, len(counts))
			for i, n := range counts {
				frames[i] = deletesFrame(t, int64(i+1), n)
			}
			frames[1].Gap = &consume.Gap{FromEpoch: 1, ToEpoch: 1, From: 1, To: 2}
			if err := runPipelineWith(t, Config{Log: log, InFlightBytes: inFlightBytes}, send(frames...)); err != nil {
				t.Fatal(err)
			}
			perSeq, next := make([]int, len(counts)+1), int64(1)
			for i, b := range log.blocks() {
				if b.first != next || len(b.seqs) > 7*translate.MaxOps {
					t.Fatalf("block %d begins at frame %d with %d events, want it to begin at %d", i, b.first, len(b.seqs), next)
				}
				next = b.last + 1
				if gap := b.gap != nil; gap != (b.first == 2) {
					t.Errorf("the block that begins at frame %d has a gap: %v; it lies before frame 2", b.first, gap)
				}
				for _, seq := range b.seqs {
					perSeq[seq]++
				}
			}
			for i, n := range counts {
				if perSeq[i+1] != n {
					t.Errorf("frame %d gave %d events, want %d", i+1, perSeq[i+1], n)
				}
			}
			if int(next) != len(counts)+1 {
				t.Errorf("the log ends before frame %d", next)
			}
		})
	}
}
