package refs

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-car"
	"github.com/ipld/go-car/util"
	"github.com/multiformats/go-multihash"

	"millrace/translate"
)

// repository is what a CAR file holds.
type repository struct {
	did    string
	rev    uint64
	blocks map[cid.Cid][]byte // as the file has them, not compared with their CIDs yet
	keys   []repositoryKey    // in ascending order
}

// repositoryKey is an entry of the tree.
type repositoryKey struct {
	path  []byte // collection/rkey if valid, which is not known yet
	block cid.Cid
}

// readCAR reads a repository. Its blocks must be what their CIDs say, and its tree whole and in
// order; the signature of its commit is not verified.
func (r *Reader) readCAR(ctx context.Context, in *bufio.Reader, sink Sink) error {
	held, err := loadRepository(in, maxRepositoryBytes)
	if err != nil {
		return fmt.Errorf("CAR file: %w", err)
	}
	tr, err := translate.New(translate.Config{Collections: r.Collections, References: true})
	if err != nil {
		return err
	}
	if err := sink.Begin(held.did, held.rev); err != nil {
		return err
	}
	var b translate.Batch
	for i, k := range held.keys {
		block, known := held.blocks[k.block]
		switch {
		case !known:
			b.Counts.Drops[translate.ReasonMissingBlock]++
		case !isBlock(k.block):
			b.Counts.Drops[translate.ReasonInvalidCID]++
		case !intact(k.block, block):
			b.Counts.Drops[translate.ReasonCIDMismatch]++
		default:
			tr.AppendRecord(&b, []byte(held.did), k.path, block)
		}
		if len(b.JSON) > maxBatchJSON || i == len(held.keys)-1 {
			if err := errors.Join(r.deliver(&b, sink), context.Cause(ctx)); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxBatchJSON is how much JSON makes a batch of records full.
const maxBatchJSON = 4 << 20

// deliver gives the records of a batch to the sink, and empties it.
func (r *Reader) deliver(b *translate.Batch, sink Sink) error {
	r.Counts.Excess += b.Counts.ExcessReferences
	r.Counts.Filtered += b.Counts.Filtered
	for reason, n := range b.Counts.Drops {
		if n == 0 {
			continue
		}
		if r.Counts.Dropped == nil {
			r.Counts.Dropped = make(map[string]uint64)
		}
		r.Counts.Dropped[translate.Reason(reason).String()] += n
	}
	var rec Record
	ref := 0
	for i := range b.Events {
		rec = Record{Collection: b.Collection(i), Key: b.RecordKey(i), References: rec.References[:0]}
		for ; ref < len(b.References) && int(b.References[ref].Event) == i; ref++ {
			rec.References = append(rec.References, Reference{b.ReferencePath(ref), b.Subject(ref)})
		}
		if err := sink.Add(&rec); err != nil {
			return err
		}
	}
	b.Reset()
	return nil
}

// loadRepository reads a CAR file of at most maxBytes into memory and checks its structure.
// Whatever a library panics with becomes an error.
func loadRepository(in *bufio.Reader, maxBytes int) (held *repository, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be read: %v", p)
		}
	}()
	header, err := car.ReadHeader(in)
	if err != nil {
		return nil, err
	}
	if header.Version != 1 || len(header.Roots) == 0 {
		return nil, fmt.Errorf("it has version %d and %d roots; version 1 with a root is needed", header.Version, len(header.Roots))
	}
	held = &repository{blocks: make(map[cid.Cid][]byte)}
	size := 0
	for {
		if _, err := in.Peek(1); errors.Is(err, io.EOF) {
			break
		}
		id, block, err := util.ReadNode(in)
		if err != nil {
			return nil, fmt.Errorf("read the block after the first %d: %w", len(held.blocks), err)
		}
		if size += len(block) + blockOverhead; size > maxBytes {
			return nil, fmt.Errorf("it has more than %d bytes", maxBytes)
		}
		if _, twice := held.blocks[id]; !twice { // the first of equal blocks counts
			held.blocks[id] = block
		}
	}
	var commit repo.Commit
	block, err := held.block(header.Roots[0])
	if err == nil {
		err = commit.UnmarshalCBOR(bytes.NewReader(block))
	}
	if err == nil {
		err = commit.VerifyStructure()
	}
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	held.did, held.rev = commit.DID, syntax.TID(commit.Rev).Integer()
	if held.rev == 0 { // it would be taken for that of rows
		return nil, fmt.Errorf("commit: its rev %s is no time", commit.Rev)
	}
	if err := held.walk(commit.Data, -1); err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	return held, nil
}

// blockOverhead is about what a block takes beside its bytes.
const blockOverhead = 120

// block returns a block that must be what its CID says.
func (held *repository) block(id cid.Cid) ([]byte, error) {
	block, known := held.blocks[id]
	switch {
	case !known:
		return nil, fmt.Errorf("block %v is missing", id)
	case !isBlock(id) || !intact(id, block):
		return nil, fmt.Errorf("the contents of block %v do not match its CID", id)
	}
	return block, nil
}

// emptyTree is the only node of an empty repository, {"e": [], "l": null}. A record decodes as a
// node without keys, too.
const emptyTree = "\xa2\x61e\x80\x61l\xf6"

// walk gathers the keys at and below a node. level is that of the node's keys, one less than that
// of its parent; -1: the node is the root. So the depth is at most the number of levels of a key.
// Each node must have a key at or below it that is greater than those before, so no node is visited
// twice.
func (held *repository) walk(id cid.Cid, level int) error {
	block, err := held.block(id)
	if err != nil {
		return err
	}
	node, err := mst.NodeDataFromCBOR(bytes.NewReader(block))
	if err != nil {
		return fmt.Errorf("node %v: %w", id, err)
	}
	if len(node.Entries) == 0 {
		if level < 0 && string(block) == emptyTree {
			return nil
		}
		if level <= 0 || node.Left == nil {
			return fmt.Errorf("node %v has no keys", id)
		}
	}
	if node.Left != nil && level >= 0 {
		if err := held.walkBelow(*node.Left, level); err != nil {
			return err
		}
	}
	var key []byte
	for i := range node.Entries {
		e := &node.Entries[i]
		if e.PrefixLen < 0 || e.PrefixLen > int64(len(key)) || len(e.KeySuffix) > mst.MAX_KEY_BYTES {
			return fmt.Errorf("node %v: key %d is malformed", id, i)
		}
		key = append(key[:e.PrefixLen:e.PrefixLen], e.KeySuffix...)
		if !mst.IsValidKey(key) {
			return fmt.Errorf("node %v: key %d, of %d bytes, is not valid", id, i, len(key))
		}
		if level < 0 {
			if level = mst.HeightForKey(key); node.Left != nil {
				if err := held.walkBelow(*node.Left, level); err != nil {
					return err
				}
			}
		}
		if h := mst.HeightForKey(key); h != level {
			return fmt.Errorf("node %v: key %.100q belongs on level %d, not %d", id, key, h, level)
		}
		if n := len(held.keys); n > 0 && bytes.Compare(held.keys[n-1].path, key) >= 0 {
			return fmt.Errorf("node %v: key %.100q is not after %.100q", id, key, held.keys[n-1].path)
		}
		held.keys = append(held.keys, repositoryKey{key, e.Value})
		if e.Right != nil {
			if err := held.walkBelow(*e.Right, level); err != nil {
				return err
			}
		}
	}
	return nil
}

// walkBelow walks a child of a node that is on this level of the tree.
func (held *repository) walkBelow(id cid.Cid, level int) error {
	if level == 0 {
		return fmt.Errorf("node %v is below the lowest level", id)
	}
	return held.walk(id, level-1)
}

// isBlock says whether a CID is one that a repository's block can have.
func isBlock(id cid.Cid) bool {
	p := id.Prefix()
	return p.Version == 1 && (p.Codec == cid.DagCBOR || p.Codec == cid.Raw) && p.MhType == multihash.SHA2_256 && p.MhLength == sha256.Size
}

// intact says whether the SHA-256 of a block is that of its CID, which isBlock.
func intact(id cid.Cid, block []byte) bool {
	sum, digest := sha256.Sum256(block), id.Hash()
	return len(digest) >= len(sum) && bytes.Equal(digest[len(digest)-len(sum):], sum[:])
}
