package replay

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
)

// lastSpanned is the last block of the first span of verifyLog: the epoch ends there.
const lastSpanned = 3

// span changes the first span.
func (e *editor) span(change func(s *format.Span)) {
	e.resealed(format.RangeSpan, lastSpanned, func(b []byte) []byte {
		s, err := format.DecodeSpan(b)
		if err != nil {
			e.t.Fatal(err)
		}
		change(s)
		return format.AppendSpan(nil, s)
	})
}

// others changes the index of the first span's copies of identity and account events.
func (e *editor) others(change func(x *format.Index)) {
	e.resealed(format.RangeCopiesIndex, lastSpanned, func(b []byte) []byte {
		x, err := format.DecodeIndex(b)
		if err != nil {
			e.t.Fatal(err)
		}
		change(x)
		return format.AppendIndex(nil, x)
	})
}

// spanDamages are of spans and what belongs to them.
func spanDamages() []logDamage {
	const s = lastSpanned
	return []logDamage{
		{"flipped span", func(e *editor) { e.raw(format.RangeSpan, s, flip(9)) }, "span", s, -1, "checksum", false},
		{"no span", func(e *editor) { e.remove(format.TimeKey(format.RangeSpan, e.keys[s])) }, "span_dids", s, -1, "no span has it", false},
		{"span's collection count", func(e *editor) { e.span(func(s *format.Span) { s.Counts[1]++ }) }, "span", s, -1, "events of collection", true},
		{"span's identities", func(e *editor) { e.span(func(s *format.Span) { s.Identities-- }) }, "span", s, -1, "identity", true},
		{"span lacks a block of a collection", func(e *editor) { e.span(func(s *format.Span) { s.Present[0][0] &^= 2 }) }, "span", s, -1, "whether it has collection", true},
		{"span has one too many", func(e *editor) {
			e.span(func(s *format.Span) {
				s.Collections = format.NewNameTable(append(names(s.Collections), "a.b.c")...)
				s.Counts, s.Present = append(s.Counts, 0), append(s.Present, format.BlockSet{2})
			})
		}, "span", s, -1, "whether it has collection", true},
		{"span lacks a collection", func(e *editor) {
			e.span(func(s *format.Span) {
				all := names(s.Collections)
				for i := range all {
					all[i] = strings.Replace(all[i], "like", "lake", 1)
				}
				s.Collections = format.NewNameTable(all...)
			})
		}, "span", s, -1, "is not among the span's", false},
		{"span lacks identities of a block", func(e *editor) { e.span(func(s *format.Span) { s.IdentityIn[0] &^= 1 }) }, "span", s, -1, "whether it has identity events", true},
		{"span lacks accounts of a block", func(e *editor) { e.span(func(s *format.Span) { s.AccountIn[0] &^= 4 }) }, "span", s, -1, "whether it has account events", true},
		{"span's block begins elsewhere", func(e *editor) { e.span(func(s *format.Span) { s.First[2]++ }) }, "span", s, -1, "it says stamps", true},
		{"span's block has fewer events", func(e *editor) { e.span(func(s *format.Span) { s.Events[2]-- }) }, "span", s, -1, "it says stamps", true},
		{"span of fewer blocks", func(e *editor) {
			e.span(func(s *format.Span) {
				s.First, s.Keys, s.Seq, s.Op, s.Events = s.First[1:], s.Keys[1:], s.Seq[1:], s.Op[1:], s.Events[1:]
				for _, set := range []*format.BlockSet{&s.Present[0], &s.Present[1], &s.Present[2], &s.IdentityIn, &s.AccountIn} {
					set[0] >>= 1
				}
			})
		}, "span", s, -1, "it is of 3 blocks", true},
		{"span under another key", func(e *editor) {
			v := e.get(format.TimeKey(format.RangeSpan, e.keys[s]))
			e.remove(format.TimeKey(format.RangeSpan, e.keys[s]))
			e.set(format.TimeKey(format.RangeSpan, e.keys[s]-1), format.AppendTrailer(v[:len(v)-format.TrailerBytes], format.RangeSpan, e.keys[s]-1))
		}, "span", -1, -1, "its last block is not there", false},
		{"span behind the end", func(e *editor) {
			v := e.get(format.TimeKey(format.RangeSpan, e.keys[s]))
			e.set(format.TimeKey(format.RangeSpan, e.keys[5]+1), format.AppendTrailer(v[:len(v)-format.TrailerBytes], format.RangeSpan, e.keys[5]+1))
		}, "span", -1, -1, "its last block is not there", true},
		{"missing DIDs", func(e *editor) { e.remove(format.ShardKey(format.RangeSpanDIDs, e.keys[s], format.DIDShards-1)) }, "span_dids", s, -1, "missing", true},
		{"a shard of others", func(e *editor) {
			e.set(format.ShardKey(format.RangeSpanDIDs, e.keys[s], 1), e.get(format.ShardKey(format.RangeSpanDIDs, e.keys[s], 0)))
		}, "span_dids", s, -1, "it is of shard 0, not 1", true},
		{"a shard too many", func(e *editor) {
			e.set(format.ShardKey(format.RangeSpanDIDs, e.keys[s], format.DIDShards), e.get(format.ShardKey(format.RangeSpanDIDs, e.keys[s], 0)))
		}, "span_dids", -1, -1, "no span has it", false},
		{"changed fingerprint", func(e *editor) {
			e.shards(s, func(n, lows, counts int, b []byte) []byte { b[lows] ^= 1; return b })
		}, "span_dids", s, -1, "is not in it", true},
		{"another fingerprint key", func(e *editor) {
			e.set(format.MetaKey(format.MetaFingerprintKey), format.AppendTrailer(bytes.Repeat([]byte{7}, format.FingerprintKeyBytes), format.RangeMeta, 0))
		}, "span_dids", s, -1, "is not in it", false},
		{"no fingerprint key", func(e *editor) { e.remove(format.MetaKey(format.MetaFingerprintKey)) }, "meta", -1, -1, format.MetaFingerprintKey, true},
		{"list lacks a block", func(e *editor) {
			e.shards(s, func(n, lows, counts int, b []byte) []byte { b[len(b)-1] = 99; return b })
		}, "span_dids", s, -1, "not in its list", true},
		{"list has a block too many", func(e *editor) {
			e.shards(s, func(n, lows, counts int, b []byte) []byte {
				b[counts+n-1]++ // the last entry has one more
				return append(b, 77)
			})
		}, "span_dids", s, -1, "its lists name", true},
		{"missing copies", func(e *editor) { e.remove(format.TimeKey(format.RangeCopiesPlain, e.keys[s])) }, "copies_plain", s, -1, "missing", true},
		{"copy of another event", func(e *editor) { e.others(func(x *format.Index) { x.Seq[1]++ }) }, "copies_index", s, 1, "its columns differ", true},
		{"copy of another DID", func(e *editor) { e.others(func(x *format.Index) { x.DID[1] = x.DID[0] }) }, "copies_index", s, 1, "its columns differ", true},
		{"copy's frame", func(e *editor) { e.resealed(format.RangeCopiesZstd, s, flip(20)) }, "copies_zstd", s, 0, "the copy is not", true},
		{"span that says it has no copies", func(e *editor) { e.span(func(s *format.Span) { s.Copied = false }) }, "copies_plain", s, -1, "no span has it", false},
	}
}

