package translate

import "bytes"

// commit is what the operations of a #commit have in common. Its slices alias the frame.
type commit struct {
	seq       int64
	did       []byte
	rev       []byte
	jsonStart int // length of the batch's JSON before the frame
	car       carState
}

// carState says whether the frame's CAR has been looked at. It is not before an operation needs it.
type carState uint8

const (
	carUnread carState = iota
	carOpen
	carInvalid
)

// appendCommit appends the events of a #commit.
func (t *Translator) appendCommit(dst *Batch) (FrameKind, Reason) {
	b := &t.body
	if item := b.fields[fieldTooBig]; item != nil {
		tooBig, ok := flagOf(item)
		if !ok {
			return FrameCommit, ReasonInvalidBody
		}
		if tooBig {
			return FrameTooBig, kept
		}
	}
	c := commit{jsonStart: len(dst.JSON)}
	var reason Reason
	if c.seq, reason = b.seq(); reason != kept {
		return FrameCommit, reason
	}
	if c.did, reason = b.text(fieldRepo, validDID, ReasonInvalidDID); reason != kept {
		return FrameCommit, reason
	}
	if c.rev, reason = b.text(fieldRev, validTID, ReasonInvalidRev); reason != kept {
		return FrameCommit, reason
	}
	if _, reason = b.text(fieldTime, validDatetime, ReasonInvalidTime); reason != kept {
		return FrameCommit, reason
	}
	return FrameCommit, t.appendOps(dst, &c)
}

// appendOps appends the events of a commit's operations. A reason it returns is for dropping the
// frame.
func (t *Translator) appendOps(dst *Batch, c *commit) Reason {
	d := decoder{buf: t.body.fields[fieldOps]}
	n := d.container(majorArray)
	if d.fail != failNone {
		return ReasonInvalidBody
	}
	if n > MaxOps {
		return ReasonTooLarge
	}
	for i := range n {
		o, reason := readOp(&d)
		if reason == kept {
			reason = t.appendOp(dst, c, &o, uint32(i))
		}
		if reason == ReasonTooLarge {
			return reason
		}
		if reason != kept {
			dst.Counts.Drops[reason]++
		}
		if len(dst.JSON)-c.jsonStart > t.maxJSONBytes {
			return ReasonTooLarge
		}
	}
	return kept
}

// op is one operation as the frame has it: each field one whole CBOR item, or nil. They alias the
// frame.
type op struct {
	action []byte
	path   []byte
	cid    []byte
}

// readOp reads the next element of ops, which is known to be well-formed CBOR.
func readOp(d *decoder) (op, Reason) {
	var o op
	if d.buf[d.pos]>>5 != majorMap {
		d.skip()
		return o, ReasonInvalidOp
	}
	reason := kept
	for range d.container(majorMap) {
		key, value := d.raw(), d.raw()
		name, ok := textOf(key)
		if !ok {
			reason = ReasonInvalidOp
			continue
		}
		var f *[]byte
		switch string(name) {
		case "action":
			f = &o.action
		case "path":
			f = &o.path
		case "cid":
			f = &o.cid
		default:
			continue
		}
		if *f != nil {
			reason = ReasonInvalidOp
		}
		*f = value
	}
	return o, reason
}

// splitPath returns the two parts of an operation's path.
func splitPath(path []byte) (collection, rkey []byte, ok bool) {
	collection, rkey, ok = bytes.Cut(path, []byte{'/'})
	return collection, rkey, ok && validNSID(collection) && validRecordKey(rkey)
}

// blockCID returns the CID of the operation's record, cidBytes long.
func (o *op) blockCID() ([]byte, Reason) {
	if isNull(o.cid) {
		return nil, ReasonMissingCID
	}
	d := decoder{buf: o.cid}
	cid := linkCID(d.link())
	if !isBlockCID(cid) {
		return nil, ReasonInvalidCID
	}
	return cid, kept
}

