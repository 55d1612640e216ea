package ingest

import (
	"cmp"
	"context"
	"fmt"

	"millrace/replay"
	"millrace/replay/references"
	"millrace/translate"
)

// References is what the pipeline asks of the reference store. *references.Store implements it. One
// goroutine calls Hydrate, another Apply, both in the relay's order. Any may call Hydrated.
type References interface {
	Hydrated() uint64
	Hydrate(ctx context.Context, b *references.Batch) error
	Apply(b *references.Batch) error
}

// changes are what a job changes in the reference store. A job without events and gap has none, and
// is not hydrated: its position is in the log later, or never.
type changes struct {
	batch    references.Batch
	events   []uint32               // index of each change's event; a gap, first, has none
	refs     []references.Reference // that records have, in the order of the batch's
	numbered []uint32               // [i]: how many of the batch's first i+1 references are in refs
	source   []byte
}

// hydrated says whether the job goes through the reference store.
func (j *job) hydrated() bool { return len(j.batch.Events) > 0 || j.gap != nil }

// gatherChanges makes the reference store's changes of j's events, which have their UIDs.
func (p *Pipeline) gatherChanges(j *job) {
	c := &j.changes
	c.batch.Position = references.Position{Epoch: j.epoch, Seq: j.frames[j.to-1].seq}
	if j.gap != nil {
		c.batch.Changes = append(c.batch.Changes, references.GapChange(j.gap))
		c.events = append(c.events, 0)
	}
	p.numberReferences(j)
	for i := range j.batch.Events {
		e := &j.batch.Events[i]
		change, ok := references.EventChange(references.Event{
			Kind: e.Kind, Operation: e.Operation, Seq: e.Seq, DIDUID: e.DIDUID, URIUID: e.URIUID,
		}, j.batch.Payload(i))
		if !ok {
			continue
		}
		change.References, change.New = c.has(i), e.NewURI
		c.batch.Changes = append(c.batch.Changes, change)
		c.events = append(c.events, uint32(i))
	}
}

// numberReferences gives the references of j's batch the log's numbers of their sources. Those that
// get none are dropped; the log counts them.
func (p *Pipeline) numberReferences(j *job) {
	b, c := &j.batch, &j.changes
	next := 0
	for i := range b.Events {
		for ; next < len(b.References) && int(b.References[next].Event) == i; next++ {
			r := &b.References[next]
			c.source = append(append(append(c.source[:0], b.Collection(i)...), ':'), b.ReferencePath(next)...)
			if number, ok := p.cfg.Log.SourceNumber(c.source); ok && r.SubjectUID != 0 {
				c.refs = append(c.refs, references.Reference{Path: number, Subject: r.SubjectUID, Authority: r.AuthorityUID})
			}
		}
		c.numbered = append(c.numbered, uint32(len(c.refs)))
	}
}

// has returns what the record of event i has.
func (c *changes) has(i int) []references.Reference {
	return c.refs[startOf(c.numbered, i):c.numbered[i]:c.numbered[i]]
}

// startOf returns where the references of event i begin.
func startOf(ends []uint32, i int) uint32 {
	if i == 0 {
		return 0
	}
	return ends[i-1]
}

// reset empties c for reuse and lets go of what is larger than keepBytes.
func (c *changes) reset(keepBytes int) {
	const changeBytes, referenceBytes = 128, 24
	if cap(c.batch.Changes)*changeBytes+cap(c.refs)*referenceBytes > keepBytes {
		*c = changes{}
		return
	}
	clear(c.batch.Changes) // they point at what records had
	c.batch = references.Batch{Changes: c.batch.Changes[:0]}
	c.events, c.refs, c.numbered = c.events[:0], c.refs[:0], c.numbered[:0]
}

