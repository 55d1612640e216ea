package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"millrace/consume"
	"millrace/dict"
	jetstreamv1 "millrace/dict/jetstream"
	"millrace/replay"
	"millrace/translate"
)

const (
	buildJobs     = 6       // blocks on their way at once
	buildRawBytes = 2 << 20 // of frames a block, as millrace serve's blocks at full speed
	keptFrames    = 5000    // in framesFile
	// eventStepUS is the time between two events' stamps: 1,500 a second.
	eventStepUS = 667
)

// buildJob is the frames of one block on their way into the log.
type buildJob struct {
	raw  []byte
	ends []int
	seqs []int64

	batch      translate.Batch
	block      *replay.Block
	compressed [][]byte // for the baseline: events that it gets, from the first on
	err        error
	ready      chan struct{} // one token when a parallel stage is through
}

// replayBuilder makes the log that is kept.
type replayBuilder struct {
	m        *replayManifest
	dir      string
	log      *replay.Log
	files    *countingFS
	baseline *jetstreamStore
	encoder  *zstd.Encoder
	planter  framePlanter
	kept     *os.File

	jobs    chan *buildJob // free ones
	stamped chan *buildJob // in order, on their way through the stages
	sealing chan *buildJob
	open    *buildJob
	group   *errgroup.Group

	nextUS   int64
	dids     map[string]*buildDID
	uris     []uint64 // UIDs taken from each sequence
	rng      *rand.Rand
	progress io.Writer
}

type buildDID struct {
	uid    uint64
	events int64
}

// errBuilt ends the reading of the relay.
var errBuilt = errors.New("the log has its events")

// buildReplayLog makes a log of p in dir, with the store laid out as Jetstream's beside it.
func buildReplayLog(ctx context.Context, bin replayBinaries, dir string, p replayParams, progress io.Writer) (*replayManifest, error) {
	if err := errors.Join(os.MkdirAll(dir, 0o755), removeKept(dir)); err != nil {
		return nil, err
	}
	begun := time.Now()
	b := &replayBuilder{
		m: &replayManifest{Params: p, Kinds: map[string]int64{}, Collections: map[string]int64{}, Lists: map[int]replayDIDs{},
			Baseline: replayBaselinePart{Collections: map[string]int64{}}, BuildSeconds: map[string]float64{}},
		dir: dir, files: newCountingFS(false), progress: progress,
		planter: framePlanter{frames: int(p.Events) * 4 / 5},
		jobs:    make(chan *buildJob, buildJobs), stamped: make(chan *buildJob, buildJobs), sealing: make(chan *buildJob, buildJobs),
		nextUS: time.Now().UnixMicro() - p.Events*eventStepUS,
		dids:   map[string]*buildDID{}, uris: make([]uint64, 1<<14), rng: rand.New(rand.NewPCG(p.Seed, 11)),
	}
	for range buildJobs {
		b.jobs <- &buildJob{ready: make(chan struct{}, 1)}
	}
	err := b.build(ctx, bin)
	if err != nil {
		return nil, fmt.Errorf("build the log: %w", err)
	}
	if b.m.Collections[rareCollection] != rareCollectionEvents || b.dids[rareDID] == nil || b.dids[rareDID].events != rareDIDEvents {
		return nil, fmt.Errorf("build the log: not all of the rare values are in its %d events", b.m.Events)
	}
	b.chooseDIDs()
	b.m.BuildSeconds["all"] = time.Since(begun).Seconds()
	return b.m, b.m.write(dir)
}

// build opens everything, reads the relay, and closes everything.
func (b *replayBuilder) build(ctx context.Context, bin replayBinaries) (err error) {
	dicts, err := newDictionaries()
	if err != nil {
		return err
	}
	defer dicts.Close()
	if b.encoder, err = jetstreamEncoder(dict.BuiltIn().Bytes()); err != nil {
		return err
	}
	defer b.encoder.Close()
	if b.kept, err = os.Create(filepath.Join(b.dir, framesFile)); err != nil {
		return err
	}
	if b.log, err = openReplayLog(filepath.Join(b.dir, logDirectory), dicts, b.files); err != nil {
		return errors.Join(err, b.kept.Close())
	}
	if b.baseline, err = openJetstreamStore(filepath.Join(b.dir, baseline)); err != nil {
		return errors.Join(err, b.log.Close(), b.kept.Close())
	}
	begun := time.Now()
	err = b.read(ctx, bin)
	b.m.BuildSeconds["read"] = time.Since(begun).Seconds()
	held := b.log.Range()
	b.m.Events, b.m.OldestUS, b.m.NewestUS = held.Events, held.Oldest.TimeUS, held.Newest.TimeUS
	b.m.Log.Given = held.Bytes
	return errors.Join(err, b.kept.Close(), b.settleBaseline(), b.settleLog())
}

