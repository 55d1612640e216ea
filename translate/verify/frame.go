package verify

import (
	"bytes"
	"slices"

	"millrace/translate"
)

// frame is what is read of a #commit or #sync. Its slices alias the message.
type frame struct {
	sync     bool
	did, rev []byte
	prevData []byte // a CID, or nil
	blocks   []byte
	ops      []op // by path, each once
	noPrev   bool // an update or delete has no prev
}

// op is one operation.
type op struct {
	action      translate.Operation
	path        []byte
	value, prev []byte // CIDs, or nil
}

// read reads a message.
func (f *frame) read(message []byte) Reason {
	kind, d, ok := translate.ReadHeader(message)
	*f = frame{sync: kind == translate.FrameSync, ops: f.ops[:0]}
	if !ok || !f.sync && kind != translate.FrameCommit {
		return InvalidFrame
	}
	account := "repo"
	if f.sync {
		account = "did"
	}
	tooBig, invalidOp := false, false
	var seen uint8
	once := func(bit uint8) bool {
		ok = ok && seen&bit == 0
		seen |= bit
		return ok
	}
	for range d.Map() {
		switch key := d.Text(); {
		case string(key) == account && once(1):
			f.did = d.Text()
		case string(key) == "rev" && once(2):
			f.rev = d.Text()
		case string(key) == "blocks" && once(4):
			f.blocks = d.Bytes()
		case string(key) == "ops" && !f.sync && once(8):
			invalidOp = !f.readOps(&d)
		case string(key) == "prevData" && !f.sync && once(16):
			f.prevData = d.LinkOrNull()
		case string(key) == "tooBig" && !f.sync && once(32):
			tooBig = d.Bool()
		default:
			d.Skip()
		}
	}
	switch {
	case !ok || !d.Done() || f.did == nil || f.rev == nil:
		return InvalidFrame
	case tooBig:
		return TooBig
	case invalidOp || !f.sortOps():
		return InvalidOp
	}
	return Valid
}

// readOps reads the value of ops. It returns false if one is none that the protocol allows, or if
// they are too many, which are not kept.
func (f *frame) readOps(d *translate.Decoder) bool {
	n, ok := d.Array(), true
	if n > translate.MaxOps {
		for range n {
			d.Skip()
		}
		return false
	}
	for range n {
		o := op{}
		for range d.Map() {
			switch string(d.Text()) {
			case "action":
				o.action = translate.ParseOperation(d.Text())
			case "path":
				o.path = d.Text()
			case "cid":
				o.value = d.LinkOrNull()
			case "prev":
				o.prev = d.LinkOrNull()
			default:
				d.Skip()
			}
		}
		if !d.OK() {
			return false
		}
		f.ops = append(f.ops, o)
		ok = ok && o.valid()
		f.noPrev = f.noPrev || o.prev == nil && o.action != translate.OpCreate
	}
	return ok
}

// valid reports whether the op has what its action needs, and nothing else.
func (o *op) valid() bool {
	if !translate.ValidPath(o.path) {
		return false
	}
	switch o.action {
	case translate.OpCreate:
		return o.value != nil && o.prev == nil
	case translate.OpUpdate:
		return o.value != nil && !bytes.Equal(o.value, o.prev)
	case translate.OpDelete:
		return o.value == nil
	}
	return false
}

// sortOps sorts the ops by path. It returns false if two have one path.
func (f *frame) sortOps() bool {
	slices.SortFunc(f.ops, func(a, b op) int { return bytes.Compare(a.path, b.path) })
	for i := 1; i < len(f.ops); i++ {
		if bytes.Equal(f.ops[i-1].path, f.ops[i].path) {
			return false
		}
	}
	return true
}
