package verify

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	"github.com/ipfs/go-cid"

	"millrace/consume/relaysim/cbor"
	"millrace/translate"
)

// TestDifferences has an example of each way in which this package decides otherwise than indigo.
func TestDifferences(t *testing.T) {
	key := testKey(1)
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences() {
		t.Run(d.name, func(t *testing.T) {
			g := newGenerator(1, key)
			clear(g.records)
			message := d.make(g)
			verdict := compare(t, message, public, corpusNow())
			if verdict.Reason != d.reason {
				t.Errorf("%v, want %v", verdict.Reason, d.reason)
			}
			if err := indigoCheck(message, public); (err == nil) == (d.reason == Valid) {
				t.Errorf("indigo says the same: %v", err)
			}
		})
	}
}

// difference is a frame that indigo takes and this package does not, or the other way round.
type difference struct {
	name   string
	reason Reason
	make   func(g *generator) []byte
}

func differences() []difference {
	return []difference{
		// A relay could leave prev or prevData out, and then any op.
		{"no prevData", NoPrevData, func(g *generator) []byte {
			g.records["com.example.a/1"] = g.record().id
			c := g.change("com.example.a/2")
			c.message.PrevData = nil
			return g.frame(c)
		}},
		{"update without prev", NoPrevData, func(g *generator) []byte {
			g.records["com.example.a/1"] = g.record().id
			c := g.change("com.example.a/1")
			c.message.Ops[0].Prev = nil
			return g.frame(c)
		}},
		// Package translate drops such ops.
		{"delete of an invalid path", InvalidOp, func(g *generator) []byte {
			g.records["com.example.a"] = g.record().id
			return g.frame(g.change("-com.example.a"))
		}},
		// Package translate takes DAG-CBOR only, whose one tag is 42.
		{"CAR header with another tag", InvalidCAR, func(g *generator) []byte {
			message := g.frame(g.change("com.example.a/1"))
			return bytes.Replace(message, []byte("eroots\x81\xd8\x2a"), []byte("eroots\x81\xd8\x2b"), 1)
		}},
		// A commit has these six fields, and is signed with them only.
		{"commit with another field", InvalidCommit, func(g *generator) []byte {
			c := g.change("com.example.a/1")
			g.must(c.commit.Sign(g.key))
			signed := blockOf(cbor.Append(nil, map[string]any{
				"did": c.commit.DID, "version": 3, "prev": nil, "data": c.commit.Data, "sig": c.commit.Sig, "rev": c.commit.Rev, "more": 1,
			}))
			return g.frameOf(c, signed)
		}},
		// No account's server makes such trees: their root does not follow from their records.
		{"keys out of order", InvalidTree, func(g *generator) []byte {
			a, b := keyAt(0, ""), ""
			b = keyAt(0, a)
			return g.ofTree(mst.NodeData{Entries: []mst.EntryData{{KeySuffix: []byte(b), Value: g.record().id}, g.entryAfter(b, a)}})
		}},
		{"key twice", InvalidTree, func(g *generator) []byte {
			a := keyAt(0, "")
			return g.ofTree(mst.NodeData{Entries: []mst.EntryData{{KeySuffix: []byte(a), Value: g.record().id}, g.entryAfter(a, a)}})
		}},
		{"key at another layer", InvalidTree, func(g *generator) []byte {
			a, b := keyAt(0, ""), ""
			b = keyAt(1, a)
			return g.ofTree(mst.NodeData{Entries: []mst.EntryData{{KeySuffix: []byte(a), Value: g.record().id}, g.entryAfter(a, b)}})
		}},
		{"prefix not used", InvalidTree, func(g *generator) []byte {
			a, b := keyAt(0, ""), ""
			b = keyAt(0, a)
			return g.ofTree(mst.NodeData{Entries: []mst.EntryData{{KeySuffix: []byte(a), Value: g.record().id}, {KeySuffix: []byte(b), Value: g.record().id}}})
		}},
		// Indigo undoes one op after another, and needs subtrees that a later op makes needless.
		{"subtree needed between two ops", Valid, func(g *generator) []byte {
			a := keyAt(0, "")
			k1 := keyAt(1, a)
			k2 := keyAt(0, k1)
			g.records[a], g.records[keyAt(1, k2)] = g.record().id, g.record().id
			c := g.change(k1, k2)
			left := g.tree(map[string]cid.Cid{a: g.records[a]})
			root, err := left.RootCID()
			g.must(err)
			c.blocks = slices.DeleteFunc(c.blocks, func(b block) bool { return b.id == *root })
			return g.frame(c)
		}},
		// Indigo undoes a create before a delete whose path is above, and keeps the layer of the
		// empty tree that this leaves.
		{"every record replaced", Valid, func(g *generator) []byte {
			created := keyAt(2, "")
			deleted := keyAt(0, created)
			g.records[deleted] = g.record().id
			return g.frame(g.change("-"+deleted, created))
		}},
		// Nothing is read of it.
		{"broken block that nothing names", Valid, func(g *generator) []byte {
			c := g.change("com.example.a/1")
			c.blocks = append(c.blocks, block{g.record().id, []byte("broken")})
			return g.frame(c)
		}},
	}
}

