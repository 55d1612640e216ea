package translate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/bluesky-social/indigo/events"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-car"
	carutil "github.com/ipld/go-car/util"
)

// indigoEvent is what the general path makes of an operation, an identity, an account or a sync.
type indigoEvent struct {
	op      int
	block   []byte // the record, if there is one
	cid     cid.Cid
	payload []byte
}

// indigoFrame returns the events that indigo's general path, as Jetstream has it, makes of a frame.
// It uses the structs of api/atproto, the whole repository slice through atproto/repo, records
// through atproto/atdata. fixBytes is indigoRecord's.
func indigoFrame(tb testing.TB, frame []byte, fixBytes bool) (out []indigoEvent, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	r := bytes.NewReader(frame)
	var header events.EventHeader
	if err := header.UnmarshalCBOR(r); err != nil {
		return nil, err
	}
	if header.Op != 1 {
		return nil, errors.New("no message")
	}
	e := jetstreamEvent{Kind: strings.TrimPrefix(header.MsgType, "#")}
	switch header.MsgType {
	case "#identity":
		e.Identity = &comatproto.SyncSubscribeRepos_Identity{}
		if err := e.Identity.UnmarshalCBOR(r); err != nil {
			return nil, err
		}
		e.DID = e.Identity.Did
		err = checkEnvelope(e.DID, e.Identity.Time)
	case "#account":
		e.Account = &comatproto.SyncSubscribeRepos_Account{}
		if err := e.Account.UnmarshalCBOR(r); err != nil {
			return nil, err
		}
		e.DID = e.Account.Did
		err = checkEnvelope(e.DID, e.Account.Time)
	case "#sync":
		e.Sync = &comatproto.SyncSubscribeRepos_Sync{}
		if err := e.Sync.UnmarshalCBOR(r); err != nil {
			return nil, err
		}
		e.DID = e.Sync.Did
		err = errors.Join(checkEnvelope(e.DID, e.Sync.Time, e.Sync.Rev), checkSyncBlocks(e.Sync.Blocks))
	case "#commit":
		var commit comatproto.SyncSubscribeRepos_Commit
		if err := commit.UnmarshalCBOR(r); err != nil {
			return nil, err
		}
		if commit.TooBig {
			return nil, nil
		}
		if err := checkEnvelope(commit.Repo, commit.Time, commit.Rev); err != nil {
			return nil, err
		}
		return indigoOps(tb, &commit, fixBytes), nil
	default:
		return nil, errors.New("not served")
	}
	if err != nil {
		return nil, err
	}
	return []indigoEvent{{payload: e.marshal(tb)}}, nil
}

// checkEnvelope checks what a frame says beside its contents; only commits have a rev.
func checkEnvelope(did, time string, rev ...string) error {
	_, err1 := syntax.ParseDID(did)
	_, err2 := syntax.ParseDatetime(time)
	err := errors.Join(err1, err2)
	for _, r := range rev {
		_, err3 := syntax.ParseTID(r)
		err = errors.Join(err, err3)
	}
	return err
}

// indigoOps returns the events of a commit's operations, without those that indigo has an error
// for.
func indigoOps(tb testing.TB, commit *comatproto.SyncSubscribeRepos_Commit, fixBytes bool) []indigoEvent {
	var out []indigoEvent
	_, slice, err := repo.LoadRepoFromCAR(context.Background(), bytes.NewReader(commit.Blocks))
	for i, op := range commit.Ops {
		if op == nil || !slices.Contains([]string{"create", "update", "delete"}, op.Action) {
			continue
		}
		collection, rkey, pathErr := syntax.ParseRepoPath(op.Path)
		if pathErr != nil {
			continue
		}
		ev := indigoEvent{op: i}
		c := &jetstreamCommit{Rev: commit.Rev, Operation: op.Action, Collection: collection.String(), RKey: rkey.String()}
		if op.Action != "delete" {
			if err != nil || op.Cid == nil {
				continue
			}
			data, found, getErr := slice.GetRecordBytes(context.Background(), collection, rkey)
			if getErr != nil || !found.Equals(cid.Cid(*op.Cid)) {
				continue
			}
			record, recErr := indigoRecord(data, fixBytes)
			if recErr != nil {
				continue
			}
			ev.block, ev.cid, c.Record, c.CID = data, *found, record, found.String()
		}
		e := jetstreamEvent{DID: commit.Repo, Kind: "commit", Commit: c}
		ev.payload = e.marshal(tb)
		out = append(out, ev)
	}
	return out
}

// plainFrame is a frame as the walker reads it, without a thought for what the protocol allows.
type plainFrame struct {
	header, body node
	rest         int  // bytes after the body
	simple       bool // there is a reserved simple value
	ops          []plainOp
}

