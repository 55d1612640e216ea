package replay

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/zstd"

	"millrace/consume/relaysim/testwait"
	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/translate"
)

const benchBlockEvents = 512

// benchEvents makes n events with real payloads of the corpus, as far as it is there. They have
// about the mix of collections that the network has.
func benchEvents(b *testing.B, n int) []testEvent {
	b.Helper()
	var payloads [][]byte
	if packed, err := os.ReadFile(filepath.Join(corpusDir, "records.ndjson.zst")); err == nil {
		dec, err := zstd.NewReader(nil)
		if err != nil {
			b.Fatal(err)
		}
		defer dec.Close()
		raw, err := dec.DecodeAll(packed, nil)
		if err != nil {
			b.Fatal(err)
		}
		payloads = bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	}
	var events []testEvent
	for i := range n {
		e := testEvent{Place: format.Place{Epoch: 1, Seq: int64(i + 1), Op: 0}, timeUS: testStart.UnixMicro() + int64(i)*50, kind: translate.KindCommit,
			operation: translate.OpCreate, collection: testCollections[i*i%len(testCollections)], did: testDID(i * 7919 % 400),
			didUID: 1<<50 + uint64(i*7919%400), uriUID: 2<<50 + uint64(i)}
		if len(payloads) > 0 {
			p := payloads[i*31%len(payloads)]
			var head struct {
				DID    string
				Commit struct{ Collection string }
			}
			if err := json.Unmarshal(p, &head); err != nil {
				b.Fatal(err)
			}
			e.payload, e.did, e.collection = string(p), head.DID, head.Commit.Collection
		} else {
			e.payload = fmt.Sprintf(`{"did":"%s","time_us":%d,"kind":"commit","commit":{"rev":"3kabcdefghijk","operation":"create","collection":"%s","rkey":"3kabcdefgh%03d","record":{"$type":"app.bsky.feed.like","createdAt":"2026-07-01T12:00:00.000Z","subject":{"cid":"bafyreib2rxk3rh6kzwq","uri":"at://did:plc:abc/app.bsky.feed.post/3k%d"}},"cid":"bafyreigdyr"}}`,
				e.did, e.timeUS, e.collection, i%1000, i)
		}
		events = append(events, e)
	}
	return events
}

func payloadBytes(events []testEvent) (n int64) {
	for _, e := range events {
		n += int64(len(e.payload))
	}
	return n
}

// benchLog is a log on the real disk with so many blocks.
func benchLog(b *testing.B, cfg Config, blocks int) (*Log, []testEvent) {
	b.Helper()
	cfg.Dir, cfg.FS = b.TempDir(), nil
	l := mustOpen(b, cfg)
	events := benchEvents(b, blocks*benchBlockEvents)
	for i := 0; i < len(events); i += benchBlockEvents {
		tb := testBlock{epoch: 1, firstSeq: int64(i + 1), lastSeq: int64(i + benchBlockEvents), events: events[i : i+benchBlockEvents]}
		if err := l.Append(tb.seal(b, l)); err != nil {
			b.Fatal(err)
		}
	}
	return l, events
}

// BenchmarkSeal seals 512 real events.
func BenchmarkSeal(b *testing.B) {
	l := mustOpen(b, testConfig(b, vfs.NewMem(), newTestClock()))
	events := benchEvents(b, benchBlockEvents)
	tb := testBlock{epoch: 1, firstSeq: 1, lastSeq: benchBlockEvents, events: events}
	inputs := make([]format.Event, len(events))
	for i, e := range events {
		inputs[i] = e.event()
	}
	size := tb.seal(b, l)
	b.ReportMetric(float64(len(size.values.Index))/benchBlockEvents, "index-B/event")
	b.ReportMetric(float64(len(slices.Concat(size.values.Plain...)))/benchBlockEvents, "plain-B/event")
	b.ReportMetric(float64(len(size.values.Zstd))/benchBlockEvents, "zstd-B/event")
	for name, enc := range map[string]format.Compressor{"zstd": l.stored.encoder, "uncompressed": copyCompressor{}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(payloadBytes(events))
			for b.Loop() {
				s := format.NewSealer(1, enc, 1, len(inputs), int(payloadBytes(events)))
				for i := range inputs {
					if err := s.Add(inputs[i]); err != nil {
						b.Fatal(err)
					}
				}
				out, err := s.Finish(1, benchBlockEvents, 0)
				if err != nil {
					b.Fatal(err)
				}
				_ = out
			}
			perEvent(b, benchBlockEvents)
		})
	}
}

