package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// maxNamed bounds how much of a value a problem's text shows.
const maxNamed = 80

// eventHead reads the beginning of an event's JSON, which translate writes in one way only. It
// keeps its first error and where it is.
type eventHead struct {
	b   []byte
	at  int
	err error
}

// literal reads s, byte for byte.
func (h *eventHead) literal(s string) {
	if h.err != nil {
		return
	}
	if !bytes.HasPrefix(h.b[h.at:], []byte(s)) {
		h.err = fmt.Errorf("has %.*q where %q should be", maxNamed, h.b[h.at:min(h.at+len(s), len(h.b))], s)
		return
	}
	h.at += len(s)
}

// value reads s, which the index says is there, and the quote that ends it.
func (h *eventHead) value(what, s string) {
	if h.err != nil {
		return
	}
	n := len(s)
	if len(h.b)-h.at < n+1 || string(h.b[h.at:h.at+n]) != s || h.b[h.at+n] != '"' {
		h.err = fmt.Errorf("%s is %q, the index says %.*q", what, h.text(), maxNamed, s)
		return
	}
	h.at += n + 1
}

// skipString reads a string without escapes, and its quote.
func (h *eventHead) skipString() {
	if h.err != nil {
		return
	}
	n := bytes.IndexByte(h.b[h.at:], '"')
	if n < 0 {
		h.err = errors.New("cut short")
		return
	}
	h.at += n + 1
}

// text returns what is at the reader's place, up to a quote.
func (h *eventHead) text() []byte {
	text, _, _ := bytes.Cut(h.b[h.at:min(h.at+maxNamed, len(h.b))], []byte{'"'})
	return text
}

// checkPayload compares an event's JSON with the index. It returns the first wrong byte's offset.
func checkPayload(x *format.Index, i int, payload []byte) (at int, err error) {
	h := eventHead{b: payload}
	h.literal(`{"did":"`)
	h.value("did", x.DIDs.At(int(x.DID[i])))
	h.literal(`,"time_us":`)
	var digits [20]byte
	if stamp := strconv.AppendInt(digits[:0], x.TimeUS[i], 10); h.err == nil {
		end := h.at + len(stamp)
		if len(payload) < end || string(payload[h.at:end]) != string(stamp) {
			return h.at, fmt.Errorf("time_us is %q, the index says %d", payload[h.at:min(end, len(payload))], x.TimeUS[i])
		}
		h.at = end
	}
	h.literal(`,"kind":"`)
	kind := x.KindAt(i)
	h.value("kind", kind.String())
	h.literal(`,"`)
	h.literal(kind.String())
	if kind == translate.KindCommit {
		h.literal(`":{"rev":"`)
		h.skipString()
		h.literal(`,"operation":"`)
		h.value("operation", x.OperationAt(i).String())
		h.literal(`,"collection":"`)
		h.value("collection", x.Collections.At(int(x.Collection[i])-1))
		h.literal(`,"rkey":"`)
	} else {
		h.literal(`":{`)
	}
	if h.err != nil {
		return h.at, h.err
	}
	if payload[len(payload)-1] != '}' || !json.Valid(payload) {
		return badJSON(payload)
	}
	return 0, nil
}

// badJSON says where payload ceases to be one JSON value.
func badJSON(payload []byte) (at int, err error) {
	var raw json.RawMessage
	err = json.Unmarshal(payload, &raw)
	if syntax, ok := err.(*json.SyntaxError); ok { //nolint:errorlint // Unmarshal returns it bare
		return max(int(syntax.Offset)-1, 0), fmt.Errorf("not JSON: %w", err)
	}
	return len(payload) - 1, fmt.Errorf("JSON does not end with '}'")
}

// checkColumns checks event i's columns against each other, beyond what DecodeIndex makes sure of.
func checkColumns(x *format.Index, i int) error {
	kind, operation := x.KindAt(i), x.OperationAt(i)
	switch {
	case i > 0 && !x.PlaceAt(i-1).Before(x.PlaceAt(i)):
		return fmt.Errorf("seq %d, op %d does not follow seq %d, op %d", x.Seq[i], x.Op[i], x.Seq[i-1], x.Op[i-1])
	case x.Seq[i] < x.FirstSeq || x.Seq[i] > x.LastSeq:
		return fmt.Errorf("seq %d is outside of the block's frames %d to %d", x.Seq[i], x.FirstSeq, x.LastSeq)
	case kind < translate.KindCommit || kind > translate.KindSync:
		return fmt.Errorf("unknown kind %d", kind)
	case !x.Kinds.Has(kind) || x.Kinds == 0:
		return fmt.Errorf("kind %s is not in the block's set %#b", kind, x.Kinds)
	case kind == translate.KindCommit && (operation < translate.OpCreate || operation > translate.OpDelete):
		return fmt.Errorf("a commit event with operation %d", operation)
	case kind != translate.KindCommit && (operation != translate.OpNone || x.Collection[i] != 0):
		return fmt.Errorf("an event of kind %s with operation %d, collection %d", kind, operation, x.Collection[i])
	case kind == translate.KindCommit && x.Collection[i] == 0:
		return fmt.Errorf("a commit event without a collection")
	case kind != translate.KindCommit && x.URIUID != nil && x.URIUID[i] != 0:
		return fmt.Errorf("an event of kind %s with URI UID %d", kind, x.URIUID[i])
	case x.UnverifiedAt(i) != 0 && (kind == translate.KindIdentity || kind == translate.KindAccount):
		return fmt.Errorf("an event of kind %s, which is never verified, is unverified for reason %d", kind, x.UnverifiedAt(i))
	}
	return nil
}
