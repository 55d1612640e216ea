package intern

import "bytes"

// form distinguishes the shapes of interned strings. Its numbers are in stored keys and values.
type form uint8

const (
	formPLC        form = iota // did:plc: and 24 base32 characters
	formDID                    // any other DID
	formRecord                 // at://DID/collection/rkey, the rkey not a TID that packs
	formCollection             // at://DID/collection
	formAuthority              // at://DID
	formHandle                 // at://handle…
	formTID                    // at://DID/collection/TID
	numForms
)

func (f form) isDID() bool { return f <= formDID }

// name is a valid DID or AT URI, taken apart. Its slices alias the string.
type name struct {
	form form
	did  []byte // whole; empty for formHandle
	coll []byte // formRecord, formCollection, formTID
	text []byte // formRecord: the record key; formHandle: the URI without at://
	tid  uint64 // formTID: the record key, packed
}

const schemeAT = "at://"

// parseName takes a DID or AT URI apart. reason is why it is invalid, "" if it is not.
func parseName(s []byte) (n name, reason string) {
	rest, isURI := bytes.CutPrefix(s, []byte(schemeAT))
	if !isURI {
		if !bytes.HasPrefix(s, []byte("did:")) {
			return name{}, `begins with neither "did:" nor "at://"`
		}
		return didName(s)
	}
	authority, path, hasPath := bytes.Cut(rest, []byte("/"))
	coll, rkey, hasRKey := bytes.Cut(path, []byte("/"))
	if hasPath && len(coll) == 0 {
		return name{}, "AT URI ends in a slash or has an empty collection"
	}
	if hasRKey && len(rkey) == 0 {
		return name{}, "AT URI ends in a slash"
	}
	if bytes.HasPrefix(authority, []byte("did:")) {
		n, reason = didName(authority)
	} else {
		n, reason = name{form: formHandle, text: rest}, checkHandle(authority)
	}
	if reason == "" && hasPath {
		reason = checkNSID(coll)
	}
	if reason == "" && hasRKey {
		reason = checkRecordKey(rkey)
	}
	if reason != "" {
		return name{}, reason
	}
	if n.form != formHandle {
		n.form = formAuthority
		if hasPath {
			n.setPath(coll, rkey)
		}
	}
	return n, ""
}

func didName(s []byte) (n name, reason string) {
	if isPLC(s) {
		return name{form: formPLC, did: s}, ""
	}
	return name{form: formDID, did: s}, checkDID(s)
}

// setPath makes n an AT URI with collection and, if rkey is not empty, record key, both valid.
func (n *name) setPath(coll, rkey []byte) {
	n.coll = coll
	if len(rkey) == 0 {
		n.form = formCollection
		return
	}
	if tid, ok := packTID(rkey); ok {
		n.form, n.tid = formTID, tid
		return
	}
	n.form, n.text = formRecord, rkey
}
