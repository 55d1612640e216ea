package verify

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/dict"
	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
	"millrace/replay/internal/pebblestore"
)

// blocksPerWorker is how many blocks are in memory for each worker: one it checks, and some that
// are read ahead.
const blocksPerWorker = 3

// verifier is one Run.
type verifier struct {
	cfg Config
	fs  *watchedFS
	db  *pebblestore.Store

	mu     sync.Mutex
	report *Report

	// The meta values, as far as they can be read.
	state    format.State
	hasState bool
	streams  []format.Stream
	uses     []format.Use
	files    map[uint32]*dict.Dictionary
	gaps     []format.Gap
	sources  []string // the sources of references, by number - 1; "": it cannot be read
	decoders decoders

	chain     chain
	iterators []*pebbleguard.Iterator // of all scans, until the end
}

// note adds a problem. Safe for concurrent use.
func (v *verifier) note(p Problem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Problems++
	if len(v.report.Examples) < v.cfg.ProblemsKept {
		v.report.Examples = append(v.report.Examples, p)
	}
}

// fault notes a problem of a value as a whole.
func (v *verifier) fault(r format.Range, key int64, text string, args ...any) {
	v.eventFault(r, key, -1, text, args...)
}

// eventFault notes a problem of an event of a block.
func (v *verifier) eventFault(r format.Range, key int64, event int, text string, args ...any) {
	v.note(Problem{Part: r.String(), Block: key, Event: event, Offset: -1, Text: fmt.Sprintf(text, args...)})
}

// storeFault notes a problem of the store that no value has.
func (v *verifier) storeFault(text string) {
	v.note(Problem{Part: "store", Event: -1, Offset: -1, Text: text})
}

func (v *verifier) run(ctx context.Context) (err error) {
	for _, err := range v.db.Damage {
		v.storeFault(err.Error())
	}
	defer func() {
		for _, it := range v.iterators {
			_ = it.Close() // its errors were noted
		}
	}()
	if err := v.meta(); err != nil {
		return err
	}
	if v.decoders, err = newDecoders(v.files); err != nil {
		return err
	}
	defer v.decoders.close()
	if err := v.blocks(ctx); err != nil {
		return err
	}
	if v.hasState {
		v.checkState(&v.chain)
	}
	return v.keys()
}

// meta reads what is in the meta, dictionary, source and gap ranges.
func (v *verifier) meta() error {
	version, err := v.get(format.MetaKey(format.MetaFormat))
	switch {
	case err != nil:
		v.fault(format.RangeMeta, 0, "%s: %v", format.MetaFormat, err)
	case version == nil && logstore.IsEmpty(v.db) && len(v.db.Damage) == 0:
		return logstore.ErrNoLog
	case len(version) != 4:
		v.fault(format.RangeMeta, 0, "%s has %d bytes, not 4", format.MetaFormat, len(version))
	case binary.BigEndian.Uint32(version) > format.NewestVersion:
		return fmt.Errorf("%w: version %d, and this millrace knows up to %d", format.ErrNewerVersion, binary.BigEndian.Uint32(version), format.NewestVersion)
	}
	v.metaValue(format.MetaStreams, true, func(b []byte) (err error) { v.streams, err = format.DecodeStreams(b); return })
	v.metaValue(format.MetaState, true, func(b []byte) (err error) {
		v.state, err = format.DecodeState(b)
		v.hasState = err == nil
		return
	})
	v.metaValue(format.MetaSeqBases, false, func(b []byte) error { _, err := format.DecodeSeqBases(b, v.streams); return err })
	v.metaValue(format.MetaDictionaries, false, func(b []byte) (err error) { v.uses, err = format.DecodeUses(b); return })
	v.metaValue(format.MetaUIDs, false, func([]byte) error { return nil })
	v.metaValue(format.MetaCollections, false, func([]byte) error { return nil })
	v.metaValue(format.MetaReferences, false, func(b []byte) error { _, err := format.DecodeReferencesBegin(b); return err })
	if err := v.dictionaries(); err != nil {
		return err
	}
	if err := v.readSources(); err != nil {
		return err
	}
	return v.readGaps()
}

// metaValue reads a meta value, if it is there.
func (v *verifier) metaValue(name string, must bool, decode func([]byte) error) {
	sealed, err := v.get(format.MetaKey(name))
	if sealed == nil && err == nil {
		if must {
			v.fault(format.RangeMeta, 0, "%s: %v", name, format.ErrMissing)
		}
		return
	}
	var value []byte
	if err == nil {
		value, err = format.OpenTrailer(sealed, format.RangeMeta, 0)
	}
	if err == nil {
		err = decode(value)
	}
	if err != nil {
		v.fault(format.RangeMeta, 0, "%s: %v", name, err)
	}
}