// newDictionaries has those of millrace serve, with the same one stored.
func newDictionaries() (*dict.Registry, error) {
	v1, err := dict.Parse(jetstreamv1.Dictionary())
	if err != nil {
		return nil, err
	}
	return dict.NewRegistry(v1, dict.Shipped()...)
}

// openReplayLog opens a log with the shares of memory that millrace serve gives it by default.
func openReplayLog(dir string, dicts *dict.Registry, files *countingFS) (*replay.Log, error) {
	cfg := replay.Config{Dir: dir, Relay: noRelay, Retention: 1e5 * time.Hour, Dictionaries: dicts,
		TailBytes: 23 << 20, CacheBytes: 23 << 20, PebbleBytes: 46 << 20}
	if files != nil {
		cfg.FS = files
	}
	return replay.Open(cfg)
}

// read takes the relay's frames through the stages until the log has its events.
func (b *replayBuilder) read(ctx context.Context, bin replayBinaries) error {
	relay, url, err := bin.startRelay(ctx, "--wait-for-consumer", "--seed", fmt.Sprint(b.m.Params.Seed), "--generate", fmt.Sprint(b.m.Params.world()))
	if err != nil {
		return err
	}
	defer func() { _ = relay.stop() }()
	group, ctx := errgroup.WithContext(ctx)
	b.group = group
	client, err := consume.New(consume.Config{URL: url, Epoch: 1, Handle: b.handle})
	if err != nil {
		return err
	}
	group.Go(func() error {
		defer close(b.stamped)
		if err := client.Run(ctx); !errors.Is(err, errBuilt) {
			return errors.Join(err, ctx.Err())
		}
		return nil
	})
	group.Go(func() error { defer close(b.sealing); return b.stampAll(ctx) })
	group.Go(func() error { return b.appendAll(ctx) })
	return group.Wait()
}

