package refs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"millrace/intern"
	"millrace/replay"
	"millrace/replay/references"
	"millrace/translate"
)

// UIDs gives strings their UIDs; *intern.Interner does.
type UIDs interface {
	Resolve(ctx context.Context, reqs []intern.Request, out []intern.Result) error
	Lookup(ctx context.Context, s string) (uid uint64, ok bool, err error)
}

// Log is what an import asks of the event log, which *replay.Log opened read-only is.
type Log interface {
	FindSource(source string) (number uint32, ok bool)
	Changes(ctx context.Context, after replay.EpochEnd, f func(*replay.Changes) error) error
	References() (after replay.EpochEnd, ok bool)
}

// Import imports accounts into the reference store, which must be at the log's end. The log must
// have references, and rows need AsOf. It is a Sink; Finish comes last. An account is imported with
// one batch, so that a crash leaves it either as it was or imported. Those that were imported are
// passed over when an import is begun again.
type Import struct {
	ImportConfig
	Done ImportCounts

	ctx     context.Context
	since   int64 // stamp of the first event that the log has with its references
	request requests
	current *importedAccount   // nil: it is passed over
	group   []*importedAccount // complete, not imported yet
	grouped map[string]bool    // the DIDs of group
	changes int                // of the group and the current account
	resume  []resumePoint      // places in the log from which a group can be read
	// maxGroupChanges and maxBatchChanges, which tests make smaller.
	groupChanges, batchChanges int
}

// ImportConfig is what an import needs.
type ImportConfig struct {
	Store *references.Store
	UIDs  UIDs
	Log   Log
	// NumberSources gives numbers to sources that the log does not know, and returns the log, which
	// may be another one then.
	NumberSources func(sources []string) (Log, error)
	AsOf          time.Time                      // of the files; zero: each account's rev gives it
	Refused       func(did string, reason error) // gets the accounts that are not imported
	Progress      func()                         // after each batch
}

// ImportCounts says what became of accounts.
type ImportCounts struct {
	Imported, Known, Refused uint64 // accounts; Known were imported before
	Records, References      uint64
	Excess                   uint64 // references over the limits of a record or of the log's sources
	Laid                     uint64 // changes that the log has above what was imported
}

// importedAccount is what is imported of an account.
type importedAccount struct {
	did    string
	uid    uint64
	known  references.Account
	rev    uint64
	rows   bool  // it came as rows, without a rev
	asOfUS int64 // stamp of the state that its file has
	fromUS int64 // from when on the log's events count
	late   bool  // the log has a newer commit or #sync than the file, from before asOfUS
	record []references.Change
	at     map[uint64]int // by UID of the record: its index in record
	laid   []references.Change
}

// Limits of what is gathered before the log is read for it.
const (
	maxGroupChanges  = 500_000
	maxGroupAccounts = 20_000
	maxBatchChanges  = 20_000
)

// clockSlack is how far the clocks of servers may be apart. Events are looked for that much earlier
// than a file's time says; what the log has once more changes nothing.
const clockSlack = 10 * time.Minute

// errTooOld means: what came after the imported state was trimmed from the log.
var errTooOld = errors.New("it is too old: the log does not reach back to it. Get the repository again, and import it within the log's retention, with --as-of the time when it was fetched")

// NewImport begins an import.
func NewImport(ctx context.Context, cfg ImportConfig) (*Import, error) {
	i := &Import{ImportConfig: cfg, ctx: ctx, grouped: make(map[string]bool), groupChanges: maxGroupChanges, batchChanges: maxBatchChanges}
	var err error
	if i.since, err = i.firstStamp(); err != nil {
		return nil, err
	}
	return i, nil
}

// firstStamp returns the stamp of the first event that the log has with its references.
func (i *Import) firstStamp() (int64, error) {
	after, _ := i.Log.References()
	us, ok, err := FirstEvent(i.ctx, i.Log, after)
	switch first := time.UnixMicro(us); {
	case err != nil:
	case !ok:
		err = errors.New("the log has no events with references yet: nothing could be laid over what is imported. Run the server first, then fetch repositories")
	case first.After(time.Now().Add(time.Minute)):
		err = fmt.Errorf("the log's stamps are ahead of the clock, from %s on: nothing could be laid over what is imported. Set the clock, if it is behind; "+
			"else it was ahead when the log began. Fetch repositories after that time, or stop the server and move its directories log and refs away, to begin anew",
			first.UTC().Format(time.RFC3339))
	}
	return us, err
}

