package references

import (
	"fmt"

	"millrace/replay"
)

// Operation is what a change does.
type Operation uint8

// The operations.
const (
	_             Operation = iota
	Create                  // of a record; the first three are as translate has them
	Update                  // of a record
	Delete                  // of a record
	DeleteAccount           // #account with the status deleted: all of its records are gone
	Deactivate              // #account that is not active, and not deleted: its records are hidden
	Activate                // #account that is active: they are not
	Sync                    // #sync: what the account's records are is no longer known exactly
	Gap                     // frames were lost: the same for all accounts; it has no account
	// Import begins what is imported of an account: it has no records, until the creates that
	// follow say so. They have Seq 0 and Import's Rev, and may be in several batches. Behind them
	// come the account's commits above Last which the log has, again, with Seq 0.
	Import
	// Purge forgets an account. Its records are gone, and neither the log nor an import brings
	// those of a rev at or below Rev, its last or the imported one, back, in no later generation.
	Purge
)

// String returns the operation as metrics have it.
func (o Operation) String() string {
	names := [...]string{
		Create: "create", Update: "update", Delete: "delete",
		DeleteAccount: "delete_account", Deactivate: "deactivate", Activate: "activate",
		Sync: "sync", Gap: "gap", Import: "import", Purge: "purge",
	}
	if o >= Create && int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("operation(%d)", uint8(o))
}

// Reference says that a record points at a subject: the DID or AT URI whose UID that is.
type Reference struct {
	Path      uint32 // number of the source, from the log
	Subject   uint64 // UID
	Authority uint64 // UID of the subject's authority; of a DID, the subject itself
}

// Change is one change of the table, in relay order.
type Change struct {
	Operation Operation
	// Seq is the relay's number of the frame. It is 0 of a change that does not come from the
	// relay: of Import, of the changes that follow it, and of Purge. Of Gap it may be 0.
	Seq     int64
	Account uint64 // UID of the DID
	Record  uint64 // UID of the AT URI; creates, updates and deletes only
	// Rev is a commit's, as a packed TID; of Sync and Import the repository's. Purge may have 0.
	Rev uint64
	// Last is of Import: the account's next commit is new if its rev is above that. It is Rev,
	// unless that was made from a time.
	Last uint64
	// TimeUS is the frame's own time, in Unix microseconds: DeleteAccount, Deactivate and Activate.
	// The log's stamp: Sync and Gap.
	TimeUS     int64
	References []Reference // of a create or update, in the record's order; borrowed during Hydrate
	// New: Record was given when Batch.Since had been asked for. So batches up to that one do not
	// have the record, and no row need be read for it. False says nothing.
	New bool

	// What Hydrate fills in.

	// Had is what the record had before a Create, Update or Delete. The caller's.
	Had []Reference
	// Repeated: it comes again, from an epoch that started over. It changes nothing, and has
	// neither Had nor Arrival.
	Repeated bool
	Arrival  uint64 // number of a create or update, from 1; rises with the log
}

// Position says up to which frame the log was read.
type Position = replay.EpochEnd

// Batch is the changes of whole frames of one epoch, and the position reached with them. Hydrate
// and then Apply must be called with it, once each; until then it stays as it is.
type Batch struct {
	Position Position
	Changes  []Change
	Since    uint64 // what Hydrated returned before UIDs were asked for; for Change.New

	pending *pending // of Hydrate, for Apply
}

// Generation is a run of changes without a break. A new one begins with an empty table when what
// the table says may be wrong. That is so if references were off, the UID store or the collections
// are others.
type Generation struct {
	Number uint32 // from 1; 0: none was begun
	Basis  string // what the rows depend on, for the caller to compare
	From   Position
}
