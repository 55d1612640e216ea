package translate

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
)

// finder collects the references of records while recordCoder reads them. The zero value is off and
// collects none.
type finder struct {
	on     bool
	seed   maphash.Seed
	batch  *Batch   // of the frame
	frame  int      // where the frame's references begin in the batch
	first  int      // where the record's references begin in it
	text   int      // where their bytes begin in its refText
	excess uint64   // references of the record that are over a limit
	hashes []uint64 // of the record's references
	steps  []step   // from the record to the item that is being read
	path   []byte   // of the first few steps
	built  int      // how many steps path has
	types  []elementType
	typed  int // types has each element that begins before this offset and may still be asked for
}

// step leads from a map to one of its members, or from an array to one of its elements.
type step struct {
	at      uint32 // where the member's key or the element begins in the record
	keyLen  uint32
	end     uint32 // of what the step adds to the path, once it is built
	element bool
}

// elementType is the $type of an element that is a map.
type elementType struct {
	at     uint32 // where the element begins in the record
	name   uint32 // where its type begins
	length uint32 // 0: it has none
}

// beginFrame starts a frame, whose references go to dst.
func (f *finder) beginFrame(dst *Batch) { f.batch, f.frame = dst, len(dst.References) }

// endFrame ends the frame and gives large scratch back.
func (f *finder) endFrame() {
	f.batch = nil
	if cap(f.path) > maxKeptScratch {
		f.path = nil
	}
	if cap(f.types) > maxKeptEntries {
		f.types = nil
	}
}

// begin begins a record.
func (f *finder) begin() {
	f.first, f.text, f.excess = len(f.batch.References), len(f.batch.refText), 0
	f.hashes, f.steps, f.types = f.hashes[:0], f.steps[:0], f.types[:0]
	f.built, f.typed = 0, 0
}

// undo takes the record's references back.
func (f *finder) undo() {
	f.batch.References, f.batch.refText = f.batch.References[:f.first], f.batch.refText[:f.text]
}

// enterMember says that the value of a member comes next; keyLen bytes at key are its name.
func (f *finder) enterMember(key, keyLen uint32) {
	f.steps = append(f.steps, step{at: key, keyLen: keyLen})
}

// enterArray says that the elements of an array come next.
func (f *finder) enterArray() { f.steps = append(f.steps, step{element: true}) }

// element says that the next element of the array begins at pos.
func (f *finder) element(pos int) {
	last := len(f.steps) - 1
	f.steps[last].at = uint32(pos)
	f.built = min(f.built, last)
}

// leave says that the member or the array is over.
func (f *finder) leave() {
	f.steps = f.steps[:len(f.steps)-1]
	f.built = min(f.built, len(f.steps))
}

// note adds the text s of the record if it is a reference.
func (f *finder) note(record, s []byte) {
	authorityLen := referenceAuthority(s)
	if authorityLen == 0 {
		return
	}
	f.buildPath(record)
	path := f.path[1:] // without the first dot
	if len(path) > MaxReferencePathBytes {
		f.excess++
		return
	}
	hash := maphash.Bytes(f.seed, s) ^ 31*maphash.Bytes(f.seed, path)
	if f.has(hash, path, s) {
		return
	}
	b := f.batch
	if len(f.hashes) == MaxReferences || len(b.References)-f.frame == maxFrameReferences {
		f.excess++
		return
	}
	f.hashes = append(f.hashes, hash)
	at := uint32(len(b.refText))
	b.refText = append(append(b.refText, path...), s...)
	b.References = append(b.References, Reference{
		Event:        uint32(len(b.Events) - 1),
		path:         at,
		subject:      at + uint32(len(path)),
		pathLen:      uint16(len(path)),
		subjectLen:   uint16(len(s)),
		authorityLen: uint16(authorityLen),
	})
}

// has reports whether the record has a reference of this path and subject already.
func (f *finder) has(hash uint64, path, subject []byte) bool {
	for i, h := range f.hashes {
		if h == hash && bytes.Equal(f.batch.Subject(f.first+i), subject) && bytes.Equal(f.batch.ReferencePath(f.first+i), path) {
			return true
		}
	}
	return false
}

// buildPath makes path that of the item that is being read. What has been built stays, so a name is
// copied once for all references below it.
func (f *finder) buildPath(record []byte) {
	f.path = f.path[:0]
	if f.built > 0 {
		f.path = f.path[:f.steps[f.built-1].end]
	}
	for i := f.built; i < len(f.steps); i++ {
		s := &f.steps[i]
		if s.element {
			f.path = append(append(append(f.path, '['), f.typeOf(record, int(s.at))...), ']')
		} else {
			f.path = append(append(f.path, '.'), record[s.at:s.at+s.keyLen]...)
		}
		s.end = uint32(len(f.path))
	}
	f.built = len(f.steps)
}

// typeOf returns the $type of the element that begins at pos, nothing if it has none or is no map.
//
// DAG-CBOR sorts members by length first, so a reference may come before the $type. The first call
// for an element looks ahead to its end, once for all elements within it. So no byte is read twice,
// however deep arrays are nested.
func (f *finder) typeOf(record []byte, pos int) []byte {
	if record[pos]>>5 != majorMap {
		return nil
	}
	if pos >= f.typed {
		f.types = f.types[:0]
		d := decoder{buf: record, pos: pos}
		f.lookAhead(&d, true, 1)
		f.typed = d.pos
	}
	i, found := slices.BinarySearchFunc(f.types, uint32(pos), func(t elementType, pos uint32) int { return cmp.Compare(t.at, pos) })
	if !found {
		return nil
	}
	t := &f.types[i]
	return record[t.name : t.name+t.length]
}

// lookAhead passes over an item and adds the types of the elements within it, and its own if it is
// an element. Where it fails, the record is not one.
func (f *finder) lookAhead(d *decoder, element bool, depth int) {
	if d.pos >= len(d.buf) || depth > maxDepth {
		d.setFail(failMalformed)
		return
	}
	switch d.buf[d.pos] >> 5 {
	case majorArray:
		for range d.container(majorArray) {
			f.lookAhead(d, true, depth+1)
			if d.fail != failNone {
				return
			}
		}
	case majorMap:
		own := len(f.types)
		if element {
			f.types = append(f.types, elementType{at: uint32(d.pos)})
		}
		for range d.container(majorMap) {
			if key := d.text(); element && string(key) == "$type" {
				name := d.text()
				f.types[own].name, f.types[own].length = uint32(d.pos-len(name)), uint32(len(name))
			} else {
				f.lookAhead(d, false, depth+1)
			}
			if d.fail != failNone {
				return
			}
		}
	default:
		d.skip()
	}
}

// keep notes in b, the record's block, what its references are.
func (f *finder) keep(b *block) {
	b.ref, b.refs, b.excess = uint32(f.first), uint32(len(f.hashes)), f.excess
	f.batch.Counts.ExcessReferences += f.excess
}

// repeat adds the references of a block that was read for an earlier operation of the frame.
func (f *finder) repeat(b *block) {
	dst := f.batch
	n := min(int(b.refs), f.frame+maxFrameReferences-len(dst.References))
	for _, r := range dst.References[b.ref : int(b.ref)+n] {
		r.Event = uint32(len(dst.Events) - 1)
		dst.References = append(dst.References, r)
	}
	dst.Counts.ExcessReferences += b.excess + uint64(int(b.refs)-n)
}
