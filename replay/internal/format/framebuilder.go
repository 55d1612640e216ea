package format

import (
	"encoding/json"
	"slices"
	"strconv"

	"millrace/translate"
	"millrace/translate/verify"
)

// FrameBuilder makes the frames of a variant that is not stored out of a block's plain ones.
type FrameBuilder struct {
	Ends []uint32 // of the plain frames
	// of events that carry their cursor and UIDs; nil: they are not
	Extended *Index
	Stream   translate.Stream // of those cursors
	// of events that carry them, and are extended or as V2 has them; nil: they are not
	References *FrameReferences
	// of events that must be as Jetstream v2's wire has them, and are not extended; nil: they
	// are not
	V2         *SlimIndex
	SeqBase    int64      // of the index's epoch, on that wire
	Compressor Compressor // nil: uncompressed
	// PayloadBytes is the size of the payload that the last Append framed, uncompressed.
	PayloadBytes int
	// Payloads are the sizes of those that All framed and compressed, on v2's wire; else nil.
	Payloads []uint32
	// Dropped counts events without a frame: see Append.
	Dropped int

	v2      v2Encoder
	scratch []byte
}

// FrameReferences are the references of a block's events as frames have them.
type FrameReferences struct {
	*References
	SourceNames []string // of Sources, as JSON
	Strings     []string // of Subjects, as far as the frames need them; "": it is not known
}

// NewFrameReferences returns the references without the strings of their subjects. source returns
// that of a number.
func NewFrameReferences(refs *References, source func(number uint32) string) *FrameReferences {
	r := &FrameReferences{References: refs, SourceNames: make([]string, len(refs.Sources)), Strings: make([]string, len(refs.Subjects))}
	for i, number := range refs.Sources {
		quoted, _ := json.Marshal(source(number)) // a string always can
		r.SourceNames[i] = string(quoted)
	}
	return r
}

const (
	// ExtraBytes is about what extended adds to an event.
	ExtraBytes = 128
	// referenceBytes is about what a reference adds.
	referenceBytes = 160
)

// Append appends the frame of event i, whose plain frame is given. On v2's wire it is none if the
// event is not of the form that translate gives it.
func (b *FrameBuilder) Append(dst []byte, i int, plain []byte) []byte {
	payload := FramePayload(plain)
	if b.Compressor == nil {
		start := len(dst)
		body := b.appendPayload(append(dst, make([]byte, usualHeaderBytes)...), i, payload)
		if b.PayloadBytes = len(body) - start - usualHeaderBytes; b.PayloadBytes == 0 {
			return body[:start]
		}
		return finishFrame(body, start, OpcodeText)
	}
	if b.V2 != nil || b.Extended != nil {
		b.scratch = b.appendPayload(b.scratch[:0], i, payload)
		payload = b.scratch
	}
	if b.PayloadBytes = len(payload); b.PayloadBytes == 0 {
		return dst
	}
	return AppendCompressed(dst, b.Compressor, payload)
}

// appendPayload appends what the frame of event i has, whose plain payload is given.
func (b *FrameBuilder) appendPayload(dst []byte, i int, payload []byte) []byte {
	if x := b.V2; x != nil {
		seq := V2Seq(b.SeqBase, x.Seq[i], x.Op[i])
		dst, ok := b.v2.append(dst, x.KindAt(i), seq, x.TimeUS[i], payload, referencesOfEvent{b.References, i})
		if !ok {
			b.Dropped++
		}
		return dst
	}
	if b.Extended == nil {
		return append(dst, payload...)
	}
	dst = appendExtended(dst, b.Extended, i, payload, b.Stream)
	if b.References != nil {
		refs := referencesOfEvent{b.References, i}
		dst = append(refs.appendDeleted(refs.appendCurrent(dst[:len(dst)-1])), '}')
	}
	return dst
}

