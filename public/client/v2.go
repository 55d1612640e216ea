package client

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// V2Path is the path of Jetstream v2's wire. A URL that ends with it is spoken to in that way.
const V2Path = "/xrpc/network.bsky.jetstream.subscribeEvents"

const (
	v2DictionaryPath = "/xrpc/network.bsky.jetstream.getZstdDictionary"
	v2Types          = "network.bsky.jetstream.subscribeEvents#"
	v2OwnTypes       = "millrace#" // of messages of a millrace
	v2Subprotocol    = "xrpc.v1.json"
	v2CursorTooOld   = "CursorTooOld"
	v2OutdatedCursor = "OutdatedCursor"
	// v2OldestCursor is a time, and so a cursor of all that is retained: no log is that old.
	v2OldestCursor      = "1000000000000000"
	v2UnknownDictionary = "UnknownZstdDictionary"
)

// firstTimeCursor is the least cursor of v2's wire that is Unix microseconds and no seq.
const firstTimeCursor = 1e15

// isV2 says whether the URL is one of v2's wire.
func isV2(subscribe *url.URL) bool { return strings.HasSuffix(subscribe.Path, V2Path) }

// parseSeq reads a cursor of v2's wire that is a seq, as a position of a stream without a name.
func parseSeq(s string) (position, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n >= firstTimeCursor {
		return position{}, false
	}
	return position{seq: n}, true
}

// validateV2 names the first field that v2's wire cannot serve.
func (c *Config) validateV2() error {
	if n, err := strconv.ParseInt(c.Cursor, 10, 64); c.Cursor != "" && (err != nil || n < 0) {
		return fmt.Errorf("client: field Cursor: %.40q is neither a seq nor Unix microseconds, which the URL's wire has", c.Cursor)
	}
	return nil
}

// queryV2 is query of v2's wire. The server reads nothing later.
func (c *Config) queryV2(q url.Values, o Options, cursor string) string {
	c.addTo(q, "kinds", cursor)
	o.addTo(q, "collections", "dids")
	return q.Encode()
}

// giveV2 is give of v2's wire.
func (c *Client) giveV2(k *conn, raw []byte, yield func(Event, error) bool) error {
	m, err := c.parser.parseV2(raw)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w: %.200q", ErrUnreadable, err, raw)
	case m.failure != "":
		return fmt.Errorf("the server ended the connection: %s", m.failure)
	case m.event.Kind != "":
		return c.offer(m.event, yield)
	case m.info.Name == InfoClamped && c.strict():
		return errOutdated // the server says that it begins with the oldest event
	case m.info.Name == InfoHeartbeat:
		c.expectHeartbeats(k, true)
		c.progress.reach(m.info.Cursor, m.info.TimeUS)
	}
	c.cfg.OnInfo(m.info)
	return nil
}

// v2Message is one message: an event if its Kind is set, the end of the connection if failure is.
type v2Message struct {
	event   Event
	info    Info
	failure string
}

// parseV2 reads a message of v2's wire. It keeps raw, as Event.Raw or Info.Raw.
func (p *parser) parseV2(raw []byte) (m v2Message, err error) {
	var kind, payload, name, message []byte
	err = eachMember(raw, func(member, value []byte) (err error) {
		switch string(member) {
		case "$type":
			kind, err = text(value)
		case "payload":
			payload = value
		case "error":
			name, err = text(value)
		case "message":
			message, err = text(value)
		}
		return err
	})
	switch {
	case err != nil:
		return m, err
	case string(kind) == "error":
		m.failure = fmt.Sprintf("%s: %s", name, message)
		return m, nil
	case string(kind) != "message" || payload == nil:
		return m, fmt.Errorf("%w: neither a message nor an error", errJSON)
	}
	if kind, err = typeOf(payload); err != nil {
		return m, err
	}
	own, isOwn := bytes.CutPrefix(kind, []byte(v2OwnTypes))
	kind, known := bytes.CutPrefix(kind, []byte(v2Types))
	switch {
	case isOwn:
		m.info, err = parseV2Own(payload, p.name(own))
	case known && string(kind) == "info":
		m.info, err = parseV2Info(payload)
	case known:
		m.event, err = p.parseV2Event(payload, Kind(p.name(kind)))
	}
	m.event.Raw, m.info.Raw = raw, raw
	return m, err
}

func parseV2Info(payload []byte) (Info, error) {
	var i Info
	err := json.Unmarshal(payload, &i)
	if i.Name == v2OutdatedCursor {
		i.Name = InfoClamped
	}
	return Info{Name: i.Name, Message: i.Message}, err
}

// parseV2Own reads a message of a millrace about its log up to a point.
func parseV2Own(payload []byte, name string) (Info, error) {
	i := Info{Name: name}
	err := eachMember(payload, func(member, value []byte) (err error) {
		switch string(member) {
		case "seq":
			i.Cursor = string(value)
			_, err = strconv.ParseInt(i.Cursor, 10, 64)
		case "time":
			i.TimeUS, err = parseV2Time(value)
		}
		return err
	})
	return i, err
}

// parseV2Event reads the payload of an event.
func (p *parser) parseV2Event(payload []byte, kind Kind) (Event, error) {
	e := Event{Kind: kind}
	if kind == KindCommit {
		e.Commit = new(Commit)
	}
	var f fields
	err := eachMember(payload, func(member, value []byte) (err error) {
		switch string(member) {
		case "seq":
			f.cursor = value
			_, err = strconv.ParseInt(string(value), 10, 64)
		case "time":
			e.TimeUS, err = parseV2Time(value)
		default:
			if err = parseMember(&e, &f, member, value); err == nil && e.Commit != nil {
				err = p.parseCommitMember(e.Commit, &f, member, value)
			}
		}
		return err
	})
	switch {
	case err != nil:
		return Event{}, err
	case len(f.did) == 0 || len(f.cursor) == 0 || e.TimeUS <= 0:
		return Event{}, fmt.Errorf("%w: no did, seq or time", errJSON)
	case !e.complete():
		return Event{}, fmt.Errorf("%w: no %s", errJSON, kind)
	}
	p.copyFields(&e, &f)
	return e, nil
}

func parseV2Time(value []byte) (int64, error) {
	s, err := text(value)
	if err != nil {
		return 0, err
	}
	t, err := time.Parse(time.RFC3339Nano, string(s))
	return t.UnixMicro(), err
}

// eachMember calls do with each member of the object, and names the one where it fails.
func eachMember(object []byte, do func(name, value []byte) error) error {
	m := members{b: object}
	for {
		name, value, _, ok := m.next()
		if !ok {
			return m.err
		}
		if err := do(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// typeOf returns the object's $type, its first member as a rule.
func typeOf(object []byte) ([]byte, error) {
	m := members{b: object}
	for {
		switch name, value, _, ok := m.next(); {
		case !ok:
			return nil, cmp.Or(m.err, errJSON)
		case string(name) == "$type":
			return text(value)
		}
	}
}
