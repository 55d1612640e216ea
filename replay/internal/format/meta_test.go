package format

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/translate"
)

// TestMeta: each value of the log's own decodes to what it was made of, and its bytes are refused
// if some are missing or more.
func TestMeta(t *testing.T) {
	p := func(n int64) Point { return Point{n, Place{uint32(n + 1), n + 2, uint32(n + 3)}} }
	totals := func(n int64) Totals { return Totals{n, n + 1, n + 2} }
	state := State{Epoch: 1, Seq: 2, TimeUS: 3, Floor: p(10), Oldest: p(20), Newest: p(30), Total: totals(40),
		Trimmed: totals(50), Previous: EpochEnd{60, 61}}
	streams := []Stream{{Epoch: 1, Relay: "a.test", Tag: StreamTag("a.test", 1)}, {Epoch: 3, Relay: "b.test:1", Tag: StreamTag("b.test:1", 3)}}
	uses := []Use{{1, 2, 3, 4}, {5, 6, 7, 8}}
	gap := Gap{From: translate.Position{Stream: 1, Seq: 2, Op: 3}, To: translate.Position{Stream: 4, Seq: 5, Op: 6}, TimeUS: 7}
	pointer := BlockPointer{Key: 1, Seq: 2, Op: 3, Totals: totals(4)}
	high := HighWater{Place: Place{Epoch: 1, Seq: 2}, TimeUS: 3, Events: 4}
	for _, tc := range []struct {
		name   string
		value  any
		enc    []byte
		decode func(b []byte) (any, error)
		items  int // a value of a list may end after each of so many bytes; 0: it is no list
	}{
		{"references begin", p(5), AppendReferencesBegin(nil, p(5)), func(b []byte) (any, error) { return DecodeReferencesBegin(b) }, 0},
		{"state", state, AppendState(nil, &state), func(b []byte) (any, error) { return DecodeState(b) }, 0},
		{"streams", Streams(streams), AppendStreams(nil, streams), func(b []byte) (any, error) { return DecodeStreams(b) }, 0},
		{"uses", uses, AppendUses(nil, uses), func(b []byte) (any, error) { return DecodeUses(b) }, 28},
		{"gap", gap, AppendGap(nil, &gap), func(b []byte) (any, error) {
			return OpenGap(AppendTrailer(b[:len(b):len(b)], RangeGap, 7), 7)
		}, 0},
		{"pointer", pointer, AppendBlockPointer(nil, pointer), func(b []byte) (any, error) {
			return OpenBlockPointer(AppendTrailer(b[:len(b):len(b)], RangeSeq, 9), 9)
		}, 0},
		{"high water", high, AppendHighWater(nil, high), func(b []byte) (any, error) { return DecodeHighWater(b) }, 0},
	} {
		got, err := tc.decode(tc.enc)
		if diff := cmp.Diff(tc.value, got); diff != "" || err != nil {
			t.Errorf("%s: %v, -want +got\n%s", tc.name, err, diff)
		}
		for n := range tc.enc {
			if tc.items != 0 && n%tc.items == 0 {
				continue
			}
			if _, err := tc.decode(tc.enc[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes are taken", tc.name, n, len(tc.enc))
			}
		}
		if _, err := tc.decode(append(tc.enc, 0)); err == nil {
			t.Errorf("%s: a byte more is taken", tc.name)
		}
	}
}

// TestMetaRefuses: what no log has is refused.
func TestMetaRefuses(t *testing.T) {
	if _, err := DecodeStreams(AppendStreams(nil, nil)); err == nil {
		t.Error("no stream is taken")
	}
	if _, err := DecodeStreams(AppendStreams(nil, []Stream{{Epoch: 2}, {Epoch: 2}})); err == nil {
		t.Error("an epoch that comes twice is taken")
	}
	if _, err := DecodeUses(AppendUses(nil, []Use{{ID: 2}, {ID: 1}, {ID: 2}})); err == nil {
		t.Error("a dictionary that comes twice is taken")
	}
	pointer := AppendTrailer(AppendBlockPointer(nil, BlockPointer{Key: 1}), RangeSeq, 9)
	if _, err := OpenBlockPointer(pointer, 8); err == nil {
		t.Error("a pointer under another key is taken")
	}
	const most = 1<<63 - 1
	if h, err := DecodeHighWater(AppendHighWater(nil, HighWater{Events: most})); err != nil || h.Events != most {
		t.Errorf("the largest number: %d, %v", h.Events, err)
	}
	if _, err := DecodeHighWater(AppendHighWater(nil, HighWater{Events: -1})); err == nil {
		t.Error("a negative number is taken")
	}
}
