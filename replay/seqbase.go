package replay

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// An event's seq on Jetstream v2's wire is made of its frame's and the index of its op: see
// format.V2Seq. Each epoch has a base, so that its seqs are above those of earlier ones. The first
// epoch's is 0, so that instances behind one relay have the same seqs.

// putStreams adds the streams to the batch, and the bases of their seqs unless all are 0.
func putStreams(b *pebble.Batch, streams []format.Stream) error {
	if err := putMeta(b, format.MetaStreams, format.AppendStreams(nil, streams)); err != nil {
		return err
	}
	if streams[len(streams)-1].SeqBase == 0 {
		return nil
	}
	return putMeta(b, format.MetaSeqBases, format.AppendSeqBases(nil, streams))
}

// seqBases sets the bases of the streams. A log whose later epochs have none is of a program
// without v2's wire: they get theirs now.
func (o *opener) seqBases(streams []format.Stream) error {
	v, ok, err := o.meta(format.MetaSeqBases)
	if err != nil {
		return err
	}
	known := 1 // the first is 0, whichever it is
	if ok {
		if known, err = format.DecodeSeqBases(v, streams); err != nil {
			return corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", format.MetaSeqBases, err))
		}
	}
	if known = max(known, 1); known == len(streams) {
		return nil
	}
	for i := known; i < len(streams); i++ {
		last, err := o.lastStored(streams[i-1].Epoch)
		if err != nil {
			return err
		}
		streams[i].SeqBase = format.NextSeqBase(streams[i-1].SeqBase, last)
	}
	return putStreams(o.batch, streams)
}

// lastStored returns the last frame of an epoch that blocks in the store cover; 0: there is none.
func (o *opener) lastStored(epoch uint32) (int64, error) {
	it, err := o.store.NewIter(&pebble.IterOptions{
		LowerBound: format.SeqKey(epoch, 0), UpperBound: format.SeqKey(epoch, math.MaxInt64)})
	if err != nil {
		return 0, fmt.Errorf("find the end of epoch %d: %w", epoch, err)
	}
	defer it.Close()
	if !it.Last() {
		return 0, it.Error()
	}
	_, seq, ok := format.ParseSeqKey(it.Key())
	if !ok {
		return 0, corrupt(format.RangeSeq, 0, fmt.Errorf("malformed key %x", it.Key()))
	}
	return seq, nil
}

// lastSeq returns the last frame committed of the epoch that the state is in, if that is epoch; 0:
// none was.
func (o *opener) lastSeq(epoch uint32) (int64, error) {
	v, ok, err := o.meta(format.MetaState)
	if err != nil || !ok {
		return 0, err
	}
	s, err := format.DecodeState(v)
	if err != nil {
		return 0, corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", format.MetaState, err))
	}
	if s.Epoch != epoch {
		return 0, nil
	}
	return s.Seq, nil
}

// seqBaseOf returns the base of an epoch; every epoch in the log has one.
func (s *snapshot) seqBaseOf(epoch uint32) int64 {
	for i := len(s.streams) - 1; i >= 0; i-- {
		if s.streams[i].Epoch == epoch {
			return s.streams[i].SeqBase
		}
	}
	return 0
}

// v2Seq returns the seq of an event on v2's wire.
func (s *snapshot) v2Seq(p format.Place) int64 {
	return format.V2Seq(s.seqBaseOf(p.Epoch), p.Seq, p.Op)
}

// hasV2Seq says whether v2's wire has a seq for the event.
func (s *snapshot) hasV2Seq(p format.Place) bool {
	return p.Seq <= (format.MaxV2Seq-s.seqBaseOf(p.Epoch))>>format.V2OpBits
}

// placeBefore returns the place directly before the event that has the seq, or would have.
func (s *snapshot) placeBefore(seq int64) format.Place {
	i := len(s.streams) - 1
	for i > 0 && s.streams[i].SeqBase > seq {
		i--
	}
	rest := max(seq-s.streams[i].SeqBase, 0)
	p := format.Place{Epoch: s.streams[i].Epoch, Seq: rest >> format.V2OpBits, Op: uint32(rest & (1<<format.V2OpBits - 1))}
	switch {
	case p.Op > 0:
		p.Op--
	case p.Seq > 0:
		p.Seq, p.Op = p.Seq-1, math.MaxUint32
	}
	return p
}

// V2Seq returns the seq on Jetstream v2's wire of an event at a position of this log.
func (l *Log) V2Seq(p translate.Position) int64 {
	s := l.snap.Load()
	epoch, _ := s.epochOf(p.Stream)
	return s.v2Seq(format.Place{Epoch: epoch, Seq: p.Seq, Op: p.Op})
}
