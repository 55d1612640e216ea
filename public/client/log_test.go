package client_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/dict"
	"millrace/replay"
	"millrace/translate"
)

// truth is one event as it must arrive.
type truth struct {
	cursor string
	json   string // plain
	timeUS int64
}

var timeMember = regexp.MustCompile(`"time_us":\d+`)

// timeless is the event on every instance.
func (e truth) timeless() string {
	return e.cursor + " " + timeMember.ReplaceAllString(e.json, `"time_us":0`)
}

// eventLog is a log in memory of one instance that follows relay.test.
type eventLog struct {
	*replay.Log
	t            testing.TB
	dictionaries *dict.Registry
	translator   *translate.Translator
	stamper      *replay.Stamper

	addMu sync.Mutex
	seq   int64

	mu     sync.Mutex
	events []truth
}

func newEventLog(t testing.TB) *eventLog {
	t.Helper()
	l := &eventLog{t: t}
	var err error
	if l.dictionaries, err = dict.NewRegistry(dict.BuiltIn()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.dictionaries.Close)
	l.Log, err = replay.Open(replay.Config{
		Dir: "log", FS: vfs.NewMem(), Relay: "relay.test", Retention: 36 * 3600e9, Dictionaries: l.dictionaries,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if l.translator, err = translate.New(translate.Config{}); err != nil {
		t.Fatal(err)
	}
	l.stamper = replay.NewStamper(0, nil)
	return l
}

// frame makes a frame with a given sequence number.
type frame func(seq int64) []byte

// add appends the frames' events as one block, and returns them.
func (l *eventLog) add(frames ...frame) []truth {
	l.t.Helper()
	l.addMu.Lock()
	defer l.addMu.Unlock()
	first := l.seq + 1
	var b translate.Batch
	for _, f := range frames {
		l.seq++
		l.translator.AppendFrame(&b, f(l.seq))
	}
	l.stamper.StampBatch(&b)
	block, err := l.Seal(replay.Input{Epoch: l.Progress().Epoch, FirstSeq: first, LastSeq: l.seq, Batch: &b})
	if err == nil {
		err = l.Append(block)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	var added []truth
	for i, e := range b.Events {
		at := translate.Position{Stream: l.Progress().Stream, Seq: e.Seq, Op: e.Op}
		added = append(added, truth{at.String(), string(b.Payload(i)), e.TimeUS})
	}
	if len(added) < len(frames) {
		l.t.Fatalf("%d frames gave %d events: %+v", len(frames), len(added), b.Counts)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, added...)
	return added
}

func (l *eventLog) all() []truth {
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
	object []field
	cidRef []byte
)

func cborHead(dst []byte, major byte, n int) []byte {
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

func appendCBOR(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 0xf6)
	case bool:
		return append(dst, map[bool]byte{false: 0xf4, true: 0xf5}[v])
	case int:
		return cborHead(dst, 0, v)
	case string:
		return append(cborHead(dst, 3, len(v)), v...)
	case []byte:
		return append(cborHead(dst, 2, len(v)), v...)
	case cidRef:
		return appendCBOR(append(dst, 0xd8, 42), append([]byte{0}, v...))
	case []any:
		dst = cborHead(dst, 4, len(v))
		for _, e := range v {
			dst = appendCBOR(dst, e)
		}
		return dst
	case object:
		dst = cborHead(dst, 5, len(v))
		for _, f := range v {
			dst = appendCBOR(appendCBOR(dst, f.key), f.value)
		}
		return dst
	}
	panic(fmt.Sprintf("no CBOR for %T", v))
}

const frameTime = "2026-01-02T03:04:05.678Z"

func frameOf(kind string, body object) []byte {
	return appendCBOR(appendCBOR(nil, object{{"t", kind}, {"op", 1}}), body)
}

func identity(did string) frame {
	return func(seq int64) []byte {
		return frameOf("#identity", object{{"did", did}, {"seq", int(seq)}, {"time", frameTime}, {"handle", "someone.test"}})
	}
}

func account(did string) frame {
	return func(seq int64) []byte {
		return frameOf("#account", object{{"did", did}, {"seq", int(seq)}, {"time", frameTime}, {"active", false}, {"status", "deactivated"}})
	}
}

// commit makes a frame that creates the same record under several keys, and deletes another.
func commit(did, collection, text string, rkeys ...string) frame {
	record := appendCBOR(nil, object{{"text", text}, {"$type", collection}})
	sum := sha256.Sum256(record)
	cid := append([]byte{1, 0x71, 0x12, 32}, sum[:]...)
	header := appendCBOR(nil, object{{"roots", []any{cidRef(cid)}}, {"version", 1}})
	car := append(binary.AppendUvarint(nil, uint64(len(header))), header...)
	car = append(append(binary.AppendUvarint(car, uint64(len(cid)+len(record))), cid...), record...)
	ops := []any{}
	for _, rkey := range rkeys {
		ops = append(ops, object{{"cid", cidRef(cid)}, {"path", collection + "/" + rkey}, {"action", "create"}})
	}
	ops = append(ops, object{{"cid", nil}, {"path", collection + "/gone"}, {"action", "delete"}})
	return func(seq int64) []byte {
		return frameOf("#commit", object{
			{"ops", ops}, {"rev", "3kabcdefghi2a"}, {"seq", int(seq)}, {"repo", did}, {"time", frameTime},
			{"blobs", []any{}}, {"since", nil}, {"blocks", car}, {"commit", cidRef(cid)}, {"rebase", false}, {"tooBig", false},
		})
	}
}

// traffic makes n frames of all kinds. The i-th is the same each time.
func traffic(from, n int) []frame {
	frames := make([]frame, n)
	for i := range frames {
		k := from + i
		switch did := didN(k % 13); {
		case k%11 == 3:
			frames[i] = identity(did)
		case k%11 == 7:
			frames[i] = account(did)
		default:
			collection := []string{"app.bsky.feed.post", "app.bsky.feed.like", "app.bsky.graph.follow"}[k%3]
			frames[i] = commit(did, collection, strings.Repeat("wörds \"and\" \\ ", k%40), fmt.Sprintf("3k%08d", k), fmt.Sprintf("4k%08d", k))
		}
	}
	return frames
}
