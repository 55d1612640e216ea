package identity

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
)

// State says what is known of an account's key.
type State uint8

// The states. Only Current and Stale come with a key.
const (
	// Unknown: it is being fetched, or could not be a short while ago.
	Unknown State = iota
	// Current: it was fetched less than a day ago, and nothing has made it doubtful since.
	Current
	// Stale: it was fetched longer ago, or is being fetched anew after Refresh.
	Stale
	// Absent: there is no such account, or it has no valid signing key.
	Absent

	// NumStates is the number of states.
	NumStates
)

var stateNames = [NumStates]string{Unknown: "unknown", Current: "current", Stale: "stale", Absent: "absent"}

// String returns the state as the metrics spell it.
func (s State) String() string { return stateNames[s] }

// How long what was fetched counts.
const (
	freshFor    = 24 * time.Hour     // a key is current; up to an eighth less, by account
	keepFor     = 7 * 24 * time.Hour // a key that cannot be fetched anew is used as a stale one
	negativeFor = time.Hour          // that there is none
	retryAfter  = time.Minute        // a fetch of the account that has failed
	// refreshEvery is how often Refresh fetches an account anew.
	refreshEvery = 5 * time.Minute
	// changedEvery is how often Changed lets an account be fetched anew.
	changedEvery = time.Second
)

// entry is what is known of one account. Times are in Unix nanoseconds.
type entry struct {
	check   uint64             // hash of its DID
	key     atcrypto.PublicKey // nil: there is none
	fetched int64              // 0: nothing is known
	next    int64              // when it may be fetched again, if it must be
	suspect bool               // it is being fetched after Refresh
}

// waits says whether the account may not be fetched yet. A time that is further off than any wait
// is from before the clock was set back, and does not count.
func (e *entry) waits(now int64) bool {
	return now < e.next && e.next-now <= int64(retryAfter)
}

// judge returns the state of an account with this entry, and whether its key must be fetched now.
func (e *entry) judge(now time.Time) (state State, due bool) {
	due = !e.waits(now.UnixNano())
	age := now.Sub(time.Unix(0, e.fetched))
	if age < 0 { // the clock was set back
		age = freshFor
	}
	fresh := freshFor - freshFor/8*time.Duration(e.check&0xff)/0x100 // not all at once
	switch {
	case e.fetched == 0 || age >= keepFor:
		return Unknown, due
	case e.key == nil && age < negativeFor:
		return Absent, false
	case e.key == nil:
		return Unknown, due
	case age >= fresh:
		return Stale, due
	case e.suspect:
		return Stale, false
	}
	return Current, false
}

// The curves, as they are stored.
const (
	noKey = iota
	curveK256
	curveP256
)

// Sizes of stored entries.
const (
	keyBytes  = 33
	headBytes = 8 + 4 + 1
)

var errValue = errors.New("a stored key of an account is malformed")

// appendValue appends the stored form of e, of which something must be known: check:u64 |
// fetched:u32 in seconds | curve:u8 | the compressed key. Numbers are big-endian.
func (e *entry) appendValue(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, e.check)
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.fetched/int64(time.Second)))
	switch key := e.key.(type) {
	case *atcrypto.PublicKeyK256:
		return append(append(dst, curveK256), key.Bytes()...)
	case *atcrypto.PublicKeyP256:
		return append(append(dst, curveP256), key.Bytes()...)
	}
	return append(dst, noKey)
}

// decodeValue returns the entry of a stored value, which it does not keep.
func decodeValue(value []byte) (*entry, error) {
	if len(value) < headBytes {
		return nil, errValue
	}
	e := &entry{
		check:   binary.BigEndian.Uint64(value),
		fetched: int64(binary.BigEndian.Uint32(value[8:])) * int64(time.Second),
	}
	key := value[headBytes:]
	var err error
	switch curve := value[headBytes-1]; {
	case curve == noKey && len(key) == 0:
	case curve == curveK256 && len(key) == keyBytes:
		e.key, err = atcrypto.ParsePublicBytesK256(key)
	case curve == curveP256 && len(key) == keyBytes:
		e.key, err = atcrypto.ParsePublicBytesP256(key)
	default:
		err = errValue
	}
	return e, err
}
