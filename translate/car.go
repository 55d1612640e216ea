package translate

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
)

// blockState says what is known of a block beyond its place.
type blockState uint8

const (
	blockUnread   blockState = iota
	blockMismatch            // its SHA-256 is not that of its CID
	blockInvalid             // it is no record
	blockRecord              // its JSON is in the batch
	blockIntact              // its SHA-256 is that of its CID; of a CAR only
)

// block is one block of a CAR.
type block struct {
	at    uint32 // offset of its CID, of cidBytes bytes, in the CAR; its data follow
	end   uint32 // one past its data
	json  uint32 // where its JSON is in the batch, if blockRecord
	jsonN uint32 // how long that is
	state blockState

	ref    uint32 // where its references are in the batch, if blockRecord
	refs   uint32 // how many those are
	excess uint64 // how many more are over a limit
}

// carIndex finds the blocks of one CAR (https://ipld.io/specs/transport/car/carv1/) by CID. It
// copies nothing and hashes only what it is asked for.
type carIndex struct {
	car    []byte
	blocks []block
	// open addressing: block number plus one, 0 if free; a power of two long, or empty
	table  []uint32
	lookup int // look-ups so far
	seed   maphash.Seed
}

// A CAR of few blocks, or one asked for few, is searched from front to back.
const (
	fewBlocks  = 16
	fewLookups = 4
)

// maxKeptBlocks bounds the scratch that is kept from frame to frame.
const maxKeptBlocks = 1 << 12

// open indexes car, which must stay as it is until close. It returns the CID of the first root, or
// nil if car is no whole CAR of version 1 with a root. Blocks whose CID no operation can have are
// passed over.
func (x *carIndex) open(car []byte) (root []byte) {
	x.car, x.blocks, x.table, x.lookup = car, x.blocks[:0], x.table[:0], 0
	header, pos := carSection(car, 0)
	if pos == 0 {
		return nil
	}
	root = carRoot(header)
	for pos < len(car) && root != nil {
		section, end := carSection(car, pos)
		if end == 0 {
			return nil
		}
		if isBlockCID(section) {
			x.blocks = append(x.blocks, block{at: uint32(end - len(section)), end: uint32(end)})
		} else if cidLen(section) == 0 {
			return nil
		}
		pos = end
	}
	return root
}

// close forgets the CAR and gives large scratch back.
func (x *carIndex) close() {
	x.car = nil
	if cap(x.blocks) > maxKeptBlocks {
		x.blocks, x.table = nil, nil
	}
}

// carSection returns the section at pos and where it ends; end is 0 if it is cut short.
func carSection(car []byte, pos int) (section []byte, end int) {
	length, n := binary.Uvarint(car[pos:])
	if n <= 0 || length > uint64(len(car)-pos-n) {
		return nil, 0
	}
	end = pos + n + int(length)
	return car[pos+n : end], end
}

// carRoot returns the first root of a CAR's header, which must be {roots: [CID, …], version: 1}, or
// nil.
func carRoot(b []byte) (root []byte) {
	d := decoder{buf: b}
	roots, version := 0, uint64(0)
	for range d.container(majorMap) {
		switch string(d.text()) {
		case "roots":
			roots = d.container(majorArray)
			for range roots {
				cid := linkCID(d.link())
				if cid == nil {
					return nil
				}
				if root == nil {
					root = cid
				}
			}
		case "version":
			version = d.argument(majorUint)
		default:
			return nil
		}
	}
	if d.fail != failNone || roots == 0 || version != 1 {
		return nil
	}
	return root
}

// find returns the first block whose CID is cid, of cidBytes bytes, or nil.
func (x *carIndex) find(cid []byte) *block {
	x.lookup++
	if len(x.blocks) > fewBlocks && x.lookup > fewLookups {
		return x.findHashed(cid)
	}
	for i := range x.blocks {
		if b := &x.blocks[i]; bytes.Equal(x.car[b.at:b.at+cidBytes], cid) {
			return b
		}
	}
	return nil
}

// findHashed is find by the table, which it makes if there is none yet. The hash is seeded, since
// the CIDs of blocks that no one asks for are never checked and may be made to collide.
func (x *carIndex) findHashed(cid []byte) *block {
	if len(x.table) == 0 {
		x.build()
	}
	mask := uint64(len(x.table) - 1)
	for i := maphash.Bytes(x.seed, cid); ; i++ {
		number := x.table[i&mask]
		if number == 0 {
			return nil
		}
		if b := &x.blocks[number-1]; bytes.Equal(x.car[b.at:b.at+cidBytes], cid) {
			return b
		}
	}
}

func (x *carIndex) build() {
	size := 64
	for size < 2*len(x.blocks) {
		size *= 2
	}
	if cap(x.table) < size {
		x.table = make([]uint32, size)
	}
	x.table = x.table[:size]
	clear(x.table)
	mask := uint64(size - 1)
insert:
	for n := range x.blocks {
		cid := x.car[x.blocks[n].at:][:cidBytes]
		i := maphash.Bytes(x.seed, cid)
		for ; x.table[i&mask] != 0; i++ {
			b := &x.blocks[x.table[i&mask]-1]
			if bytes.Equal(x.car[b.at:b.at+cidBytes], cid) {
				continue insert // the first of equal blocks counts
			}
		}
		x.table[i&mask] = uint32(n + 1)
	}
}

// data returns the block's bytes. They alias the CAR.
func (x *carIndex) data(b *block) []byte { return x.car[b.at+cidBytes : b.end] }

// intact reports whether the SHA-256 of the block is that of its CID.
func (x *carIndex) intact(b *block) bool {
	sum := sha256.Sum256(x.data(b))
	return bytes.Equal(sum[:], x.car[b.at+cidDigest:b.at+cidBytes])
}
