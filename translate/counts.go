package translate

import "strconv"

// FrameKind distinguishes the frames that AppendFrame was given, for counting.
type FrameKind uint8

// The kinds of frames.
const (
	// FrameCommit is a #commit with operations.
	FrameCommit FrameKind = iota
	// FrameTooBig is a #commit that says tooBig: it carries no operations.
	FrameTooBig
	// FrameIdentity is an #identity.
	FrameIdentity
	// FrameAccount is an #account.
	FrameAccount
	// FrameSync is a #sync.
	FrameSync
	// FrameInfo is an #info, which is not served.
	FrameInfo
	// FrameError is an error frame: one whose header says op -1.
	FrameError
	// FrameUnknown is one whose header is fine but whose type or op this package does not know.
	FrameUnknown
	// FrameGarbage is one without a readable header.
	FrameGarbage

	// NumFrameKinds is the number of frame kinds.
	NumFrameKinds
)

var frameKindNames = [NumFrameKinds]string{
	FrameCommit:   "commit",
	FrameTooBig:   "too_big",
	FrameIdentity: "identity",
	FrameAccount:  "account",
	FrameSync:     "sync",
	FrameInfo:     "info",
	FrameError:    "error",
	FrameUnknown:  "unknown",
	FrameGarbage:  "garbage",
}

// String returns the kind as a metric label.
func (k FrameKind) String() string { return nameOf(frameKindNames[:], "frame_kind", int(k)) }

// EventKind distinguishes the events of a batch, for counting: a commit's by its operation.
type EventKind uint8

// The kinds of events: the operations, then the other kinds, each in their order.
const (
	EventCreate EventKind = iota
	EventUpdate
	EventDelete
	EventIdentity
	EventAccount
	EventSync

	// NumEventKinds is the number of event kinds.
	NumEventKinds
)

var eventKindNames = [NumEventKinds]string{
	EventCreate:   "create",
	EventUpdate:   "update",
	EventDelete:   "delete",
	EventIdentity: "identity",
	EventAccount:  "account",
	EventSync:     "sync",
}

// String returns the kind as a metric label.
func (k EventKind) String() string { return nameOf(eventKindNames[:], "event_kind", int(k)) }

// Reason says why a frame or an operation was dropped.
type Reason uint8

// Reasons that drop a whole frame, except ReasonInvalidCAR, which drops the creates and updates of
// a frame and is counted once a frame.
const (
	// ReasonEmptyFrame: a message of no bytes.
	ReasonEmptyFrame Reason = iota
	// ReasonInvalidHeader: the header is no CBOR map with a fitting op and t, or is cut short. A
	// text message that is handed over as a frame ends here.
	ReasonInvalidHeader
	// ReasonErrorFrame: the relay reports an error (op -1).
	ReasonErrorFrame
	// ReasonUnknownOp: the header's op is neither 1 nor -1.
	ReasonUnknownOp
	// ReasonUnknownKind: the header's t is none that the protocol names.
	ReasonUnknownKind
	// ReasonTruncatedFrame: the body ends before it is complete.
	ReasonTruncatedFrame
	// ReasonInvalidBody: the body is no CBOR map of the expected fields, or bytes follow it.
	ReasonInvalidBody
	// ReasonInvalidSeq: seq is missing, no integer, or below 1.
	ReasonInvalidSeq
	// ReasonInvalidDID: the repo or did is no DID.
	ReasonInvalidDID
	// ReasonInvalidRev: rev is no TID.
	ReasonInvalidRev
	// ReasonInvalidTime: time is no RFC 3339 date and time.
	ReasonInvalidTime
	// ReasonTooLarge: the frame is over maxFrameBytes, has more than MaxOps operations, comes to
	// more JSON than the Translator allows a frame, or is a #sync whose blocks are over
	// maxSyncBytes.
	ReasonTooLarge
	// ReasonInvalidCAR: blocks is missing or no CAR, though the frame has creates or updates, or is
	// a #sync, which is dropped.
	ReasonInvalidCAR

	// ReasonInvalidOp: an element of ops is no map of the expected fields. It and all below drop
	// one operation.
	ReasonInvalidOp
	// ReasonInvalidPath: the path is not one NSID, one slash and one record key.
	ReasonInvalidPath
	// ReasonUnknownAction: neither create nor update nor delete.
	ReasonUnknownAction
	// ReasonMissingCID: a create or update without a CID.
	ReasonMissingCID
	// ReasonInvalidCID: a create or update whose CID is none the protocol allows.
	ReasonInvalidCID
	// ReasonMissingBlock: the CAR does not hold the block of the operation's CID.
	ReasonMissingBlock
	// ReasonCIDMismatch: the block's SHA-256 is not the one in its CID.
	ReasonCIDMismatch
	// ReasonInvalidRecord: the block is not a record of the data model.
	ReasonInvalidRecord

	// NumReasons is the number of reasons.
	NumReasons
)

var reasonNames = [NumReasons]string{
	ReasonEmptyFrame:     "empty_frame",
	ReasonInvalidHeader:  "invalid_header",
	ReasonErrorFrame:     "error_frame",
	ReasonUnknownOp:      "unknown_op",
	ReasonUnknownKind:    "unknown_kind",
	ReasonTruncatedFrame: "truncated_frame",
	ReasonInvalidBody:    "invalid_body",
	ReasonInvalidSeq:     "invalid_seq",
	ReasonInvalidDID:     "invalid_did",
	ReasonInvalidRev:     "invalid_rev",
	ReasonInvalidTime:    "invalid_time",
	ReasonTooLarge:       "too_large",
	ReasonInvalidCAR:     "invalid_car",
	ReasonInvalidOp:      "invalid_op",
	ReasonInvalidPath:    "invalid_path",
	ReasonUnknownAction:  "unknown_action",
	ReasonMissingCID:     "missing_cid",
	ReasonInvalidCID:     "invalid_cid",
	ReasonMissingBlock:   "missing_block",
	ReasonCIDMismatch:    "cid_mismatch",
	ReasonInvalidRecord:  "invalid_record",
}

// String returns the reason as a metric label.
func (r Reason) String() string { return nameOf(reasonNames[:], "reason", int(r)) }

// nameOf returns the name of a value, or one made of its number if it has none.
func nameOf(names []string, what string, value int) string {
	if value < len(names) {
		return names[value]
	}
	return what + "(" + strconv.Itoa(value) + ")"
}

// Counts says what became of the frames of a batch. Each frame is counted in Frames, under its
// kind. If a frame was not dropped, each of its operations is counted in Events, Filtered or Drops.
// A frame without a CAR is an exception: Drops counts all its operations without a block as one.
type Counts struct {
	Frames   [NumFrameKinds]uint64
	Events   [NumEventKinds]uint64
	Drops    [NumReasons]uint64
	Filtered uint64 // operations left out because Config.Collections does not name their collection
	// values of records that are references and beyond MaxReferences, maxFrameReferences or
	// MaxReferencePathBytes
	ExcessReferences uint64
}

// counter returns the kind that Counts has the event under.
func (e *Event) counter() EventKind {
	if e.Kind == KindCommit {
		return EventCreate + EventKind(e.Operation-OpCreate)
	}
	return EventIdentity + EventKind(e.Kind-KindIdentity)
}
