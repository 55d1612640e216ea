package relaysim

import (
	"bytes"
	"crypto/elliptic"
	"math/big"
	"slices"
	"strings"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/syntax"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-car"

	"millrace/consume/relaysim/cbor"
)

// CommitFault is one way in which a commit can be wrong that only verification finds: it is well
// formed.
type CommitFault struct {
	Name   string
	Reason string // what a correct verifier says of it, or of the next commit of the account
	// The frame has the account's own commit, and so stands for the good one. Else it comes before.
	replaces bool
	inject   func(f *faultyCommit) bool // false: this commit cannot have the fault
}

// faultyCommit is a commit's frame taken apart. What becomes of its parts is signed again.
type faultyCommit struct {
	message   comatproto.SyncSubscribeRepos_Commit
	commit    repo.Commit
	key       *signingKey
	blocks    []carBlock
	now       time.Time
	tampering func(sig []byte) // after signing
}

type carBlock struct {
	id   cid.Cid
	data []byte
}

// Signed reports whether the frame has a new commit that its account has signed.
func (k *CommitFault) Signed() bool { return k.replaces && k.inject != nil }

// CommitFaults returns all of them.
func CommitFaults() []CommitFault {
	before := func(name, reason string, inject func(f *faultyCommit) bool) CommitFault {
		return CommitFault{Name: name, Reason: reason, inject: inject}
	}
	instead := func(name, reason string, inject func(f *faultyCommit) bool) CommitFault {
		return CommitFault{Name: name, Reason: reason, replaces: true, inject: inject}
	}
	return []CommitFault{
		before("signature-bit", "bad_signature", func(f *faultyCommit) bool {
			f.tampering = func(sig []byte) { sig[len(sig)/3] ^= 4 }
			return true
		}),
		before("signature-high-s", "bad_signature", func(f *faultyCommit) bool {
			f.tampering = f.raiseS
			return true
		}),
		before("foreign-key", "bad_signature", func(f *faultyCommit) bool { return f.signAs(f.message.Repo + "x") }),
		before("other-did", "wrong_did", func(f *faultyCommit) bool {
			f.message.Repo = "did:plc:" + strings.Repeat("x", 24)
			return true
		}),
		before("rev-other", "rev_mismatch", func(f *faultyCommit) bool { return f.setRev(&f.message.Rev, f.message.Rev, 1) }),
		before("rev-future", "rev_in_future", func(f *faultyCommit) bool {
			return f.resign(makeTID(uint64(f.now.Add(time.Hour).UnixMicro()) << 10).String())
		}),
		before("rev-old", "rev_old", func(f *faultyCommit) bool {
			return f.setRev(&f.commit.Rev, *f.message.Since, -1) && f.resign(f.commit.Rev)
		}),
		before("rev-repeated", "rev_repeated", func(f *faultyCommit) bool { return f.resign(*f.message.Since) }),
		instead("tree-block", "missing_block", func(f *faultyCommit) bool {
			f.blocks = slices.DeleteFunc(f.blocks, func(b carBlock) bool { return b.id == f.commit.Data })
			return true
		}),
		instead("record-bytes", "cid_mismatch", (*faultyCommit).changeRecord),
		instead("ops-reversed", "valid", func(f *faultyCommit) bool {
			slices.Reverse(f.message.Ops)
			return len(f.message.Ops) > 1
		}),
		instead("ops-swapped", "op_mismatch", (*faultyCommit).swapOps),
		instead("op-removed", "prev_data_mismatch", func(f *faultyCommit) bool {
			f.message.Ops = f.message.Ops[:len(f.message.Ops)-1]
			return len(f.message.Ops) > 0
		}),
		instead("prev-data", "prev_data_mismatch", func(f *faultyCommit) bool {
			f.message.PrevData = &f.message.Commit
			return true
		}),
		instead("prev-data-absent", "no_prev_data", func(f *faultyCommit) bool {
			f.message.PrevData = nil
			return true
		}),
		instead("lost", "broken_chain", nil),
	}
}

// InjectFault returns the frame of a commit with the fault of that name. ok is false if this frame
// cannot have it; the fault "lost" none can.
func InjectFault(name string, frame []byte, now time.Time) (faulty []byte, ok bool) {
	for _, fault := range CommitFaults() {
		if fault.Name == name && fault.inject != nil {
			return fault.in(frame, now)
		}
	}
	return nil, false
}

// in returns the frame with the fault.
func (k *CommitFault) in(frame []byte, now time.Time) (faulty []byte, ok bool) {
	f := faultyCommit{now: now}
	if !f.takeApart(frame) || !k.inject(&f) {
		return nil, false
	}
	faulty, err := f.assemble()
	if err != nil {
		panic("relaysim: " + err.Error()) // its parts were a frame
	}
	return faulty, true
}

