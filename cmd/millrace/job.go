package main

import (
	"time"

	"millrace/consume"
	"millrace/replay"
	"millrace/translate"
)

// job is the frames of one future block on their way through the pipeline. It belongs to one stage
// at a time and is reused once its block is durable.
type job struct {
	raw    []byte // the frames' bytes back to back
	frames []frameRef
	epoch  uint32
	gap    *replay.Gap // what may have been lost directly before the first frame
	opened time.Time   // when the first frame came

	batch translate.Batch
	block *replay.Block

	translated chan struct{} // one token when batch is filled
	sealed     chan error    // one token when block is made, or why it is not
}

// frameRef finds one frame in job.raw.
type frameRef struct {
	seq int64
	end int // one past its last byte; it begins where the one before ends
}

func newJob() *job {
	return &job{translated: make(chan struct{}, 1), sealed: make(chan error, 1)}
}

// add copies a frame in.
func (j *job) add(f consume.Frame) {
	j.raw = append(j.raw, f.Data...)
	j.frames = append(j.frames, frameRef{f.Seq, len(j.raw)})
}

// reset empties the job for reuse and lets go of buffers that one huge frame made larger than keepBytes.
func (j *job) reset(keepBytes int) {
	j.raw, j.frames, j.gap, j.block = j.raw[:0], j.frames[:0], nil, nil
	if cap(j.raw) > keepBytes {
		j.raw = nil
	}
	if cap(j.batch.JSON) > keepBytes {
		j.batch.JSON = nil
	}
	j.batch.Reset()
}

// translator is a *translate.Translator.
type translator interface {
	AppendFrame(dst *translate.Batch, frame []byte)
}

// translate fills the batch from the frames. It returns the frames whose translation panicked, which is a
// bug, and what the panic said: they are dropped, for no frame may stop the stream, and t, in whatever state
// it was left, must not be used again.
func (j *job) translate(t translator) (broken []int64, reason any) {
	begin := 0
	for _, f := range j.frames {
		if f.end > begin { // without data it was too large; consume has counted it
			if r := appendFrame(t, &j.batch, j.raw[begin:f.end]); r != nil {
				broken, reason = append(broken, f.seq), r
			}
		}
		begin = f.end
	}
	return broken, reason
}

// appendFrame is t.AppendFrame that undoes itself and returns the reason if it panics.
func appendFrame(t translator, dst *translate.Batch, frame []byte) (reason any) {
	events, json := len(dst.Events), len(dst.JSON)
	defer func() {
		if reason = recover(); reason != nil {
			dst.Events, dst.JSON = dst.Events[:events], dst.JSON[:json]
		}
	}()
	t.AppendFrame(dst, frame)
	return nil
}

// input is what the log seals.
func (j *job) input() replay.Input {
	return replay.Input{
		Epoch:    j.epoch,
		FirstSeq: j.frames[0].seq,
		LastSeq:  j.frames[len(j.frames)-1].seq,
		Gap:      j.gap,
		Batch:    &j.batch,
	}
}
