package verify

// Digest is the SHA-256 in the CID of a tree's root. Zero stands for none.
type Digest [32]byte

// State is what an account's last frames have left. Zero stands for an account not known.
type State struct {
	Rev  uint64 // the newest rev, as an integer
	Data Digest // root of its tree; zero: not known
}

// Verdict is what a Verifier finds in one frame, without what came before it.
type Verdict struct {
	Reason   Reason
	Rev      uint64
	Data     Digest
	PrevData Digest

	sync    bool
	signed  bool // the signature is good
	keyless bool // the signature was not checked, for want of a key
}

// Follow returns the reason of the frame as the account's next one after last, and the state it
// leaves.
func (v *Verdict) Follow(last State) (Reason, State) {
	switch {
	case v.keyless:
		return v.Reason, State{Rev: last.Rev}
	case !v.signed:
		return v.Reason, last
	case v.Rev < last.Rev:
		return v.orElse(RevOld), last
	case v.Rev == last.Rev && !v.sync:
		return v.orElse(RevRepeated), last
	}
	next := State{Rev: v.Rev, Data: v.Data}
	if !v.sync && last.Data != (Digest{}) && v.PrevData != last.Data {
		return v.orElse(BrokenChain), next
	}
	return v.Reason, next
}

// orElse returns the frame's own reason, or r if it has none.
func (v *Verdict) orElse(r Reason) Reason {
	if v.Reason != Valid {
		return v.Reason
	}
	return r
}
