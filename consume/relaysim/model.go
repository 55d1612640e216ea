package relaysim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-car"

	"millrace/consume/relaysim/cbor"
)

// JetstreamEvent is an event as Jetstream serves it; encoding/json writes it byte for byte.
type JetstreamEvent struct {
	DID      string                                  `json:"did"`
	TimeUS   int64                                   `json:"time_us"`
	Kind     string                                  `json:"kind"`
	Commit   *JetstreamCommit                        `json:"commit,omitempty"`
	Account  *comatproto.SyncSubscribeRepos_Account  `json:"account,omitempty"`
	Identity *comatproto.SyncSubscribeRepos_Identity `json:"identity,omitempty"`
	Sync     *comatproto.SyncSubscribeRepos_Sync     `json:"sync,omitempty"`
}

// JetstreamCommit is what a JetstreamEvent says of an op.
type JetstreamCommit struct {
	Rev        string          `json:"rev"`
	Operation  string          `json:"operation"`
	Collection string          `json:"collection"`
	RKey       string          `json:"rkey"`
	Record     json.RawMessage `json:"record,omitempty"`
	CID        string          `json:"cid,omitempty"`
}

// maxSyncBytes is the maxLength of a #sync's blocks.
const maxSyncBytes = 10_000

// expectation is one event that a correct consumer makes of a frame.
type expectation struct {
	op    int
	event JetstreamEvent
}

// expect says which events a correct consumer makes of frame, with indigo's decoders: the reference
// that the code under test is not part of. It holds for frames as relays send them; what must be
// kept of hostile frames is known where they are made. A frame that gives no events is no error.
func expect(frame []byte) ([]expectation, error) {
	kind, body, err := splitFrame(frame)
	if err != nil {
		return nil, err
	}
	r := bytes.NewReader(body)
	var out []expectation
	switch kind {
	case "#commit":
		var c comatproto.SyncSubscribeRepos_Commit
		if err = c.UnmarshalCBOR(r); err == nil {
			out = expectCommit(&c)
		}
	case "#identity":
		var i comatproto.SyncSubscribeRepos_Identity
		if err = i.UnmarshalCBOR(r); err == nil && validEnvelope(i.Did, i.Time) {
			out = []expectation{{event: JetstreamEvent{DID: i.Did, Kind: "identity", Identity: &i}}}
		}
	case "#account":
		var a comatproto.SyncSubscribeRepos_Account
		if err = a.UnmarshalCBOR(r); err == nil && validEnvelope(a.Did, a.Time) {
			out = []expectation{{event: JetstreamEvent{DID: a.Did, Kind: "account", Account: &a}}}
		}
	case "#sync":
		var s comatproto.SyncSubscribeRepos_Sync
		if err = s.UnmarshalCBOR(r); err == nil && validSync(&s) {
			out = []expectation{{event: JetstreamEvent{DID: s.Did, Kind: "sync", Sync: &s}}}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", strings.TrimPrefix(kind, "#"), err)
	}
	return out, nil
}

// splitFrame returns the kind in a message frame's header, and its body.
func splitFrame(frame []byte) (kind string, body []byte, err error) {
	s := scanner{b: frame}
	op := int64(0)
	for n := s.count(cbor.MapOf); n > 0 && s.err == nil; n-- {
		switch string(s.text()) {
		case "t":
			kind = string(s.text())
		case "op":
			major, v := s.head()
			op = int64(v)
			if major == cbor.NegInt {
				op = -1 - op
			}
		default:
			s.skip()
		}
	}
	if s.err != nil || op != 1 {
		return "", nil, fmt.Errorf("header with op %d, kind %q: %w", op, kind, errors.Join(errCBOR, s.err))
	}
	return kind, frame[s.at:], nil
}

func validEnvelope(did, sent string) bool {
	_, errDID := syntax.ParseDID(did)
	_, errTime := syntax.ParseDatetime(sent)
	// indigo takes more than RFC 3339: a comma before the fraction, and offsets of 24 hours.
	strict := !strings.Contains(sent, ",") && !strings.Contains(sent, "+24:") && !strings.Contains(sent, "-24:")
	return errDID == nil && errTime == nil && strict
}

func validSync(s *comatproto.SyncSubscribeRepos_Sync) bool {
	_, errRev := syntax.ParseTID(s.Rev)
	_, errCAR := carBlocks(s.Blocks)
	return errRev == nil && errCAR == nil && validEnvelope(s.Did, s.Time) && len(s.Blocks) <= maxSyncBytes
}

// expectCommit goes through the ops of a commit.
func expectCommit(c *comatproto.SyncSubscribeRepos_Commit) []expectation {
	if _, err := syntax.ParseTID(c.Rev); err != nil || c.TooBig || !validEnvelope(c.Repo, c.Time) {
		return nil
	}
	blocks, _ := carBlocks(c.Blocks) // none of a bad CAR
	var out []expectation
	for i, op := range c.Ops {
		var record []byte
		var id cid.Cid
		if op.Cid != nil {
			id = cid.Cid(*op.Cid)
			record = blocks[id]
		}
		if e, ok := expectOp(c.Repo, c.Rev, op.Action, op.Path, id, record); ok {
			out = append(out, expectation{op: i, event: e})
		}
	}
	return out
}

// expectOp says what a consumer makes of one op; false: it is dropped.
func expectOp(did, rev, action, path string, id cid.Cid, record []byte) (JetstreamEvent, bool) {
	collection, rkey, err := syntax.ParseRepoPath(path)
	if err != nil {
		return JetstreamEvent{}, false
	}
	commit := &JetstreamCommit{Rev: rev, Operation: action, Collection: string(collection), RKey: string(rkey)}
	switch action {
	case "delete":
	case "create", "update":
		if !id.Defined() || record == nil {
			return JetstreamEvent{}, false
		}
		data, err := atdata.UnmarshalCBOR(record)
		if err != nil {
			return JetstreamEvent{}, false
		}
		if commit.Record, err = json.Marshal(data); err != nil {
			return JetstreamEvent{}, false
		}
		commit.CID = id.String()
	default:
		return JetstreamEvent{}, false
	}
	return JetstreamEvent{DID: did, Kind: "commit", Commit: commit}, true
}

// carBlocks reads a CAR whole, checking each block against its CID.
func carBlocks(b []byte) (map[cid.Cid][]byte, error) {
	r, err := car.NewCarReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("read CAR header: %w", err)
	}
	blocks := make(map[cid.Cid][]byte)
	for {
		block, err := r.Next()
		if errors.Is(err, io.EOF) {
			return blocks, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read CAR block: %w", err)
		}
		blocks[block.Cid()] = block.RawData()
	}
}
