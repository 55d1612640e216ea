package verify

import "millrace/translate"

// entry is a key of a node, and the subtree between it and the next key.
type entry struct {
	key   []byte
	value []byte // the record's CID
	right []byte // the CID of the subtree's root, or nil
}

// readNode appends the entries of the node in block, {e: [{k, p, t, v}, …], l}, and returns the CID
// of the subtree before them, or nil. ok is false if block is no node as DAG-CBOR has it.
func (t *tree) readNode(block []byte) (left []byte, ok bool) {
	d := translate.NewDecoder(block)
	if d.Map() != 2 || string(d.Text()) != "e" {
		return nil, false
	}
	entries := d
	d.Skip()
	if string(d.Text()) != "l" {
		return nil, false
	}
	left = d.LinkOrNull()
	if !d.Done() || !isNodeLink(left) {
		return nil, false
	}
	var prev []byte
	for range entries.Array() {
		e, ok := t.readEntry(&entries, prev)
		if !ok {
			return nil, false
		}
		t.entries = append(t.entries, e)
		prev = e.key
	}
	return left, entries.OK()
}

// readEntry reads an entry. Its key begins with p bytes of the one before, which is as much as they
// have in common.
func (t *tree) readEntry(d *translate.Decoder, prev []byte) (e entry, ok bool) {
	if d.Map() != 4 || string(d.Text()) != "k" {
		return e, false
	}
	suffix := d.Bytes()
	if string(d.Text()) != "p" {
		return e, false
	}
	p := d.Uint()
	if string(d.Text()) != "t" {
		return e, false
	}
	e.right = d.LinkOrNull()
	if string(d.Text()) != "v" {
		return e, false
	}
	e.value = d.Link()
	length := p + uint64(len(suffix))
	if !d.OK() || !isNodeLink(e.right) || p > uint64(len(prev)) || len(suffix) == 0 || length > maxKeyBytes {
		return e, false
	}
	if p < uint64(len(prev)) && suffix[0] == prev[p] {
		return e, false
	}
	if t.room -= itemBytes + int(length); t.room < 0 {
		return e, false
	}
	start := len(t.keys)
	t.keys = append(append(t.keys, prev[:p]...), suffix...)
	e.key = t.keys[start:len(t.keys):len(t.keys)]
	return e, true
}

// isNodeLink reports whether cid is nil or that of a block of DAG-CBOR.
func isNodeLink(cid []byte) bool {
	_, ok := digestOf(cid)
	return ok || cid == nil
}

// appendEntry appends the entry of a key that follows prev in its node.
func appendEntry(dst, prev []byte, it *item, right Digest) []byte {
	p := 0
	for p < len(prev) && p < len(it.key) && prev[p] == it.key[p] {
		p++
	}
	dst = append(dst, majorMap|4, majorText|1, 'k')
	dst = appendString(dst, majorBytes, it.key[p:])
	dst = appendHead(append(dst, majorText|1, 'p'), 0, p)
	dst = appendDigest(append(dst, majorText|1, 't'), right)
	return appendLink(append(dst, majorText|1, 'v'), it.cid)
}
