package refs

import (
	"cmp"
	"math"
	"slices"

	"millrace/replay"
	"millrace/replay/references"
)

// readLog gathers what the log has of the group's accounts.
func (i *Import) readLog() error {
	of := make(map[uint64]*importedAccount, len(i.group))
	for _, a := range i.group {
		of[a.uid] = a
	}
	after, _ := i.Log.References()
	if n := i.resumeBefore(); n > 0 {
		after = i.resume[n-1].at
	}
	var one replay.Changes
	return i.Log.Changes(i.ctx, after, func(c *replay.Changes) error {
		for k := range c.Events {
			e := &c.Events[k]
			a := of[e.DIDUID]
			if a == nil || e.TimeUS < a.fromUS || a.rows && e.Repeated {
				continue
			}
			one.Events = append(one.Events[:0], *e)
			n := len(a.laid)
			a.laid = references.AppendLogChanges(a.laid, &one)
			before := e.TimeUS < a.asOfUS-clockSlack.Microseconds()
			a.late = a.late || !a.rows && before && n < len(a.laid) && a.laid[n].Rev > a.rev
		}
		i.note(c)
		return nil
	})
}

// resumePoint is a place in the log: all events up to it have stamps up to that.
type resumePoint struct {
	stampUS int64
	at      replay.EpochEnd
}

// resumeInterval is how far apart points are, in microseconds.
const resumeInterval = 1_000_000

// note notes where in the log c ends, if that is far enough after the last point.
func (i *Import) note(c *replay.Changes) {
	if len(c.Events) == 0 {
		return
	}
	us, n := c.Events[len(c.Events)-1].TimeUS, len(i.resume)
	if n == 0 || us >= i.resume[n-1].stampUS+resumeInterval {
		i.resume = append(i.resume, resumePoint{us, c.Through})
	}
}

// resumeBefore returns how many points are before all that counts for the group.
func (i *Import) resumeBefore() int {
	from := i.group[0].fromUS
	for _, a := range i.group {
		from = min(from, a.fromUS)
	}
	n, _ := slices.BinarySearchFunc(i.resume, from, func(m resumePoint, us int64) int { return cmp.Compare(m.stampUS, us) })
	return n
}

// revUS returns the time in the account's rev.
func (a *importedAccount) revUS() int64 { return int64(a.rev >> 10) }

// lay returns the changes that import the account: what the file says, and over it what the log has
// above its rev or, of rows, since their time. The log's first stamp is since.
func (a *importedAccount) lay(since int64) ([]references.Change, error) {
	if a.late {
		a.asOfUS = a.revUS()
		if a.asOfUS < since {
			return nil, errTooOld
		}
	}
	changes := make([]references.Change, 0, 1+len(a.record)+len(a.laid))
	changes = append(changes, references.Change{Operation: references.Import, Account: a.uid, Rev: a.rev, Last: a.lastRev()})
	changes = append(changes, a.record...)
	deleted, rev := int64(0), a.rev
	hadUS := a.asOfUS
	if a.rows { // as the clocks of servers differ
		hadUS -= clockSlack.Microseconds()
	}
	for _, c := range a.laid {
		c.Seq = 0
		switch {
		case c.Operation == references.DeleteAccount && c.TimeUS > deleted:
			keep := 1
			if c.TimeUS <= hadUS { // the file has it
				keep += len(a.record)
			}
			deleted, changes = c.TimeUS, changes[:min(keep, len(changes))]
		case c.Rev > a.rev || a.rows && c.Rev > 0:
			changes = append(changes, c)
			if c.Operation != references.Sync { // commits before it may be missing
				rev = max(rev, c.Rev)
			}
		}
	}
	if !a.rows && a.known.Rev > rev { // the log had a newer commit, which was trimmed
		return nil, errTooOld
	}
	return changes, nil
}

// lastRev returns the rev above which commits are laid over the file. Rows have none of their own:
// commits may come long after their revs say. It is below that of a #sync before the first commit,
// too, as deletes may be missing since.
func (a *importedAccount) lastRev() uint64 {
	if !a.rows {
		return a.rev
	}
	last, first := a.known.Rev, uint64(math.MaxUint64)
	for _, c := range a.laid {
		if c.Rev > 0 {
			first = min(first, c.Rev)
		}
		if c.Operation <= references.Delete {
			last = min(last, first-1)
			break
		}
	}
	return max(last, a.known.Purged)
}