// change makes the commit that creates or updates records at the paths, or deletes them after "-".
func (g *generator) change(paths ...string) *generated {
	c := &generated{before: maps.Clone(g.records), after: g.records}
	g.begin(c)
	tree := g.tree(c.before)
	for _, path := range paths {
		if path[0] == '-' {
			g.apply(c, tree, path[1:], nil)
			continue
		}
		record := g.record()
		g.apply(c, tree, path, &record)
	}
	g.finish(c, tree)
	return c
}

// ofTree makes a commit without ops, on a tree of one node.
func (g *generator) ofTree(n mst.NodeData) []byte {
	b, root, err := n.Bytes()
	g.must(err)
	return g.ofRoot(block{*root, b})
}

// ofRoot makes a commit without ops, on a tree of one block.
func (g *generator) ofRoot(root block) []byte {
	c := &generated{before: g.records, blocks: []block{root}}
	g.begin(c)
	prevData := lexutil.LexLink(root.id)
	c.message.PrevData = &prevData
	c.commit = repo.Commit{DID: generatedDID, Version: 3, Data: root.id, Rev: c.message.Rev}
	return g.frame(c)
}

// entryAfter returns the entry of key b after a.
func (g *generator) entryAfter(a, b string) mst.EntryData {
	p := mst.CountPrefixLen([]byte(a), []byte(b))
	return mst.EntryData{PrefixLen: int64(p), KeySuffix: []byte(b[p:]), Value: g.record().id}
}

// keyAt returns the first path of a layer that is above another.
func keyAt(layer int, above string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("com.example.a/%05d", i); key > above && layerOf([]byte(key)) == layer {
			return key
		}
	}
}

// TestTreeBomb: a node that is at many places is read once.
func TestTreeBomb(t *testing.T) {
	g := newGenerator(1, testKey(0))
	n, below := mst.NodeData{}, g.record().id
	n.Left = &below
	b, middle, err := n.Bytes()
	g.must(err)
	root := mst.NodeData{}
	for key := ""; len(root.Entries) < 30; {
		before := key
		key = keyAt(2, key)
		e := g.entryAfter(before, key)
		e.Right = middle
		root.Entries = append(root.Entries, e)
	}
	rootBlock, id, err := root.Bytes()
	g.must(err)
	c := &generated{before: g.records, blocks: []block{{*middle, b}, {*id, rootBlock}}}
	g.begin(c)
	c.commit = repo.Commit{DID: generatedDID, Version: 3, Data: *id, Rev: c.message.Rev}
	var v Verifier
	v.Open(g.frame(c))
	if verdict := v.Check(nil, corpusNow()); verdict.Reason != InvalidTree || v.tree.nodes > 4 {
		t.Errorf("%v after %d nodes, want %v", verdict.Reason, v.tree.nodes, InvalidTree)
	}
}

// TestEachBlockMissing leaves each block of commits out in turn, and changes it.
func TestEachBlockMissing(t *testing.T) {
	g := newGenerator(7, testKey(0))
	reasons := make(map[Reason]int)
	for range 40 {
		c := g.next()
		all := c.blocks
		for i := range all {
			c.blocks = slices.Delete(slices.Clone(all), i, i+1)
			verdict := compare(t, g.frame(c), nil, corpusNow())
			if reasons[verdict.Reason]++; verdict.Reason != MissingBlock && verdict.Reason != NoKey {
				t.Errorf("block %d of %d left out: %v", i, len(all), verdict.Reason)
			}
		}
	}
	if reasons[MissingBlock] == 0 {
		t.Errorf("no block was missed: %v", reasons)
	}
	c := g.change("com.example.a/1", "com.example.b/2")
	for i := range c.blocks {
		c.blocks[i].data[0] ^= 1
		if got := check(g.frame(c), nil, corpusNow()).Reason; got != CIDMismatch {
			t.Errorf("block %d of %d changed: %v", i, len(c.blocks), got)
		}
		c.blocks[i].data[0] ^= 1
	}
}

