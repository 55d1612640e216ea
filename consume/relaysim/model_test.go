package relaysim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/google/go-cmp/cmp"
)

// corpusDir holds real data, where there is some.
const corpusDir = "../../../shared/corpus"

// corpus returns the name of a file of real data, or skips the test.
func corpus(t testing.TB, name string) string {
	t.Helper()
	name = corpusDir + "/" + name
	if _, err := os.Stat(name); err != nil {
		t.Skip("no real data here: ", err)
	}
	return name
}

// reencode reads a record and writes it again, with indigo.
func reencode(t testing.TB, record []byte) []byte {
	t.Helper()
	data, err := atdata.UnmarshalCBOR(record)
	if err != nil {
		t.Fatal(err)
	}
	again, err := atdata.MarshalCBOR(data)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

var timeUS = regexp.MustCompile(`"time_us":\d+`)

// TestModelAgainstProduction compares the model with what Jetstream's production servers made of
// the same frames.
func TestModelAgainstProduction(t *testing.T) {
	frames, err := readCapture(corpus(t, "frames.bin.zst"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, frame := range frames {
		expected, err := expect(frame)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range expected {
			line, err := json.Marshal(&e.event)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(line))
		}
	}
	served, err := os.ReadFile(corpus(t, "expected.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for s := bufio.NewScanner(bytes.NewReader(served)); s.Scan(); {
		want = append(want, timeUS.ReplaceAllString(s.Text(), `"time_us":0`))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
