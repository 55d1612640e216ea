package translate

import "unsafe"

// Limits of references. What exceeds them is counted in Counts.ExcessReferences.
const (
	// MaxReferences is how many references of a record are kept.
	MaxReferences = 256
	// maxFrameReferences is how many references of a frame are kept.
	maxFrameReferences = 4096
	// MaxReferencePathBytes is the longest path of a reference that is kept.
	MaxReferencePathBytes = 512
)

// Reference is a value of a record that is, as a whole, a valid DID or AT URI: its subject. Bytes
// are identity: nothing is normalized. Its bytes are in the batch; the batch's accessors find them.
//
// Its path says where in the record it is, as Constellation does (microcosm-rs, crate links),
// without the first dot. It is .name for a member, [] for an element of an array. If the element is
// an object whose $type is t, it is [t]. A name is taken as it is, dots and brackets included. The
// source of a reference is its event's collection, a colon and the path:
//
//	app.bsky.feed.post:facets[].features[app.bsky.richtext.facet#mention].did
type Reference struct {
	SubjectUID   uint64 // UID of the subject, 0 if it has none
	AuthorityUID uint64 // UID of its authority, 0 if it has none; of a handle that of at://handle

	Event        uint32 // index of its event in Batch.Events
	path         uint32 // offset in Batch.refText
	subject      uint32 // offset in Batch.refText, too
	pathLen      uint16
	subjectLen   uint16
	authorityLen uint16 // of the DID or handle in an AT URI; of a DID subjectLen
}

// referenceBytes is the memory of a Reference.
const referenceBytes = int(unsafe.Sizeof(Reference{}))

// IsURI reports whether the subject is an AT URI. Else it is a DID.
func (r *Reference) IsURI() bool { return r.authorityLen != r.subjectLen }

// ReferencePath returns the path of reference i. It aliases the batch's memory.
func (b *Batch) ReferencePath(i int) []byte {
	r := &b.References[i]
	end := r.path + uint32(r.pathLen)
	return b.refText[r.path:end:end]
}

// Subject returns the DID or AT URI that reference i is. It aliases the batch's memory.
func (b *Batch) Subject(i int) []byte {
	r := &b.References[i]
	end := r.subject + uint32(r.subjectLen)
	return b.refText[r.subject:end:end]
}

// Authority returns the subject of reference i if that is a DID, else its authority: a DID or a
// handle. It aliases the batch's memory.
func (b *Batch) Authority(i int) []byte {
	r := &b.References[i]
	at := r.subject
	if r.IsURI() {
		at += uint32(len(schemeAT))
	}
	end := at + uint32(r.authorityLen)
	return b.refText[at:end:end]
}