// get returns a copy of key's value; nil: there is none.
func (v *verifier) get(key []byte) ([]byte, error) {
	value, _, err := v.db.Value(key)
	return value, err
}

// dictionaries reads the dictionaries, and compares them with those that the log says it uses.
func (v *verifier) dictionaries() error {
	v.files = make(map[uint32]*dict.Dictionary)
	err := v.each(format.RangeDictionary, "dictionaries", func(it *pebbleguard.Iterator) {
		if len(it.Key()) != 5 {
			v.fault(format.RangeDictionary, 0, "no value of this range has key %x", it.Key())
			return
		}
		id := binary.BigEndian.Uint32(it.Key()[1:])
		raw, err := format.OpenTrailer(it.Value(), format.RangeDictionary, int64(id))
		if err == nil {
			var d *dict.Dictionary
			if d, err = dict.Parse(raw); err == nil && d.ID() != id {
				err = fmt.Errorf("it is dictionary %d", d.ID())
			}
			v.files[id] = d
		}
		if err != nil {
			delete(v.files, id)
			v.fault(format.RangeDictionary, int64(id), "%v", err)
		}
	})
	for _, u := range v.uses {
		if v.files[u.ID] == nil {
			v.fault(format.RangeDictionary, int64(u.ID), "missing or broken, and blocks may be compressed with it")
		}
	}
	v.report.Dictionaries = len(v.files)
	return err
}

// readGaps reads the gaps and checks that they lie in the log.
func (v *verifier) readGaps() error {
	s, err := v.scan(format.RangeGap)
	if err != nil {
		return err
	}
	for ; s.ok; s.next() {
		g, err := format.OpenGap(s.value, s.key)
		switch {
		case err != nil:
			v.fault(format.RangeGap, s.key, "%v", err)
			continue
		case v.hasState && s.key > v.state.TimeUS:
			v.fault(format.RangeGap, s.key, "it lies after the newest stamp that the progress record knows, %d", v.state.TimeUS)
		case len(v.streams) > 0 && !v.knowsStream(g):
			v.fault(format.RangeGap, s.key, "it leads from %s to %s, of a stream that the log never followed", g.From, g.To)
		}
		v.gaps = append(v.gaps, g)
	}
	v.report.Gaps = int64(len(v.gaps))
	return nil
}

// knowsStream says whether the log followed the stream that the gap leads to. (Where it comes from
// may be forgotten, see maxEpochs.)
func (v *verifier) knowsStream(g format.Gap) bool {
	return slices.ContainsFunc(v.streams, func(s format.Stream) bool { return s.Tag == g.To.Stream })
}

// blocks checks all blocks: one goroutine reads them, some check each by itself, and this one
// compares each with its neighbours. A blockCheck goes from free through all of them and back. No
// send waits: each channel holds as many as there are.
func (v *verifier) blocks(ctx context.Context) error {
	if err := v.chain.open(v); err != nil {
		return err
	}
	scan, err := v.scanBlocks()
	if err != nil {
		return err
	}
	n := v.cfg.Workers * blocksPerWorker
	free, work, inOrder := make(chan *blockCheck, n), make(chan *blockCheck, n), make(chan *blockCheck, n)
	for range n {
		free <- &blockCheck{checked: make(chan struct{}, 1)}
	}
	var g errgroup.Group
	g.Go(func() error {
		defer close(work)
		defer close(inOrder)
		for b := range free {
			if err := cmp.Or(v.fs.err(), context.Cause(ctx)); err != nil {
				return err
			}
			if !scan.next(b) {
				break
			}
			work <- b
			inOrder <- b
		}
		return nil
	})
	for range v.cfg.Workers {
		g.Go(func() error {
			for b := range work {
				b.check(v.decoders)
				b.checked <- struct{}{}
			}
			return nil
		})
	}
	reported := time.Now()
	for b := range inOrder {
		<-b.checked
		v.compare(b)
		free <- b
		if v.cfg.Progress != nil && time.Since(reported) >= progressInterval {
			reported = time.Now()
			v.cfg.Progress(v.progress())
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return v.chain.leftovers(v)
}

func (v *verifier) progress() Progress {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := Progress{Blocks: v.report.Blocks, Events: v.report.Events, Bytes: v.report.Bytes}
	if v.hasState {
		p.TotalBytes = v.state.Total.Minus(v.state.Trimmed).Bytes
	}
	return p
}

// compare counts a block, and compares it with what came before.
func (v *verifier) compare(b *blockCheck) {
	for _, p := range b.problems {
		v.note(p)
	}
	v.mu.Lock()
	v.report.Blocks++
	v.report.Bytes += b.bytes
	if b.idx != nil {
		v.report.Events += int64(b.idx.Events())
		v.report.Oldest = cmp.Or(v.report.Oldest, b.idx.TimeUS[0])
		v.report.Newest = b.key
	}
	v.mu.Unlock()
	v.chain.add(v, b)
}
