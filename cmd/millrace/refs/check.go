package refs

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"

	"millrace/replay"
	"millrace/replay/references"
)

// maxCheckRecords is about how many records are compared in one scan of the log.
const maxCheckRecords = 4_000_000

// Check compares the reference store's table with the log. For each record it compares the log's
// last event with the record's references.
type Check struct {
	Store    *references.Store
	Log      Log
	Events   int64 // that the log has, about
	Progress func(events uint64)
}

// CheckReport is what a check found.
type CheckReport struct {
	references.Findings
	Events, Records uint64 // that were compared
}

// Run compares. It reads the log once for each maxCheckRecords events.
func (c *Check) Run(ctx context.Context) (*CheckReport, error) {
	from, ok := c.Log.References()
	g := c.Store.Generation()
	if ok && from.Before(g.From) {
		from = g.From
	}
	r := &CheckReport{}
	if !ok || g.Number == 0 {
		return r, nil // nothing can be compared
	}
	scans := uint64(c.Events)/maxCheckRecords + 1
	for n := range scans {
		p := &checkScan{Check: c, report: r, scan: n, scans: scans, seed: maphash.MakeSeed(),
			records: make(map[uint64]checkedRecord), deleted: make(map[uint64]checkedDeletion)}
		if err := c.Log.Changes(ctx, from, p.read); err != nil {
			return nil, fmt.Errorf("compare the table with the log: %w", err)
		}
		if err := p.compare(ctx); err != nil {
			return nil, fmt.Errorf("compare the table with the log: %w", err)
		}
	}
	return r, nil
}

// checkScan is a scan of the log, for a part of the records.
type checkScan struct {
	*Check
	report      *CheckReport
	scan, scans uint64
	seed        maphash.Seed
	events      uint64
	records     map[uint64]checkedRecord
	deleted     map[uint64]checkedDeletion // by account: the last
	changes     []references.Change
	text        []byte
}

// checkedRecord is what the log says of a record.
type checkedRecord struct {
	account, rev, event uint64
	stampUS             int64
	references          uint64 // hash of its references
	gone                bool
}

type checkedDeletion struct {
	event  uint64
	timeUS int64
}

func (p *checkScan) read(c *replay.Changes) error {
	at := p.Store.Position()
	var one replay.Changes
	for i := range c.Events {
		e := &c.Events[i]
		if at.Before(references.Position{Epoch: c.Through.Epoch, Seq: e.Seq}) {
			return nil // the store has not read it yet
		}
		p.events++
		if p.scan == 0 {
			p.report.Events++
		}
		if e.Repeated || e.URIUID != 0 && e.URIUID%p.scans != p.scan {
			continue
		}
		one.Events = append(one.Events[:0], *e)
		p.changes = references.AppendLogChanges(p.changes[:0], &one)
		for n := range p.changes {
			p.take(&p.changes[n], e.TimeUS)
		}
	}
	if p.Progress != nil {
		p.Progress(p.events)
	}
	return nil
}

func (p *checkScan) take(c *references.Change, stampUS int64) {
	switch c.Operation {
	case references.DeleteAccount:
		if c.TimeUS > p.deleted[c.Account].timeUS {
			p.deleted[c.Account] = checkedDeletion{p.events, c.TimeUS}
		}
	case references.Create, references.Update, references.Delete:
		p.records[c.Record] = checkedRecord{c.Account, c.Rev, p.events, stampUS, p.hash(c.References), c.Operation == references.Delete}
	}
}

func (p *checkScan) hash(refs []references.Reference) uint64 {
	p.text = p.text[:0]
	for _, r := range refs {
		p.text = binary.BigEndian.AppendUint32(p.text, r.Path)
		p.text = binary.BigEndian.AppendUint64(p.text, r.Subject)
		p.text = binary.BigEndian.AppendUint64(p.text, r.Authority)
	}
	return maphash.Bytes(p.seed, p.text)
}

// compare looks up the rows of what was gathered.
func (p *checkScan) compare(ctx context.Context) error {
	n := 0
	for uid, r := range p.records {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		account, _, err := p.Store.Account(r.account)
		if err != nil {
			return err
		}
		if r.rev <= max(account.Imported, account.Purged) {
			continue // what was imported counts, or nothing does
		}
		if d := p.deleted[r.account]; d.event > r.event {
			if r.stampUS > d.timeUS+clockSlack.Microseconds() {
				continue // the relay may have sent a deletion of an epoch before again
			}
			r.gone = true
		}
		row, alive, err := p.Store.Row(r.account, uid)
		if err != nil {
			return err
		}
		p.report.Records++
		switch {
		case r.gone && alive:
			p.report.Problem("record %d of account %d was deleted, and has a row", uid, r.account)
		case !r.gone && !alive:
			p.report.Problem("record %d of account %d is alive, and has no row", uid, r.account)
		case !r.gone && p.hash(row.References) != r.references:
			p.report.Problem("record %d of account %d has other references in its row than in the log", uid, r.account)
		}
	}
	return nil
}
