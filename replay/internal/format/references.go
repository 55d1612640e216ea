package format

import "fmt"

const (
	// MaxEventReferences is how many references an event has at most: 256 that its record has, and
	// as many that it had.
	MaxEventReferences = 512
	// MaxBlockReferences is how many references a block has at most. The ops of a frame, of which
	// there are less than 1,024, never have more.
	MaxBlockReferences = 1 << 19
	// MaxSources is how many sources a log has at most.
	MaxSources = 1 << 16
)

// Reference is one reference of an event: a DID or AT URI that its record's value is.
type Reference struct {
	Source    uint32 // the number of its source among the log's sources, from 1 on
	Subject   uint64 // UID of the DID or AT URI
	Authority uint64 // UID of the DID in it: of a DID the same; 0: it has none
	Had       bool   // the record had it before the event; else it has it since
}

// Subject is a subject of references, with its authority: UIDs.
type Subject struct{ UID, Authority uint64 }

// ReferenceEntry is a reference as an index has it.
type ReferenceEntry struct {
	Subject uint32 // index into References.Subjects
	Source  uint16 // index into References.Sources
	Had     bool
}

// References are the references of a block's events. It is immutable, and nil if there are none.
type References struct {
	Sources  []uint32  // distinct numbers, as they come
	Subjects []Subject // distinct, as they come

	entries  []ReferenceEntry // of all events, in order
	ends     []uint32         // by event: where its entries end
	repeated []uint64         // a bit for each event that is repeated; nil: none is
}

// NumSubjects returns the number of subjects.
func (r *References) NumSubjects() int {
	if r == nil {
		return 0
	}
	return len(r.Subjects)
}

// Len returns how many references all events have together.
func (r *References) Len() int {
	if r == nil {
		return 0
	}
	return len(r.entries)
}

// Entries returns the references of event i. The caller must not change them.
func (r *References) Entries(i int) []ReferenceEntry {
	if r == nil {
		return nil
	}
	return r.entries[FrameStart(r.ends, i):r.ends[i]]
}

// At returns what an entry stands for.
func (r *References) At(e ReferenceEntry) Reference {
	s := r.Subjects[e.Subject]
	return Reference{Source: r.Sources[e.Source], Subject: s.UID, Authority: s.Authority, Had: e.Had}
}

// Repeated says whether event i is an operation that came again and changed nothing.
func (r *References) Repeated(i int) bool {
	return r != nil && r.repeated != nil && r.repeated[i/64]&(1<<(i%64)) != 0
}

// Memory returns about how many bytes the references take.
func (r *References) Memory() int64 {
	if r == nil {
		return 0
	}
	return int64(128 + 4*len(r.Sources) + 16*len(r.Subjects) + 8*len(r.entries) + 4*len(r.ends) + 8*len(r.repeated))
}

// maxKeptReferences bounds the tables of a builder that is used again.
const maxKeptReferences = 1 << 14

// ReferencesBuilder gathers the references of a block's events. The zero builder is ready for use.
type ReferencesBuilder struct {
	refs   References
	before int  // events before the first that has a reference, or is repeated
	some   bool // there was that event

	subjects map[Subject]uint32
	sources  map[uint32]uint16
}

// reset makes the builder ready for another block.
func (b *ReferencesBuilder) reset() {
	b.refs, b.before, b.some = References{}, 0, false
	if len(b.subjects) > maxKeptReferences || len(b.sources) > maxKeptReferences {
		b.subjects, b.sources = nil, nil
	}
	clear(b.subjects)
	clear(b.sources)
}

// Add takes in the references of the next event, and whether it is repeated. It keeps nothing of
// refs. After an error the builder must not be used.
func (b *ReferencesBuilder) Add(refs []Reference, repeated bool) error {
	if !b.some && (len(refs) > 0 || repeated) {
		b.begin()
	}
	if !b.some {
		b.before++
		return nil
	}
	r := &b.refs
	n := len(r.ends)
	if len(refs) > MaxEventReferences {
		return fmt.Errorf("event %d has %d references, more than %d", n, len(refs), MaxEventReferences)
	}
	if len(r.entries)+len(refs) > MaxBlockReferences {
		return fmt.Errorf("the block has more than %d references", MaxBlockReferences)
	}
	for _, ref := range refs {
		if ref.Source == 0 || ref.Source > MaxSources || ref.Subject == 0 {
			return fmt.Errorf("event %d has a reference with source %d and subject %d, of which one is 0 or too large", n, ref.Source, ref.Subject)
		}
		r.entries = append(r.entries, ReferenceEntry{b.subject(Subject{ref.Subject, ref.Authority}), b.source(ref.Source), ref.Had})
	}
	r.ends = append(r.ends, uint32(len(r.entries)))
	if repeated {
		for len(r.repeated) <= n/64 {
			r.repeated = append(r.repeated, 0)
		}
		r.repeated[n/64] |= 1 << (n % 64)
	}
	return nil
}

// begin makes the tables, for the first event that needs them.
func (b *ReferencesBuilder) begin() {
	b.some = true
	b.refs.ends = make([]uint32, b.before, b.before+64)
	if b.subjects == nil {
		b.subjects, b.sources = make(map[Subject]uint32), make(map[uint32]uint16)
	}
}

// subject returns the index of a subject.
func (b *ReferencesBuilder) subject(s Subject) uint32 {
	i, ok := b.subjects[s]
	if !ok {
		i = uint32(len(b.refs.Subjects))
		b.refs.Subjects = append(b.refs.Subjects, s)
		b.subjects[s] = i
	}
	return i
}

// source returns the index of a source: of MaxSources at most.
func (b *ReferencesBuilder) source(number uint32) uint16 {
	i, ok := b.sources[number]
	if !ok {
		i = uint16(len(b.refs.Sources))
		b.refs.Sources = append(b.refs.Sources, number)
		b.sources[number] = i
	}
	return i
}

// Finish returns the references of all events; nil if there are none. The builder must not be used
// afterwards, unless it is reset.
func (b *ReferencesBuilder) Finish() *References {
	if !b.some {
		return nil
	}
	r := b.refs
	if r.repeated != nil {
		for len(r.repeated) < (len(r.ends)+63)/64 {
			r.repeated = append(r.repeated, 0)
		}
	}
	return &r
}

// addAll takes in the references of the next n events, which are those of o; o may be nil.
func (b *ReferencesBuilder) addAll(o *References, n int) {
	var refs []Reference
	for i := range n {
		refs = refs[:0]
		for _, e := range o.Entries(i) {
			refs = append(refs, o.At(e))
		}
		if err := b.Add(refs, o.Repeated(i)); err != nil {
			panic(fmt.Sprintf("concatenate references: %v", err)) // only if they are too many
		}
	}
}
