package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"millrace/consume"
	"millrace/dict"
	jetstreamv1 "millrace/dict/jetstream"
	"millrace/replay"
	"millrace/translate"
)

const (
	buildRawBytes = 2 << 20 // of frames a block, as millrace serve's blocks at full speed
	// eventStepUS is the time between two events' stamps: 1,500 a second.
	eventStepUS = 667
)

// replayBuilder makes the log that is kept. One goroutine uses it.
type replayBuilder struct {
	progress
	m          *replayManifest
	dir        string
	log        *replay.Log
	baseline   *jetstreamStore
	encoder    *zstd.Encoder
	injector   frameInjector
	translator *translate.Translator

	batch    translate.Batch // of the block that is being made
	raw      int             // bytes of its frames
	firstSeq int64

	nextUS int64
	dids   map[string]*buildDID
	uris   []uint64 // UIDs taken from each sequence
	rng    *rand.Rand
}

type buildDID struct {
	uid    uint64
	events int64
}

// errBuilt ends the reading of the relay.
var errBuilt = errors.New("the log has its events")

// buildReplayLog makes a log of p in dir, with the store laid out as Jetstream's beside it.
func buildReplayLog(ctx context.Context, relaysim, dir string, p replayParams) (*replayManifest, error) {
	if err := removeKept(dir); err != nil {
		return nil, err
	}
	b := &replayBuilder{
		m: &replayManifest{Params: p, Collections: map[string]int64{},
			Baseline: replayBaselinePart{Collections: map[string]int64{}}},
		dir: dir, injector: frameInjector{frames: int(p.Events) * 4 / 5},
		nextUS: time.Now().UnixMicro() - p.Events*eventStepUS,
		dids:   map[string]*buildDID{}, uris: make([]uint64, 1<<14), rng: rand.New(rand.NewPCG(trafficSeed, 11)),
	}
	if err := b.build(ctx, relaysim); err != nil {
		return nil, fmt.Errorf("build the log: %w", err)
	}
	if b.m.Collections[rareCollection] != rareCollectionEvents || b.dids[rareDID] == nil || b.dids[rareDID].events != rareDIDEvents {
		return nil, fmt.Errorf("build the log: its %d events have too few of the rare DID and collection", b.m.Events)
	}
	b.chooseDIDs()
	return b.m, b.m.write(dir)
}

// build opens everything, reads the relay, and closes everything.
func (b *replayBuilder) build(ctx context.Context, relaysim string) (err error) {
	dicts := newDictionaries()
	defer dicts.Close()
	if b.translator, err = translate.New(translate.Config{}); err != nil {
		return err
	}
	if b.encoder, err = jetstreamEncoder(); err != nil {
		return err
	}
	defer b.encoder.Close()
	if b.log, err = openReplayLog(filepath.Join(b.dir, logDirectory), dicts); err != nil {
		return err
	}
	if b.baseline, err = openJetstreamStore(filepath.Join(b.dir, baseline)); err != nil {
		return errors.Join(err, b.log.Close())
	}
	err = b.read(ctx, relaysim)
	held := b.log.Range()
	b.m.Events, b.m.OldestUS, b.m.NewestUS = held.Events, held.Oldest.TimeUS, held.Newest.TimeUS
	return errors.Join(err, b.settle())
}

// newDictionaries has those of millrace serve, with the same one stored.
func newDictionaries() *dict.Registry {
	v1, err := dict.Parse(jetstreamv1.Dictionary())
	if err != nil {
		panic(err) // it is part of the program
	}
	dicts, err := dict.NewRegistry(v1, dict.Shipped()...)
	if err != nil {
		panic(err) // as are all of them
	}
	return dicts
}

// openReplayLog opens a log with the shares of memory that millrace serve gives it by default.
func openReplayLog(dir string, dicts *dict.Registry) (*replay.Log, error) {
	return replay.Open(replay.Config{Dir: dir, Relay: strings.TrimPrefix(noRelay, "ws://"), Retention: 1e5 * time.Hour, Dictionaries: dicts,
		TailBytes: 23 << 20, CacheBytes: 23 << 20, PebbleBytes: 46 << 20})
}