// handle gathers frames into jobs.
func (b *replayBuilder) handle(ctx context.Context, f consume.Frame) error {
	if len(f.Data) == 0 {
		return nil
	}
	if b.open == nil {
		select {
		case b.open = <-b.jobs:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if b.planter.seen > 0 && b.log.Range().Events >= b.m.Params.Events {
			return errBuilt
		}
	}
	j := b.open
	frame := b.planter.plant(f.Data, f.Seq)
	if b.m.Frames < keptFrames {
		b.m.Frames++
		head := binary.LittleEndian.AppendUint32(nil, uint32(len(f.Data)))
		if _, err := b.kept.Write(append(head, f.Data...)); err != nil {
			return err
		}
	}
	j.raw = append(j.raw, frame...)
	j.ends = append(j.ends, len(j.raw))
	j.seqs = append(j.seqs, f.Seq)
	if len(j.raw) < buildRawBytes {
		return nil
	}
	b.open = nil
	b.group.Go(func() error { j.translate(); return nil })
	b.stamped <- j // it holds as many as there are
	return nil
}

// translate fills the job's batch.
func (j *buildJob) translate() {
	t, err := translate.New(translate.Config{})
	if err != nil {
		j.err = err
	} else {
		start := 0
		for _, end := range j.ends {
			t.AppendFrame(&j.batch, j.raw[start:end])
			start = end
		}
	}
	j.ready <- struct{}{}
}

// stampAll gives events their stamps and UIDs, in order, and has them sealed.
func (b *replayBuilder) stampAll(ctx context.Context) error {
	for j := range b.stamped {
		<-j.ready
		if j.err != nil {
			return j.err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.stamp(&j.batch)
		forBaseline := max(min(b.m.Params.BaselineEvents-b.m.Baseline.Events, int64(len(j.batch.Events))), 0)
		b.m.Baseline.Events += forBaseline
		b.group.Go(func() error { j.seal(b.log, b.encoder, int(forBaseline)); return nil })
		b.sealing <- j
	}
	return nil
}

// stamp also counts what is in the log. UIDs are like those of the interner's batched sequences,
// but need no store.
func (b *replayBuilder) stamp(batch *translate.Batch) {
	sequence := b.rng.IntN(len(b.uris))
	for i := range batch.Events {
		e := &batch.Events[i]
		b.nextUS += eventStepUS
		batch.Stamp(i, b.nextUS)
		d := b.dids[string(batch.DID(i))]
		if d == nil {
			n := uint64(len(b.dids))
			d = &buildDID{uid: (n*2654435761%(1<<14))<<50 | (n>>14 + 1)}
			b.dids[string(batch.DID(i))] = d
		}
		d.events++
		e.DIDUID = d.uid
		if b.m.Kinds[e.Kind.String()]++; e.Kind == translate.KindCommit {
			b.m.Collections[string(batch.Collection(i))]++
			b.uris[sequence]++
			e.URIUID = uint64(sequence)<<50 | b.uris[sequence]
		}
	}
}

// seal makes the job's block, and compresses what the baseline gets as Jetstream does.
func (j *buildJob) seal(log *replay.Log, enc *zstd.Encoder, forBaseline int) {
	j.block, j.err = log.Seal(replay.Input{Epoch: 1, FirstSeq: j.seqs[0], LastSeq: j.seqs[len(j.seqs)-1], Batch: &j.batch})
	j.compressed = j.compressed[:0]
	for i := range forBaseline {
		j.compressed = append(j.compressed, enc.EncodeAll(j.batch.Payload(i), nil))
	}
	j.ready <- struct{}{}
}

// appendAll commits blocks, in order.
func (b *replayBuilder) appendAll(ctx context.Context) error {
	printed := time.Now()
	for j := range b.sealing {
		<-j.ready
		if j.err != nil {
			return j.err
		}
		begun := time.Now()
		if err := b.log.Append(j.block); err != nil {
			return err
		}
		b.m.Log.Seconds += time.Since(begun).Seconds()
		b.m.Blocks++
		if err := b.putBaseline(j); err != nil {
			return err
		}
		*j = buildJob{raw: j.raw[:0], ends: j.ends[:0], seqs: j.seqs[:0], batch: j.batch, compressed: j.compressed, ready: j.ready}
		j.batch.Reset()
		select {
		case b.jobs <- j:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if time.Since(printed) > 5*time.Second {
			printed = time.Now()
			fmt.Fprintf(b.progress, "  %s events\n", grouped(b.log.Range().Events))
		}
	}
	return nil
}

func (b *replayBuilder) putBaseline(j *buildJob) error {
	begun := time.Now()
	part := &b.m.Baseline
	for i, compressed := range j.compressed {
		collection := string(j.batch.Collection(i))
		part.Collections[collection]++
		payload := j.batch.Payload(i)
		part.Stored.Given += int64(len(payload) + len(compressed) + 2*(16+2+len(j.batch.DID(i))+len(collection)))
		if err := b.baseline.Put(j.batch.Events[i].TimeUS, string(j.batch.DID(i)), collection, payload, compressed); err != nil {
			return err
		}
	}
	part.Stored.Seconds += time.Since(begun).Seconds()
	return nil
}

// settleBaseline lets the baseline's stores come to rest, and closes them.
func (b *replayBuilder) settleBaseline() error {
	s := b.baseline
	err := s.Flush()
	for waited := 0; err == nil && waited < 300; waited++ {
		plain, compressed := s.Metrics()
		if plain.Compact.NumInProgress+compressed.Compact.NumInProgress == 0 && waited > 5 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	plain, compressed := s.Metrics()
	stored := &b.m.Baseline.Stored
	for _, m := range []*pebble.Metrics{plain, compressed} {
		stored.Written.WAL += int64(m.WAL.BytesWritten)
		for _, level := range m.Levels {
			stored.Written.Tables += int64(level.TableBytesFlushed + level.TableBytesCompacted)
		}
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	stored.Disk, err = tableBytesIn(filepath.Join(b.dir, baseline))
	return err
}

// settleLog closes the log once it has come to rest.
func (b *replayBuilder) settleLog() error {
	restOf(b.files)
	b.m.Log.Written = b.files.written()
	if err := b.log.Close(); err != nil {
		return err
	}
	disk, err := tableBytesIn(filepath.Join(b.dir, logDirectory))
	b.m.Log.Disk = disk
	return err
}

// restOf waits until a store writes no more, for half a minute at most.
func restOf(files *countingFS) {
	last, quiet := files.written(), 0
	for range 150 {
		time.Sleep(200 * time.Millisecond)
		now := files.written()
		if quiet++; now != last {
			quiet, last = 0, now
		}
		if quiet == 5 {
			return
		}
	}
}

// chooseDIDs draws the lists of DIDs to be filtered by.
func (b *replayBuilder) chooseDIDs() {
	b.m.DIDs = int64(len(b.dids))
	all := make([]string, 0, len(b.dids))
	for d := range b.dids {
		all = append(all, d)
	}
	slices.Sort(all)
	b.rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	for _, n := range replayLists() {
		l := replayDIDs{DIDs: all[:min(n, len(all))]}
		for _, d := range l.DIDs {
			l.Events += b.dids[d].events
		}
		b.m.Lists[n] = l
	}
}

// replayLists are the lengths of the lists of DIDs.
func replayLists() []int { return []int{1000, 10_000} }
