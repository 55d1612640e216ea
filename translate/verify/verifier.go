package verify

import (
	"bytes"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"

	"millrace/translate"
)

// maxAhead is how far a rev may be ahead of the clock.
const maxAhead = 5 * time.Minute

// maxKept bounds the elements of scratch that are kept from frame to frame.
const maxKept = 1 << 12

// Verifier verifies one frame at a time. It holds scratch memory only; the zero value is ready for
// use. One goroutine uses it at a time.
type Verifier struct {
	frame    frame
	reason   Reason // of the frame's form
	car      translate.CAR
	commit   commit
	tree     tree
	unsigned []byte
}

// Open reads a frame, one whole message, which must stay as it is until Check has returned. It
// returns the account's DID, which aliases the frame, or nil for what is no #commit or #sync.
func (v *Verifier) Open(message []byte) (did []byte) {
	v.reason = v.frame.read(message)
	if v.reason == InvalidFrame {
		return nil
	}
	return v.frame.did
}

// Check verifies the frame that was opened, once, but for what depends on the account's frames
// before it: Verdict.Follow adds that. key is the account's signing key, nil if it is not known.
func (v *Verifier) Check(key atcrypto.PublicKey, now time.Time) Verdict {
	verdict := Verdict{sync: v.frame.sync, keyless: key == nil}
	verdict.Reason = v.check(&verdict, key, now)
	if verdict.Reason == Valid && key == nil {
		verdict.Reason = NoKey
	}
	v.release()
	return verdict
}

// check does the work of Check.
func (v *Verifier) check(verdict *Verdict, key atcrypto.PublicKey, now time.Time) Reason {
	if v.reason != Valid && v.reason != InvalidOp {
		return v.reason
	}
	if reason := v.readCommit(); reason != Valid {
		return reason
	}
	rev, ok := translate.ParseTID(v.commit.rev)
	switch {
	case !ok:
		return InvalidCommit
	case !bytes.Equal(v.commit.did, v.frame.did):
		return WrongDID
	case !bytes.Equal(v.commit.rev, v.frame.rev):
		return RevMismatch
	case int64(rev>>10) > now.Add(maxAhead).UnixMicro(): // a TID is microseconds and ten bits more
		return RevInFuture
	}
	if key != nil {
		v.unsigned = v.commit.appendUnsigned(v.unsigned[:0])
		if key.HashAndVerify(v.unsigned, v.commit.sig) != nil {
			return BadSignature
		}
		verdict.signed = true
	}
	verdict.Rev = rev
	verdict.Data, _ = digestOf(v.commit.data)
	if v.frame.sync {
		return Valid
	}
	if v.reason != Valid {
		return v.reason
	}
	return v.checkTree(verdict)
}

// readCommit reads the commit block, the CAR's root.
func (v *Verifier) readCommit() Reason {
	root := v.car.Open(v.frame.blocks)
	if root == nil {
		return InvalidCAR
	}
	block, found := v.car.Block(root)
	switch {
	case !found:
		return MissingBlock
	case block == nil:
		return CIDMismatch
	case !v.commit.read(block):
		return InvalidCommit
	}
	return Valid
}

// checkTree holds the ops against the commit's tree, and that without them against prevData.
func (v *Verifier) checkTree(verdict *Verdict) Reason {
	if reason := v.tree.load(&v.car, v.commit.data); reason != Valid {
		return reason
	}
	if reason := v.tree.undo(v.frame.ops); reason != Valid {
		return reason
	}
	for i := range v.frame.ops {
		if o := &v.frame.ops[i]; o.value != nil {
			if data, found := v.car.Block(o.value); !found {
				return MissingBlock
			} else if data == nil {
				return CIDMismatch
			}
		}
	}
	if v.frame.noPrev {
		return NoPrevData
	}
	before, reason := v.tree.rootBefore()
	if reason != Valid {
		return reason
	}
	if v.frame.prevData == nil {
		if len(v.tree.before) > 0 {
			return NoPrevData
		}
		verdict.PrevData = before // a repository begins empty
		return Valid
	}
	var ok bool
	if verdict.PrevData, ok = digestOf(v.frame.prevData); !ok || verdict.PrevData != before {
		return PrevDataMismatch
	}
	return Valid
}

// release lets go of the frame, and of large scratch.
func (v *Verifier) release() {
	v.reason, v.frame, v.commit = InvalidFrame, frame{ops: v.frame.ops[:0]}, commit{}
	v.car.Close()
	t := &v.tree
	if max(cap(t.items), cap(t.before), cap(t.entries), cap(v.frame.ops)) > maxKept || cap(t.keys)+cap(t.out) > 64*maxKept {
		*t, v.frame.ops = tree{}, nil
	}
}