// read takes the relay's frames until the log has its events.
func (b *replayBuilder) read(ctx context.Context, relaysim string) error {
	r, err := startRelay(ctx, relaysim, nil, "--generate", fmt.Sprint(b.m.Params.world()))
	if err != nil {
		return err
	}
	defer func() { _ = r.stop() }()
	client, err := consume.New(consume.Config{URL: r.url(), Epoch: 1, Handle: b.handle})
	if err != nil {
		return err
	}
	if err := client.Run(ctx); !errors.Is(err, errBuilt) {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// handle gathers frames, and makes a block of them once they are enough. Those of #sync are left
// out: a subscriber of v1's wire gets all of the log.
func (b *replayBuilder) handle(_ context.Context, f consume.Frame) error {
	if len(f.Data) == 0 || f.Type == consume.TypeSync {
		return nil
	}
	if b.raw == 0 {
		b.firstSeq = f.Seq
	}
	frame := b.injector.inject(f.Data, f.Seq)
	b.raw += len(frame)
	b.translator.AppendFrame(&b.batch, frame)
	if b.raw < buildRawBytes {
		return nil
	}
	b.raw = 0
	if err := b.block(f.Seq); err != nil {
		return err
	}
	events := b.log.Range().Events
	if events >= b.m.Params.Events {
		return errBuilt
	}
	b.report("%s events", grouped(events))
	return nil
}

// block stamps, seals and appends the batch, and gives the baseline its part of it.
func (b *replayBuilder) block(lastSeq int64) error {
	b.stamp()
	block, err := b.log.Seal(replay.Input{Epoch: 1, FirstSeq: b.firstSeq, LastSeq: lastSeq, Batch: &b.batch})
	if err != nil {
		return err
	}
	if err := b.log.Append(block); err != nil {
		return err
	}
	part := &b.m.Baseline
	for i := 0; i < len(b.batch.Events) && part.Events < b.m.Params.baselineEvents(); i++ {
		did, collection, payload := string(b.batch.DID(i)), string(b.batch.Collection(i)), b.batch.Payload(i)
		compressed := b.encoder.EncodeAll(payload, nil)
		part.Events++
		part.Collections[collection]++
		if err := b.baseline.Put(b.batch.Events[i].TimeUS, did, collection, payload, compressed); err != nil {
			return err
		}
	}
	b.batch.Reset()
	return nil
}

// stamp gives events their stamps and UIDs, and counts what is in the log. UIDs are like those of
// the interner's batched sequences, but need no store.
func (b *replayBuilder) stamp() {
	sequence := b.rng.IntN(len(b.uris))
	for i := range b.batch.Events {
		e := &b.batch.Events[i]
		b.nextUS += eventStepUS
		b.batch.Stamp(i, b.nextUS)
		d := b.dids[string(b.batch.DID(i))]
		if d == nil {
			n := uint64(len(b.dids))
			d = &buildDID{uid: (n*2654435761%(1<<14))<<50 | (n>>14 + 1)}
			b.dids[string(b.batch.DID(i))] = d
		}
		d.events++
		e.DIDUID = d.uid
		if e.Kind != translate.KindCommit {
			b.m.Others++
			continue
		}
		b.m.Collections[string(b.batch.Collection(i))]++
		b.uris[sequence]++
		e.URIUID = uint64(sequence)<<50 | b.uris[sequence]
	}
}

// settle closes both stores once they write no more.
func (b *replayBuilder) settle() error {
	flushed := b.baseline.Flush()
	disk, err := awaitRest(filepath.Join(b.dir, logDirectory))
	base, baseErr := awaitRest(filepath.Join(b.dir, baseline))
	b.m.Disk, b.m.Baseline.Disk = disk, base
	return errors.Join(flushed, err, baseErr, b.baseline.Close(), b.log.Close())
}

// chooseDIDs draws a thousand DIDs to be filtered by.
func (b *replayBuilder) chooseDIDs() {
	all := slices.Sorted(maps.Keys(b.dids))
	b.rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	b.m.DIDs = all[:min(1000, len(all))]
	for _, d := range b.m.DIDs {
		b.m.DIDEvents += b.dids[d].events
	}
}
