package format

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/translate"
)

// TestSpanSaysWhatBlocksHave compares a span, and its copies, with a walk over the events.
func TestSpanSaysWhatBlocksHave(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	o := NewSpanBuilder(1, testKey)
	want := Span{Epoch: 1, Copied: true}
	counts, present := map[string]uint32{}, map[string]BlockSet{}
	var copied []testEvent
	seq := int64(0)
	for n := range 9 {
		var block []testEvent
		for i := range 20 {
			seq++
			e := randomEvent(rng, Place{1, seq, uint32(rng.IntN(3))}, 1000+20*seq+int64(i))
			block = append(block, e)
			switch e.kind {
			case translate.KindIdentity:
				want.Identities++
				want.IdentityIn.Add(n)
			case translate.KindAccount:
				want.Accounts++
				want.AccountIn.Add(n)
			case translate.KindSync:
				want.Syncs++
				want.SyncIn.Add(n)
				continue
			default:
				counts[e.collection]++
				set := present[e.collection]
				set.Add(n)
				present[e.collection] = set
				continue
			}
			copied = append(copied, e)
		}
		last := block[len(block)-1]
		want.First, want.Keys = append(want.First, block[0].timeUS), append(want.Keys, last.timeUS)
		want.Seq, want.Op, want.Events = append(want.Seq, last.Seq), append(want.Op, last.Op), append(want.Events, 20)
		b := sealEvents(t, block, block[0].Seq, last.Seq)
		o.Add(b.BlockEvents, b.Values.Bytes())
	}
	values := o.Finish()
	if diff := cmp.Diff(&want, &o.Span, cmp.AllowUnexported(Span{}), cmpopts.IgnoreFields(Span{}, "Collections", "Counts", "Present")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for i := range o.Collections.Len() {
		name := o.Collections.At(i)
		if o.Counts[i] != counts[name] || o.Present[i] != present[name] {
			t.Errorf("%s: %d events in %x, want %d in %x", name, o.Counts[i], o.Present[i], counts[name], present[name])
		}
		delete(counts, name)
	}
	if len(counts) > 0 {
		t.Errorf("collections without a count: %v", counts)
	}
	for _, v := range values {
		if Range(v.Key[0]) == RangeCopiesIndex {
			b, err := OpenTrailer(v.Value, RangeCopiesIndex, o.Key())
			if err != nil {
				t.Fatal(err)
			}
			checkCopies(t, b, copied)
			return
		}
	}
	t.Error("there are no copies")
}

// checkCopies compares an encoded index with the events that it should have.
func checkCopies(t *testing.T, b []byte, want []testEvent) {
	t.Helper()
	x, err := DecodeIndex(b)
	if err != nil {
		t.Fatal(err)
	}
	if x.Events() != len(want) || x.FirstSeq != want[0].Seq || x.LastSeq != want[len(want)-1].Seq || x.Kinds != CopiedKinds {
		t.Fatalf("%d copies of frames %d to %d, kinds %v", x.Events(), x.FirstSeq, x.LastSeq, x.Kinds)
	}
	for i, e := range want {
		did, uri := x.UIDs(i)
		got := testEvent{Place: x.PlaceAt(i), timeUS: x.TimeUS[i], kind: x.KindAt(i), did: x.DIDs.At(int(x.DID[i])), didUID: did, uriUID: uri}
		e.payload = ""
		if diff := cmp.Diff(e, got, cmp.AllowUnexported(testEvent{})); diff != "" || x.Collection[i] != 0 {
			t.Errorf("copy %d: -want +got\n%s", i, diff)
		}
	}
}

// TestFits: a span takes a block that just fits, and none that is over one of the limits.
func TestFits(t *testing.T) {
	block := func(events, collections int, first, last int64) BlockEvents {
		x := newIndex(1, 5, events)
		for range events {
			x.TimeUS = append(x.TimeUS, last)
		}
		x.TimeUS[0] = first
		var names nameTableBuilder
		for i := range collections {
			names.number(fmt.Append(nil, "c", i))
		}
		x.Collections = names.table()
		return BlockEvents{Index: x}
	}
	span := func() *SpanBuilder {
		o := NewSpanBuilder(1, testKey)
		o.First, o.Keys, o.total, o.bytes = []int64{1000}, []int64{1100}, 100, 500
		return o
	}
	for _, tc := range []struct {
		name   string
		change func(o *SpanBuilder, over int)
		block  func(over int) BlockEvents
		bytes  int64
	}{
		{name: "events", block: func(over int) BlockEvents { return block(maxSpanEvents-100+over, 1, 1200, 1300) }},
		{name: "blocks", change: func(o *SpanBuilder, over int) { o.Keys = make([]int64, MaxSpanBlocks-1+over) }},
		{name: "collections", change: func(o *SpanBuilder, over int) { o.Counts = make([]uint32, maxSpanCollections-3+over) },
			block: func(int) BlockEvents { return block(2, 3, 1200, 1300) }},
		{name: "subjects", change: func(o *SpanBuilder, over int) { o.subjects = make([]uint64, maxSpanSubjects-2+over) },
			block: func(int) BlockEvents {
				b := block(1, 1, 1200, 1200)
				b.References = &References{Subjects: []Subject{{1, 1}}}
				return b
			}},
		{name: "time", block: func(over int) BlockEvents { return block(2, 1, 1200, 2000+int64(over)) }},
		{name: "bytes", block: func(over int) BlockEvents { return block(2, 1, 1200, 1300) }, bytes: 4500},
		{name: "epoch", block: func(over int) BlockEvents {
			b := block(2, 1, 1200, 1300)
			b.Index.Epoch += uint32(over)
			return b
		}},
	} {
		for _, over := range []int{0, 1} {
			o, b := span(), block(2, 1, 1200, 1300)
			if tc.change != nil {
				tc.change(o, over)
			}
			if tc.block != nil {
				b = tc.block(over)
			}
			bytes := int64(10)
			if tc.bytes != 0 {
				bytes = tc.bytes + int64(over)
			}
			if got := o.Fits(b, bytes, 1000, 5000); got != (over == 0) {
				t.Errorf("%s, %d over the limit: %t", tc.name, over, got)
			}
		}
	}
	if !span().Fits(block(2, 1, 1200, 1300), 1<<40, 1000, 0) {
		t.Error("a limit of 0 bytes holds")
	}
}