// FirstEvent returns the stamp of the first event that the log has after a frame; ok is false if it
// has none.
func FirstEvent(ctx context.Context, log Log, after replay.EpochEnd) (us int64, ok bool, err error) {
	errFound := errors.New("found")
	err = log.Changes(ctx, after, func(c *replay.Changes) error {
		if len(c.Events) == 0 {
			return nil
		}
		us = c.Events[0].TimeUS
		return errFound
	})
	if errors.Is(err, errFound) {
		return us, true, nil
	}
	return 0, false, err
}

// Begin implements Sink.
func (i *Import) Begin(did string, rev uint64) error {
	if err := i.end(); err != nil {
		return err
	}
	if i.grouped[did] { // another file has it, too: of an account a group lays the log over one state
		if err := i.importGroup(); err != nil {
			return err
		}
	}
	a := &importedAccount{did: did, rev: rev, rows: rev == 0}
	if a.rows {
		a.rev = uint64(i.AsOf.Add(-clockSlack).UnixMicro()) << 10
		a.at = make(map[uint64]int)
	}
	if a.asOfUS = i.AsOf.UnixMicro(); i.AsOf.IsZero() {
		a.asOfUS = a.revUS()
	}
	uid, known, err := i.UIDs.Lookup(i.ctx, did)
	if err != nil {
		return err
	}
	if known {
		if a.known, _, err = i.Store.Account(uid); err != nil {
			return err
		}
	}
	a.fromUS = a.asOfUS - clockSlack.Microseconds()
	// A commit or #sync in the log may show that AsOf is later than the file.
	if !a.rows && (a.known.Rev > rev || a.known.InexactUS != 0) {
		a.fromUS = min(a.fromUS, a.revUS()-clockSlack.Microseconds())
	}
	switch last := a.known; {
	case last.Imported >= a.rev:
		i.Done.Known++
	case last.Purged >= a.rev:
		i.refuse(did, errors.New("the account was purged after this revision: get its repository again, if it is to be imported"))
	case a.asOfUS < i.since && (a.rows || last.Rev != rev):
		i.refuse(did, errTooOld)
	default:
		i.current = a
		i.request.reqs = append(i.request.reqs, intern.Request{DID: []byte(did)})
	}
	return nil
}

func (i *Import) refuse(did string, reason error) {
	i.Done.Refused++
	i.Refused(did, reason)
}

// Add implements Sink.
func (i *Import) Add(r *Record) error {
	a := i.current
	if a == nil {
		return nil
	}
	numbers, err := i.numbers(r)
	if err != nil {
		return err
	}
	q := &i.request
	q.reqs = append(q.reqs, intern.Request{DID: []byte(a.did), Collection: bytes.Clone(r.Collection), RecordKey: bytes.Clone(r.Key)})
	var sources []uint32
	for n, ref := range r.References {
		if numbers[n] == 0 {
			i.Done.Excess++
			continue
		}
		sources = append(sources, numbers[n])
		q.reqs = append(q.reqs, intern.Request{Name: bytes.Clone(ref.Subject)})
	}
	q.records = append(q.records, sources)
	if len(q.reqs) < maxRequests {
		return nil
	}
	return i.resolve()
}

// numbers returns the numbers of the sources of a record's references; 0: the log takes no more.
func (i *Import) numbers(r *Record) ([]uint32, error) {
	numbers := make([]uint32, len(r.References))
	for again := false; ; again = true {
		var unknown []string
		for n, ref := range r.References {
			source := string(r.Collection) + ":" + string(ref.Path)
			number, ok := i.Log.FindSource(source)
			if numbers[n] = number; !ok {
				unknown = append(unknown, source)
			}
		}
		if len(unknown) == 0 || again {
			return numbers, nil
		}
		var err error
		if i.Log, err = i.NumberSources(unknown); err != nil {
			return nil, err
		}
	}
}

// maxRequests is how many strings are given their UIDs at once.
const maxRequests = 8192

