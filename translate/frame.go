package translate

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
)

// Limits of a frame.
const (
	// maxFrameBytes is the largest frame, header included: the protocol's limit.
	maxFrameBytes = 5 << 20
	// MaxOps is the largest number of operations of a commit: what ten bits can number. The
	// protocol allows 200.
	MaxOps = 1023
	// maxSyncBytes is the most bytes that the blocks of a #sync have: the protocol's limit.
	maxSyncBytes = 10_000
	// MaxFrameJSONBytes is the most JSON that the events of one frame may come to. The largest
	// frame in base64 is less; only a record that many operations name, or megabytes that JSON has
	// to escape, are more.
	MaxFrameJSONBytes = 8 << 20
	// maxBatchJSONBytes is the most JSON, and the most text of references, that a batch may hold
	// when a frame is appended.
	maxBatchJSONBytes = math.MaxUint32 - 2*MaxFrameJSONBytes
)

// Config says what a Translator keeps.
type Config struct {
	// Collections names the collections whose operations are kept: NSIDs, or prefixes such as
	// app.bsky.*. Empty keeps all. Other events are always kept.
	Collections []string

	// MaxFrameJSONBytes drops frames that come to more JSON as too large; 0: the constant, which it
	// must not exceed.
	MaxFrameJSONBytes int

	// References has Batch.References filled. Else it stays empty.
	References bool
}

// withDefaults returns c with its zeros filled.
func (c Config) withDefaults() Config {
	c.MaxFrameJSONBytes = cmp.Or(c.MaxFrameJSONBytes, MaxFrameJSONBytes)
	return c
}

// validate names the first field that cannot be used. New checks Collections, which it parses.
func (c Config) validate() error {
	if c.MaxFrameJSONBytes < 0 || c.MaxFrameJSONBytes > MaxFrameJSONBytes {
		return fmt.Errorf("translate: field MaxFrameJSONBytes: %d is not 1 to %d", c.MaxFrameJSONBytes, MaxFrameJSONBytes)
	}
	return nil
}

// Translator turns frames into events. It holds scratch memory only: its output depends on nothing
// but the frame and the Config. One goroutine uses it at a time.
type Translator struct {
	collections  collectionSet
	maxJSONBytes int // of a frame
	body         body
	car          carIndex
	record       recordCoder
}

// New returns a Translator, or an error that names the collection that is no NSID and no prefix.
func New(cfg Config) (*Translator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	collections, err := newCollectionSet(cfg.Collections)
	if err != nil {
		return nil, err
	}
	seed := maphash.MakeSeed()
	return &Translator{
		collections:  collections,
		maxJSONBytes: cfg.MaxFrameJSONBytes,
		car:          carIndex{seed: seed},
		record:       recordCoder{refs: finder{on: cfg.References, seed: seed}},
	}, nil
}

// AppendFrame appends the events of a frame, one whole websocket message of
// com.atproto.sync.subscribeRepos, to dst and counts what became of it in dst.Counts. The events
// are in the order of the frame's operations; their time_us is 0 until Batch.Stamp. It keeps
// nothing of frame.
//
// It never fails. Of input that the protocol does not allow it drops the operation or the frame, as
// docs/input.md has it, and counts the Reason. It panics if dst holds more than maxBatchJSONBytes.
func (t *Translator) AppendFrame(dst *Batch, frame []byte) {
	checkRoom(dst)
	events, json, refs, refText := len(dst.Events), len(dst.JSON), len(dst.References), len(dst.refText)
	drops, filtered, excess := dst.Counts.Drops, dst.Counts.Filtered, dst.Counts.ExcessReferences
	t.record.refs.beginFrame(dst)

	kind, reason := t.appendFrame(dst, frame)
	if reason == kept && (kind == FrameCommit || kind == FrameIdentity || kind == FrameAccount || kind == FrameSync) {
		time, _ := textOf(t.body.fields[fieldTime])
		dst.Time = append(dst.Time[:0], time...)
	}
	t.body = body{}
	t.car.close()
	t.record.refs.endFrame()
	t.record.trim()

	dst.Counts.Frames[kind]++
	if reason != kept {
		dst.Events, dst.JSON = dst.Events[:events], dst.JSON[:json]
		dst.References, dst.refText = dst.References[:refs], dst.refText[:refText]
		dst.Counts.Drops, dst.Counts.Filtered, dst.Counts.ExcessReferences = drops, filtered, excess
		dst.Counts.Drops[reason]++
	}
	for i := events; i < len(dst.Events); i++ {
		dst.Counts.Events[dst.Events[i].counter()]++
	}
}

