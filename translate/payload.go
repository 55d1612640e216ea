package translate

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

const revMember = `,"commit":{"rev":"`

// PayloadRev returns the rev in the JSON of a commit's event as a number, which rises as revs do.
// ok is false if there is none.
func PayloadRev(payload []byte) (rev uint64, ok bool) {
	at := bytes.Index(payload, []byte(revMember)) // a DID has no '"'
	if at < 0 || len(payload) < at+len(revMember)+tidBytes {
		return 0, false
	}
	for _, c := range payload[at+len(revMember):][:tidBytes] {
		switch {
		case '2' <= c && c <= '7':
			rev = rev<<5 | uint64(c-'2')
		case 'a' <= c && c <= 'z':
			rev = rev<<5 | uint64(c-'a'+6)
		default:
			return 0, false
		}
	}
	return rev, true
}

// PayloadDeletion returns when an account was deleted, in Unix microseconds, if that is what the
// JSON of an account's event says: the time in it, or its stamp if Go cannot read that.
func PayloadDeletion(payload []byte) (timeUS int64, deleted bool) {
	var event struct {
		TimeUS  int64 `json:"time_us"`
		Account struct {
			Active       bool
			Status, Time string
		}
	}
	if json.Unmarshal(payload, &event) != nil || event.Account.Active || event.Account.Status != "deleted" {
		return 0, false
	}
	// RFC 3339 allows a small t and z, and Go does not
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(event.Account.Time)); err == nil {
		return t.UnixMicro(), true
	}
	return event.TimeUS, true
}