// requests are the strings of the current account that have no UID yet. The DID is first, if it is
// there, then of each record its own and its subjects'.
type requests struct {
	reqs    []intern.Request
	out     []intern.Result
	records [][]uint32 // of each the numbers of its references' sources
}

// resolve gives the strings their UIDs and makes changes of the records.
func (i *Import) resolve() error {
	a, q := i.current, &i.request
	q.out = append(q.out[:0], make([]intern.Result, len(q.reqs))...)
	if err := i.UIDs.Resolve(i.ctx, q.reqs, q.out); err != nil {
		return err
	}
	out := q.out
	if a.uid == 0 {
		a.uid = out[0].DIDUID
		out = out[1:]
	}
	for _, sources := range q.records {
		refs := make([]references.Reference, len(sources))
		for n, u := range out[1 : 1+len(sources)] {
			refs[n] = references.Reference{Path: sources[n], Subject: cmp.Or(u.URIUID, u.DIDUID), Authority: u.DIDUID}
		}
		i.add(a, out[0].URIUID, refs)
		out = out[1+len(sources):]
	}
	q.reqs, q.records = q.reqs[:0], q.records[:0]
	if len(a.record) > maxAccountRecords {
		return fmt.Errorf("%s has more than %d records, which is too many to import", a.did, maxAccountRecords)
	}
	return context.Cause(i.ctx)
}

// maxAccountRecords bounds the memory of one account's import.
const maxAccountRecords = 10_000_000

// add adds a record or, from rows, more of its references.
func (i *Import) add(a *importedAccount, uid uint64, refs []references.Reference) {
	at, ok := a.at[uid]
	if !ok {
		at = len(a.record)
		a.record = append(a.record, references.Change{Operation: references.Create, Account: a.uid, Record: uid, Rev: a.rev})
		i.changes++
		if a.rows {
			a.at[uid] = at
		}
	}
	c := &a.record[at]
	for _, ref := range refs {
		switch {
		case slices.Contains(c.References, ref):
		case len(c.References) == translate.MaxReferences:
			i.Done.Excess++
		default:
			c.References = append(c.References, ref)
		}
	}
}

// end completes the current account.
func (i *Import) end() error {
	if i.current == nil {
		return nil
	}
	if err := i.resolve(); err != nil {
		return err
	}
	i.current.at = nil
	i.group = append(i.group, i.current)
	i.grouped[i.current.did] = true
	i.current = nil
	if i.changes < i.groupChanges && len(i.group) < maxGroupAccounts {
		return nil
	}
	return i.importGroup()
}

// Finish imports what is left, and makes all durable.
func (i *Import) Finish() error {
	err := i.end()
	if err == nil {
		err = i.importGroup()
	}
	if err == nil {
		_, err = i.Store.Flush()
	}
	return err
}

// importGroup lays over the accounts of the group what the log has of them, and imports them.
func (i *Import) importGroup() error {
	if len(i.group) == 0 {
		return nil
	}
	if err := i.readLog(); err != nil {
		return err
	}
	var changes []references.Change
	accounts := uint64(0)
	flush := func() error {
		if len(changes) == 0 {
			return nil
		}
		err := i.apply(changes)
		if err == nil {
			i.Done.Imported += accounts
			accounts, changes = 0, nil
			i.Progress()
			err = context.Cause(i.ctx)
		}
		return err
	}
	for _, a := range i.group {
		own, err := a.lay(i.since)
		if err != nil {
			i.refuse(a.did, err)
			continue
		}
		if len(changes)+len(own) > i.batchChanges {
			if err := flush(); err != nil {
				return err
			}
		}
		accounts++
		i.Done.Records += uint64(len(a.record))
		for n := range a.record {
			i.Done.References += uint64(len(a.record[n].References))
		}
		i.Done.Laid += uint64(len(a.laid))
		changes = append(changes, own...)
	}
	i.group, i.changes = nil, 0
	clear(i.grouped)
	return flush()
}

// apply changes the table.
func (i *Import) apply(changes []references.Change) error {
	b := references.Batch{Position: i.Store.Position(), Changes: changes}
	if err := i.Store.Hydrate(i.ctx, &b); err != nil {
		return err
	}
	return i.Store.Apply(&b)
}
