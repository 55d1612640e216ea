package verify

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// checkReferences checks the references of the block, and that it has them if the index says so.
// part is nil if there are none, or they cannot be read.
func (b *blockCheck) checkReferences(x *format.Index, part []byte) {
	present := b.parts[numParts-1].present != 0
	if present != x.HasReferences {
		b.whole = b.whole && present
		b.problem(format.RangeReferences, -1, -1, fmt.Errorf("the index says %t for whether the block has references", x.HasReferences))
	}
	if part == nil {
		return
	}
	r, err := format.DecodeReferences(part, x.Events())
	if err != nil {
		b.problem(format.RangeReferences, -1, -1, err)
		return
	}
	b.refs = r
	again := format.ReferencesBuilder{}
	var refs []format.Reference
	for i := range x.Events() {
		refs = refs[:0]
		for _, e := range r.Entries(i) {
			refs = append(refs, r.At(e))
		}
		if err := checkEventReferences(x, i, refs, r.Repeated(i)); err != nil {
			b.problem(format.RangeReferences, i, -1, err)
		}
		if err := again.Add(refs, r.Repeated(i)); err != nil {
			b.problem(format.RangeReferences, i, -1, err)
			return
		}
	}
	// names that nothing uses, or that are there twice
	if want := again.Finish(); want == nil || !bytes.Equal(part, format.AppendReferences(nil, want)) {
		b.problem(format.RangeReferences, -1, -1, errors.New("encoding its references gives other bytes"))
	}
}

// checkEventReferences checks what event i has against what it is.
func checkEventReferences(x *format.Index, i int, refs []format.Reference, repeated bool) error {
	if x.KindAt(i) != translate.KindCommit && (len(refs) > 0 || repeated) {
		return fmt.Errorf("an event of kind %s with %d references, repeated %t", x.KindAt(i), len(refs), repeated)
	}
	for _, r := range refs {
		if x.OperationAt(i) == translate.OpDelete && !r.Had {
			return fmt.Errorf("a delete that has a reference to %d", r.Subject)
		}
	}
	return nil
}

// readSources reads the sources of references, and checks that each has one number, and no number
// is left out.
func (v *verifier) readSources() error {
	numbers := make(map[string]uint32)
	return v.each(format.RangeSource, "sources", func(it *pebbleguard.Iterator) {
		number, ok := format.ParseSourceKey(it.Key())
		if !ok || int(number) <= len(v.sources) {
			v.fault(format.RangeSource, 0, "no value of this range has key %x", it.Key())
			return
		}
		for len(v.sources) < int(number)-1 {
			v.sources = append(v.sources, "")
			v.fault(format.RangeSource, int64(len(v.sources)), "%v", format.ErrMissing)
		}
		v.sources = append(v.sources, "")
		source, err := format.OpenTrailer(it.Value(), format.RangeSource, int64(number))
		if err != nil {
			v.fault(format.RangeSource, int64(number), "%v", err)
			return
		}
		if other, twice := numbers[string(source)]; twice {
			v.fault(format.RangeSource, int64(number), "%.*q has number %d, too", maxNamed, source, other)
		}
		numbers[string(source)] = number
		v.sources[number-1] = string(source)
	})
}

// checkSources checks that the log knows the sources of the block's references, and that they are
// of the collections of the events.
func (v *verifier) checkSources(b *blockCheck) {
	if b.refs == nil {
		return
	}
	for _, p := range b.refs.Sources {
		if int(p) > len(v.sources) {
			v.fault(format.RangeReferences, b.key, "it has source %d; the log has %d", p, len(v.sources))
			return
		}
	}
	for i := range b.idx.Events() {
		for _, e := range b.refs.Entries(i) {
			source := v.sources[b.refs.Sources[e.Source]-1]
			if c := b.idx.Collection[i]; c > 0 && source != "" && !strings.HasPrefix(source, b.idx.Collections.At(int(c)-1)+":") {
				v.eventFault(format.RangeReferences, b.key, i, "an event of %.*q has source %.*q", maxNamed, b.idx.Collections.At(int(c)-1), maxNamed, source)
			}
		}
	}
}
