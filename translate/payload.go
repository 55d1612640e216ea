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
	if at < 0 {
		return 0, false
	}
	rest := payload[at+len(revMember):]
	return ParseTID(rest[:min(tidBytes, len(rest))])
}

// ParseTID returns the number of a TID, which rises as TIDs do. ok is false for what is none.
func ParseTID(s []byte) (n uint64, ok bool) {
	if !validTID(s) {
		return 0, false
	}
	for _, c := range s {
		digit := c - '2'
		if c >= 'a' {
			digit = c - 'a' + 6
		}
		n = n<<5 | uint64(digit)
	}
	return n, true
}

// PayloadSync returns what the JSON of a #sync's event says: the repository's rev, as PayloadRev
// does, and the event's stamp.
func PayloadSync(payload []byte) (rev uint64, timeUS int64, ok bool) {
	var event struct {
		TimeUS int64 `json:"time_us"`
		Sync   struct{ Rev string }
	}
	if json.Unmarshal(payload, &event) != nil {
		return 0, 0, false
	}
	rev, ok = ParseTID([]byte(event.Sync.Rev))
	return rev, event.TimeUS, ok
}

// AccountStatus is what an account's event says of it.
type AccountStatus struct {
	Active  bool
	Deleted bool
	TimeUS  int64 // the time in it, in Unix microseconds, or its stamp if Go cannot read that
}

// PayloadStatus returns the status in the JSON of an account's event; false if it has none.
func PayloadStatus(payload []byte) (s AccountStatus, ok bool) {
	var event struct {
		TimeUS  int64 `json:"time_us"`
		Account struct {
			Active       *bool
			Status, Time string
		}
	}
	if json.Unmarshal(payload, &event) != nil || event.Account.Active == nil {
		return s, false
	}
	s = AccountStatus{Active: *event.Account.Active, TimeUS: event.TimeUS}
	s.Deleted = !s.Active && event.Account.Status == "deleted"
	// RFC 3339 allows a small t and z, and Go does not
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(event.Account.Time)); err == nil {
		s.TimeUS = t.UnixMicro()
	}
	return s, true
}
