package format

import (
	"fmt"
	"math"

	"millrace/translate"
)

// Streams are the epochs that the log followed, oldest first. Every epoch in the log is one of
// them.
type Streams []Stream

// maxEpochs bounds the list of streams. Epochs that old are far behind any retention.
const maxEpochs = 10_000

// Add returns the streams with one more epoch of relay, leaving out the oldest if there are too
// many. lastSeq is the last frame of the epoch before; 0: none. Two epochs must not share a tag:
// cursors could not tell them apart.
func (s Streams) Add(relay string, epoch uint32, lastSeq int64) (Streams, error) {
	added := Stream{Epoch: epoch, Relay: relay, Tag: StreamTag(relay, epoch)}
	if n := len(s); n > 0 {
		added.SeqBase = NextSeqBase(s[n-1].SeqBase, lastSeq)
	}
	for _, o := range s {
		if o.Tag == added.Tag {
			return nil, fmt.Errorf("epoch %d of %s and epoch %d of %s have the same stream tag %s: skip this epoch with --new-epoch",
				o.Epoch, o.Relay, epoch, relay, added.Tag)
		}
	}
	if len(s) >= maxEpochs {
		s = s[len(s)-maxEpochs+1:]
	}
	return append(s[:len(s):len(s)], added), nil
}

// of returns the stream of an epoch; the zero one if there is none.
func (s Streams) of(epoch uint32) Stream {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].Epoch == epoch {
			return s[i]
		}
	}
	return Stream{}
}

// Tag returns the tag of an epoch; 0 if there is none.
func (s Streams) Tag(epoch uint32) translate.Stream { return s.of(epoch).Tag }

// Epoch is the inverse of Tag.
func (s Streams) Epoch(tag translate.Stream) (uint32, bool) {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].Tag == tag {
			return s[i].Epoch, true
		}
	}
	return 0, false
}

// SeqBase returns the base of an epoch's seqs on Jetstream v2's wire.
func (s Streams) SeqBase(epoch uint32) int64 { return s.of(epoch).SeqBase }

// V2Seq returns the seq of an event on v2's wire.
func (s Streams) V2Seq(p Place) int64 { return V2Seq(s.SeqBase(p.Epoch), p.Seq, p.Op) }

// HasV2Seq says whether v2's wire has a seq for the event.
func (s Streams) HasV2Seq(p Place) bool {
	return p.Seq <= (MaxV2Seq-s.SeqBase(p.Epoch))>>V2OpBits
}

// PlaceBefore returns the place directly before the event that has the seq, or would have.
func (s Streams) PlaceBefore(seq int64) Place {
	i := len(s) - 1
	for i > 0 && s[i].SeqBase > seq {
		i--
	}
	rest := max(seq-s[i].SeqBase, 0)
	p := Place{Epoch: s[i].Epoch, Seq: rest >> V2OpBits, Op: uint32(rest & (1<<V2OpBits - 1))}
	switch {
	case p.Op > 0:
		p.Op--
	case p.Seq > 0:
		p.Seq, p.Op = p.Seq-1, math.MaxUint32
	}
	return p
}
