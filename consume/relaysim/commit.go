package relaysim

import (
	"bytes"
	"context"
	"fmt"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	blockstore "github.com/ipfs/go-ipfs-blockstore"
	cbg "github.com/whyrusleeping/cbor-gen"

	"millrace/consume/relaysim/cbor"
)

// repository is an account's repository while its acts become frames.
type repository struct {
	*account
	tree   mst.Tree
	key    *signingKey
	last   uint64 // rev, as an integer
	data   cid.Cid
	commit cid.Cid
	signed []byte // the newest commit block
	car    carWriter
}

// perform makes the frames of the account's acts, and forgets these.
func (a *account) perform(templates []*template, withTruth bool) (err error) {
	if a.repo == nil {
		if a.repo, err = newRepository(a); err != nil {
			return err
		}
	}
	for _, act := range a.acts {
		kind, body, err := a.repo.body(&act)
		if err != nil {
			return err
		}
		frame, err := encodeFrame(kind, body)
		if err != nil {
			return err
		}
		if templates[act.frame], err = newTemplate(frame, withTruth); err != nil {
			return err
		}
	}
	a.acts = nil
	return nil
}

// newRepository makes the account's repository as it was an hour before its first act.
func newRepository(a *account) (r *repository, err error) {
	r = &repository{account: a, tree: mst.NewEmptyTree()}
	if r.key, err = newSigningKey(a.did); err != nil {
		return nil, err
	}
	for _, o := range a.history {
		past := blockCID([]byte(a.did + "/" + o.path)) // from before the world; no record has it
		if _, err := r.tree.Insert([]byte(o.path), past); err != nil {
			return nil, fmt.Errorf("insert %s: %w", o.path, err)
		}
	}
	return r, r.snapshot(a.acts[0].time.Add(-time.Hour))
}

// encodeFrame returns a frame of a kind.
func encodeFrame(kind string, body cbg.CBORMarshaler) ([]byte, error) {
	frame := bytes.NewBuffer(cbor.Append(nil, map[string]any{"op": 1, "t": kind}))
	if err := body.MarshalCBOR(frame); err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return frame.Bytes(), nil
}

// body makes the body of an act's frame. Its seq is filled in when it is sent.
func (r *repository) body(a *act) (kind string, body cbg.CBORMarshaler, err error) {
	at := a.time.UTC().Format(timeLayout)
	const seq = 1
	switch a.kind {
	case actIdentity:
		return "#identity", &comatproto.SyncSubscribeRepos_Identity{Did: r.did, Handle: new(r.handle), Seq: seq, Time: at}, nil
	case actAccount:
		body := &comatproto.SyncSubscribeRepos_Account{Active: a.status == "", Did: r.did, Seq: seq, Time: at}
		if a.status != "" {
			body.Status = &a.status
		}
		return "#account", body, nil
	case actSync:
		if r.signed == nil { // nothing was committed since the world began
			if err := r.sign(); err != nil {
				return "", nil, err
			}
		}
		r.car.add(r.commit, r.signed)
		return "#sync", &comatproto.SyncSubscribeRepos_Sync{Blocks: r.car.take(r.commit), Did: r.did, Rev: makeTID(r.last).String(), Seq: seq, Time: at}, nil
	}
	commit, err := r.apply(a)
	if err != nil {
		return "", nil, err
	}
	commit.Seq, commit.Time = seq, at
	return "#commit", commit, nil
}

// apply applies an act's ops to the repository and makes the commit's message.
func (r *repository) apply(a *act) (*comatproto.SyncSubscribeRepos_Commit, error) {
	since := makeTID(r.last).String()
	prevData := lexutil.LexLink(r.data)
	message := &comatproto.SyncSubscribeRepos_Commit{
		Blobs: []lexutil.LexLink{}, Ops: []*comatproto.SyncSubscribeRepos_RepoOp{},
		PrevData: &prevData, Repo: r.did, Since: &since,
	}
	for _, o := range a.ops {
		op, err := r.applyOp(o)
		if err != nil {
			return nil, err
		}
		message.Ops = append(message.Ops, op)
	}
	if _, err := r.tree.WriteDiffBlocks(context.Background(), &r.car); err != nil {
		return nil, fmt.Errorf("write tree: %w", err)
	}
	if err := r.snapshot(a.time); err != nil {
		return nil, err
	}
	if err := r.sign(); err != nil {
		return nil, err
	}
	message.Rev = makeTID(r.last).String()
	message.Commit = lexutil.LexLink(r.commit)
	r.car.add(r.commit, r.signed)
	message.Blocks = r.car.take(r.commit)
	if a.kind == actTooBig {
		message.TooBig, message.Ops, message.Blocks = true, []*comatproto.SyncSubscribeRepos_RepoOp{}, lexutil.LexBytes{}
		return message, nil
	}
	return message, nil
}

// applyOp changes one record, whose block goes into the CAR.
func (r *repository) applyOp(o op) (*comatproto.SyncSubscribeRepos_RepoOp, error) {
	var id *cid.Cid
	if o.record != nil {
		c := blockCID(o.record)
		id = &c
		r.car.add(c, o.record)
	}
	done, err := repo.ApplyOp(&r.tree, o.path, id)
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", o.path, err)
	}
	if r.tree.IsEmpty() { // indigo would keep its root at the layer of the last key
		r.tree = mst.NewEmptyTree()
	}
	out := &comatproto.SyncSubscribeRepos_RepoOp{Path: o.path, Cid: (*lexutil.LexLink)(id), Prev: (*lexutil.LexLink)(done.Prev)}
	switch {
	case done.IsDelete():
		out.Action = "delete"
	case done.Prev != nil:
		out.Action = "update"
	default:
		out.Action = "create"
	}
	return out, nil
}

// snapshot makes the tree as it is now the repository's state at t.
func (r *repository) snapshot(t time.Time) error {
	root, err := r.tree.RootCID()
	if err != nil {
		return fmt.Errorf("tree root: %w", err)
	}
	r.data = *root
	r.last = r.rev(r.last, t)
	return nil
}

// sign makes the commit of the repository's state.
func (r *repository) sign() (err error) {
	commit := repo.Commit{DID: r.did, Version: repo.ATPROTO_REPO_VERSION, Data: r.data, Rev: makeTID(r.last).String()}
	r.signed, err = signedBlock(&commit, r.key)
	r.commit = blockCID(r.signed)
	return err
}

// signedBlock signs a commit and returns its block.
func signedBlock(commit *repo.Commit, key *signingKey) ([]byte, error) {
	if err := commit.Sign(key); err != nil {
		return nil, fmt.Errorf("sign commit: %w", err)
	}
	var buf bytes.Buffer
	if err := commit.MarshalCBOR(&buf); err != nil {
		return nil, fmt.Errorf("encode commit: %w", err)
	}
	return buf.Bytes(), nil
}

// carWriter collects blocks for a CAR. It stands in for the block store that trees are written to,
// of which only Put is ever called.
type carWriter struct {
	blockstore.Blockstore
	body []byte
}

// add appends a block.
func (w *carWriter) add(id cid.Cid, data []byte) {
	w.body = cbor.AppendCARSection(w.body, id.Bytes(), data)
}

// Put implements blockstore.Blockstore.
func (w *carWriter) Put(_ context.Context, b blocks.Block) error {
	w.add(b.Cid(), b.RawData())
	return nil
}

// take returns the CAR of what was added, under a root, and empties the writer.
func (w *carWriter) take(root cid.Cid) []byte {
	car := append(cbor.AppendCARHeader(nil, root.Bytes()), w.body...)
	w.body = w.body[:0]
	return car
}
