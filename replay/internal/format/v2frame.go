package format

import (
	"bytes"
	"strconv"
	"time"

	"millrace/translate"
)

// On Jetstream v2's wire (docs/wire.md, section 11) an event is the payload of a message frame. It
// is JSON, with the members of each object in alphabetical order.
const (
	v2Begin           = `{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#`
	v2End             = `Z"}}`
	v2CollectionStart = `,"collection":"`
	v2DIDStart        = `,"did":"`
	v2RevStart        = `,"rev":"`
	v2SeqStart        = `","seq":`
	v2TimeStart       = `,"time":"`
	v2Seconds         = "2006-01-02T15:04:05."

	// v2ExtraBytes is about what v2's wire adds to an event.
	v2ExtraBytes = 128
	// V2OpBits is how many of a seq's lower bits are the index of the op in its frame. translate
	// has no larger ones.
	V2OpBits = 10
	// MaxV2Seq bounds the seqs of v2's wire: as a cursor a larger number is Unix microseconds.
	MaxV2Seq = 1e15 - 1
)

// V2Seq returns the seq on v2's wire of an event, whose epoch has that base.
func V2Seq(base, seq int64, op uint32) int64 {
	return base + (seq<<V2OpBits | int64(min(op, 1<<V2OpBits-1))) // op may stand for all of the frame's
}

// Beginnings of the JSON that translate makes, and of what is in it.
const (
	v1DID        = `{"did":"`
	v1Time       = `","time_us":`
	v1Commit     = `,"kind":"commit","commit":{"rev":"`
	v1Identity   = `,"kind":"identity","identity":`
	v1Account    = `,"kind":"account","account":`
	v1Sync       = `,"kind":"sync","sync":`
	v1Operation  = `","operation":"`
	v1Collection = `","collection":"`
	v1Rkey       = `","rkey":"`
	v1Record     = `","record":`
	v1CID        = `,"cid":"`
	v1StampBytes = 16
	cidBytes     = 59 // of CIDv1 with SHA-256, in base32
)

// v2Encoder makes events of v2's wire. Its zero value is ready.
type v2Encoder struct {
	second  int64 // that text is of
	text    [len(v2Seconds)]byte
	started bool
}

// append appends the event whose JSON translate made, and its references. ok is false, and nothing
// appended, if the JSON has another form.
func (v *v2Encoder) append(dst []byte, kind translate.Kind, seq, timeUS int64, payload []byte, refs referencesOfEvent) (_ []byte, ok bool) {
	p := v1Payload{rest: payload}
	p.skip(v1DID)
	did := p.until(v1Time)
	p.drop(v1StampBytes)
	start := len(dst)
	dst = append(dst, v2Begin...)
	switch kind {
	case translate.KindCommit:
		dst = p.appendCommit(dst, did, refs)
	case translate.KindIdentity:
		p.skip(v1Identity)
		dst = append(append(append(dst, `identity","did":"`...), did...), `","identity":`...)
		dst = append(p.appendObject(dst), `,"seq":`...)
	case translate.KindAccount:
		p.skip(v1Account)
		dst = p.appendObject(append(dst, `account","account":`...))
		dst = append(append(append(dst, `,"did":"`...), did...), `","seq":`...)
	case translate.KindSync:
		p.skip(v1Sync)
		dst = append(append(append(dst, `sync","did":"`...), did...), v2SeqStart...)
		dst = p.appendObject(append(strconv.AppendInt(dst, seq, 10), `,"sync":`...))
	default:
		p.bad = true
	}
	if p.bad {
		return dst[:start], false
	}
	if kind != translate.KindSync { // it has its seq
		dst = strconv.AppendInt(dst, seq, 10)
	}
	return append(v.appendTime(append(dst, v2TimeStart...), timeUS), v2End...), true
}

// appendTime appends the date and time, without a zone.
func (v *v2Encoder) appendTime(dst []byte, timeUS int64) []byte {
	second := timeUS / 1e6
	if second != v.second || !v.started {
		v.second, v.started = second, true
		time.Unix(second, 0).UTC().AppendFormat(v.text[:0], v2Seconds)
	}
	dst = append(dst, v.text[:]...)
	n := timeUS - second*1e6
	digits := [6]byte{}
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, digits[:]...)
}

// v1Payload is what is left of an event's JSON. Once it is bad it stays so.
type v1Payload struct {
	rest []byte
	bad  bool
}

func (p *v1Payload) skip(s string) {
	if len(p.rest) < len(s) || string(p.rest[:len(s)]) != s {
		p.bad, p.rest = true, nil
		return
	}
	p.rest = p.rest[len(s):]
}

func (p *v1Payload) drop(n int) {
	if len(p.rest) < n {
		p.bad, n = true, len(p.rest)
	}
	p.rest = p.rest[n:]
}