// TestVerifySpans: a span is counted, and found whole also if it was begun before a restart, or its
// first blocks were trimmed.
func TestVerifySpans(t *testing.T) {
	fs, _ := verifyLog(t)
	if r := mustVerify(t, fs); !r.Sound() || r.Spans != 1 {
		t.Fatalf("%+v", r)
	}
	clock := newTestClock()
	clock.advance(1e9)
	cfg := testConfig(t, fs, clock)
	l := mustOpen(t, cfg) // gathers the blocks of epoch 2, without their frames
	us, seq := l.Progress().TimeUS, l.Progress().Seq
	for epoch := range uint32(2) {
		for n := range 5 {
			b := testBlock{epoch: 2 + epoch, firstSeq: seq + 1}
			for i := range 3 + n {
				us, seq = us+5, seq+1
				b.events = append(b.events, shapedEvent(format.Place{Epoch: b.epoch, Seq: seq, Op: 0}, us, i))
			}
			b.lastSeq = seq
			if err := l.Append(b.seal(t, l)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = l.Close()
	r := mustVerify(t, fs)
	if !r.Sound() || r.Spans != 2 {
		t.Fatalf("after a restart: %+v", r)
	}
	for limit := int64(8); limit > 1; limit-- {
		l = mustOpen(t, cfg)
		if err := l.TrimTo(t.Context(), r.Bytes*limit/9); err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if r := mustVerify(t, fs); !r.Sound() {
			t.Fatalf("trimmed to %d ninths: %v", limit, r.Examples)
		}
	}
}

// TestVerifySpanOfBrokenBlock: what cannot be read of a block does not make its span wrong.
func TestVerifySpanOfBrokenBlock(t *testing.T) {
	fs, keys := verifyLog(t)
	tamper(t, fs, func(db *pebble.DB) { (&editor{t, db, keys}).raw(format.RangeIndex, 1, flip(30)) })
	for _, p := range mustVerify(t, fs).Examples {
		if strings.HasPrefix(p.Part, "span") || strings.HasPrefix(p.Part, "others") {
			t.Errorf("%s", p)
		}
	}
}