// All makes the frames of all events, and says where they end.
func (b *FrameBuilder) All(plain []byte) (data []byte, ends []uint32) {
	extra := ExtraBytes
	if b.V2 != nil {
		extra = v2ExtraBytes
	}
	room := len(plain) + extra*len(b.Ends)
	if b.References != nil {
		room += referenceBytes * b.References.Len()
	}
	if b.Compressor != nil {
		room /= 2
	}
	data, ends = make([]byte, 0, room), make([]uint32, len(b.Ends))
	if b.V2 != nil && b.Compressor != nil {
		b.Payloads = make([]uint32, len(b.Ends))
	}
	for i, end := range b.Ends {
		data = b.Append(data, i, plain[FrameStart(b.Ends, i):end])
		ends[i] = uint32(len(data))
		if b.Payloads != nil {
			b.Payloads[i] = uint32(b.PayloadBytes)
		}
	}
	if cap(data) > len(data)+len(data)/8 {
		data = append(make([]byte, 0, len(data)), data...)
	}
	return data, ends
}

// appendExtended appends event i's JSON. At the end of the object are added its cursor, its UIDs,
// and why it is unverified.
func appendExtended(dst []byte, x *Index, i int, payload []byte, stream translate.Stream) []byte {
	dst = append(dst, payload[:len(payload)-1]...)
	dst = append(dst, `,"cursor":"`...)
	dst = translate.AppendPosition(dst, translate.Position{Stream: stream, Seq: x.Seq[i], Op: x.Op[i]})
	dst = append(dst, '"')
	did, uri := x.UIDs(i)
	if did != 0 || uri != 0 {
		dst = append(dst, `,"uids":{`...)
		if did != 0 {
			dst = append(dst, `"did":"`...)
			dst = strconv.AppendUint(dst, did, 10)
			dst = append(dst, '"')
		}
		if uri != 0 {
			if did != 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `"uri":"`...)
			dst = strconv.AppendUint(dst, uri, 10)
			dst = append(dst, '"')
		}
		dst = append(dst, '}')
	}
	if reason := x.UnverifiedAt(i); reason != 0 {
		dst = append(append(append(dst, `,"unverified":"`...), verify.Reason(reason).String()...), '"')
	}
	return append(dst, '}')
}

// referencesOfEvent are those of one event; none if refs is nil.
type referencesOfEvent struct {
	refs  *FrameReferences
	event int
}

// appendCurrent appends the member references, which the event's record has, unless empty. An
// operation that came again and changed nothing has the member repeated instead.
func (r referencesOfEvent) appendCurrent(dst []byte) []byte {
	if r.refs == nil {
		return dst
	}
	if r.refs.Repeated(r.event) {
		return append(dst, `,"repeated":true`...)
	}
	return r.refs.appendMember(dst, "references", r.refs.Entries(r.event), func(e ReferenceEntry) bool { return !e.Had })
}

// appendDeleted appends the member deleted_references, which the record no longer has, unless
// empty.
func (r referencesOfEvent) appendDeleted(dst []byte) []byte {
	if r.refs == nil {
		return dst
	}
	entries := r.refs.Entries(r.event)
	return r.refs.appendMember(dst, "deleted_references", entries, func(e ReferenceEntry) bool {
		return e.Had && !slices.Contains(entries, ReferenceEntry{Subject: e.Subject, Source: e.Source})
	})
}

func (r *FrameReferences) appendMember(dst []byte, name string, entries []ReferenceEntry, in func(ReferenceEntry) bool) []byte {
	before := len(dst)
	for _, e := range entries {
		switch {
		case !in(e):
			continue
		case len(dst) == before:
			dst = append(append(append(dst, `,"`...), name...), `":[`...)
		default:
			dst = append(dst, ',')
		}
		dst = append(append(dst, `{"source":`...), r.SourceNames[e.Source]...)
		if s := r.Strings[e.Subject]; s != "" { // a DID or AT URI, in which nothing needs an escape
			dst = append(append(append(dst, `,"subject":"`...), s...), '"')
		}
		dst = strconv.AppendUint(append(dst, `,"uid":"`...), r.Subjects[e.Subject].UID, 10)
		dst = append(dst, `"}`...)
	}
	if len(dst) > before {
		dst = append(dst, ']')
	}
	return dst
}
