package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Kind distinguishes events.
type Kind string

// The kinds of events.
const (
	KindCommit   Kind = "commit"
	KindIdentity Kind = "identity"
	KindAccount  Kind = "account"
	KindSync     Kind = "sync"
)

// AllKinds returns the kinds of events.
func AllKinds() []Kind { return []Kind{KindCommit, KindIdentity, KindAccount, KindSync} }

// Operations of a commit.
const (
	OpCreate = "create"
	OpUpdate = "update"
	OpDelete = "delete"
)

// Event is one thing that happened. It is the receiver's own: nothing in it is used again.
type Event struct {
	DID    string
	TimeUS int64 // the server's stamp, Unix microseconds
	Kind   Kind

	// The one that Kind names is set.
	Commit   *Commit
	Identity *Identity
	Account  *Account
	Sync     *Sync

	// Cursor is the event's position: a subscription that starts with it goes on with the next
	// event, on every millrace that follows the same relay. "" from a plain Jetstream. On Jetstream
	// v2's wire it is the event's seq, which holds likewise.
	Cursor string
	UIDs   UIDs

	// With Config.References: what the commit's record points at, and what it no longer does; of a
	// delete all that it did.
	References, DeletedReferences []Reference
	// Repeated, with Config.References: the relay sent the commit before, and it changes nothing.
	Repeated bool

	// Unverified says why the server could not verify the commit or sync, "" if it could, or does
	// not. Reasons are in docs/verification.md.
	Unverified string

	Raw json.RawMessage // all of it, as it came

	timeAt, timeEnd int // time_us's value in Raw
	// where in Raw begins what extended=true added, ",…}"; the last byte if nothing
	plainEnd int
}

// Commit is what an operation did to a record.
type Commit struct {
	Rev        string
	Operation  string // OpCreate, OpUpdate or OpDelete
	Collection string
	RKey       string
	Record     json.RawMessage // nil for deletes; as it came
	CID        string          // "" for deletes
}

// Identity says that a DID's handle, keys or services may have changed.
type Identity struct {
	DID    string `json:"did"`
	Handle string `json:"handle"`
	Seq    int64  `json:"seq"`
	Time   string `json:"time"`
}

// Account says whether an account is served by its host, and if not, why.
type Account struct {
	Active bool   `json:"active"`
	DID    string `json:"did"`
	Seq    int64  `json:"seq"`
	Status string `json:"status"`
	Time   string `json:"time"`
}

// Sync says in which state a repository is: the events before may not lead to it. Such events must
// be asked for, with Config.Kinds.
type Sync struct {
	Blocks []byte // a CAR with the commit, as its sender made it
	DID    string
	Rev    string
	Seq    int64
	Time   string
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Sync) UnmarshalJSON(data []byte) error {
	var m struct {
		Blocks struct {
			Bytes string `json:"$bytes"`
		}
		DID, Rev string
		Seq      int64
		Time     string
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	blocks, err := base64.RawStdEncoding.DecodeString(m.Blocks.Bytes)
	*s = Sync{blocks, m.DID, m.Rev, m.Seq, m.Time}
	return err
}

// UIDs stand for strings, on every millrace that shares the UID store. 0: there is none.
type UIDs struct {
	DID uint64
	URI uint64 // of the commit's record
}

// Reference is a DID or AT URI that a value of a record is.
type Reference struct {
	Source  string `json:"source"`  // collection, ':', and where in the record
	Subject string `json:"subject"` // "": the server has lost it
	UID     uint64 `json:"uid,string"`
}

// Time returns TimeUS as a time.
func (e *Event) Time() time.Time { return time.UnixMicro(e.TimeUS) }

// URI returns the AT URI of a commit's record, "" for other events.
func (e *Event) URI() string {
	if e.Commit == nil {
		return ""
	}
	return "at://" + e.DID + "/" + e.Commit.Collection + "/" + e.Commit.RKey
}

// AppendPlain appends the event as Jetstream's clients know it: Raw without what a millrace adds to
// it: position, UIDs, references, and why it is unverified.
func (e *Event) AppendPlain(dst []byte) []byte {
	if e.plainEnd == 0 {
		return append(dst, e.Raw...)
	}
	return append(append(dst, e.Raw[:e.plainEnd]...), '}')
}

// complete says whether what Kind names is there.
func (e *Event) complete() bool {
	switch e.Kind {
	case KindCommit:
		return e.Commit != nil
	case KindIdentity:
		return e.Identity != nil
	case KindAccount:
		return e.Account != nil
	case KindSync:
		return e.Sync != nil
	}
	return true
}

// Bounds of the parser's table of strings that come again and again.
const (
	maxNames     = 4096
	maxNameBytes = 317 // of a collection
)

// parser reads messages. One goroutine uses it.
type parser struct {
	names   map[string]string // collections, operations and kinds
	scratch []byte
}

// name returns b as a string that is shared with earlier events, unless it is long.
func (p *parser) name(b []byte) string {
	if s, ok := p.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) > maxNameBytes {
		return s
	}
	if p.names == nil || len(p.names) == maxNames {
		p.names = make(map[string]string)
	}
	p.names[s] = s
	return s
}

