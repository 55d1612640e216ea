package verify

import "strconv"

// Reason says why a frame is not verified, or that it is.
type Reason uint8

// The reasons.
const (
	// Valid: the frame is the account's, and follows on its last one.
	Valid Reason = iota
	// NoKey: all is well but the signature, for which there was no key.
	NoKey
	// InvalidFrame: no #commit or #sync of the expected fields.
	InvalidFrame
	// TooBig: the commit says tooBig, and so has nothing to verify.
	TooBig
	// InvalidCAR: blocks is missing or no CAR.
	InvalidCAR
	// InvalidCommit: the CAR's root is no signed commit of version 3.
	InvalidCommit
	// WrongDID: the commit is of another account than the frame.
	WrongDID
	// RevMismatch: the commit has another rev than the frame.
	RevMismatch
	// RevInFuture: rev is more than five minutes ahead.
	RevInFuture
	// BadSignature: the signature is not the account's, or has a high S.
	BadSignature
	// InvalidOp: an op is none that the protocol allows, two have one path, or they are too many.
	InvalidOp
	// MissingBlock: the CAR lacks the commit, a record, or a node that the ops depend on.
	MissingBlock
	// CIDMismatch: the SHA-256 of a block that is needed is not that of its CID.
	CIDMismatch
	// InvalidTree: a node is no node of a Merkle search tree, or not where it must be, or the CAR
	// has far more of the tree than the ops can need.
	InvalidTree
	// OpMismatch: the tree does not have at the path of an op what the op says.
	OpMismatch
	// NoPrevData: the frame has no prevData, or an update or delete no prev.
	NoPrevData
	// PrevDataMismatch: the tree without the ops is not prevData.
	PrevDataMismatch
	// RevOld: rev is below the account's last one.
	RevOld
	// RevRepeated: rev is the account's last one.
	RevRepeated
	// BrokenChain: prevData is not what the account's last commit or #sync had as data.
	BrokenChain

	// NumReasons is the number of reasons.
	NumReasons
)

var reasonNames = [NumReasons]string{
	Valid:            "valid",
	NoKey:            "no_key",
	InvalidFrame:     "invalid_frame",
	TooBig:           "too_big",
	InvalidCAR:       "invalid_car",
	InvalidCommit:    "invalid_commit",
	WrongDID:         "wrong_did",
	RevMismatch:      "rev_mismatch",
	RevInFuture:      "rev_in_future",
	BadSignature:     "bad_signature",
	InvalidOp:        "invalid_op",
	MissingBlock:     "missing_block",
	CIDMismatch:      "cid_mismatch",
	InvalidTree:      "invalid_tree",
	OpMismatch:       "op_mismatch",
	NoPrevData:       "no_prev_data",
	PrevDataMismatch: "prev_data_mismatch",
	RevOld:           "rev_old",
	RevRepeated:      "rev_repeated",
	BrokenChain:      "broken_chain",
}

// String returns the reason as the wire and the metrics spell it.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "reason(" + strconv.Itoa(int(r)) + ")"
}
