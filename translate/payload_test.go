package translate

import (
	"fmt"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// TestPayloadRev: the rev of each commit's event of a frame is the frame's, and rises as revs do.
func TestPayloadRev(t *testing.T) {
	last := uint64(0)
	for i, rev := range []string{"2222222222223", "222222222222z", "2222222222232", "3k4duaz5vfs2b", "jzzzzzzzzzzzz"} {
		got, ok := PayloadRev(fmt.Appendf(nil, `{"did":"did:web:a","time_us":%d,"kind":"commit","commit":{"rev":"%s","operation":"delete"}}`, MinTimeUS, rev))
		if !ok || got <= last {
			t.Errorf("rev %d: %d after %d, %t", i, got, last, ok)
		}
		if tid := syntax.TID(rev); tid.Integer() != got {
			t.Errorf("%s: %d, indigo has %d", rev, got, tid.Integer())
		}
		last = got
	}
	for _, payload := range []string{"", `{"did":"did:web:a","kind":"identity"}`, `,"commit":{"rev":"3k4duaz5`, `,"commit":{"rev":"3K4duaz5vfs2b"`} {
		if rev, ok := PayloadRev([]byte(payload)); ok {
			t.Errorf("%s: %d", payload, rev)
		}
	}
}

func TestPayloadStatus(t *testing.T) {
	at := time.Date(2026, 11, 20, 1, 2, 3, 456_000_000, time.UTC).UnixMicro()
	account := func(active bool, status, tm string) string {
		return fmt.Sprintf(`{"did":"did:web:a","time_us":77,"kind":"account","account":{"active":%t,"did":"did:web:a","seq":5,"status":"%s","time":"%s"}}`, active, status, tm)
	}
	for payload, want := range map[string]AccountStatus{
		account(false, "deleted", "2026-11-20T01:02:03.456Z"):      {false, true, at},
		account(false, "deleted", "2026-11-20t02:02:03.456+01:00"): {false, true, at},
		account(false, "deleted", "2026-11-20t01:02:03.456z"):      {false, true, at},
		account(false, "deleted", "2026-11-20T23:59:60Z"):          {false, true, 77},
		account(true, "deleted", "2026-11-20T01:02:03.456Z"):       {true, false, at},
		account(false, "suspended", "2026-11-20T01:02:03.456Z"):    {false, false, at},
		`{"did":"did:web:a","kind":"identity"}`:                    {},
	} {
		if got, ok := PayloadStatus([]byte(payload)); got != want || ok != (want.TimeUS != 0) {
			t.Errorf("%s: %+v, %t; want %+v", payload, got, ok, want)
		}
	}
}