type plainOp struct {
	action, path string
	cid          cid.Cid
	record       []byte // the block of that CID whose hash is right
}

// readFrame reads a frame with the walker. What comes after something malformed is missing.
func readFrame(tb testing.TB, frame []byte) (f plainFrame) {
	tb.Helper()
	w := &walker{buf: frame, lenient: true}
	defer func() {
		if p := recover(); p != nil && p != errWalk {
			panic(p)
		}
	}()
	f.header = w.item(1, false)
	f.body = w.item(1, false)
	f.rest, f.simple = len(w.buf), slices.Contains(w.found, diffSimple)
	blocks := plainBlocks(f.body.entries["blocks"].bytes)
	for _, o := range f.body.entries["ops"].elements {
		op := plainOp{action: o.entries["action"].text, path: o.entries["path"].text, cid: o.entries["cid"].link}
		op.record = blocks[op.cid]
		f.ops = append(f.ops, op)
	}
	return f
}

// plainBlocks returns the blocks of a CAR whose hash is right.
func plainBlocks(car []byte) map[cid.Cid][]byte {
	blocks := map[cid.Cid][]byte{}
	r := bufio.NewReader(bytes.NewReader(car))
	if _, err := carutil.LdRead(r); err != nil {
		return blocks
	}
	for {
		c, data, err := carutil.ReadNode(r)
		if err == io.EOF || err != nil {
			return blocks
		}
		if sum, err := c.Prefix().Sum(data); err == nil && sum.Equals(c) {
			blocks[c] = data
		}
	}
}

