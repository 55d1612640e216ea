package public

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/dict"
	"millrace/dict/jetstream"
	"millrace/public/internal/testframe"
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

// seq is that of Jetstream v2's wire, in a log of one epoch.
func (e truth) seq() int64 { return e.pos.Seq*1024 + int64(e.pos.Op) }

// v2 returns the event as that wire has it, by way of encoding/json.
func (e truth) v2(t testing.TB) string {
	t.Helper()
	var event struct {
		Kind              string
		Commit            map[string]any
		Identity, Account json.RawMessage
		Sync              json.RawMessage
	}
	if err := json.Unmarshal([]byte(e.json), &event); err != nil {
		t.Fatal(err)
	}
	payload := event.Commit
	switch event.Kind {
	case "identity":
		payload = map[string]any{"identity": event.Identity}
	case "account":
		payload = map[string]any{"account": event.Account}
	case "sync":
		payload = map[string]any{"sync": event.Sync}
	}
	payload["$type"] = "network.bsky.jetstream.subscribeEvents#" + event.Kind
	payload["did"], payload["seq"] = e.did, e.seq()
	payload["time"] = time.UnixMicro(e.timeUS).UTC().Format("2006-01-02T15:04:05.000000Z")
	b, err := json.Marshal(map[string]any{"$type": "message", "payload": payload})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

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
	r, err := dict.NewRegistry(dict.BuiltIn(), jetstreams(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func newTestLog(t testing.TB) *testLog {
	t.Helper()
	return openTestLog(t, replay.Config{}, translate.Config{})
}

// openTestLog is newTestLog with what configurations say beside the usual.
func openTestLog(t testing.TB, cfg replay.Config, frames translate.Config) *testLog {
	t.Helper()
	l := &testLog{t: t, dictionaries: newRegistry(t), seq: 1000}
	var err error
	cfg.Dir, cfg.FS, cfg.Relay, cfg.Retention, cfg.Dictionaries = "log", vfs.NewMem(), "relay.test", 36*3600e9, l.dictionaries
	if l.Log, err = replay.Open(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if l.translator, err = translate.New(frames); err != nil {
		t.Fatal(err)
	}
	l.stamper = replay.NewStamper(0, nil)
	return l
}

// jetstreams returns the dictionary that Jetstream's clients carry.
func jetstreams(t testing.TB) *dict.Dictionary {
	t.Helper()
	d, err := dict.Parse(jetstream.Dictionary())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

type frame = testframe.Frame

// add appends one block of the frames' events, and returns them.
func (l *testLog) add(frames ...frame) []truth { return l.addAfter(nil, frames...) }

// addAfter is add with a gap before the block.
func (l *testLog) addAfter(gap *replay.Gap, frames ...frame) (added []truth) {
	l.t.Helper()
	b := l.append(gap, func(*translate.Batch) *replay.EventReferences { return nil }, frames)
	for i := range b.Events {
		added = append(added, l.truth(b, i))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, added...)
	return added
}

// append appends one block of the frames' events, with the references that they have, after a gap
// unless that is nil.
func (l *testLog) append(gap *replay.Gap, references func(*translate.Batch) *replay.EventReferences, frames []frame) *translate.Batch {
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
	block, err := l.Seal(replay.Input{
		Epoch: l.Progress().Epoch, FirstSeq: first, LastSeq: l.seq, Gap: gap, References: references(&b), Batch: &b,
	})
	if err == nil {
		err = l.Append(block)
	}
	if err != nil || len(b.Events) < len(frames) {
		l.t.Fatalf("%d frames gave %d events: %+v: %v", len(frames), len(b.Events), b.Counts, err)
	}
	return &b
}

// truth is what the log holds of an event.
func (l *testLog) truth(b *translate.Batch, i int) truth {
	e := &b.Events[i]
	return truth{
		json: string(b.Payload(i)), did: string(b.DID(i)), timeUS: e.TimeUS,
		pos: translate.Position{Stream: l.Progress().Stream, Seq: e.Seq, Op: e.Op},
	}
}

func (l *testLog) all() []truth {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]truth(nil), l.events...)
}

// didN returns a valid did:plc.
func didN(n int) string { return testframe.DID(n) }

func identity(did string) frame { return testframe.Identity(did) }
func account(did string) frame  { return testframe.Account(did, "") }

// create makes a commit with one record of about len(text) bytes.
func create(did, collection, rkey, text string) frame {
	return creates(did, collection, text, rkey)
}

// creates makes a commit with the same record under several keys.
func creates(did, collection, text string, rkeys ...string) frame {
	return testframe.Commit(did, collection, text, "", rkeys...)
}

// posts makes n frames of various authors.
func posts(n int) []frame {
	frames := make([]frame, n)
	for i := range frames {
		frames[i] = create(didN(i%7), "app.bsky.feed.post", fmt.Sprintf("3k%08d", i), strings.Repeat("words ", 20+i%40))
	}
	return frames
}
