package translate

import "hash/maphash"

// Decoder reads DAG-CBOR for package verify, as AppendFrame reads it. It does not own the bytes,
// and what it returns aliases them. It keeps the first failure; after it every method returns
// zeros. A copy reads on independently from the same place.
type Decoder struct{ d decoder }

// NewDecoder returns a Decoder at the beginning of buf.
func NewDecoder(buf []byte) Decoder { return Decoder{decoder{buf: buf}} }

// ReadHeader reads the header of a frame. It returns the frame's kind and a Decoder at its body. ok
// is false if AppendFrame drops the frame for its header or size.
func ReadHeader(frame []byte) (kind FrameKind, body Decoder, ok bool) {
	d := decoder{buf: frame}
	kind, reason := readHeader(&d)
	return kind, Decoder{d}, reason == kept && len(frame) <= maxFrameBytes
}

// OK reports whether nothing has failed.
func (d *Decoder) OK() bool { return d.d.fail == failNone }

// Done reports whether nothing has failed and all was read.
func (d *Decoder) Done() bool { return d.OK() && d.d.rest() == 0 }

// Map reads the head of a map and returns the number of its entries.
func (d *Decoder) Map() int { return d.d.container(majorMap) }

// Array reads the head of an array and returns the number of its elements.
func (d *Decoder) Array() int { return d.d.container(majorArray) }

// Text reads a text string, which may be invalid UTF-8.
func (d *Decoder) Text() []byte { return d.d.text() }

// Skip passes over one item.
func (d *Decoder) Skip() { d.d.skip() }

// Bytes reads a byte string.
func (d *Decoder) Bytes() []byte { return d.d.bytes() }

// Uint reads an integer that is not negative.
func (d *Decoder) Uint() uint64 { return d.d.argument(majorUint) }

// Bool reads a bool.
func (d *Decoder) Bool() bool {
	flag, ok := flagOf(d.d.raw())
	if !ok {
		d.d.setFail(failMalformed)
	}
	return flag
}

// Link reads a link and returns its CID.
func (d *Decoder) Link() []byte {
	cid := linkCID(d.d.link())
	if cid == nil {
		d.d.setFail(failMalformed)
	}
	return cid
}

// LinkOrNull is Link, or nil for null.
func (d *Decoder) LinkOrNull() []byte {
	if d.d.rest() > 0 && isNull(d.d.buf[d.d.pos:]) {
		d.d.pos++
		return nil
	}
	return d.Link()
}

// CAR finds the blocks of a CAR by CID, for package verify. It copies nothing, and hashes once each
// block that it is asked for. The zero value is ready for Open.
type CAR struct{ index carIndex }

// Open indexes car, which must stay as it is until Close. It returns the CID of the first root, or
// nil if car is no whole CAR of version 1 with a root.
func (c *CAR) Open(car []byte) (root []byte) {
	if c.index.seed == (maphash.Seed{}) {
		c.index.seed = maphash.MakeSeed()
	}
	return c.index.open(car)
}

// Close forgets the CAR and gives large scratch back.
func (c *CAR) Close() { c.index.close() }

// Len returns the number of blocks.
func (c *CAR) Len() int { return len(c.index.blocks) }

// Block returns the data of the block of a CID, or nil if their SHA-256 is not the CID's.
func (c *CAR) Block(cid []byte) (data []byte, found bool) {
	b := c.index.find(cid)
	if b == nil {
		return nil, false
	}
	if b.state == blockUnread {
		b.state = blockMismatch
		if c.index.intact(b) {
			b.state = blockIntact
		}
	}
	if b.state == blockMismatch {
		return nil, true
	}
	return c.index.data(b), true
}

// ValidPath reports whether path is one NSID, one slash and one record key.
func ValidPath(path []byte) bool {
	_, _, ok := splitPath(path)
	return ok
}