// TestForm has frames that are wrong in ways that the simulated relay has not.
func TestForm(t *testing.T) {
	g := newGenerator(2, testKey(0))
	good := g.frame(g.change("com.example.a/1"))
	empty, _, err := (&mst.NodeData{}).Bytes()
	g.must(err)
	for _, tc := range []struct {
		name   string
		reason Reason
		frame  []byte
	}{
		{"good", NoKey, good},
		{"empty", InvalidFrame, nil},
		{"garbage", InvalidFrame, []byte("garbage")},
		{"cut short", InvalidFrame, good[:len(good)-1]},
		{"more behind", InvalidFrame, append(bytes.Clone(good), 0)},
		{"identity", InvalidFrame, bytes.Replace(good, []byte("#commit"), []byte("#commis"), 1)},
		{"another kind", InvalidFrame, bytes.Replace(good, []byte("g#commit"), []byte("i#identity"), 1)},
		{"more behind a node", InvalidTree, g.ofRoot(blockOf(append(empty, 0)))},
		{"no CAR", InvalidCAR, bytes.Replace(good, []byte("fblocks"), []byte("fblockz"), 1)},
		{"no DID", InvalidFrame, bytes.Replace(good, []byte("drepo"), []byte("drepp"), 1)},
		{"version 2", InvalidCommit, g.versioned(2)},
		{"rev ahead", RevInFuture, nil},
	} {
		now := corpusNow()
		if tc.reason == RevInFuture {
			tc.frame, now = good, time.UnixMicro(int64(mustTID("3mptbypluud2a")>>10)).Add(-5*time.Minute-time.Microsecond)
			if r := check(good, nil, now.Add(time.Microsecond)).Reason; r != NoKey {
				t.Errorf("rev five minutes ahead: %v", r)
			}
		}
		if r := check(tc.frame, nil, now).Reason; r != tc.reason {
			t.Errorf("%s: %v, want %v", tc.name, r, tc.reason)
		}
	}
}

func (g *generator) versioned(version int64) []byte {
	c := g.change("com.example.a/2")
	c.commit.Version = version
	return g.frame(c)
}

func mustTID(s string) uint64 {
	n, ok := translate.ParseTID([]byte(s))
	if !ok {
		panic(s)
	}
	return n
}

// TestFollow goes through what comes before a frame.
func TestFollow(t *testing.T) {
	one, two, three := Digest{1}, Digest{2}, Digest{3}
	commit := Verdict{Rev: 10, Data: two, PrevData: one, signed: true}
	with := func(v Verdict, change func(v *Verdict)) Verdict { change(&v); return v }
	sync := with(commit, func(v *Verdict) { v.sync = true })
	wrongTree := with(commit, func(v *Verdict) { v.Reason = OpMismatch })
	for _, tc := range []struct {
		name    string
		verdict Verdict
		last    State
		reason  Reason
		next    State
	}{
		{"first", commit, State{}, Valid, State{10, two}},
		{"next", commit, State{9, one}, Valid, State{10, two}},
		{"lost one", commit, State{9, three}, BrokenChain, State{10, two}},
		{"data not known", commit, State{Rev: 9}, Valid, State{10, two}},
		{"old", commit, State{11, one}, RevOld, State{11, one}},
		{"repeated", commit, State{10, two}, RevRepeated, State{10, two}},
		{"sync", sync, State{9, three}, Valid, State{10, two}},
		{"sync of the same rev", sync, State{10, three}, Valid, State{10, two}},
		{"old sync", sync, State{11, three}, RevOld, State{11, three}},
		{"signed, but wrong", wrongTree, State{9, one}, OpMismatch, State{10, two}},
		{"signed, but wrong and old", wrongTree, State{11, one}, OpMismatch, State{11, one}},
		{"not signed", with(commit, func(v *Verdict) { v.signed, v.Reason = false, BadSignature }), State{9, one}, BadSignature, State{9, one}},
		{"no key", with(commit, func(v *Verdict) { v.signed, v.keyless, v.Reason = false, true, NoKey }), State{9, one}, NoKey, State{Rev: 9}},
	} {
		reason, next := tc.verdict.Follow(tc.last)
		if reason != tc.reason || next != tc.next {
			t.Errorf("%s: %v, %v; want %v, %v", tc.name, reason, next, tc.reason, tc.next)
		}
	}
}

// TestGenesis: the first commit of a repository has no prevData.
func TestGenesis(t *testing.T) {
	g := newGenerator(3, testKey(0))
	clear(g.records)
	c := g.change("com.example.a/1", "com.example.a/2")
	c.message.PrevData = nil
	if r := compare(t, g.frame(c), nil, corpusNow()).Reason; r != NoKey {
		t.Errorf("%v", r)
	}
}
