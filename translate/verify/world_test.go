package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	blockformat "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	blockstore "github.com/ipfs/go-ipfs-blockstore"
	"github.com/multiformats/go-multihash"

	"millrace/consume/relaysim/cbor"
)

// block is a block of a CAR.
type block struct {
	id   cid.Cid
	data []byte
}

func blockOf(data []byte) block {
	hash, err := multihash.Sum(data, multihash.SHA2_256, -1)
	if err != nil {
		panic(err)
	}
	return block{cid.NewCidV1(cid.DagCBOR, hash), data}
}

// carOf returns a CAR.
func carOf(root cid.Cid, blocks []block) []byte {
	car := cbor.AppendCARHeader(nil, root.Bytes())
	for _, b := range blocks {
		car = cbor.AppendCARSection(car, b.id.Bytes(), b.data)
	}
	return car
}

// sink collects the blocks that a tree is written as. Only Put is called.
type sink struct {
	blockstore.Blockstore
	blocks []block
}

func (s *sink) Put(_ context.Context, b blockformat.Block) error {
	s.blocks = append(s.blocks, block{b.Cid(), b.RawData()})
	return nil
}

// generator makes commits of one account, right and wrong ones.
type generator struct {
	*rand.Rand
	key     atcrypto.PrivateKey
	records map[string]cid.Cid // before the commit
}

const generatedDID = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"

// generated is a commit and what is true of it.
type generated struct {
	message       comatproto.SyncSubscribeRepos_Commit
	blocks        []block
	commit        repo.Commit
	before, after map[string]cid.Cid
}

func (g *generator) record() block {
	return blockOf(cbor.Append(nil, map[string]any{"$type": "com.example.record", "n": g.IntN(1 << 30)}))
}

// path returns one of few: some are there again and again.
func (g *generator) path() string {
	return fmt.Sprintf("com.example.%c/%d", 'a'+rune(g.IntN(3)), g.IntN(400))
}

func (g *generator) must(err error) {
	if err != nil {
		panic(err)
	}
}

// tree returns the whole tree of records.
func (g *generator) tree(records map[string]cid.Cid) *mst.Tree {
	tree, err := mst.LoadTreeFromMap(records)
	g.must(err)
	_, err = tree.RootCID() // now it is clean
	g.must(err)
	return tree
}

// next makes a commit as an account's server does, and moves on.
func (g *generator) next() *generated {
	c := &generated{before: maps.Clone(g.records), after: g.records}
	g.begin(c)
	tree := g.tree(c.before)
	done := make(map[string]bool)
	for range g.IntN(6) {
		path := g.path()
		if paths := slices.Sorted(maps.Keys(c.after)); len(paths) > 0 && g.IntN(2) == 0 {
			path = paths[g.IntN(len(paths))]
		}
		if done[path] {
			continue
		}
		done[path] = true
		record := g.record()
		if _, there := c.after[path]; there && g.IntN(2) == 0 {
			g.apply(c, tree, path, nil)
		} else {
			g.apply(c, tree, path, &record)
		}
	}
	g.finish(c, tree)
	return c
}

// begin fills what each commit has.
func (g *generator) begin(c *generated) {
	root, err := g.tree(c.before).RootCID()
	g.must(err)
	prevData := lexutil.LexLink(*root)
	c.message = comatproto.SyncSubscribeRepos_Commit{
		Repo: generatedDID, Rev: "3mptbypluud2a", Seq: 1, Time: "2026-01-01T00:00:00Z",
		PrevData: &prevData, Ops: []*comatproto.SyncSubscribeRepos_RepoOp{}, Blobs: []lexutil.LexLink{},
	}
}