func checkRoom(dst *Batch) {
	if size := max(len(dst.JSON), len(dst.refText)); size > maxBatchJSONBytes {
		panic("translate: a batch of " + strconv.Itoa(size) + " bytes is too large to append to")
	}
}

// kept is the Reason for not dropping something.
const kept = NumReasons

// appendFrame does the work of AppendFrame. If it returns a reason, what it appended and counted is
// taken back.
func (t *Translator) appendFrame(dst *Batch, frame []byte) (FrameKind, Reason) {
	if len(frame) == 0 {
		return FrameGarbage, ReasonEmptyFrame
	}
	d := decoder{buf: frame}
	kind, reason := readHeader(&d)
	if reason == kept && len(frame) > maxFrameBytes {
		reason = ReasonTooLarge
	}
	if reason != kept || kind == FrameInfo {
		return kind, reason
	}
	if reason = t.body.read(&d); reason != kept {
		return kind, reason
	}
	switch kind {
	case FrameIdentity:
		return kind, t.appendIdentity(dst)
	case FrameAccount:
		return kind, t.appendAccount(dst)
	case FrameSync:
		return kind, t.appendSync(dst)
	}
	return t.appendCommit(dst)
}

// readHeader reads a frame's header, {op: 1, t: "#commit"}.
func readHeader(d *decoder) (FrameKind, Reason) {
	var op, name []byte
	for range d.container(majorMap) {
		key := d.text()
		value := d.raw()
		switch string(key) {
		case "op":
			if op != nil {
				return FrameGarbage, ReasonInvalidHeader
			}
			op = value
		case "t":
			if name != nil {
				return FrameGarbage, ReasonInvalidHeader
			}
			name = value
		}
	}
	if d.fail != failNone || len(op) == 0 {
		return FrameGarbage, ReasonInvalidHeader
	}
	opValue := decoder{buf: op}
	switch major, _, arg := opValue.head(); {
	case major == majorNegInt && arg == 0: // -1
		return FrameError, ReasonErrorFrame
	case major != majorUint && major != majorNegInt:
		return FrameGarbage, ReasonInvalidHeader
	case major != majorUint || arg != 1:
		return FrameUnknown, ReasonUnknownOp
	}
	text, ok := textOf(name)
	if !ok {
		return FrameGarbage, ReasonInvalidHeader
	}
	switch string(text) {
	case "#commit":
		return FrameCommit, kept
	case "#identity":
		return FrameIdentity, kept
	case "#account":
		return FrameAccount, kept
	case "#sync":
		return FrameSync, kept
	case "#info":
		return FrameInfo, kept
	}
	return FrameUnknown, ReasonUnknownKind
}

// appendEvent appends the beginning of an event, up to its kind, and the Event, whose end is still
// open.
func appendEvent(dst *Batch, seq int64, did []byte, kind Kind) *Event {
	start := len(dst.JSON)
	json := append(append(dst.JSON, `{"did":"`...), did...)
	json = append(json, `","time_us":0000000000000000,"kind":"`...)
	json = append(append(json, kind.String()...), `","`...)
	dst.JSON = append(append(json, kind.String()...), `":{`...)
	dst.Events = append(dst.Events, Event{Seq: seq, Kind: kind, start: uint32(start), didLen: uint16(len(did))})
	return &dst.Events[len(dst.Events)-1]
}

