package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/dict"
	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
	"millrace/replay/verify"
	"millrace/translate"
)

// verifyLog makes a log on a file system of its own. It has some blocks of events as translate
// writes them, of two epochs, with a gap between. It returns the blocks' keys.
func verifyLog(t *testing.T) (fs *vfs.MemFS, keys []int64) {
	t.Helper()
	return verifyLogOf(t, 0)
}

// verifyLogOf is verifyLog with blocks packed in substreams from so many bytes on.
func verifyLogOf(t *testing.T, substreamsBytes int) (fs *vfs.MemFS, keys []int64) {
	t.Helper()
	fs = vfs.NewMem()
	clock := newTestClock()
	cfg := testConfig(t, fs, clock)
	cfg.hooks.substreamsBytes = substreamsBytes
	l := mustOpen(t, cfg)
	us, seq := clock.us(), int64(100)
	for n := range 6 {
		b := testBlock{epoch: 1, firstSeq: seq + 1}
		if n >= 4 {
			b.epoch = 2
		}
		if n == 4 {
			us += 10
			b.gap = &Gap{From: pointOf(testEvent{Place: format.Place{Epoch: 1, Seq: seq, Op: 0}}).Position, TimeUS: us,
				To: translate.Position{Stream: StreamOf(testRelay, 2), Seq: seq + 1}}
		}
		for i := range 12 + n {
			us += 7
			if i%3 > 0 || i == 0 {
				seq++
			}
			b.events = append(b.events, shapedEvent(format.Place{Epoch: b.epoch, Seq: seq, Op: uint32(i)}, us, i))
		}
		b.lastSeq = seq
		keys = append(keys, us)
		if err := l.Append(b.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return fs, keys
}

// shapedEvent is event i of its block, with JSON as translate writes it.
func shapedEvent(p format.Place, us int64, i int) testEvent {
	e := testEvent{Place: p, timeUS: us, did: testDID(i % 5), didUID: uint64(1 + i%5), kind: translate.KindCommit,
		operation: translate.Operation(1 + i%3), collection: testCollections[i%3], uriUID: uint64(us)}
	switch i % 6 {
	case 4:
		e.kind, e.operation, e.collection, e.uriUID = translate.KindIdentity, translate.OpNone, "", 0
		e.payload = fmt.Sprintf(`{"did":"%s","time_us":%d,"kind":"identity","identity":{"did":"%[1]s","seq":%d,"time":"x"}}`, e.did, us, p.Seq)
	case 5:
		e.kind, e.operation, e.collection, e.uriUID = translate.KindAccount, translate.OpNone, "", 0
		e.payload = fmt.Sprintf(`{"did":"%s","time_us":%d,"kind":"account","account":{"active":true,"did":"%[1]s","seq":%d}}`, e.did, us, p.Seq)
	default:
		e.payload = fmt.Sprintf(`{"did":"%s","time_us":%d,"kind":"commit","commit":{"rev":"3l","operation":"%s","collection":"%s","rkey":"3k","cid":"x"}}`,
			e.did, us, e.operation, e.collection)
		e.refs, e.repeated = shapedReferences(i, e.operation), i == 7
	}
	return e
}

// tamper changes a log's store behind the log's back. Its high-water mark goes.
func tamper(t *testing.T, fs vfs.FS, change func(db *pebble.DB)) {
	t.Helper()
	if err := fs.Remove(fs.PathJoin("log", pebbleguard.MarkFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	opts := &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}}
	opts.Experimental.SpanPolicyFunc = logstore.SpanPolicy
	opts.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: 1000, MaxBlobReferenceDepth: 8, TargetGarbageRatio: 1}
	}
	for i := range opts.Levels {
		opts.Levels[i].BlockSize = 1 // a block for each value
	}
	db, err := pebble.Open("log", opts)
	if err != nil {
		t.Fatal(err)
	}
	change(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustVerify(t *testing.T, fs vfs.FS) *verify.Report {
	t.Helper()
	r, err := verify.Run(t.Context(), verify.Config{Dir: "log", FS: fs, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// editor changes values of a store.
type editor struct {
	t    *testing.T
	db   *pebble.DB
	keys []int64 // of the blocks
}

func (e *editor) get(key []byte) []byte {
	v, closer, err := e.db.Get(key)
	if err != nil {
		e.t.Fatal(err)
	}
	defer closer.Close()
	return slices.Clone(v)
}

func (e *editor) set(key, value []byte) {
	if err := e.db.Set(key, value, pebble.Sync); err != nil {
		e.t.Fatal(err)
	}
}

func (e *editor) remove(key []byte) {
	if err := e.db.Delete(key, pebble.Sync); err != nil {
		e.t.Fatal(err)
	}
}

// raw changes the sealed bytes of block n's part.
func (e *editor) raw(r format.Range, n int, change func(b []byte) []byte) {
	key := format.TimeKey(r, e.keys[n])
	e.set(key, change(e.get(key)))
}

// resealed changes a part's contents and seals it again, so that no checksum shows it.
func (e *editor) resealed(r format.Range, n int, change func(b []byte) []byte) {
	e.raw(r, n, func(b []byte) []byte {
		b = b[:len(b)-format.TrailerBytes]
		if r != format.RangePlain {
			return format.AppendTrailer(change(b), r, e.keys[n])
		}
		idx := e.get(format.TimeKey(format.RangeIndex, e.keys[n]))
		x, err := format.DecodeIndex(idx[:len(idx)-format.TrailerBytes])
		if err != nil {
			e.t.Fatal(err)
		}
		plain, err := format.UnpackFrames(b, x.PlainEnd, nil)
		if err != nil {
			e.t.Fatal(err)
		}
		return format.AppendTrailer(format.AppendPages(nil, change(plain), nil), r, e.keys[n])
	})
}

// shards changes those shards of the DID index of the span that ends with block n which have
// entries. change gets the number of entries, and where their lower bits and their counts begin in
// b.
func (e *editor) shards(n int, change func(n, lows, counts int, b []byte) []byte) {
	e.shardsOf(format.RangeSpanDIDs, n, change)
}

// shardsOf is shards of the index in range r.
func (e *editor) shardsOf(r format.Range, n int, change func(n, lows, counts int, b []byte) []byte) {
	for i := range format.DIDShards {
		k := format.ShardKey(r, e.keys[n], i)
		b := e.get(k)
		b = b[:len(b)-format.TrailerBytes]
		if entries := int(binary.LittleEndian.Uint32(b)); entries > 0 {
			lows := 8 + 2*(1<<b[4]+1)
			counts := lows + 2*entries + 4*((entries-1)/64)
			e.set(k, format.AppendTrailer(change(entries, lows, counts, b), r, e.keys[n]))
		}
	}
}

// names returns the names of a table.
func names(t format.NameTable) (names []string) {
	for i := range t.Len() {
		names = append(names, t.At(i))
	}
	return names
}

// index changes block n's index, and the slim index with it.
func (e *editor) index(n int, change func(x *format.Index)) {
	var slim []byte
	e.resealed(format.RangeIndex, n, func(b []byte) []byte {
		x, err := format.DecodeIndex(b)
		if err != nil {
			e.t.Fatal(err)
		}
		change(x)
		slim = format.AppendSlimIndex(nil, &x.SlimIndex)
		return format.AppendIndex(nil, x)
	})
	e.resealed(format.RangeSlimIndex, n, func([]byte) []byte { return slim })
}

// state changes the progress record.
func (e *editor) state(change func(s *format.State)) {
	v := e.get(format.MetaKey(format.MetaState))
	s, err := format.DecodeState(v[:len(v)-format.TrailerBytes])
	if err != nil {
		e.t.Fatal(err)
	}
	change(&s)
	e.set(format.MetaKey(format.MetaState), format.AppendTrailer(format.AppendState(nil, &s), format.RangeMeta, 0))
}

// pointer changes the pointer to block n.
func (e *editor) pointer(n int, change func(r *format.BlockPointer) (keep bool)) {
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: format.RangeSeq.Start(), UpperBound: format.RangeSeq.End()})
	if err != nil {
		e.t.Fatal(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		_, seq, _ := format.ParseSeqKey(it.Key())
		ptr, err := format.OpenBlockPointer(it.Value(), seq)
		if err != nil {
			e.t.Fatal(err)
		}
		if ptr.Key != e.keys[n] {
			continue
		}
		key := slices.Clone(it.Key())
		if change(&ptr) {
			e.set(key, format.AppendTrailer(format.AppendBlockPointer(nil, ptr), format.RangeSeq, seq))
		} else {
			e.remove(key)
		}
		return
	}
	e.t.Fatalf("no pointer to block %d", n)
}

// logDamage is something that may be wrong with a log, and what Verify must say. That names part
// and block (an index into keys; -1: another key), and has text.
type logDamage struct {
	name  string
	do    func(e *editor)
	part  string
	block int
	event int
	text  string
	only  bool // nothing else is wrong
}

func flip(at int) func(b []byte) []byte {
	return func(b []byte) []byte { b[at] ^= 0x10; return b }
}

// TestVerifyOffset: a problem names the first wrong byte of the part, not of the frame or its JSON.
func TestVerifyOffset(t *testing.T) {
	for _, event := range []int{0, 1} {
		fs, keys := verifyLog(t)
		at := 0
		tamper(t, fs, func(db *pebble.DB) {
			e := &editor{t, db, keys}
			e.resealed(format.RangePlain, 0, func(b []byte) []byte {
				for range event + 1 {
					at += 1 + strings.Index(string(b[at+1:]), `,"time_us"`)
				}
				b[at] = ';'
				return b
			})
		})
		r := mustVerify(t, fs)
		if !slices.ContainsFunc(r.Examples, func(p verify.Problem) bool {
			return p.Part == "plain" && p.Block == keys[0] && p.Event == event && p.Offset == int64(at)
		}) {
			t.Errorf("byte %d of event %d: %+v", at, event, r.Examples)
		}
	}
}

// TestVerifyFinds damages a log in one way after the other; each is found and named.
func TestVerifyFinds(t *testing.T) {
	for _, d := range slices.Concat(partDamages(), indexDamages(), otherDamages(), spanDamages(), valueDamages()) {
		t.Run(d.name, func(t *testing.T) {
			fs, keys := verifyLog(t)
			tamper(t, fs, func(db *pebble.DB) { d.do(&editor{t, db, keys}) })
			findDamage(t, mustVerify(t, fs), &d, keys)
		})
	}
}

// partDamages are of the stored bytes.
func partDamages() []logDamage {
	return []logDamage{
		{"flipped plain", func(e *editor) { e.raw(format.RangePlain, 2, flip(40)) }, "plain", 2, -1, "checksum", true},
		{"flipped zstd", func(e *editor) { e.raw(format.RangeZstd, 0, flip(30)) }, "zstd", 0, -1, "checksum", true},
		{"flipped index", func(e *editor) { e.raw(format.RangeIndex, 5, flip(70)) }, "index", 5, -1, "checksum", false},
		{"flipped trailer", func(e *editor) {
			e.raw(format.RangePlain, 1, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		}, "plain", 1, -1, "checksum", true},
		{"another block's part", func(e *editor) {
			e.raw(format.RangePlain, 1, func([]byte) []byte { return e.get(format.TimeKey(format.RangePlain, e.keys[0])) })
		}, "plain", 1, -1, "checksum", false},
		{"empty value", func(e *editor) { e.raw(format.RangeZstd, 3, func([]byte) []byte { return nil }) }, "zstd", 3, -1, "too few", false},
		{"missing index", func(e *editor) { e.remove(format.TimeKey(format.RangeIndex, e.keys[1])) }, "index", 1, -1, "missing", true},
		{"missing plain", func(e *editor) { e.remove(format.TimeKey(format.RangePlain, e.keys[1])) }, "plain", 1, -1, "missing", true},
		{"missing zstd", func(e *editor) { e.remove(format.TimeKey(format.RangeZstd, e.keys[1])) }, "zstd", 1, -1, "missing", true},
		{"missing slim index", func(e *editor) { e.remove(format.TimeKey(format.RangeSlimIndex, e.keys[1])) }, "slim_index", 1, -1, "missing", true},
		{"flipped slim index", func(e *editor) { e.raw(format.RangeSlimIndex, 5, flip(40)) }, "slim_index", 5, -1, "checksum", true},
		{"cut slim index", func(e *editor) {
			e.resealed(format.RangeSlimIndex, 2, func(b []byte) []byte { return b[:len(b)-5] })
		}, "slim_index", 2, -1, "cut short", false},
		{"another slim index", func(e *editor) {
			e.resealed(format.RangeSlimIndex, 2, func(b []byte) []byte {
				x, err := format.DecodeSlimIndex(b)
				if err != nil {
					e.t.Fatal(err)
				}
				x.PlainEnd[0]--
				return format.AppendSlimIndex(nil, x)
			})
		}, "slim_index", 2, -1, "the index gives another one", true},
		{"cut plain", func(e *editor) {
			e.resealed(format.RangePlain, 2, func(b []byte) []byte { return b[:len(b)-5] })
		}, "plain", 2, -1, "the index says", false},
		{"wrong frame header", func(e *editor) { e.resealed(format.RangePlain, 2, flip(0)) }, "plain", 2, 0, "begins with", true},
		{"changed rkey", func(e *editor) {
			e.resealed(format.RangePlain, 2, func(b []byte) []byte {
				at := strings.Index(string(b), `"rkey":"3k"`)
				b[at+9] = 'z'
				return b
			})
		}, "zstd", 2, 0, "differs from the plain event", true},
		{"not JSON", func(e *editor) {
			e.resealed(format.RangePlain, 0, func(b []byte) []byte {
				b[strings.Index(string(b), `,"cid"`)] = ';'
				return b
			})
		}, "plain", 0, 0, "not JSON", false},
		{"not zstd", func(e *editor) { e.resealed(format.RangeZstd, 4, flip(4)) }, "zstd", 4, 0, "", true},
	}
}

// indexDamages are columns that are not what the events say.
func indexDamages() []logDamage {
	return []logDamage{
		{"wrong DID", func(e *editor) { e.index(0, func(x *format.Index) { x.DID[1] = x.DID[2] }) }, "plain", 0, 1, "did is", false},
		{"wrong stamp", func(e *editor) { e.index(0, func(x *format.Index) { x.TimeUS[1]++ }) }, "plain", 0, 1, "time_us is", true},
		{"wrong collection", func(e *editor) { e.index(0, func(x *format.Index) { x.Collection[0] = 3 }) }, "plain", 0, 0, "collection is", false},
		{"wrong operation", func(e *editor) { e.index(0, func(x *format.Index) { x.Kind[0] = 1 | 3<<4 }) }, "plain", 0, 0, "operation is", false},
		{"wrong kind", func(e *editor) { e.index(0, func(x *format.Index) { x.Kind[4] = 3 }) }, "plain", 0, 4, "kind is", false},
		{"identity with a collection", func(e *editor) { e.index(0, func(x *format.Index) { x.Collection[4] = 1 }) }, "index", 0, 4, "collection 1", true},
		{"commit without a collection", func(e *editor) { e.index(0, func(x *format.Index) { x.Collection[0] = 0 }) }, "index", 0, 0, "without a collection", false},
		{"kinds", func(e *editor) { e.index(0, func(x *format.Index) { x.Kinds |= 1 }) }, "index", 0, -1, "set of kinds", true},
		{"seq out of the block", func(e *editor) { e.index(1, func(x *format.Index) { x.FirstSeq = x.Seq[0] + 1 }) }, "index", 1, 0, "outside of the block's frames", false},
		{"seq back", func(e *editor) { e.index(1, func(x *format.Index) { x.Seq[3] = x.Seq[1] }) }, "index", 1, 3, "does not follow", false},
		{"frame ends", func(e *editor) { e.index(1, func(x *format.Index) { x.PlainEnd[2]++ }) }, "plain", 1, 2, "begins with", false},
		{"zstd ends", func(e *editor) { e.index(1, func(x *format.Index) { x.ZstdEnd[2]-- }) }, "zstd", 1, 2, "begins with", false},
		{"DID twice", func(e *editor) {
			e.index(1, func(x *format.Index) {
				all := names(x.DIDs)
				all[0] = all[1]
				x.DIDs = format.NewNameTable(all...)
			})
		}, "index", 1, -1, "in its table twice", false},
		{"DID not needed", func(e *editor) {
			e.index(1, func(x *format.Index) {
				x.DIDs = format.NewNameTable(append(names(x.DIDs), "did:web:nobody.example")...)
			})
		}, "index", 1, -1, "no event is of DID", false},
		{"two UIDs in a block", func(e *editor) { e.index(2, func(x *format.Index) { x.DIDUID[7] = 99 }) }, "index", 2, 7, "has UID 99", false},
		{"another UID than before", func(e *editor) {
			e.index(2, func(x *format.Index) {
				for i, d := range x.DID {
					if d == x.DID[0] {
						x.DIDUID[i] = 77
					}
				}
			})
		}, "index", 2, 0, "in an earlier block", false},
		{"URI UID of an identity", func(e *editor) { e.index(2, func(x *format.Index) { x.URIUID[4] = 5 }) }, "index", 2, 4, "URI UID", false},
		{"unknown dictionary", func(e *editor) { e.index(3, func(x *format.Index) { x.Dictionary = 4711 }) }, "zstd", 3, -1, "dictionary 4711", false},
		{"unknown epoch", func(e *editor) { e.index(5, func(x *format.Index) { x.Epoch = 9 }) }, "index", 5, -1, "epoch 9", false},
		{"stamp of the block before", func(e *editor) { e.index(3, func(x *format.Index) { x.TimeUS[0] = e.keys[2] }) }, "index", 3, 0, "not after the block before", false},
		{"last frame of the block before", func(e *editor) { e.index(3, func(x *format.Index) { x.FirstSeq-- }) }, "index", 3, -1, "those of a block before", false},
		{"seq of the block before", func(e *editor) {
			e.index(3, func(x *format.Index) { x.Seq[0], x.FirstSeq = x.Seq[0]-3, x.FirstSeq-3 })
		}, "index", 3, 0, "does not follow", false},
	}
}

// otherDamages damage what is not a block: pointers to blocks, gaps, the state.
func otherDamages() []logDamage {
	return []logDamage{
		{"no block pointer", func(e *editor) { e.pointer(2, func(*format.BlockPointer) bool { return false }) }, "seq", 2, -1, "no block pointer", true},
		{"pointer to nowhere", func(e *editor) {
			e.pointer(2, func(r *format.BlockPointer) bool { r.Key++; return true })
		}, "seq", -1, -1, "which is not there", false},
		{"last pointer to nowhere", func(e *editor) {
			e.pointer(5, func(r *format.BlockPointer) bool { r.Key++; return true })
		}, "seq", -1, -1, "which is not there", false},
		{"pointer to another event", func(e *editor) { e.pointer(2, func(r *format.BlockPointer) bool { r.Op++; return true }) }, "seq", -1, -1, "it ends with", true},
		{"totals", func(e *editor) { e.pointer(2, func(r *format.BlockPointer) bool { r.Events++; return true }) }, "seq", -1, -1, "its totals are", false},
		{"pointer's checksum", func(e *editor) {
			e.pointer(2, func(r *format.BlockPointer) bool { return false })
			e.set(format.SeqKey(1, 131), []byte("0123456789abcdef"))
		}, "seq", -1, -1, "checksum", true},
		{"newest event", func(e *editor) { e.state(func(s *format.State) { s.Newest.Op++ }) }, "meta", -1, -1, "newest event", true},
		{"oldest event", func(e *editor) { e.state(func(s *format.State) { s.Oldest.TimeUS++ }) }, "meta", -1, -1, "oldest event", true},
		{"state's totals", func(e *editor) { e.state(func(s *format.State) { s.Total.Events++ }) }, "meta", -1, -1, "its totals are", true},
		{"position", func(e *editor) { e.state(func(s *format.State) { s.Seq -= 5 }) }, "meta", -1, -1, "the position is", true},
		{"newest stamp", func(e *editor) { e.state(func(s *format.State) { s.TimeUS -= 5 }) }, "meta", -1, -1, "newest stamp", true},
		{"floor", func(e *editor) { e.state(func(s *format.State) { s.Floor.TimeUS = s.Oldest.TimeUS }) }, "meta", -1, -1, "is dropped", true},
		{"epoch", func(e *editor) { e.state(func(s *format.State) { s.Epoch++ }) }, "meta", -1, -1, "epoch", true},
		{"last block gone", func(e *editor) {
			for _, r := range format.BlockRanges() {
				e.remove(format.TimeKey(r, e.keys[5]))
			}
			e.remove(format.TimeKey(format.RangeReferences, e.keys[5]))
			e.pointer(5, func(*format.BlockPointer) bool { return false })
		}, "meta", -1, -1, "newest event", false},
		{"no state", func(e *editor) { e.remove(format.MetaKey(format.MetaState)) }, "meta", -1, -1, "state: missing", true},
		{"broken state", func(e *editor) {
			e.set(format.MetaKey(format.MetaState), flip(3)(e.get(format.MetaKey(format.MetaState))))
		}, "meta", -1, -1, "state: checksum", true},
		{"broken streams", func(e *editor) {
			e.set(format.MetaKey(format.MetaStreams), flip(3)(e.get(format.MetaKey(format.MetaStreams))))
		}, "meta", -1, -1, "streams: checksum", true},
		{"no format", func(e *editor) { e.remove(format.MetaKey(format.MetaFormat)) }, "meta", -1, -1, "format", true},
		{"no dictionary", func(e *editor) { e.remove(format.DictionaryKey(dict.BuiltIn().ID())) }, "dictionary", -1, -1, "missing", false},
		{"broken dictionary", func(e *editor) {
			k := format.DictionaryKey(dict.BuiltIn().ID())
			e.set(k, flip(99)(e.get(k)))
		}, "dictionary", -1, -1, "checksum", false},
		{"dictionary not in use", func(e *editor) {
			v := format.AppendUses(nil, []format.Use{{ID: otherDictionaryID}})
			e.set(format.MetaKey(format.MetaDictionaries), format.AppendTrailer(v, format.RangeMeta, 0))
		}, "index", 0, -1, "not among those", false},
		{"gap within a block", func(e *editor) {
			us := e.keys[1] - 3
			v := format.AppendGap(nil, &Gap{To: translate.Position{Stream: StreamOf(testRelay, 1)}})
			e.set(format.TimeKey(format.RangeGap, us), format.AppendTrailer(v, format.RangeGap, us))
		}, "gap", -1, -1, "within block", true},
		{"gap behind the end", func(e *editor) {
			us := e.keys[5] + 3
			v := format.AppendGap(nil, &Gap{To: translate.Position{Stream: StreamOf(testRelay, 1)}})
			e.set(format.TimeKey(format.RangeGap, us), format.AppendTrailer(v, format.RangeGap, us))
		}, "gap", -1, -1, "after the newest stamp", true},
		{"gap to nowhere", func(e *editor) {
			us := e.keys[0] + 1
			e.set(format.TimeKey(format.RangeGap, us), format.AppendTrailer(format.AppendGap(nil, &Gap{}), format.RangeGap, us))
		}, "gap", -1, -1, "never followed", true},
		{"odd key", func(e *editor) { e.set([]byte{byte(format.RangePlain), 1, 2}, []byte("x")) }, "plain", -1, -1, "no value of this range", true},
		{"unknown range", func(e *editor) { e.set([]byte{0x77, 1}, []byte("x")) }, "store", -1, -1, "no range", true},
	}
}

// TestVerifySound: nothing is wrong with a whole log, also one that was trimmed, is empty, or
// stores nothing, and the report counts what is there.
func TestVerifySound(t *testing.T) {
	fs, keys := verifyLog(t)
	r := mustVerify(t, fs)
	if !r.Sound() || r.Blocks != 6 || r.Events != 6*12+15 || r.Gaps != 1 || r.Dictionaries != 1 || r.Newest != keys[5] || r.Oldest == 0 {
		t.Fatalf("%+v", r)
	}
	cfg := testConfig(t, fs, newTestClock())
	l := mustOpen(t, cfg)
	if err := l.TrimTo(t.Context(), l.Range().Bytes/2); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if r = mustVerify(t, fs); !r.Sound() || r.Blocks == 0 || r.Blocks == 6 {
		t.Errorf("trimmed: %+v", r)
	}
	l = mustOpen(t, cfg)
	if err := l.TrimTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if r = mustVerify(t, fs); !r.Sound() || r.Blocks != 0 {
		t.Errorf("emptied: %+v", r)
	}
	cfg = testConfig(t, vfs.NewMem(), newTestClock())
	_ = mustOpen(t, cfg).Close()
	if r = mustVerify(t, cfg.FS); !r.Sound() || r.Blocks != 0 {
		t.Errorf("new: %+v", r)
	}
}

// TestVerifyRefuses: what cannot be checked is an error, not a problem.
func TestVerifyRefuses(t *testing.T) {
	if _, err := verify.Run(t.Context(), verify.Config{Dir: "log", FS: vfs.NewMem()}); !errors.Is(err, ErrNoLog) {
		t.Errorf("no log: %v", err)
	}
	if _, err := verify.Run(t.Context(), verify.Config{}); err == nil {
		t.Error("no directory: no error")
	}
	fs, _ := verifyLog(t)
	l := mustOpen(t, testConfig(t, fs, newTestClock()))
	if _, err := verify.Run(t.Context(), verify.Config{Dir: "log", FS: fs}); !errors.Is(err, ErrInUse) {
		t.Errorf("a log in use: %v", err)
	}
	_ = l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := verify.Run(ctx, verify.Config{Dir: "log", FS: fs}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	mustVerify(t, fs) // the lock was given back
	tamper(t, fs, func(db *pebble.DB) {
		(&editor{t: t, db: db}).set(format.MetaKey(format.MetaFormat), []byte{0, 0, 0, format.NewestVersion + 1})
	})
	if _, err := verify.Run(t.Context(), verify.Config{Dir: "log", FS: fs}); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("a newer format: %v", err)
	}
}