// fields are an event's strings before they are copied, all at once.
type fields struct {
	did, rev, rkey, cid, cursor []byte
}

// parse reads an event. It keeps raw, as Event.Raw.
func (p *parser) parse(raw []byte) (Event, error) {
	e := Event{Raw: raw}
	var f fields
	m := members{b: raw}
	added := 0 // where the first member of ours begins
	for {
		before := m.at
		name, value, at, ok := m.next()
		if !ok {
			break
		}
		var err error
		switch string(name) {
		case "time_us":
			e.timeAt, e.timeEnd = at, at+len(value)
			e.TimeUS, err = strconv.ParseInt(string(value), 10, 64)
		case "kind":
			var kind []byte
			kind, err = text(value)
			e.Kind = Kind(p.name(kind))
		case "commit":
			e.Commit = new(Commit)
			err = eachMember(value, func(name, value []byte) error { return p.parseCommitMember(e.Commit, &f, name, value) })
		case "cursor":
			added = before
			f.cursor, err = text(value)
		case "uids":
			e.UIDs, err = parseUIDs(value)
		case "unverified":
			var reason []byte
			reason, err = text(value)
			e.Unverified = p.name(reason)
		default:
			err = parseMember(&e, &f, name, value)
		}
		if err != nil {
			return Event{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	switch {
	case m.err != nil:
		return Event{}, m.err
	case len(f.did) == 0 || e.TimeUS <= 0:
		return Event{}, fmt.Errorf("%w: no did or time_us", errJSON)
	case !e.complete():
		return Event{}, fmt.Errorf("%w: no %s", errJSON, e.Kind)
	}
	e.plainEnd = bytes.LastIndexByte(raw, '}')
	if added > e.timeEnd { // a millrace stamps before
		e.plainEnd = added
	}
	p.copyFields(&e, &f)
	return e, nil
}

// parseMember parses a member that has the same form on both wires.
func parseMember(e *Event, f *fields, name, value []byte) (err error) {
	switch string(name) {
	case "did":
		f.did, err = text(value)
	case "identity":
		e.Identity = new(Identity)
		err = json.Unmarshal(value, e.Identity)
	case "account":
		e.Account = new(Account)
		err = json.Unmarshal(value, e.Account)
	case "sync":
		e.Sync = new(Sync)
		err = json.Unmarshal(value, e.Sync)
	case "references":
		e.References, err = parseReferences(value)
	case "deleted_references":
		e.DeletedReferences, err = parseReferences(value)
	case "repeated":
		e.Repeated = string(value) == "true"
	}
	return err
}

func (p *parser) parseCommitMember(c *Commit, f *fields, name, value []byte) (err error) {
	var s []byte
	switch string(name) {
	case "rev":
		f.rev, err = text(value)
	case "operation":
		s, err = text(value)
		c.Operation = p.name(s)
	case "collection":
		s, err = text(value)
		c.Collection = p.name(s)
	case "rkey":
		f.rkey, err = text(value)
	case "record":
		c.Record = value
	case "cid":
		f.cid, err = text(value)
	}
	return err
}

// copyFields gives the event its strings, which are parts of one.
func (p *parser) copyFields(e *Event, f *fields) {
	b := append(p.scratch[:0], f.did...)
	b = append(b, f.rev...)
	b = append(b, f.rkey...)
	b = append(b, f.cid...)
	b = append(b, f.cursor...)
	p.scratch = b
	s := string(b)
	cut := func(n int) string {
		head := s[:n]
		s = s[n:]
		return head
	}
	e.DID = cut(len(f.did))
	if e.Commit != nil {
		e.Commit.Rev, e.Commit.RKey, e.Commit.CID = cut(len(f.rev)), cut(len(f.rkey)), cut(len(f.cid))
	}
	e.Cursor = cut(len(f.cursor))
}

// parseReferences takes no &e.References, which would move every Event to the heap.
func parseReferences(value []byte) (refs []Reference, err error) {
	err = json.Unmarshal(value, &refs)
	return refs, err
}

func parseUIDs(value []byte) (u UIDs, err error) {
	err = eachMember(value, func(name, value []byte) error {
		s, err := text(value)
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(string(s), 10, 64)
		switch string(name) {
		case "did":
			u.DID = n
		case "uri":
			u.URI = n
		}
		return err
	})
	return u, err
}
