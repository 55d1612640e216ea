package verify

import (
	"bytes"
	"crypto/sha256"
	"math/bits"

	"millrace/translate"
)

const (
	// maxKeyBytes is the largest key of a tree.
	maxKeyBytes = 1024
	// maxTreeBytes is about how much memory a partial tree may take: some twenty thousand keys. A
	// commit of 200 ops, the protocol's limit, has a quarter of that.
	maxTreeBytes = 4 << 20
	// itemBytes is what a key takes in it, as an entry and twice as an item, beside its bytes.
	itemBytes = 192
)

// item is a part of a tree: a key, or a subtree that the CAR lacks.
type item struct {
	key   []byte // nil: a subtree
	cid   []byte // of the record, or of the subtree's root
	layer int    // of the node that has the key, or of the subtree's root
}

func (it *item) isSubtree() bool { return it.key == nil }

// tree is a partial tree as its items, in order. No two subtrees are side by side as long as no
// key was removed. Its slices alias the CAR, or scratch.
type tree struct {
	car   *translate.CAR
	items []item
	nodes int    // that were read
	last  []byte // newest key

	before  []item  // the items without the ops
	entries []entry // of the nodes that are being read
	keys    []byte
	room    int    // bytes that further keys may take
	out     []byte // nodes that are being written
	partial bool   // the root depends on a subtree that the CAR lacks
}

// load reads the tree of a root.
func (t *tree) load(car *translate.CAR, root []byte) Reason {
	t.car, t.items, t.nodes, t.last = car, t.items[:0], 0, nil
	t.entries, t.keys, t.room = t.entries[:0], t.keys[:0], maxTreeBytes
	block, found := car.Block(root)
	if !found {
		return MissingBlock
	}
	return t.loadBlock(block, 0, true)
}

// loadNode reads the node of a CID, which is at that layer.
func (t *tree) loadNode(cid []byte, layer int) Reason {
	if layer < 0 {
		return InvalidTree
	}
	if block, found := t.car.Block(cid); found {
		return t.loadBlock(block, layer, false)
	}
	t.items = append(t.items, item{cid: cid, layer: layer})
	return Valid
}

// loadBlock reads the node in block. The layer of the root is that of its keys.
func (t *tree) loadBlock(block []byte, layer int, isRoot bool) Reason {
	if block == nil {
		return CIDMismatch
	}
	t.nodes++
	from := len(t.entries)
	left, ok := t.readNode(block)
	entries := t.entries[from:]
	switch {
	case !ok || t.nodes > t.car.Len(): // some node is at two places
		return InvalidTree
	case len(entries) > 0 && isRoot:
		layer = layerOf(entries[0].key)
	case len(entries) > 0:
	case left == nil && isRoot:
		return Valid // of no keys
	case left == nil || isRoot:
		return InvalidTree
	}
	if left != nil {
		if reason := t.loadNode(left, layer-1); reason != Valid {
			return reason
		}
	}
	for _, e := range entries {
		if bytes.Compare(e.key, t.last) <= 0 || layerOf(e.key) != layer {
			return InvalidTree
		}
		t.items, t.last = append(t.items, item{e.key, e.value, layer}), e.key
		if e.right == nil {
			continue
		}
		if reason := t.loadNode(e.right, layer-1); reason != Valid {
			return reason
		}
	}
	t.entries = t.entries[:from]
	return Valid
}

// undo fills t.before: the items of the tree with the ops, which are sorted by path, undone.
func (t *tree) undo(ops []op) Reason {
	t.before = t.before[:0]
	at := 0
	for i := range ops {
		o := &ops[i]
		for at < len(t.items) && t.comesBefore(at, o.path) {
			t.before = append(t.before, t.items[at])
			at++
		}
		var here *item
		if at < len(t.items) {
			here = &t.items[at]
		}
		switch {
		case here != nil && here.isSubtree():
			return MissingBlock // the path may be in it
		case here != nil && !bytes.Equal(here.key, o.path):
			here = nil
		}
		if (here == nil) != (o.value == nil) || here != nil && !bytes.Equal(here.cid, o.value) {
			return OpMismatch
		}
		if o.prev != nil {
			t.before = append(t.before, item{o.path, o.prev, layerOf(o.path)})
		}
		if here != nil {
			at++
		}
	}
	t.before = append(t.before, t.items[at:]...)
	return Valid
}

// comesBefore reports whether an item is before a path. A subtree is if the key after it is not
// above the path.
func (t *tree) comesBefore(at int, path []byte) bool {
	if !t.items[at].isSubtree() {
		return bytes.Compare(t.items[at].key, path) < 0
	}
	return at+1 < len(t.items) && bytes.Compare(t.items[at+1].key, path) <= 0
}

// rootBefore returns the root of the tree that undo has left.
func (t *tree) rootBefore() (Digest, Reason) {
	t.out, t.partial = t.out[:0], false
	top := -1
	for i := range t.before {
		if it := &t.before[i]; !it.isSubtree() {
			top = max(top, it.layer)
		}
	}
	if len(t.before) == 1 && top < 0 { // what was above the subtree is gone
		top = t.before[0].layer
	}
	root := t.build(t.before, top)
	if t.partial {
		return root, MissingBlock
	}
	return root, Valid
}

// build returns the root of the tree of items, whose keys are of that layer or below.
func (t *tree) build(items []item, layer int) Digest {
	if len(items) == 1 && items[0].isSubtree() && items[0].layer == layer {
		digest, _ := digestOf(items[0].cid)
		return digest
	}
	n := 0
	for i := range items {
		switch it := &items[i]; {
		case it.isSubtree() && it.layer >= layer: // it would have to be joined with something
			t.partial = true
			return Digest{}
		case !it.isSubtree() && it.layer == layer:
			n++
		}
	}
	start := len(t.out)
	t.out = appendHead(append(t.out, majorMap|2, majorText|1, 'e'), majorArray, n)
	left, items := t.buildRun(items, layer)
	for prev := []byte(nil); len(items) > 0; {
		it := &items[0]
		var right Digest
		right, items = t.buildRun(items[1:], layer)
		t.out = appendEntry(t.out, prev, it, right)
		prev = it.key
	}
	t.out = appendDigest(append(t.out, majorText|1, 'l'), left)
	digest := Digest(sha256.Sum256(t.out[start:]))
	t.out = t.out[:start]
	return digest
}

// buildRun returns the root of the items before the first key of the layer, zero if there are none,
// and the items from that key on.
func (t *tree) buildRun(items []item, layer int) (root Digest, rest []item) {
	n := 0
	for n < len(items) && (items[n].isSubtree() || items[n].layer < layer) {
		n++
	}
	if n > 0 && !t.partial {
		root = t.build(items[:n], layer-1)
	}
	return root, items[n:]
}

// layerOf returns the layer of a key: how many pairs of zero bits its SHA-256 begins with.
func layerOf(key []byte) int {
	sum := sha256.Sum256(key)
	for i, b := range sum {
		if b != 0 {
			return 4*i + bits.LeadingZeros8(b)/2
		}
	}
	return 4 * len(sum)
}