// cpuTime is what the process has used so far, on all cores: it holds on a busy machine too.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func perEvent(b *testing.B, events int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
	b.ReportMetric(float64(b.N)*float64(events)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkAppend makes logs of 200,000 real events on the disk of the temporary directory. They
// are of blocks of 512 events, as at full speed, and of 8, as at 1,500 events/s, each block with
// its own sync.
func BenchmarkAppend(b *testing.B) {
	const n = 200_000
	for _, size := range []int{512, 8} {
		b.Run(fmt.Sprintf("blocks-of-%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				cfg := testConfig(b, nil, newTestClock())
				cfg.Dir, cfg.hooks.keepSmall, cfg.TailBytes, cfg.PebbleBytes = b.TempDir(), false, 32<<20, 64<<20
				l := mustOpen(b, cfg)
				events := benchEvents(b, n/10)
				var blocks []*Block
				b.StartTimer()
				for at := range n / size {
					if len(blocks) == 0 {
						b.StopTimer()
						for k := range 100 {
							blocks = append(blocks, benchBlock(b, l, events, (at+k)*size, size))
						}
						b.StartTimer()
					}
					if err := l.Append(blocks[0]); err != nil {
						b.Fatal(err)
					}
					blocks = blocks[1:]
				}
				b.StopTimer()
				reportWrites(b, l, n)
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			perEvent(b, n)
		})
	}
}

// benchBlock makes the block of events from number at on, taken round and round from events.
func benchBlock(b *testing.B, l *Log, events []testEvent, at, size int) *Block {
	tb := testBlock{epoch: 1, firstSeq: int64(at + 1), lastSeq: int64(at + size)}
	for i := at; i < at+size; i++ {
		e := events[i%len(events)]
		e.Seq, e.timeUS, e.uriUID = int64(i+1), testStart.UnixMicro()+int64(i)*600, 2<<50+uint64(i)
		tb.events = append(tb.events, e)
	}
	return tb.seal(b, l)
}

// reportWrites reports what the store wrote for the n events in it, after all is flushed. Write
// amplification is against the bytes of the log's parts.
func reportWrites(b *testing.B, l *Log, n int) {
	if err := l.store.Pebble().Flush(); err != nil {
		b.Fatal(err)
	}
	var m *pebble.Metrics
	testwait.Eventually(b, time.Minute, "compactions end", func() bool {
		m = l.store.Pebble().Metrics()
		return m.Compact.NumInProgress == 0
	})
	s := l.snap.Load()
	parts := float64(s.Total.Bytes)
	raw := 0
	it, err := l.store.NewIter(&pebble.IterOptions{LowerBound: format.RangePlain.Start(), UpperBound: format.RangePlain.End()})
	if err != nil {
		b.Fatal(err)
	}
	for it.First(); it.Valid(); it.Next() {
		raw += int(binary.LittleEndian.Uint32(it.Value()[4:])) - len(it.Value())
	}
	_ = it.Close()
	b.ReportMetric((parts+float64(raw))/float64(n), "uncompressed-B/event")
	flushed, compacted := writtenByPebble(m)
	b.ReportMetric(float64(uint64(m.Total().TablesSize)+m.BlobFiles.LiveSize)/float64(n), "disk-B/event")
	b.ReportMetric(parts/float64(n), "parts-B/event")
	b.ReportMetric(float64(m.WAL.BytesWritten)/parts, "wal-amp")
	b.ReportMetric(float64(flushed)/parts, "flush-amp")
	b.ReportMetric(float64(compacted)/parts, "compact-amp")
	b.ReportMetric(float64(s.Total.Blocks), "blocks")
	b.ReportMetric(float64(m.Compact.MoveCount), "moves")
}

// writtenByPebble returns how many bytes flushes and compactions have written, to tables and to
// blob files.
func writtenByPebble(m *pebble.Metrics) (flushed, compacted uint64) {
	for i, level := range m.Levels {
		flushed += level.TableBytesFlushed + level.BlobBytesFlushed
		compacted += level.TableBytesCompacted
		if i > 0 { // Pebble counts those of a flush twice
			compacted += level.BlobBytesCompacted
		}
	}
	return flushed, compacted
}

// BenchmarkRead reads a whole log of 200,000 events again and again.
func BenchmarkRead(b *testing.B) {
	const blocks = 400
	rare, err := NewFilter(FilterConfig{DIDs: []string{benchEvents(b, 100)[99].did}})
	if err != nil {
		b.Fatal(err)
	}
	likes, err := NewFilter(FilterConfig{Collections: []string{"app.bsky.feed.like"}, Kinds: Kinds(translate.KindCommit)})
	if err != nil {
		b.Fatal(err)
	}
	for _, place := range []struct {
		name        string
		tail, cache int64
	}{{"tail", 1 << 30, 1}, {"cached", 1, 1 << 30}, {"cold", 1, 2 << 20}} {
		cfg := testConfig(b, nil, newTestClock())
		cfg.TailBytes, cfg.CacheBytes, cfg.PebbleBytes = place.tail, place.cache, 32<<20
		l, events := benchLog(b, cfg, blocks)
		if err := l.store.Pebble().Flush(); err != nil {
			b.Fatal(err)
		}
		for _, rc := range []struct {
			name string
			cfg  ReaderConfig
		}{
			{"plain", ReaderConfig{}},
			{"zstd", ReaderConfig{Dictionary: dict.BuiltIn().ID()}},
			{"v2", ReaderConfig{V2: true}},
			{"likes", ReaderConfig{Filter: likes}},
			{"one-did", ReaderConfig{Filter: rare}},
			{"likes-max-size", ReaderConfig{Filter: must(NewFilter(FilterConfig{Collections: []string{"app.bsky.feed.like"}, MaxPayloadBytes: 600}))}},
		} {
			b.Run(place.name+"/"+rc.name, func(b *testing.B) {
				b.ReportAllocs()
				rc.cfg.Cursor = TimeCursor(0)
				var c Chunk
				sent := 0
				cpu := cpuTime()
				for b.Loop() {
					r := mustRead(b, l, rc.cfg)
					sent = 0
					for c.Live = false; !c.Live; {
						if err := r.Next(&c); err != nil {
							b.Fatal(err)
						}
						sent += c.Bytes
					}
				}
				b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/float64(len(events)), "cpu-ns/event")
				b.SetBytes(int64(sent))
				perEvent(b, len(events))
			})
		}
	}
}

