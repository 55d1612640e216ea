package public

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/dict"
	"millrace/replay"
	"millrace/translate"
)

// truth is one event as the log holds it.
type truth struct {
	json   string
	did    string
	timeUS int64
	pos    translate.Position
}

func (e truth) cursor() string { return e.pos.String() }

// testLog is a log in memory that is filled with frames made up here.
type testLog struct {
	*replay.Log
	t            testing.TB
	dictionaries *dict.Registry
	translator   *translate.Translator
	stamper      *replay.Stamper
	seq          int64

	mu     sync.Mutex
	events []truth
}

func newRegistry(t testing.TB) *dict.Registry {
	t.Helper()
	r, err := dict.NewRegistry(dict.BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func newTestLog(t testing.TB) *testLog {
	t.Helper()
	l := &testLog{t: t, dictionaries: newRegistry(t), seq: 1000}
	var err error
	l.Log, err = replay.Open(replay.Config{
		Dir: "log", FS: vfs.NewMem(), Relay: "relay.test", Retention: 36 * 3600e9, Dictionaries: l.dictionaries,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if l.translator, err = translate.New(translate.Config{}); err != nil {
		t.Fatal(err)
	}
	l.stamper = replay.NewStamper(0, nil)
	return l
}

// frame makes a frame with a given sequence number.
type frame func(seq int64) []byte

// add appends one block of the frames' events, and returns them.
func (l *testLog) add(frames ...frame) []truth { return l.addAfter(nil, frames...) }

// addAfter is add with a gap before the block.
func (l *testLog) addAfter(gap *replay.Gap, frames ...frame) []truth {
	l.t.Helper()
	first := l.seq + 1
	var b translate.Batch
	for _, f := range frames {
		l.seq++
		l.translator.AppendFrame(&b, f(l.seq))
	}
	if gap != nil {
		gap.TimeUS = l.stamper.Next()
	}
	l.stamper.StampBatch(&b)
	block, err := l.Seal(replay.Input{Epoch: l.Progress().Epoch, FirstSeq: first, LastSeq: l.seq, Gap: gap, Batch: &b})
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.Append(block); err != nil {
		l.t.Fatal(err)
	}
	var added []truth
	for i, e := range b.Events {
		added = append(added, truth{
			json: string(b.Payload(i)), did: string(b.DID(i)), timeUS: e.TimeUS,
			pos: translate.Position{Stream: l.Progress().Stream, Seq: e.Seq, Op: e.Op},
		})
	}
	if len(added) < len(frames) {
		l.t.Fatalf("%d frames gave %d events: %+v", len(frames), len(added), b.Counts)
	}
	l.mu.Lock()
	l.events = append(l.events, added...)
	l.mu.Unlock()
	return added
}

func (l *testLog) all() []truth {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]truth(nil), l.events...)
}

// didN returns a valid did:plc.
func didN(n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	b := []byte("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")
	for i := len(b) - 1; n > 0; i-- {
		b[i] = alphabet[n%32]
		n /= 32
	}
	return string(b)
}

// The CBOR that frames need.
type (
	field  struct{ key, value any }
	fields []field
	cidRef []byte
)

func appendCBOR(dst []byte, v any) []byte {
	head := func(major byte, n int) []byte {
		switch {
		case n < 24:
			return append(dst, major<<5|byte(n))
		case n < 1<<8:
			return append(dst, major<<5|24, byte(n))
		case n < 1<<16:
			return binary.BigEndian.AppendUint16(append(dst, major<<5|25), uint16(n))
		}
		return binary.BigEndian.AppendUint32(append(dst, major<<5|26), uint32(n))
	}
	switch v := v.(type) {
	case nil:
		return append(dst, 0xf6)
	case bool:
		if v {
			return append(dst, 0xf5)
		}
		return append(dst, 0xf4)
	case int:
		return head(0, v)
	case string:
		return append(head(3, len(v)), v...)
	case []byte:
		return append(head(2, len(v)), v...)
	case cidRef:
		dst = append(dst, 0xd8, 42)
		return appendCBOR(dst, append([]byte{0}, v...))
	case []any:
		dst = head(4, len(v))
		for _, e := range v {
			dst = appendCBOR(dst, e)
		}
		return dst
	case fields:
		dst = head(5, len(v))
		for _, f := range v {
			dst = appendCBOR(appendCBOR(dst, f.key), f.value)
		}
		return dst
	}
	panic(fmt.Sprintf("no CBOR for %T", v))
}

const frameTime = "2026-01-02T03:04:05.678Z"

func frameOf(kind string, body fields) []byte {
	return appendCBOR(appendCBOR(nil, fields{{"t", kind}, {"op", 1}}), body)
}

func identity(did string) frame {
	return func(seq int64) []byte {
		return frameOf("#identity", fields{{"did", did}, {"seq", int(seq)}, {"time", frameTime}, {"handle", "someone.test"}})
	}
}

func account(did string) frame {
	return func(seq int64) []byte {
		return frameOf("#account", fields{{"did", did}, {"seq", int(seq)}, {"time", frameTime}, {"active", true}})
	}
}

// create makes a commit with one record of about len(text) bytes.
func create(did, collection, rkey, text string) frame {
	return creates(did, collection, text, rkey)
}

// creates makes a commit with the same record under several keys.
func creates(did, collection, text string, rkeys ...string) frame {
	record := appendCBOR(nil, fields{{"text", text}, {"$type", collection}})
	sum := sha256.Sum256(record)
	cid := append([]byte{1, 0x71, 0x12, 32}, sum[:]...)
	header := appendCBOR(nil, fields{{"roots", []any{cidRef(cid)}}, {"version", 1}})
	car := append(binary.AppendUvarint(nil, uint64(len(header))), header...)
	car = append(append(binary.AppendUvarint(car, uint64(len(cid)+len(record))), cid...), record...)
	var ops []any
	for _, rkey := range rkeys {
		ops = append(ops, fields{{"cid", cidRef(cid)}, {"path", collection + "/" + rkey}, {"action", "create"}})
	}
	return func(seq int64) []byte {
		return frameOf("#commit", fields{
			{"ops", ops}, {"rev", "3kabcdefghi2a"}, {"seq", int(seq)}, {"repo", did}, {"time", frameTime},
			{"blobs", []any{}}, {"since", nil}, {"blocks", car}, {"commit", cidRef(cid)}, {"rebase", false}, {"tooBig", false},
		})
	}
}

// posts makes n frames of various authors.
func posts(n int) []frame {
	frames := make([]frame, n)
	for i := range frames {
		frames[i] = create(didN(i%7), "app.bsky.feed.post", fmt.Sprintf("3k%08d", i), strings.Repeat("words ", 20+i%40))
	}
	return frames
}
