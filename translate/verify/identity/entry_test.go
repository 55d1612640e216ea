package identity

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"

	"millrace/consume/relaysim"
)

// didOf returns a DID; those of even and odd numbers have keys of both curves among them.
func didOf(n int) string {
	digits := strings.Map(func(r rune) rune { return r - '0' + 'a' }, fmt.Sprint(n))
	return "did:plc:" + strings.Repeat("z", 24-len(digits)) + digits
}

func keyOf(t testing.TB, did string) atcrypto.PublicKey {
	t.Helper()
	key, err := relaysim.PublicKey(did)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestJudge: what an entry is worth by its age, and when it is fetched again.
func TestJudge(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	key := keyOf(t, didOf(1))
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixNano() }
	for _, test := range []struct {
		name  string
		entry entry
		state State
		due   bool
	}{
		{"new", entry{key: key, fetched: ago(0)}, Current, false},
		{"of a day", entry{key: key, fetched: ago(24*time.Hour - 1)}, Current, false},
		{"older than a day", entry{key: key, fetched: ago(24 * time.Hour)}, Stale, true},
		{"the first to expire", entry{check: 0xff, key: key, fetched: ago(21*time.Hour + 10*time.Minute)}, Stale, true},
		{"not yet the first", entry{check: 0xff, key: key, fetched: ago(21 * time.Hour)}, Current, false},
		{"old, and failed lately", entry{key: key, fetched: ago(30 * time.Hour), next: now.UnixNano() + 1}, Stale, false},
		{"old, and failed a while ago", entry{key: key, fetched: ago(30 * time.Hour), next: now.UnixNano()}, Stale, true},
		{"of a week", entry{key: key, fetched: ago(7*24*time.Hour - 1)}, Stale, true},
		{"older than a week", entry{key: key, fetched: ago(7 * 24 * time.Hour)}, Unknown, true},
		{"suspect", entry{key: key, fetched: ago(time.Hour), suspect: true}, Stale, false},
		{"absent", entry{fetched: ago(time.Hour - 1)}, Absent, false},
		{"absent long ago", entry{fetched: ago(time.Hour)}, Unknown, true},
		{"absent, and failed lately", entry{fetched: ago(time.Hour), next: now.UnixNano() + 1}, Unknown, false},
		{"failed lately", entry{next: now.UnixNano() + 1}, Unknown, false},
		{"failed a while ago", entry{next: now.UnixNano()}, Unknown, true},
		{"failed in this moment", entry{next: now.Add(retryAfter).UnixNano()}, Unknown, false},
		{"failed in the future", entry{next: now.Add(retryAfter).UnixNano() + 1}, Unknown, true},
		{"old, and failed in the future", entry{key: key, fetched: ago(30 * time.Hour), next: ago(-24 * time.Hour)}, Stale, true},
		{"of the future", entry{key: key, fetched: ago(-time.Hour)}, Stale, true},
		{"absent in the future", entry{fetched: ago(-time.Hour)}, Unknown, true},
	} {
		if state, due := test.entry.judge(now); state != test.state || due != test.due {
			t.Errorf("%s: %v, %v", test.name, state, due)
		}
	}
}

// TestValue: what is stored is what was put, and nothing else is an entry.
func TestValue(t *testing.T) {
	curves := make(map[byte]bool)
	for n := range 20 {
		e := entry{check: uint64(n) << 40, key: keyOf(t, didOf(n)), fetched: 1_767_225_600e9}
		value := e.appendValue([]byte("prefix"))[6:]
		got, err := decodeValue(value)
		if err != nil || got.check != e.check || got.fetched != e.fetched || !got.key.Equal(e.key) {
			t.Fatalf("got %v, %v", got, err)
		}
		curves[value[12]] = true
		for cut := range value {
			if _, err := decodeValue(value[:cut]); err == nil {
				t.Fatalf("%d bytes of a value are one", cut)
			}
		}
		clear(value[13:])
		if _, err := decodeValue(value); err == nil {
			t.Fatal("zeros are a key")
		}
	}
	if len(curves) != 2 {
		t.Errorf("curves %v", curves)
	}
	none := entry{check: 1, fetched: 1_767_225_600e9}
	if got := hex.EncodeToString(none.appendValue(nil)); got != "0000000000000001"+"6955b900"+"00" {
		t.Errorf("no key: %s", got)
	}
	if got, err := decodeValue(none.appendValue(nil)); err != nil || got.key != nil {
		t.Errorf("no key: %v, %v", got, err)
	}
	for name, value := range map[string][]byte{"a third curve": append(bytes.Repeat([]byte{0}, 12), 3), "no key, and a byte of one": append(none.appendValue(nil), 0)} {
		if _, err := decodeValue(value); err == nil {
			t.Error(name)
		}
	}
}
