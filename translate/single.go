package translate

import "fmt"

// AppendRecord appends the create of a record that came without a frame: one of a repository. path
// is collection/rkey, record the block, which the caller has compared with its CID. The event has
// neither seq nor CID, and an empty rev. Its references are cut as those of a frame's first record
// are. Like AppendFrame it drops what the protocol does not allow and counts it in dst.Counts; dst
// has one more event if it is kept. It keeps nothing of what it is given.
func (t *Translator) AppendRecord(dst *Batch, did, path, record []byte) {
	checkRoom(dst)
	c := commit{did: did, jsonStart: len(dst.JSON)}
	events := len(dst.Events)
	t.record.refs.beginFrame(dst)
	reason := t.appendSingle(dst, &c, path, record)
	t.record.refs.endFrame()
	t.record.trim()
	if reason != kept {
		dst.Events, dst.JSON = dst.Events[:events], dst.JSON[:c.jsonStart]
		dst.Counts.Drops[reason]++
	} else if len(dst.Events) > events {
		dst.Counts.Events[EventCreate]++
	}
}

// appendSingle does the work of AppendRecord. If it returns a reason, the event is taken back.
func (t *Translator) appendSingle(dst *Batch, c *commit, path, record []byte) Reason {
	if !validDID(c.did) {
		return ReasonInvalidDID
	}
	collection, rkey, ok := splitPath(path)
	if !ok {
		return ReasonInvalidPath
	}
	if !t.collections.holds(collection) {
		dst.Counts.Filtered++
		return kept
	}
	e, json := appendOpHead(dst, c, OpCreate, collection, rkey)
	json, ok = t.record.appendRecord(append(json, `,"record":`...), record, c.jsonStart+t.maxJSONBytes)
	switch {
	case !ok && t.record.fail == failTooLarge:
		return ReasonTooLarge
	case !ok:
		return ReasonInvalidRecord
	}
	if refs := &t.record.refs; refs.on {
		dst.Counts.ExcessReferences += refs.excess
	}
	dst.JSON = append(json, "}}"...)
	e.end = uint32(len(dst.JSON))
	return kept
}

// Holds reports whether Config.Collections names the collection.
func (t *Translator) Holds(collection []byte) bool { return t.collections.holds(collection) }

// InvalidReference says what is wrong with a reference that did not come of a record; "": nothing
// is. A path of any text can be.
func InvalidReference(did, collection, rkey, path, subject string) string {
	for _, f := range []struct {
		name, value string
		valid       bool
	}{
		{"did", did, validDID([]byte(did))},
		{"collection", collection, validNSID([]byte(collection))},
		{"rkey", rkey, validRecordKey([]byte(rkey))},
		{"path", path, len(path) <= MaxReferencePathBytes},
		{"subject, which must be a DID or AT URI", subject, referenceAuthority([]byte(subject)) > 0},
	} {
		if !f.valid {
			return fmt.Sprintf("%.100q is no %s", f.value, f.name)
		}
	}
	return ""
}