// checkSyncBlocks says what is wrong with the blocks of a #sync, by indigo's reader of CARs. It
// also wants their hashes to be right.
func checkSyncBlocks(b []byte) error {
	if len(b) > 10_000 {
		return errors.New("over 10,000 bytes")
	}
	r, err := car.NewCarReader(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("read the header: %w", err)
	}
	for err == nil {
		_, err = r.Next()
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// plainEvent returns the payload that event e of a batch ought to have by the walker's reading of
// its frame and indigo's of its parts. Else it returns an error that says why it ought not to be
// there.
func plainEvent(tb testing.TB, f plainFrame, e *Event) ([]byte, error) {
	body := f.body.entries
	seq, time := body["seq"].integer, body["time"].text
	if seq < 1 || f.rest != 0 || f.header.entries["op"].integer != 1 || f.header.entries["t"].text != "#"+e.Kind.String() {
		return nil, fmt.Errorf("header %v, seq %d, %d bytes after the body", f.header.entries, seq, f.rest)
	}
	out := jetstreamEvent{DID: body["did"].text, Kind: e.Kind.String()}
	switch e.Kind {
	case KindIdentity:
		out.Identity = &comatproto.SyncSubscribeRepos_Identity{Did: out.DID, Seq: seq, Time: time, Handle: body["handle"].optional()}
		return out.marshal(tb), checkEnvelope(out.DID, time)
	case KindAccount:
		out.Account = &comatproto.SyncSubscribeRepos_Account{Did: out.DID, Seq: seq, Time: time, Status: body["status"].optional(),
			Active: body["active"].integer == 1}
		return out.marshal(tb), checkEnvelope(out.DID, time)
	case KindSync:
		out.Sync = &comatproto.SyncSubscribeRepos_Sync{Blocks: body["blocks"].bytes, Did: out.DID, Rev: body["rev"].text, Seq: seq, Time: time}
		return out.marshal(tb), checkEnvelope(out.DID, time, out.Sync.Rev)
	}
	if int(e.Op) >= len(f.ops) {
		return nil, fmt.Errorf("there are %d ops", len(f.ops))
	}
	op := f.ops[e.Op]
	out.DID = body["repo"].text
	rev := body["rev"].text
	collection, rkey, err := syntax.ParseRepoPath(op.path)
	if err = errors.Join(err, checkEnvelope(out.DID, time, rev)); err != nil {
		return nil, fmt.Errorf("rev %q: %w", rev, err)
	}
	out.Commit = &jetstreamCommit{Rev: rev, Operation: op.action, Collection: collection.String(), RKey: rkey.String()}
	switch op.action {
	case "create", "update":
		record, err := indigoRecord(op.record, true)
		if err != nil {
			return nil, err
		}
		out.Commit.Record, out.Commit.CID = json.RawMessage(record), op.cid.String()
	case "delete":
	default:
		return nil, fmt.Errorf("action %q", op.action)
	}
	return out.marshal(tb), nil
}

// optional returns a text that may be missing.
func (n node) optional() *string {
	if n.kind == kindText {
		return &n.text
	}
	return nil
}

// The ways in which a frame that indigo serves events of is read otherwise here, beside those of
// its records.
const (
	diffTrailing  = "bytes after the body"
	diffTwice     = "a field twice"
	diffSeq       = "seq missing or below 1"
	diffActive    = "an account without active"
	diffTime      = "a time that is not RFC 3339"
	diffManyOps   = "more than 1023 ops"
	diffBodyUTF8  = "a handle or status that is not UTF-8"
	diffOtherCID  = "a record's CID that is not of SHA-256 and DAG-CBOR or raw"
	diffCARHeader = "a CAR's header in a form of its own"
	diffSimple    = "a reserved simple value"
)

// frameDivergences returns which of them a frame is an example of.
func frameDivergences(f plainFrame, ev *indigoEvent) []string {
	var found []string
	note := func(name string, yes bool) {
		if yes {
			found = append(found, name)
		}
	}
	body := f.body.entries
	note(diffTrailing, f.rest > 0)
	note(diffSimple, f.simple)
	note(diffTwice, f.body.twice || f.header.twice)
	note(diffSeq, body["seq"].kind != kindInteger || body["seq"].integer < 1)
	if f.header.entries["t"].text == "#account" {
		note(diffActive, body["active"].kind != kindBool)
	}
	note(diffTime, parseDatetime(body["time"].text) != nil)
	for _, key := range []string{"handle", "status"} {
		note(diffBodyUTF8, !utf8.ValidString(body[key].text))
	}
	note(diffManyOps, len(body["ops"].elements) > MaxOps)
	if ops := body["ops"].elements; ev.op < len(ops) {
		note(diffTwice, ops[ev.op].twice)
	}
	if ev.block != nil {
		p := ev.cid.Prefix()
		note(diffOtherCID, p.Version != 1 || p.Codec != cid.DagCBOR && p.Codec != cid.Raw || p.MhType != 0x12 || p.MhLength != 32)
		note(diffCARHeader, !plainCARHeader(body["blocks"].bytes))
		found = append(found, divergences(ev.block)...)
	}
	return found
}

// plainCARHeader reports whether a CAR's header is what canonical encoding makes of its contents.
func plainCARHeader(car []byte) bool {
	header, err := carutil.LdRead(bufio.NewReader(bytes.NewReader(car)))
	if err != nil {
		return false
	}
	w := &walker{buf: header}
	ok := false
	func() {
		defer func() { _ = recover() }()
		n := w.item(1, false)
		roots := []any{}
		for _, root := range n.entries["roots"].elements {
			roots = append(roots, cborLink(root.link.Bytes()))
		}
		ok = bytes.Equal(header, cborOf(cborMap{{"roots", roots}, {"version", int(n.entries["version"].integer)}}))
	}()
	return ok
}

// checkFrame holds a frame's events against indigo's. Each of ours must be what a plain reading of
// the frame makes of it, and each that indigo serves must be among ours. The differences are
// excepted.
func checkFrame(t *testing.T, tr *Translator, frame []byte) {
	t.Helper()
	var b Batch
	tr.AppendFrame(&b, frame)
	var frames, events, drops uint64
	for _, n := range b.Counts.Frames {
		frames += n
	}
	for _, n := range b.Counts.Events {
		events += n
	}
	for _, n := range b.Counts.Drops {
		drops += n
	}
	if frames != 1 || events != uint64(len(b.Events)) {
		t.Errorf("counted %d frames and %d of %d events", frames, events, len(b.Events))
	}
	f := readFrame(t, frame)
	served := map[int][]byte{}
	for i := range b.Events {
		want, err := plainEvent(t, f, &b.Events[i])
		if err != nil || !bytes.Equal(want, b.Payload(i)) {
			t.Errorf("%x\nevent %s\nought to be %s, %v", frame, b.Payload(i), want, err)
		}
		served[int(b.Events[i].Op)] = bytes.Clone(b.Payload(i))
	}
	theirs, err := indigoFrame(t, frame, true)
	for i := range theirs {
		ev := &theirs[i]
		if got, ok := served[ev.op]; ok {
			if !bytes.Equal(got, ev.payload) {
				t.Errorf("%x\nevent %s\nby indigo %s", frame, got, ev.payload)
			}
			continue
		}
		if found := frameDivergences(f, ev); len(found) == 0 {
			t.Errorf("%x\nindigo serves %s\nbut here it is dropped: %v", frame, ev.payload, dropsOf(&b.Counts))
		}
	}
	if err != nil && len(b.Events) == 0 && drops == 0 && b.Counts.Frames[FrameInfo]+b.Counts.Frames[FrameTooBig] == 0 &&
		len(f.body.entries["ops"].elements) > 0 {
		t.Errorf("%x\ndropped without a reason", frame)
	}
	checkBatch(t, &b)
}
