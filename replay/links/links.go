package links

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/replay/internal/postings"
	"millrace/replay/references"
)

// ErrBuilding means: links were switched on and are not complete yet. Progress says how far they
// are.
var ErrBuilding = errors.New("the links are being built")

// Queries are the questions that links answer. They are safe for concurrent use.
type Queries interface {
	// View returns links as they are at one position. It must be closed, soon: it keeps old files
	// on disk. Errors: ErrBuilding, and those of the store.
	View() (View, error)
	// Progress says how far links are built.
	Progress() Progress
	// Wait returns when a View opened from then on is at or after a position. Errors: the cause of
	// ctx's end, and the failure of the store.
	Wait(ctx context.Context, at references.Position) error
	// Since says where in the log the records begin: links of records that are older are known only
	// if they were imported.
	Since() references.Position
	// InexactSince returns the stamp, in Unix microseconds, of the first gap since then; deletes
	// may be missing from there. 0: there was none.
	InexactSince() int64
}

// View is links at one position. One goroutine at a time uses it. Accounts that are not active are
// in all counts and totals but OtherCounts', and in no list. Deleted accounts leave lists at once,
// and counts as their records are swept. Errors: the cause of ctx's end, and the store's.
type View interface {
	// Position is that of all answers of the view.
	Position() references.Position
	// Count returns how many links a set has: zeros if there are none.
	Count(ctx context.Context, set Set) (Counts, error)
	// CountRecords returns Records of Count, sooner.
	CountRecords(ctx context.Context, set Set) (uint64, error)
	// Records returns a page of the records that link.
	Records(ctx context.Context, set Set, page Page) (Records, error)
	// Accounts returns a page of the accounts that link, each where its first link is.
	// page.Accounts is not used.
	Accounts(ctx context.Context, set Set, page Page) (Accounts, error)
	// Sources returns the sources whose records link to a subject, with their counts, by number.
	Sources(ctx context.Context, subject uint64) ([]Source, error)
	// Others returns what the records that link to a subject refer to beside it, the oldest records
	// first; of one record in the record's order.
	Others(ctx context.Context, q OthersQuery) (Others, error)
	// OtherCounts groups the records that link to a subject by the first of their other subjects
	// that q.Others does not leave out. Groups are in the order of their oldest record. It reads
	// all records of the set, whatever the limit. Errors: ErrTooLarge, too.
	OtherCounts(ctx context.Context, q OthersQuery) (OtherCounts, error)
	// Linked returns the AT URIs that the records of an account link to from a source, in any
	// order; one of several records comes as often. It reads all records of the account. Errors:
	// ErrTooLarge if they are more than most, too.
	Linked(ctx context.Context, account uint64, path uint32, most int) ([]uint64, error)
	// MostLinked returns the sets with most links that were made in the last hour and are there.
	// It knows of those since the server was started.
	MostLinked(ctx context.Context, limit int) (MostLinked, error)
	// Close ends the use of the view. Its results stay.
	Close() error
}

// Set names the links from a source, whose number is from replay.Log's FindSource, to a subject.
type Set = postings.Set

// Counts are exact. A record counts once, however often it names the subject at the path.
type Counts struct {
	Records  uint64
	Accounts uint64 // distinct
}

// Page says which part of a list is wanted: the newest first, unless Reverse is set. Newest is the
// highest arrival number: an update makes a link the newest. A page that looks at 10,000 links, or
// at Limit if that is more, ends there: it may be short, and have a next one.
type Page struct {
	// Accounts limits a list of records to those of these UIDs. nil: of all accounts. Empty: of
	// none.
	Accounts []uint64
	// Cursor is the Next of the page before: what follows it is wanted. 0: the list's beginning.
	Cursor  uint64
	Limit   int // at least 1
	Reverse bool
}

// Link is a record that links.
type Link struct {
	Arrival uint64 // its number, from 1; no other link of the set has it
	Account uint64 // UID of the DID
	Record  uint64 // UID of the AT URI
}

// Records is a page of records.
type Records struct {
	Total uint64 // of all pages; with Page.Accounts, of these accounts
	Links []Link
	Next  uint64 // cursor of the next page; 0: this is the last
}

// Accounts is a page of accounts.
type Accounts struct {
	Total    uint64   // of all pages
	Accounts []uint64 // UIDs
	Next     uint64   // cursor of the next page; 0: this is the last
}

// Source is a source that links to a subject. Records is not 0.
type Source struct {
	Path uint32 // number of the source
	Counts
}

// MostLinked is the sets with most recent links.
type MostLinked struct {
	Since time.Time // links that were made since then; zero: there is none
	Sets  []RecentCount
	// Others is how many recent links any other set has at most.
	Others uint64
}

// RecentCount is how many records have come to link since MostLinked.Since.
type RecentCount struct {
	Set
	Records uint64
}

// OthersQuery asks for the other references of the records of a set.
type OthersQuery struct {
	Set       Set
	OtherPath uint32 // number of the source of the other references
	// Accounts limits the answer to records of these UIDs, Others to references to these. nil: all.
	// Empty: none.
	Accounts []uint64
	Others   []uint64
	Cursor   OthersCursor // the Next of the page before; zero: the beginning
	Limit    int          // at least 1
}

// OthersCursor names a reference of a record.
type OthersCursor struct {
	Arrival uint64 // of the record
	Index   uint32 // of the reference in the record; OtherCounts leaves it 0
}

// Other is another reference of a record.
type Other struct {
	Link
	Subject uint64 // UID
	IsDID   bool   // Subject is an account
}

// Others is a page of other references.
type Others struct {
	Items []Other
	Next  OthersCursor // of the next page; zero: this is the last
}

// OtherCount is how many records have a subject as their first other one.
type OtherCount struct {
	Subject uint64 // UID
	Counts
}

// OtherCounts is a page of other subjects. Accounts that are not active are not in the counts.
type OtherCounts struct {
	Counts []OtherCount
	Next   OthersCursor // of the next page; zero: this is the last
}

// Progress says how far links are built from the record table. Built rows follow the log at once,
// so the links are complete when the last one is.
type Progress struct {
	Complete bool
	Done     float64 // 0 to 1, of the table; an estimate
}

// String returns it for people.
func (p Progress) String() string {
	if p.Complete {
		return "complete"
	}
	return fmt.Sprintf("%.1f %% built", 100*p.Done)
}