func must(f *Filter, err error) *Filter {
	if err != nil {
		panic(err)
	}
	return f
}

// BenchmarkVariant builds what is not stored, for a block of 512 events.
func BenchmarkVariant(b *testing.B) {
	l := mustOpen(b, testConfig(b, vfs.NewMem(), newTestClock()))
	events := benchEvents(b, benchBlockEvents)
	blk := testBlock{epoch: 1, firstSeq: 1, lastSeq: benchBlockEvents, events: events}.seal(b, l)
	for name, enc := range map[string]format.Compressor{"extended": nil, "extended-zstd": l.stored.encoder} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(payloadBytes(events))
			builder := format.FrameBuilder{Ends: blk.idx.PlainEnd, Extended: blk.idx.full, Compressor: enc, Stream: 1}
			for b.Loop() {
				builder.All(blk.plain)
			}
			perEvent(b, benchBlockEvents)
		})
	}
}

// BenchmarkDecodeIndex decodes the index part of 512 events, and the slim index.
func BenchmarkDecodeIndex(b *testing.B) {
	l := mustOpen(b, testConfig(b, vfs.NewMem(), newTestClock()))
	blk := testBlock{epoch: 1, firstSeq: 1, lastSeq: benchBlockEvents, events: benchEvents(b, benchBlockEvents)}.seal(b, l)
	for _, part := range []struct {
		name   string
		r      format.Range
		sealed []byte
	}{{"index", format.RangeIndex, blk.values.Index}, {"slim_index", format.RangeSlimIndex, blk.values.SlimIndex}} {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(part.sealed)))
			for b.Loop() {
				body, err := format.OpenTrailer(part.sealed, part.r, blk.idx.Key())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := decodeBlockIndex(part.r, body); err != nil {
					b.Fatal(err)
				}
			}
			perEvent(b, benchBlockEvents)
		})
	}
}

// copyCompressor compresses nothing.
type copyCompressor struct{}

func (copyCompressor) Append(dst, src []byte) []byte { return append(dst, src...) }
