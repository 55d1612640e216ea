package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/dict"
	"millrace/replay/internal/format"
)

// withID is the built-in dictionary under another ID.
func withID(t testing.TB, id uint32) *dict.Dictionary {
	t.Helper()
	raw := bytes.Clone(dict.BuiltIn().Bytes())
	binary.LittleEndian.PutUint32(raw[4:], id)
	d, err := dict.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// dictionaryLog is a log of one-event blocks, a minute apart, whose dictionary changes.
type dictionaryLog struct {
	*lines
	cfg Config
	seq int64
}

// restart opens the log with d as the stored dictionary, and no other at hand.
func (l *dictionaryLog) restart(d *dict.Dictionary) {
	l.t.Helper()
	if l.l != nil {
		if err := l.l.Close(); err != nil {
			l.t.Fatal(err)
		}
	}
	reg, err := dict.NewRegistry(d)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(reg.Close)
	l.cfg.Dictionaries = reg
	l.l = mustOpen(l.t, l.cfg)
}

func (l *dictionaryLog) appendBlocks(n int) {
	l.t.Helper()
	for range n {
		l.seq++
		l.clock.advance(time.Minute)
		l.append(l.block(1, l.seq, l.seq, format.Place{Seq: l.seq}))
	}
}

// want compares the dictionaries that the log says it keeps with those it must have, and with
// those in the store.
func (l *dictionaryLog) want(what string, want ...DictionaryUse) {
	l.t.Helper()
	if diff := cmp.Diff(want, l.l.Dictionaries()); diff != "" {
		l.t.Errorf("%s: -want +got\n%s", what, diff)
	}
	it, err := l.l.store.NewIter(&pebble.IterOptions{LowerBound: format.RangeDictionary.Start(), UpperBound: format.RangeDictionary.End()})
	if err != nil {
		l.t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	if n != len(want) {
		l.t.Errorf("%s: the store has %d dictionaries, want %d", what, n, len(want))
	}
}

// wantEvents reads from seq first on, plain and with each of the dictionaries.
func (l *dictionaryLog) wantEvents(what string, first int64, ids ...uint32) {
	l.t.Helper()
	for _, id := range append([]uint32{0}, ids...) {
		r, err := l.l.NewReader(ReaderConfig{Cursor: TimeCursor(0), Dictionary: id})
		if err != nil {
			l.t.Fatalf("%s: %v", what, err)
		}
		d, ok := l.cfg.Dictionaries.Get(id)
		var dec *dict.Decoder
		opcode := format.OpcodeText
		if ok {
			if dec, err = dict.NewDecoder(1<<20, d); err != nil {
				l.t.Fatal(err)
			}
			defer dec.Close()
			opcode = format.OpcodeBinary
		}
		var want, got []string
		for seq := first; seq <= l.seq; seq++ {
			want = append(want, `{"p":"`+placeText(format.Place{Epoch: 1, Seq: seq})+`"}`)
		}
		for c := (Chunk{}); !c.Live; {
			if err := r.Next(&c); err != nil {
				l.t.Fatal(err)
			}
			for _, p := range parseFrames(l.t, &c, opcode) {
				if dec != nil {
					if p, err = dec.Append(nil, p); err != nil {
						l.t.Fatalf("%s: dictionary %d: %v", what, id, err)
					}
				}
				got = append(got, string(p))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			l.t.Errorf("%s: dictionary %d: -want +got\n%s", what, id, diff)
		}
	}
}

// trimTo lets so much time pass that seq is the oldest event that is left.
func (l *dictionaryLog) trimTo(seq int64) {
	l.t.Helper()
	age := time.Duration(l.seq-seq)*time.Minute + 30*time.Second
	passed := l.clock.wall.Sub(time.UnixMicro(l.stamp))
	l.clock.advance(l.cfg.Retention - age - passed)
	if err := l.l.Trim(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

func newDictionaryLog(t *testing.T) *dictionaryLog {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.Retention = time.Hour
	return &dictionaryLog{lines: &lines{t: t, clock: clock}, cfg: cfg}
}

// TestDictionaryLives: a dictionary that was replaced is known and served, after a restart without
// its file too, until its last block is trimmed.
func TestDictionaryLives(t *testing.T) {
	const oldID, newID = dict.BuiltInID, otherDictionaryID
	l := newDictionaryLog(t)
	start := l.clock.wall
	l.restart(dict.BuiltIn())
	l.want("new log", DictionaryUse{oldID, start, true})
	l.appendBlocks(5)
	changed := l.clock.wall
	l.restart(withID(t, newID))
	both := []DictionaryUse{{oldID, start, false}, {newID, changed, true}}
	l.want("changed", both...)
	l.appendBlocks(5)
	l.wantEvents("across the change", 1, oldID, newID)
	l.restart(withID(t, newID))
	l.want("restarted", both...)
	l.wantEvents("restarted", 1, oldID, newID)

	l.trimTo(5)
	l.want("one block of the old one is left", both...)
	l.restart(withID(t, newID))
	l.want("restarted with that", both...)
	l.wantEvents("restarted with that", 5, oldID, newID)

	l.trimTo(6)
	l.want("no block of the old one is left", both[1])
	l.wantEvents("who asked before may go on", 6, oldID, newID)
	l.restart(withID(t, newID))
	l.want("restarted without it", both[1])
	l.wantEvents("restarted without it", 6, newID)
	if _, err := l.l.NewReader(ReaderConfig{Dictionary: oldID}); !errors.Is(err, errUnknownDictionary) {
		t.Errorf("the old one is still known: %v", err)
	}
}

// TestDictionaryComesBack: a dictionary that is taken again is as old as its first use. One that no
// block was made with leaves no trace; retention 0 keeps the stored one only.
func TestDictionaryComesBack(t *testing.T) {
	const a, b, c = dict.BuiltInID, otherDictionaryID, otherDictionaryID + 1
	l := newDictionaryLog(t)
	first := l.clock.wall
	l.restart(dict.BuiltIn())
	l.appendBlocks(2) // a: 1, 2
	second := l.clock.wall
	l.restart(withID(t, b))
	l.appendBlocks(2) // b: 3, 4
	l.restart(dict.BuiltIn())
	l.want("back", DictionaryUse{b, second, false}, DictionaryUse{a, first, true})
	l.appendBlocks(2) // a: 5, 6
	third := l.clock.wall
	l.restart(withID(t, c))
	l.want("a third", DictionaryUse{b, second, false}, DictionaryUse{a, first, false}, DictionaryUse{c, third, true})
	l.restart(withID(t, b))
	l.want("without a block of the third", DictionaryUse{a, first, false}, DictionaryUse{b, second, true})
	l.appendBlocks(1) // b: 7
	l.trimTo(6)
	l.want("5 is gone", DictionaryUse{a, first, false}, DictionaryUse{b, second, true})
	l.trimTo(7)
	l.want("6 is gone", DictionaryUse{b, second, true})
	l.restart(dict.BuiltIn())
	again := l.clock.wall
	l.want("a is new again", DictionaryUse{b, second, false}, DictionaryUse{a, again, true})
	l.cfg.Retention = 0
	l.restart(dict.BuiltIn())
	l.want("nothing is stored", DictionaryUse{a, again, true})
}

// TestFullRegistry: a log whose dictionaries are too many for the registry says what to do.
func TestFullRegistry(t *testing.T) {
	l := newDictionaryLog(t)
	l.restart(withID(t, 100))
	l.appendBlocks(1)
	if err := l.l.Close(); err != nil {
		t.Fatal(err)
	}
	full, err := dict.NewRegistry(withID(t, 200))
	for id := uint32(201); err == nil; id++ {
		err = full.Add(withID(t, id))
	}
	l.cfg.Dictionaries = full
	if _, err := Open(l.cfg); err == nil || strings.Contains(err.Error(), "same ID") || !strings.Contains(err.Error(), "dictionary 100 is one too many") {
		t.Errorf("with a full registry: %v", err)
	}
	l.l = nil
	l.restart(withID(t, 100))
}

// TestDictionariesOfOlderVersion: of a log whose uses were not recorded, all dictionaries are kept
// until all of its blocks are gone.
func TestDictionariesOfOlderVersion(t *testing.T) {
	const a, b, c = dict.BuiltInID, otherDictionaryID, otherDictionaryID + 1
	l := newDictionaryLog(t)
	for _, d := range []*dict.Dictionary{withID(t, c), withID(t, b), dict.BuiltIn()} {
		l.restart(d)
		l.appendBlocks(2)
	}
	if err := l.l.store.Pebble().Delete(format.MetaKey(format.MetaDictionaries), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	l.restart(dict.BuiltIn())
	all := []DictionaryUse{{ID: b}, {ID: c}, {ID: a, Stored: true}}
	l.want("not recorded", all...)
	l.wantEvents("not recorded", 1, a, b, c)
	l.appendBlocks(1)
	l.trimTo(6)
	l.want("one old block is left", all...)
	l.trimTo(7)
	l.want("none is left", all[2])
	l.wantEvents("none is left", 7, a, b, c)
}

// TestDictionaryMissing: a dictionary that blocks need and that is not there is reported at the
// start.
func TestDictionaryMissing(t *testing.T) {
	l := newDictionaryLog(t)
	l.restart(withID(t, otherDictionaryID))
	l.appendBlocks(1)
	l.restart(dict.BuiltIn())
	if err := l.l.store.Pebble().Delete(format.DictionaryKey(otherDictionaryID), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if err := l.l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(l.cfg)
	if c := (*CorruptionError)(nil); !errors.As(err, &c) || !strings.Contains(c.Error(), "dictionary") {
		t.Errorf("error %v", err)
	}
}