// apply puts a record at a path, or deletes the one that is there.
func (g *generator) apply(c *generated, tree *mst.Tree, path string, record *block) {
	op := &comatproto.SyncSubscribeRepos_RepoOp{Action: "create", Path: path}
	_, there := c.after[path]
	var id *cid.Cid
	switch {
	case record == nil:
		op.Action = "delete"
		delete(c.after, path)
	case there:
		op.Action = "update"
		fallthrough
	default:
		id = &record.id
		c.blocks = append(c.blocks, *record)
		c.after[path] = record.id
	}
	applied, err := repo.ApplyOp(tree, path, id)
	g.must(err)
	if tree.IsEmpty() { // indigo would keep its root at the layer of the last key
		*tree = mst.NewEmptyTree()
	}
	op.Cid, op.Prev = (*lexutil.LexLink)(id), (*lexutil.LexLink)(applied.Prev)
	c.message.Ops = append(c.message.Ops, op)
}

// finish adds the blocks of the tree.
func (g *generator) finish(c *generated, tree *mst.Tree) {
	var s sink
	root, err := tree.WriteDiffBlocks(context.Background(), &s)
	g.must(err)
	if len(s.blocks) == 0 { // nothing has changed
		data := tree.Root.NodeData()
		b, id, err := data.Bytes()
		g.must(err)
		s.blocks = append(s.blocks, block{*id, b})
	}
	c.blocks = append(c.blocks, s.blocks...)
	c.commit = repo.Commit{DID: generatedDID, Version: 3, Data: *root, Rev: c.message.Rev}
}

// frame signs the commit and returns the message.
func (g *generator) frame(c *generated) []byte {
	c.commit.Sig = nil
	g.must(c.commit.Sign(g.key))
	var buf bytes.Buffer
	g.must(c.commit.MarshalCBOR(&buf))
	return g.frameOf(c, blockOf(buf.Bytes()))
}

// frameOf returns the message with that commit block.
func (g *generator) frameOf(c *generated, signed block) []byte {
	c.message.Commit = lexutil.LexLink(signed.id)
	c.message.Blocks = carOf(signed.id, append(slices.Clone(c.blocks), signed))
	out := bytes.NewBuffer(cbor.Append(nil, map[string]any{"op": 1, "t": "#commit"}))
	g.must(c.message.MarshalCBOR(out))
	return out.Bytes()
}

// spoil makes the commit wrong in some way, or in none.
func (g *generator) spoil(c *generated) {
	ops := c.message.Ops
	switch n := g.IntN(10); {
	case n < 2:
		i := g.IntN(len(c.blocks))
		c.blocks = slices.Delete(c.blocks, i, i+1)
	case n < 4:
		g.spoilNode(c)
	case n == 4 && len(ops) > 0:
		i := g.IntN(len(ops))
		c.message.Ops = slices.Delete(ops, i, i+1)
	case n == 5 && len(ops) > 1:
		ops[0].Path, ops[1].Path = ops[1].Path, ops[0].Path
	case n == 6 && len(ops) > 0:
		other := lexutil.LexLink(g.record().id)
		if o := ops[g.IntN(len(ops))]; g.IntN(2) == 0 {
			o.Prev = &other
		} else {
			o.Cid = &other
		}
	case n == 7 && len(ops) > 0:
		o := ops[g.IntN(len(ops))]
		o.Action = []string{"create", "update", "delete"}[g.IntN(3)]
	case n == 8:
		if paths := slices.Sorted(maps.Keys(c.after)); len(paths) > 0 {
			path := paths[g.IntN(len(paths))]
			id := lexutil.LexLink(c.after[path])
			c.message.Ops = append(ops, &comatproto.SyncSubscribeRepos_RepoOp{Action: "create", Path: path, Cid: &id})
		}
	}
}

// spoilNode makes one node wrong, and what is above it right again.
func (g *generator) spoilNode(c *generated) {
	nodes := make(map[cid.Cid][]byte)
	var ids []cid.Cid
	for _, b := range c.blocks {
		nodes[b.id] = b.data
		ids = append(ids, b.id)
	}
	at := g.IntN(len(ids))
	seen := 0
	var rewrite func(id cid.Cid) *cid.Cid
	rewrite = func(id cid.Cid) *cid.Cid {
		data, ok := nodes[id]
		if !ok {
			return &id
		}
		n, err := mst.NodeDataFromCBOR(bytes.NewReader(data))
		if err != nil {
			return &id
		}
		spoilt := seen == at
		seen++
		if n.Left != nil {
			n.Left = rewrite(*n.Left)
		}
		for i := range n.Entries {
			if n.Entries[i].Right != nil {
				n.Entries[i].Right = rewrite(*n.Entries[i].Right)
			}
		}
		if spoilt {
			g.spoilEntries(n, ids[g.IntN(len(ids))])
		}
		b, got, err := n.Bytes()
		g.must(err)
		c.blocks = append(c.blocks, block{*got, b})
		return got
	}
	c.commit.Data = *rewrite(c.commit.Data)
}

