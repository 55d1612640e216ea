package jetstream

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"

	"millrace/dict"
)

// TestDictionary: it is the one that Jetstream's clients carry, and the caller may write to it.
func TestDictionary(t *testing.T) {
	raw := Dictionary()
	d, err := dict.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if d.ID() != dict.JetstreamID || dict.JetstreamID != 1612007021 {
		t.Errorf("its ID is %d, want %d", d.ID(), dict.JetstreamID)
	}
	clear(raw)
	if !bytes.Equal(Dictionary(), d.Bytes()) {
		t.Error("writing to what was returned changes the dictionary")
	}
}

// TestDictionaryIsTheCapturedOne compares it with the file that was captured beside the corpus.
func TestDictionaryIsTheCapturedOne(t *testing.T) {
	want, err := os.ReadFile("../../../shared/corpus/jetstream_v1.zdict")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("there is no ../shared/corpus")
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(Dictionary(), want) {
		t.Errorf("%d bytes that differ from the %d captured ones", len(Dictionary()), len(want))
	}
}
