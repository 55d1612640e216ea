package replay

import (
	"errors"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// TestSeqBases: seqs on v2's wire rise from epoch to epoch, whether an epoch has frames or not, and
// stay over restarts. A log of a program that knew none gets them.
func TestSeqBases(t *testing.T) {
	const other = "other.example.com"
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	a := tenBlocks(t, cfg, clock)
	reopen := func(newEpoch bool) {
		t.Helper()
		if err := a.l.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.NewEpoch = newEpoch
		a.l = mustOpen(t, cfg)
	}
	want := func(what string, epoch uint32, base int64) {
		t.Helper()
		relay := testRelay
		if epoch == 2 {
			relay = other
		}
		p := translate.Position{Stream: StreamOf(relay, epoch), Seq: 3, Op: 7}
		if got := a.l.V2Seq(p); got != base+3*1024+7 {
			t.Errorf("%s: epoch %d has seq %d, want the base %d", what, epoch, got, base)
		}
	}
	want("first epoch", 1, 0)
	cfg.Relay = other
	reopen(true)
	want("second epoch", 2, 11*1024)
	cfg.Relay = testRelay
	reopen(true)
	want("epoch behind an empty one", 3, 12*1024)
	a.append(a.block(3, 1, 5, format.Place{Seq: 4}))
	a.append(a.block(4, 1, 1, format.Place{Seq: 1}))
	want("epoch of the stream", 4, 18*1024)
	reopen(false)
	for epoch, base := range map[uint32]int64{1: 0, 2: 11 * 1024, 3: 12 * 1024, 4: 18 * 1024} {
		want("restart", epoch, base)
	}

	for _, seq := range []int64{12*1024 + 4*1024, 12*1024 + 4*1024 + 1, 18*1024 + 1024} {
		r := mustRead(t, a.l, ReaderConfig{Cursor: SeqCursor(seq)})
		events := 0
		for c := (Chunk{}); !c.Live; events += c.Events {
			if err := r.Next(&c); err != nil {
				t.Fatal(err)
			}
		}
		if want := 2 - min(int(seq-16*1024), 1); events != want {
			t.Errorf("from seq %d on there are %d events, want %d", seq, events, want)
		}
	}

	if err := a.l.store.Pebble().Delete(format.MetaKey(format.MetaSeqBases), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	reopen(false)
	for range 2 {
		for epoch, base := range map[uint32]int64{1: 0, 2: 11 * 1024, 3: 12 * 1024, 4: 18 * 1024} {
			want("log without bases", epoch, base)
		}
		reopen(true) // one more, of which the first four know nothing
	}
}

// TestV2SeqsEnd: a relay whose numbers are beyond v2's cursors is refused there, and nowhere else.
func TestV2SeqsEnd(t *testing.T) {
	clock := newTestClock()
	a := &lines{t: t, l: mustOpen(t, testConfig(t, vfs.NewMem(), clock)), clock: clock}
	last := int64(format.MaxV2Seq >> format.V2OpBits)
	a.append(a.block(1, 1, last, format.Place{Seq: last}))
	mustRead(t, a.l, ReaderConfig{V2: true})
	a.append(a.block(1, last+1, last+1, format.Place{Seq: last + 1}))
	mustRead(t, a.l, ReaderConfig{})
	if r, err := a.l.NewReader(ReaderConfig{V2: true}); !errors.Is(err, ErrV2Seqs) {
		r.Close()
		t.Errorf("a reader of v2's wire: %v", err)
	}
}

// v2Seq returns the seq of an event on v2's wire.
func (m *model) v2Seq(p format.Place) int64 { return m.bases[p.Epoch] + p.Seq*1024 + int64(p.Op) }

// placeBefore returns the place before the one that has the seq. live says that no event has it, or
// a larger one.
func (m *model) placeBefore(seq int64) (p format.Place, live bool) {
	if len(m.blocks) == 0 || seq > m.v2Seq(m.blocks[len(m.blocks)-1].last().Place) {
		return p, true
	}
	p.Epoch = 1
	for e, base := range m.bases {
		if e > p.Epoch && e <= m.epoch && base <= seq {
			p.Epoch = e
		}
	}
	before := seq - m.bases[p.Epoch] - 1
	p.Seq, p.Op = before/1024, uint32(before%1024)
	if p.Op == 1023 {
		p.Op = math.MaxUint32
	}
	return p, false
}
