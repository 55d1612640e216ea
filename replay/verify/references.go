package verify

import (
	"bytes"
	"errors"
	"fmt"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// checkReferences checks the references of the block, and that it has them if the index says so.
// part is nil if there are none, or they cannot be read.
func (b *blockCheck) checkReferences(x *format.Index, part []byte) {
	present := b.parts[numParts-1].present != 0
	if present != x.HasReferences {
		b.whole = b.whole && present
		b.problem(format.RangeReferences, -1, -1, fmt.Errorf("whether the block has them: the index says %t", x.HasReferences))
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
		b.problem(format.RangeReferences, -1, -1, errors.New("it is not what its references make"))
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