// appendIdentity appends the event of an #identity: the members of indigo's
// SyncSubscribeRepos_Identity in its order.
func (t *Translator) appendIdentity(dst *Batch) Reason {
	seq, did, time, reason := t.body.accountFields()
	if reason != kept {
		return reason
	}
	e := appendEvent(dst, seq, did, KindIdentity)
	json := append(append(dst.JSON, `"did":"`...), did...)
	json, reason = t.appendMember(append(json, '"'), `,"handle":`, t.body.fields[fieldHandle], int(e.start))
	if reason != kept {
		return reason
	}
	json = strconv.AppendInt(append(json, `,"seq":`...), seq, 10)
	json = append(append(json, `,"time":"`...), time...)
	dst.JSON = append(json, `"}}`...)
	e.end = uint32(len(dst.JSON))
	return kept
}

// appendAccount appends the event of an #account: the members of indigo's
// SyncSubscribeRepos_Account in its order.
func (t *Translator) appendAccount(dst *Batch) Reason {
	seq, did, time, reason := t.body.accountFields()
	if reason != kept {
		return reason
	}
	active, ok := flagOf(t.body.fields[fieldActive])
	if !ok {
		return ReasonInvalidBody
	}
	e := appendEvent(dst, seq, did, KindAccount)
	json := strconv.AppendBool(append(dst.JSON, `"active":`...), active)
	json = append(append(json, `,"did":"`...), did...)
	json = strconv.AppendInt(append(json, `","seq":`...), seq, 10)
	json, reason = t.appendMember(json, `,"status":`, t.body.fields[fieldStatus], int(e.start))
	if reason != kept {
		return reason
	}
	json = append(append(json, `,"time":"`...), time...)
	dst.JSON = append(json, `"}}`...)
	e.end = uint32(len(dst.JSON))
	return kept
}

// appendSync appends the event of a #sync: the members of indigo's SyncSubscribeRepos_Sync in its
// order. What is in the CAR is not looked at.
func (t *Translator) appendSync(dst *Batch) Reason {
	seq, did, time, reason := t.body.accountFields()
	if reason != kept {
		return reason
	}
	rev, reason := t.body.text(fieldRev, validTID, ReasonInvalidRev)
	if reason != kept {
		return reason
	}
	d := decoder{buf: t.body.fields[fieldBlocks]}
	blocks := d.bytes()
	switch {
	case len(blocks) > maxSyncBytes:
		return ReasonTooLarge
	case t.car.open(blocks) == nil:
		return ReasonInvalidCAR
	}
	e := appendEvent(dst, seq, did, KindSync)
	json := append(dst.JSON, `"blocks":{"$bytes":"`...)
	json = base64.RawStdEncoding.AppendEncode(json, blocks)
	json = append(append(json, `"},"did":"`...), did...)
	json = append(append(json, `","rev":"`...), rev...)
	json = strconv.AppendInt(append(json, `","seq":`...), seq, 10)
	json = append(append(json, `,"time":"`...), time...)
	dst.JSON = append(json, `"}}`...)
	e.end = uint32(len(dst.JSON))
	return kept
}

// appendMember appends name and the text that value holds, or nothing if value is absent or null.
// It returns a reason if it is anything else, or if the event that begins at start would be too
// large.
func (t *Translator) appendMember(json []byte, name string, value []byte, start int) ([]byte, Reason) {
	if isNull(value) {
		return json, kept
	}
	text, ok := textOf(value)
	if !ok {
		return json, ReasonInvalidBody
	}
	if room := start + t.maxJSONBytes - len(json); maxQuotedLen(len(text)) > room && quotedLen(text) > room {
		return json, ReasonTooLarge
	}
	if json, ok = appendQuoted(append(json, name...), text); !ok {
		return json, ReasonInvalidBody
	}
	return json, kept
}