// until returns what is before the next quote, where s begins, and goes on after s.
func (p *v1Payload) until(s string) []byte {
	n := bytes.IndexByte(p.rest, '"')
	if n < 0 {
		p.bad, p.rest = true, nil
		return nil
	}
	value := p.rest[:n]
	p.rest = p.rest[n:]
	p.skip(s)
	return value
}

// appendCommit appends a commit from its kind up to its seq.
func (p *v1Payload) appendCommit(dst, did []byte, refs referencesOfEvent) []byte {
	p.skip(v1Commit)
	rev := p.until(v1Operation)
	operation := p.until(v1Collection)
	collection := p.until(v1Rkey)
	n := bytes.IndexByte(p.rest, '"')
	if n < 0 {
		p.bad = true
		return dst
	}
	rkey := p.rest[:n]
	p.rest = p.rest[n:]
	var record, cid []byte
	if string(operation) != "delete" {
		p.skip(v1Record)
		record, cid = p.recordAndCID()
	} else {
		p.skip(`"}}`)
	}
	if p.bad || len(p.rest) > 0 {
		p.bad = true
		return dst
	}
	dst = append(dst, `commit"`...)
	if cid != nil {
		dst = append(append(append(dst, v1CID...), cid...), '"')
	}
	dst = append(append(append(dst, v2CollectionStart...), collection...), '"')
	dst = refs.appendDeleted(dst)
	dst = append(append(dst, v2DIDStart...), did...)
	dst = append(append(dst, v1Operation...), operation...)
	if cid != nil {
		dst = appendV2Record(append(dst, v1Record...), record)
	} else {
		dst = append(dst, '"')
	}
	dst = refs.appendCurrent(dst)
	dst = append(append(dst, v2RevStart...), rev...)
	dst = append(append(dst, v1Rkey...), rkey...)
	return append(dst, v2SeqStart...)
}

// recordAndCID takes both, which are all that is left.
func (p *v1Payload) recordAndCID() (record, cid []byte) {
	end := len(p.rest) - len(`"}}`)
	if end < 0 || string(p.rest[end:]) != `"}}` {
		p.bad = true
		return nil, nil
	}
	start := end - cidBytes
	if start < len(v1CID) || string(p.rest[start-len(v1CID):start]) != v1CID || bytes.IndexByte(p.rest[start:end], '"') >= 0 {
		start = bytes.LastIndexByte(p.rest[:end], '"') + 1
	}
	head := start - len(v1CID)
	if head < 0 || string(p.rest[head:start]) != v1CID {
		p.bad = true
		return nil, nil
	}
	record, cid = p.rest[:head], p.rest[start:end]
	p.rest = nil
	return record, cid
}

// appendObject appends the object that is all that is left but for the last brace. Its strings
// have U+2028 and U+2029 as they are.
func (p *v1Payload) appendObject(dst []byte) []byte {
	if len(p.rest) < len(`{}}`) {
		p.bad = true
		return dst
	}
	object := p.rest[:len(p.rest)-1]
	for {
		i := bytes.Index(object, []byte(`\u202`))
		if i < 0 || i+len(`\u2028`) > len(object) {
			return append(dst, object...)
		}
		end := i + len(`\u2028`)
		switch c := object[end-1]; {
		case c != '8' && c != '9', backslashes(object[:i])%2 == 1:
			dst = append(dst, object[:end]...)
		default:
			dst = append(append(dst, object[:i]...), "\u2028"...)
			dst[len(dst)-1] += c - '8'
		}
		object = object[end:]
	}
}

// backslashes returns how many b ends with.
func backslashes(b []byte) int { return len(b) - len(bytes.TrimRight(b, `\`)) }

// What translate writes of a blob. Nothing else in a record's JSON has these bytes: within a string
// the quotes would be escaped.
const (
	blobBegin = `{"$type":"blob","ref":{"$link":"`
	blobMime  = `"},"mimeType":"`
	blobSize  = `,"size":`
)

// appendV2Record appends a record's JSON with the members of blobs in alphabetical order, as all
// others are.
func appendV2Record(dst, record []byte) []byte {
	for {
		i := bytes.Index(record, []byte(blobBegin))
		if i < 0 {
			return append(dst, record...)
		}
		link := record[i+len(blobBegin):]
		n := bytes.IndexByte(link, '"')
		if n < 0 || !bytes.HasPrefix(link[n:], []byte(blobMime)) {
			return append(dst, record...)
		}
		mime := link[n+len(blobMime):]
		m := bytes.Index(mime, []byte(blobSize)) // in the string the quote would be escaped
		if m < 0 {
			return append(dst, record...)
		}
		dst = append(dst, record[:i]...)
		dst = append(append(dst, `{"$type":"blob","mimeType":"`...), mime[:m]...)
		dst = append(append(dst, `,"ref":{"$link":"`...), link[:n]...)
		dst = append(dst, `"}`...)
		record = mime[m:]
	}
}
