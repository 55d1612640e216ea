package client_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/dict"
	"millrace/public/internal/testframe"
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

// newEventLog makes a log that has the events of these frames.
func newEventLog(t testing.TB, frames ...frame) *eventLog {
	t.Helper()
	l := &eventLog{t: t}
	var err error
	if l.dictionaries, err = dict.NewRegistry(dict.BuiltIn(), jetstreams(t)); err != nil {
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
	if len(frames) > 0 {
		l.add(frames...)
	}
	return l
}

type frame = testframe.Frame

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
func didN(n int) string { return testframe.DID(n) }

func identity(did string) frame { return testframe.Identity(did) }
func account(did string) frame  { return testframe.Account(did, "deactivated") }

// commit makes a frame that creates the same record under several keys, and deletes another.
func commit(did, collection, text string, rkeys ...string) frame {
	return testframe.Commit(did, collection, text, "gone", rkeys...)
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
