package dict

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ids(ds []*Dictionary) []uint32 {
	var out []uint32
	for _, d := range ds {
		out = append(out, d.ID())
	}
	return out
}

func TestRegistry(t *testing.T) {
	stored, other := withID(t, 40_001), withID(t, 40_000)
	r, err := NewRegistry(stored, BuiltIn(), other, stored)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Stored() != stored {
		t.Errorf("stored is %d", r.Stored().ID())
	}
	if diff := cmp.Diff([]uint32{40_000, 40_001, BuiltInID}, ids(r.All())); diff != "" {
		t.Error(diff)
	}
	if d, ok := r.Get(40_000); !ok || d != other {
		t.Error("40000 is not found")
	}
	if _, ok := r.Get(1); ok {
		t.Error("1 is found")
	}
	if _, err := r.Encoder(0); !errors.Is(err, errUnknownDictionary) {
		t.Errorf("encoder of 0: %v", err)
	}

	// One encoder, however many ask for it at once.
	var wg sync.WaitGroup
	got := make([]*Encoder, 8)
	for i := range got {
		wg.Go(func() {
			e, err := r.Encoder(40_000)
			if err != nil {
				t.Error(err)
			}
			got[i] = e
		})
	}
	wg.Wait()
	if got[0].d != other || slices.ContainsFunc(got, func(e *Encoder) bool { return e != got[0] }) {
		t.Error("the encoder is not shared, or is another's")
	}

	dec, err := r.Decoder(40_000)
	if err != nil {
		t.Fatal(err)
	}
	frame := got[0].Append(nil, []byte("content"))
	if out, err := dec.Append(nil, frame); err != nil || string(out) != "content" {
		t.Errorf("decoded %q, %v", out, err)
	}
	r.Close()
	r.Close()
	if _, err := dec.Append(nil, frame); err == nil {
		t.Error("a decoder decodes after its registry was closed")
	}
	for _, id := range []uint32{40_000, 40_001} {
		if _, err := r.Decoder(id); err == nil {
			t.Errorf("a closed registry gives a decoder for %d", id)
		}
	}
	for _, id := range []uint32{40_000, 40_001} {
		if _, err := r.Encoder(id); err == nil {
			t.Errorf("a closed registry gives an encoder for %d", id)
		}
	}
}

func TestRegistryRefuses(t *testing.T) {
	d := withID(t, 40_000)
	changed := slices.Clone(d.Bytes())
	changed[len(changed)-1]++
	twin, err := Parse(changed)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRegistry(d)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Add(twin); err == nil || !strings.Contains(err.Error(), "ID 40000") {
		t.Errorf("another dictionary with the same ID: error %v", err)
	}
	if err := r.Add(withID(t, 40_000)); err != nil {
		t.Errorf("the same dictionary again: %v", err)
	}
	for i := range maxDictionaries - 1 {
		if err := r.Add(withID(t, uint32(40_001+i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Add(withID(t, 50_000)); err == nil || !strings.Contains(err.Error(), "go on with one of them") {
		t.Errorf("%d dictionaries: error %v", maxDictionaries+1, err)
	}
}