// hydrate fills in what records had before, in the relay's order, and hands the jobs on.
func (p *Pipeline) hydrate(ctx context.Context) error {
	profileAs(ctx, stageHydrate)
	defer close(p.seals)
	for {
		j, err := next(ctx, p.hydrates)
		if j == nil {
			return err
		}
		if _, err := next(ctx, j.interned); err != nil {
			return err
		}
		start := p.metrics.stages[stageHydrate].started(j)
		if j.hydrated() {
			if err := p.cfg.References.Hydrate(ctx, &j.changes.batch); err != nil {
				return err
			}
			p.metrics.stages[stageHydrate].done(start)
		}
		p.queue(p.seals, j, stageSeal)
	}
}

// sealReferences seals j's events with their references as one block. They are several, which end
// at frames' ends, if they are more than a block may have. Those of one frame always fit.
func (p *Pipeline) sealReferences(j *job) error {
	in, all, events := j.input(), j.eventReferences(), j.batch.Events
	most := cmp.Or(p.cfg.hooks.blockReferences, replay.MaxBlockReferences)
	if len(all.List) <= most {
		in.References = all
		return p.sealBlock(j, in)
	}
	last := in.LastSeq
	for from := 0; from < len(events); {
		to := frameEnd(events, from)
		for to < len(events) {
			end := frameEnd(events, to)
			if int(all.Ends[end-1]-startOf(all.Ends, from)) > most {
				break
			}
			to = end
		}
		in.References, in.Batch = ofEvents(all, from, to), &translate.Batch{Events: events[from:to], JSON: j.batch.JSON}
		if in.LastSeq = last; to < len(events) {
			in.LastSeq = events[to-1].Seq
		}
		if err := p.sealBlock(j, in); err != nil {
			return err
		}
		in.FirstSeq, in.Gap, from = in.LastSeq+1, nil, to
	}
	return nil
}

// frameEnd returns where the events end that are of the same frame as event i.
func frameEnd(events []translate.Event, i int) int {
	end := i + 1
	for end < len(events) && events[end].Seq == events[i].Seq {
		end++
	}
	return end
}

// ofEvents returns what the events from and before to have of all.
func ofEvents(all *replay.EventReferences, from, to int) *replay.EventReferences {
	base := startOf(all.Ends, from)
	own := &replay.EventReferences{List: all.List[base:all.Ends[to-1]]}
	for _, end := range all.Ends[from:to] {
		own.Ends = append(own.Ends, end-base)
	}
	if all.Repeated != nil {
		own.Repeated = all.Repeated[from:to]
	}
	return own
}

// eventReferences returns the references of j's events for the log.
func (j *job) eventReferences() *replay.EventReferences {
	c := &j.changes
	n := len(j.batch.Events)
	out := &replay.EventReferences{Ends: make([]uint32, 0, n)}
	next := 0
	if j.gap != nil {
		next = 1
	}
	for i := range n {
		out.List = appendLogReferences(out.List, c.has(i), false)
		if next < len(c.events) && int(c.events[next]) == i {
			change := &c.batch.Changes[next]
			out.List = appendLogReferences(out.List, change.Had, true)
			if change.Repeated && change.Operation <= references.Delete {
				if out.Repeated == nil {
					out.Repeated = make([]bool, n)
				}
				out.Repeated[i] = true
			}
			next++
		}
		out.Ends = append(out.Ends, uint32(len(out.List)))
	}
	return out
}

func appendLogReferences(dst []replay.Reference, refs []references.Reference, had bool) []replay.Reference {
	for _, r := range refs {
		dst = append(dst, replay.Reference{Source: r.Path, Subject: r.Subject, Authority: r.Authority, Had: had})
	}
	return dst
}

// apply takes what the blocks of jobs change, which are in the log now, over into the reference
// store.
func (p *Pipeline) apply(jobs []*job) error {
	for _, j := range jobs {
		if !j.hydrated() {
			continue
		}
		if err := p.cfg.References.Apply(&j.changes.batch); err != nil {
			return fmt.Errorf("apply what is in the log: %w", err)
		}
	}
	return nil
}
