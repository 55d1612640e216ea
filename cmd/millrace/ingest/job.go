package ingest

import (
	"time"

	"millrace/consume"
	"millrace/replay"
	"millrace/replay/chain"
	"millrace/translate"
)

// job is the frames of one future block on their way through the pipeline. It belongs to one stage
// at a time and is reused once its block is durable.
type job struct {
	raw    []byte // the frames' bytes back to back; nil once all are translated
	frames []frameRef

	borrowed bool  // raw is the caller's of Handle
	room     int64 // bytes of the pipeline's room that it has

	epoch  uint32
	gap    *replay.Gap // what may have been lost directly before the first frame
	began  time.Time   // when the first frame came
	queued time.Time   // when it began to wait for the stage that it is in or will be next

	from, to int // the frames that batch covers
	batch    translate.Batch
	checks   []check         // with Config.Verify: of the batch's frames
	chains   []chain.Change  // with Config.Verify: what the frames change of their accounts' chains
	changes  changes         // with Config.References
	blocks   []*replay.Block // one most often

	done chan struct{} // nil: the job goes back to the pool; else closed once its block is durable

	translated chan struct{} // one token when batch is filled
	interned   chan struct{} // one token when its changes are gathered, with Config.References
	sealed     chan error    // one token when block is made, or why it is not
}

// frameRef finds one frame in job.raw.
type frameRef struct {
	seq int64
	end int // one past its last byte; it begins where the one before ends
}

func newJob() *job {
	return &job{translated: make(chan struct{}, 1), interned: make(chan struct{}, 1), sealed: make(chan error, 1)}
}

// add copies a frame in.
func (j *job) add(f consume.Frame) {
	j.raw = append(j.raw, f.Data...)
	j.frames = append(j.frames, frameRef{f.Seq, len(j.raw)})
}

// borrow takes a frame in without a copy.
func (j *job) borrow(f consume.Frame) {
	j.raw, j.borrowed = f.Data, true
	j.frames = append(j.frames, frameRef{f.Seq, len(f.Data)})
}

// dueIn is how long the job may go on filling, below 0 if it is overdue.
func (j *job) dueIn() time.Duration { return maxBlockAge - time.Since(j.began) }

// reset empties the job for reuse and lets go of a buffer that huge frames made larger than
// keepBytes.
func (j *job) reset(keepBytes int) {
	clear(j.blocks)
	j.frames, j.gap, j.blocks = j.frames[:0], nil, j.blocks[:0]
	j.from, j.to = 0, 0
	j.checks, j.chains = j.checks[:0], j.chains[:0]
	j.batch.Release(keepBytes)
	j.batch.Reset()
	j.changes.reset(keepBytes)
}

// translate fills the batch with the frames from j.to on, until all are in it or it has limit bytes
// of JSON and references. It sets j.from and j.to to those it covers. It ends before a frame with
// more JSON than t allows, so that another t can translate it. With whole it drops such a frame.
func (j *job) translate(t *frameTranslator, limit int, whole bool) error {
	j.from = j.to
	for ; j.to < len(j.frames) && j.batch.Bytes() < limit; j.to++ {
		frame := j.frame(j.to)
		if len(frame) == 0 {
			continue // it was too large; consume has counted it
		}
		counts, events := j.batch.Counts, len(j.batch.Events)
		if err := t.append(&j.batch, frame, j.frames[j.to].seq); err != nil {
			return err
		}
		if !whole && j.batch.Counts.Drops[translate.ReasonTooLarge] > counts.Drops[translate.ReasonTooLarge] {
			j.batch.Counts = counts
			break
		}
		if t.checker != nil {
			j.checks = t.checker.check(j.checks, frame, j.frames[j.to].seq, &j.batch, events)
		}
	}
	return nil
}

// frame returns the bytes of frame i, none if it came without.
func (j *job) frame(i int) []byte {
	begin := 0
	if i > 0 {
		begin = j.frames[i-1].end
	}
	return j.raw[begin:j.frames[i].end]
}

// split takes what is translated out of j into a job of its own, which comes before what is left in
// j. The new job belongs to no pool; done is closed once its block is durable.
func (j *job) split() *job {
	first := newJob()
	first.epoch, first.gap, first.began = j.epoch, j.gap, j.began
	first.frames, first.from, first.to = j.frames, j.from, j.to
	first.batch, j.batch = j.batch, first.batch
	first.checks, j.checks = j.checks, first.checks
	first.done = make(chan struct{})
	j.gap = nil
	return first
}

// input is what the log seals.
func (j *job) input() replay.Input {
	return replay.Input{
		Epoch:    j.epoch,
		FirstSeq: j.frames[j.from].seq,
		LastSeq:  j.frames[j.to-1].seq,
		Gap:      j.gap,
		Batch:    &j.batch,
	}
}