// appendOp appends the event of an operation. A reason it returns is for dropping the operation,
// and nothing has been appended then; ReasonTooLarge is for dropping the frame.
func (t *Translator) appendOp(dst *Batch, c *commit, o *op, index uint32) Reason {
	action, _ := textOf(o.action)
	operation := ParseOperation(action)
	if operation == OpNone {
		return ReasonUnknownAction
	}
	path, _ := textOf(o.path)
	collection, rkey, ok := splitPath(path)
	if !ok {
		return ReasonInvalidPath
	}
	if !t.collections.holds(collection) {
		dst.Counts.Filtered++
		return kept
	}
	if operation != OpDelete && !t.openCAR(dst, c) {
		return kept // the whole CAR has been counted
	}
	var cid []byte
	var blk *block
	if operation != OpDelete {
		var reason Reason
		if cid, reason = o.blockCID(); reason != kept {
			return reason
		}
		if blk, reason = t.findBlock(cid); reason != kept {
			return reason
		}
	}
	events, start := len(dst.Events), len(dst.JSON)
	e, json := appendOpHead(dst, c, operation, collection, rkey)
	e.Op = index
	if blk != nil {
		json = append(json, `,"record":`...)
		var reason Reason
		if json, reason = t.appendBlock(json, blk, c.jsonStart+t.maxJSONBytes); reason != kept {
			dst.Events, dst.JSON = dst.Events[:events], json[:start]
			return reason
		}
		json = append(appendCID(append(json, `,"cid":"`...), cid), '"')
	}
	dst.JSON = append(json, "}}"...)
	e.end = uint32(len(dst.JSON))
	return kept
}

// appendOpHead appends an event and returns it, with its JSON up to its record.
func appendOpHead(dst *Batch, c *commit, operation Operation, collection, rkey []byte) (e *Event, json []byte) {
	start := len(dst.JSON)
	e = appendEvent(dst, c.seq, c.did, KindCommit)
	e.Operation = operation
	json = append(append(dst.JSON, `"rev":"`...), c.rev...)
	json = append(append(json, `","operation":"`...), operation.String()...)
	json = append(json, `","collection":"`...)
	e.coll, e.collLen = uint32(len(json)-start), uint16(len(collection))
	json = append(append(json, collection...), `","rkey":"`...)
	e.rkey, e.rkeyLen = uint32(len(json)-start), uint16(len(rkey))
	return e, append(append(json, rkey...), '"')
}

// openCAR reports whether the frame has a CAR. It reads it when first called, and counts it if it
// is none.
func (t *Translator) openCAR(dst *Batch, c *commit) bool {
	if c.car == carUnread {
		c.car = carInvalid
		d := decoder{buf: t.body.fields[fieldBlocks]}
		if t.car.open(d.bytes()) != nil {
			c.car = carOpen
		} else {
			dst.Counts.Drops[ReasonInvalidCAR]++
		}
	}
	return c.car == carOpen
}

// findBlock returns the block of a CID, checked against it. Each block is hashed once.
func (t *Translator) findBlock(cid []byte) (*block, Reason) {
	b := t.car.find(cid)
	if b == nil {
		return nil, ReasonMissingBlock
	}
	if b.state == blockUnread && !t.car.intact(b) {
		b.state = blockMismatch
	}
	switch b.state {
	case blockMismatch:
		return nil, ReasonCIDMismatch
	case blockInvalid:
		return nil, ReasonInvalidRecord
	}
	return b, kept
}

// appendBlock appends a checked block's record to json, the batch's, which must not grow beyond
// limit. Each block is translated once; what came of it is copied for each operation that names it
// again.
func (t *Translator) appendBlock(json []byte, b *block, limit int) ([]byte, Reason) {
	if b.state == blockRecord {
		if len(json)+int(b.jsonN) > limit {
			return json, ReasonTooLarge
		}
		if t.record.refs.on {
			t.record.refs.repeat(b)
		}
		return append(json, json[b.json:b.json+b.jsonN]...), kept
	}
	start := len(json)
	json, ok := t.record.appendRecord(json, t.car.data(b), limit)
	switch {
	case ok:
		b.state, b.json, b.jsonN = blockRecord, uint32(start), uint32(len(json)-start)
		if t.record.refs.on {
			t.record.refs.keep(b)
		}
		return json, kept
	case t.record.fail == failTooLarge:
		return json, ReasonTooLarge
	}
	b.state = blockInvalid
	return json, ReasonInvalidRecord
}