func (g *generator) spoilEntries(n *mst.NodeData, other cid.Cid) {
	if len(n.Entries) == 0 {
		n.Left = &other
		return
	}
	e := &n.Entries[g.IntN(len(n.Entries))]
	switch g.IntN(7) {
	case 0:
		e.PrefixLen += int64(g.IntN(3) - 1)
	case 1:
		e.KeySuffix = append(slices.Clone(e.KeySuffix), byte('0'+g.IntN(10)))
	case 2:
		e.Right = &other
	case 3:
		e.Right = nil
	case 4:
		n.Left = &other
	case 5:
		n.Entries = n.Entries[:len(n.Entries)-1]
	case 6:
		e.Value = other
	}
}

// newGenerator returns the generator of a seed, of an account that has some records.
func newGenerator(seed uint64, key atcrypto.PrivateKey) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), key: key, records: make(map[string]cid.Cid)}
	for range g.IntN(1 + []int{3, 30, 300}[g.IntN(3)]) {
		g.records[g.path()] = g.record().id
	}
	return g
}

// checkGenerated makes commits and compares the verdicts with indigo's. Of a commit that is valid
// the ops must be what has changed.
func checkGenerated(t *testing.T, seed uint64, key atcrypto.PrivateKey) (reasons [NumReasons]int) {
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	g := newGenerator(seed, key)
	for range 3 {
		c := g.next()
		good := g.frame(c)
		verdict := compare(t, good, public, corpusNow())
		if verdict.Reason != Valid {
			t.Errorf("seed %d: a commit as it must be: %v", seed, verdict.Reason)
		}
		reasons[verdict.Reason]++
		g.spoil(c)
		verdict = compare(t, g.frame(c), public, corpusNow())
		reasons[verdict.Reason]++
		if verdict.Reason == Valid && !c.isTrue() {
			t.Errorf("seed %d: a commit is valid whose ops are not what has changed", seed)
		}
	}
	return reasons
}

// isTrue reports whether the ops are what the records differ by.
func (c *generated) isTrue() bool {
	records := maps.Clone(c.after)
	for _, o := range c.message.Ops {
		delete(records, o.Path)
		if o.Prev != nil {
			records[o.Path] = cid.Cid(*o.Prev)
		}
	}
	return maps.Equal(records, c.before)
}

// TestGenerated compares the verdicts on generated commits with indigo's. It prints its seed.
func TestGenerated(t *testing.T) {
	var reasons [NumReasons]int
	start := rand.Uint64()
	for i := range uint64(400) {
		for r, n := range checkGenerated(t, start+i, testKey(start+i)) {
			reasons[r] += n
		}
		if t.Failed() {
			t.Fatalf("seed %d", start+i)
		}
	}
	for _, r := range []Reason{Valid, MissingBlock, InvalidTree, OpMismatch, PrevDataMismatch, InvalidOp} {
		if reasons[r] == 0 {
			t.Errorf("none of %d commits is %v", 2400, r)
		}
	}
}

// testKey returns a key, of one curve or the other.
func testKey(n uint64) atcrypto.PrivateKey {
	raw := make([]byte, 32)
	binary.BigEndian.PutUint64(raw[8:], n+1)
	if n%2 == 0 {
		key, err := atcrypto.ParsePrivateBytesK256(raw)
		if err != nil {
			panic(err)
		}
		return key
	}
	key, err := atcrypto.ParsePrivateBytesP256(raw)
	if err != nil {
		panic(err)
	}
	return key
}
