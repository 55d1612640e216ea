package translate

import (
	"bytes"
	"encoding/base32"
	"strings"
	"testing"
)

// TestBase32: text of every length is read as it was written, as the library spells it, and with
// other last bits it is refused.
func TestBase32(t *testing.T) {
	library := base32.StdEncoding.WithPadding(base32.NoPadding)
	for n := range 41 {
		b := bytes.Repeat([]byte{0xa5, 0xff, 0x01}, 14)[:n]
		text := cidEncoding.AppendEncode([]byte("x"), b)[1:]
		if want := strings.ToLower(library.EncodeToString(b)); string(text) != want {
			t.Errorf("%x is %s, want %s", b, text, want)
		}
		if got, ok := appendFromBase32([]byte("x"), text); !ok || string(got) != "x"+string(b) {
			t.Errorf("%s is read as %x, %t, want %x", text, got, ok, b)
		}
		if n%5 == 0 {
			continue
		}
		text[len(text)-1]++ // the last bits are not 0
		if got, ok := appendFromBase32(nil, text); ok {
			t.Errorf("%s is read as %x", text, got)
		}
	}
}