// takeApart returns false if frame is no commit of the world.
func (f *faultyCommit) takeApart(frame []byte) bool {
	kind, body, err := splitFrame(frame)
	if err != nil || kind != "#commit" || f.message.UnmarshalCBOR(bytes.NewReader(body)) != nil || f.message.TooBig {
		return false
	}
	r, err := car.NewCarReader(bytes.NewReader(f.message.Blocks))
	if err != nil {
		return false
	}
	found := false
	for b, err := r.Next(); err == nil; b, err = r.Next() {
		if b.Cid() != cid.Cid(f.message.Commit) {
			f.blocks = append(f.blocks, carBlock{b.Cid(), b.RawData()})
			continue
		}
		found = f.commit.UnmarshalCBOR(bytes.NewReader(b.RawData())) == nil
	}
	return found && f.message.Since != nil && f.signAs(f.message.Repo)
}

// assemble makes a frame of the parts.
func (f *faultyCommit) assemble() ([]byte, error) {
	f.commit.Sig = nil
	block, err := signedBlock(&f.commit, f.key)
	if err != nil {
		return nil, err
	}
	if f.tampering != nil {
		at := bytes.Index(block, f.commit.Sig)
		f.tampering(block[at : at+len(f.commit.Sig)])
	}
	root := blockCID(block)
	f.message.Commit = lexutil.LexLink(root)
	f.message.Blocks = cbor.AppendCARHeader(nil, root.Bytes())
	for _, b := range append(f.blocks, carBlock{root, block}) {
		f.message.Blocks = cbor.AppendCARSection(f.message.Blocks, b.id.Bytes(), b.data)
	}
	return encodeFrame("#commit", &f.message)
}

// signAs takes another account's key.
func (f *faultyCommit) signAs(did string) bool {
	var err error
	f.key, err = newSigningKey(did)
	return err == nil
}

// setRev sets a rev so many microseconds from another.
func (f *faultyCommit) setRev(rev *string, from string, micros int64) bool {
	*rev = makeTID(uint64(int64(syntax.TID(from).Integer()) + micros<<10)).String()
	return true
}

// resign gives both the commit and the frame a rev.
func (f *faultyCommit) resign(rev string) bool {
	f.commit.Rev, f.message.Rev = rev, rev
	return true
}

// raiseS replaces S by the other value that fits the signature.
func (f *faultyCommit) raiseS(sig []byte) {
	order := elliptic.P256().Params().N
	if f.key.k256 != nil {
		order, _ = new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)
	}
	s := new(big.Int).SetBytes(sig[32:])
	s.Sub(order, s).FillBytes(sig[32:])
}

// changeRecord changes a bit of the record of a commit with no other op: then a consumer makes no
// event of it, as indigo does, which would drop the others too.
func (f *faultyCommit) changeRecord() bool {
	if len(f.message.Ops) != 1 || f.message.Ops[0].Cid == nil {
		return false
	}
	for i, b := range f.blocks {
		if b.id == cid.Cid(*f.message.Ops[0].Cid) {
			f.blocks[i].data = bytes.Clone(b.data)
			f.blocks[i].data[len(b.data)/2] ^= 1
			return true
		}
	}
	return false
}

// swapOps exchanges the records of two ops.
func (f *faultyCommit) swapOps() bool {
	var with []*comatproto.SyncSubscribeRepos_RepoOp
	for _, op := range f.message.Ops {
		if op.Cid != nil && (len(with) == 0 || *op.Cid != *with[0].Cid) {
			with = append(with, op)
		}
	}
	if len(with) < 2 {
		return false
	}
	with[0].Cid, with[1].Cid = with[1].Cid, with[0].Cid
	return true
}

// faultyMix puts faulty commits among the good ones: all kinds in turn, every so often. It is not
// safe for concurrent use.
type faultyMix struct {
	kinds    []CommitFault
	every    int64 // 0: none
	count    int64 // messages since the last one
	next     int
	injected string // the fault of the newest message; "": none
	// accounts whose next commit follows on one that was sent; only these get faults
	follows map[string]bool
}

// isDue counts a message, and says whether it must be a faulty one.
func (m *faultyMix) isDue() bool {
	m.count++
	return m.every > 0 && m.count >= m.every
}

// note notes that a good frame is sent.
func (m *faultyMix) note(tmpl *template) {
	if m.every > 0 && tmpl.original.rev != (tid{}) {
		m.follows[string(tmpl.original.did)] = tmpl.ops > 0 // not after a tooBig commit
	}
}

// inject returns the faulty commit that must be sent before tmpl's frame, or instead of it if
// replaces is set. It may be nil. Where tmpl's frame cannot have the next fault, a later one is to.
func (m *faultyMix) inject(tmpl *template, now time.Time, withTruth bool) (faulty *template, replaces bool) {
	kind, did := &m.kinds[m.next], string(tmpl.original.did)
	if !m.follows[did] {
		return nil, false
	}
	frame := tmpl.frame.append(nil, &tmpl.original)
	if kind.inject == nil { // the commit is lost
		if !(&faultyCommit{}).takeApart(frame) {
			return nil, false
		}
		m.follows[did] = false
	} else {
		frame, ok := kind.in(frame, now)
		if !ok {
			return nil, false
		}
		var err error
		if faulty, err = newTemplate(frame, withTruth); err != nil {
			panic("relaysim: " + err.Error()) // it is well-formed
		}
		m.injected = kind.Name
	}
	m.count, m.next = 0, (m.next+1)%len(m.kinds)
	return faulty, kind.replaces
}
