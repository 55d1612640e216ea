package consume

// maxMessageBytes is the size of the largest message that is read: the protocol's limit for a
// frame.
const maxMessageBytes = 5 << 20

// The types of frame the protocol has, as Frame.Type and as the "type" label of the metrics.
const (
	TypeCommit   = "#commit"
	TypeIdentity = "#identity"
	TypeAccount  = "#account"
	TypeSync     = "#sync"
	TypeInfo     = "#info" // logged, never handed over: it has no seq
	TypeOther    = "other" // whatever else the header says
)

// Frame is one message of the relay, as Handle gets it.
type Frame struct {
	Epoch uint32 // the numbering that Seq belongs to
	Seq   int64  // > 0, and above the one before it within the epoch
	Type  string // one of the Type constants

	// Data is the whole message, header and body. It belongs to the Client: it must not be
	// changed, and is valid only until Handle returns. It is nil for a message over
	// maxMessageBytes, which has no events: it is handed over so that the position moves past it.
	Data []byte

	// Gap is not nil if frames may have been lost directly before this one.
	Gap *Gap
}

// Gap names the frames that may be missing between two that were handed over. Within one epoch the
// numbers between From and To are concerned; between two epochs they do not compare, and what is
// missing is unknown.
type Gap struct {
	FromEpoch uint32
	From      int64 // the last seq handed over before
	ToEpoch   uint32
	To        int64 // the seq of the frame that carries the gap
}

// Frames returns how many numbers lie in the gap, 0 if it lies between epochs.
func (g *Gap) Frames() int64 {
	if g.FromEpoch != g.ToEpoch {
		return 0
	}
	return g.To - g.From - 1
}

// The header's op, https://atproto.com/specs/event-stream#framing.
const (
	opMessage = 1
	opError   = -1
)

// reason says why a message was dropped. Its string is the label of the metric.
type reason uint8

const (
	reasonNone     reason = iota
	reasonText            // a text message
	reasonEmpty           // a message without bytes
	reasonHeader          // no CBOR map with a readable op, and t if it is a message
	reasonOp              // an op that is neither message nor error
	reasonSeq             // no body with a positive seq
	reasonTooLarge        // over maxMessageBytes
	numReasons
)

// String returns the metric's label.
func (r reason) String() string {
	return [numReasons]string{"none", "text", "empty", "bad_header", "bad_op", "no_seq", "too_large"}[r]
}

// envelope is what the package knows of a message.
type envelope struct {
	op   int64
	typ  string // a Type constant; of messages only
	seq  int64  // > 0; 0 for errors and #info
	body int    // offset of the body
}

// skim reads the envelope of a message, or says why the message cannot be used. It allocates
// nothing, keeps nothing of msg, and takes messages that are cut off anywhere after the seq.
func skim(msg []byte) (envelope, reason) {
	if len(msg) == 0 {
		return envelope{}, reasonEmpty
	}
	body := skipItem(msg, 0)
	op, ok := findInt(msg, 0, "op")
	if body < 0 || !ok {
		return envelope{}, reasonHeader
	}
	e := envelope{op: op, body: body}
	switch op {
	case opError:
		return e, reasonNone
	case opMessage:
	default:
		return envelope{}, reasonOp
	}
	t := findText(msg, 0, "t")
	if t == nil {
		return envelope{}, reasonHeader
	}
	if e.typ = internType(t); e.typ == TypeInfo {
		return e, reasonNone
	}
	if e.seq, _ = findInt(msg, body, "seq"); e.seq <= 0 {
		return envelope{}, reasonSeq
	}
	return e, reasonNone
}

// otherEvent reports whether two frames of the same seq are surely not the same event. Then type,
// account or revision can be read from both and differ. A relay may encode an event differently the
// next time, so the bytes do not count.
func otherEvent(a, b []byte) bool {
	ea, why := skim(a)
	eb, whyB := skim(b)
	if why != reasonNone || whyB != reasonNone || ea.seq != eb.seq {
		return false
	}
	if ea.typ != eb.typ {
		return true
	}
	for _, key := range []string{"repo", "did", "rev"} {
		x, y := findText(a, ea.body, key), findText(b, eb.body, key)
		if x != nil && y != nil && string(x) != string(y) {
			return true
		}
	}
	return false
}

// internType returns the constant that spells t, without allocating.
func internType(t []byte) string {
	for _, typ := range [...]string{TypeCommit, TypeIdentity, TypeAccount, TypeSync, TypeInfo} {
		if string(t) == typ {
			return typ
		}
	}
	return TypeOther
}
