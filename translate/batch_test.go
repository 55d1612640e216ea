package translate

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// checkBatch holds what is true of every batch. The events cover its JSON back to back, and each is
// one JSON object that says what its Event says. Stamp writes where it should, and the counters add
// up.
func checkBatch(t *testing.T, b *Batch) {
	t.Helper()
	var events [NumEventKinds]uint64
	at := uint32(0)
	for i := range b.Events {
		e := &b.Events[i]
		if e.start != at || e.end <= e.start {
			t.Fatalf("event %d is at %d to %d, the one before ends at %d", i, e.start, e.end, at)
		}
		at = e.end
		events[e.counter()]++
		b.Stamp(i, MinTimeUS+int64(i))
		var got struct {
			DID      string `json:"did"`
			TimeUS   int64  `json:"time_us"`
			Kind     string
			Commit   struct{ Operation, Collection, RKey string }
			Identity struct {
				DID string
				Seq int64
			}
			Account, Sync struct {
				DID string
				Seq int64
			}
		}
		if err := json.Unmarshal(b.Payload(i), &got); err != nil {
			t.Fatalf("event %d is no JSON: %v\n%s", i, err, b.Payload(i))
		}
		if got.DID != string(b.DID(i)) || got.TimeUS != MinTimeUS+int64(i) || got.Kind != e.Kind.String() ||
			got.Commit.Operation != e.Operation.String() || got.Commit.Collection != string(b.Collection(i)) ||
			got.Commit.RKey != string(b.RecordKey(i)) || e.Seq < 1 {
			t.Errorf("event %d: %+v does not describe %s", i, *e, b.Payload(i))
		}
		if e.Kind != KindCommit && (got.Identity.DID+got.Account.DID+got.Sync.DID != got.DID || got.Identity.Seq+got.Account.Seq+got.Sync.Seq != e.Seq) {
			t.Errorf("event %d: %+v does not describe %s", i, *e, b.Payload(i))
		}
	}
	if int(at) != len(b.JSON) {
		t.Errorf("the events end at %d, the JSON at %d", at, len(b.JSON))
	}
	if events != b.Counts.Events {
		t.Errorf("counted events %v, there are %v", b.Counts.Events, events)
	}
}

// TestScribble holds that a batch is whole after the frame's memory has been used for something
// else.
func TestScribble(t *testing.T) {
	tr := newTranslator(t)
	link := cborLink(cidOf([]byte("x")))
	rec := cborOf(cborMap{{"text", "some \u2028 <text>"}, {"b", []byte("bytes")}, {"l", link}, {"$type", "app.bsky.feed.post"}})
	frames := [][]byte{
		frameOf("#commit", amongGood(createOp("app.bsky.feed.post/bad", rec), blockOf(rec))),
		frameOf("#identity", identityBody()),
		frameOf("#account", accountBody().With("status", "deactivated")),
	}
	var clean, dirty Batch
	for _, frame := range frames {
		tr.AppendFrame(&clean, frame)
	}
	buf := make([]byte, 0, 4096)
	for _, frame := range frames {
		buf = append(buf[:0], frame...)
		tr.AppendFrame(&dirty, buf)
		for i := range buf {
			buf[i] = 0xee
		}
	}
	if len(clean.Events) != 6 || !bytes.Equal(clean.JSON, dirty.JSON) {
		t.Errorf("%d events\nleft alone %s\nscribbled  %s", len(clean.Events), clean.JSON, dirty.JSON)
	}
	checkBatch(t, &dirty)
}

// TestRemove: what is left of a batch is as if the events had not come.
func TestRemove(t *testing.T) {
	tr, err := New(Config{References: true})
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for i, tc := range referenceCases {
		rec := cborOf(tc.record)
		op := createOp("app.bsky.feed.post/"+strings.Repeat("a", 1+i%7), rec)
		frames = append(frames, frameOf("#commit", commitBody(carOf(blockOf(rec)), op, op)))
	}
	describe := func(b *Batch) (lines []string) {
		for i := range b.Events {
			lines = append(lines, string(b.Payload(i)))
			for j := range b.References {
				if int(b.References[j].Event) == i {
					lines = append(lines, string(b.ReferencePath(j))+" "+string(b.Subject(j)))
				}
			}
		}
		return lines
	}
	for keep := range 4 {
		var all, kept Batch
		gone := make(map[int]bool)
		for n, frame := range frames {
			from := len(all.Events)
			tr.AppendFrame(&all, frame)
			if n%3 == keep || keep == 3 {
				tr.AppendFrame(&kept, frame)
				continue
			}
			for i := from; i < len(all.Events); i++ {
				gone[i] = true
			}
		}
		i := -1
		all.Remove(func(*Event) bool { i++; return gone[i] })
		if got, want := describe(&all), describe(&kept); !slices.Equal(got, want) || len(all.References) != len(kept.References) {
			t.Errorf("keeping %d: left are %d events, %d references: %q\nwant %q", keep, len(all.Events), len(all.References), got, want)
		}
	}
}

// TestNoAllocs holds that in steady state nothing is allocated, whatever the frames hold.
func TestNoAllocs(t *testing.T) {
	tr, err := New(Config{Collections: []string{"app.bsky.*", "com.example.thing"}, References: true})
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for _, tc := range badOps() {
		frames = append(frames, frameOf("#commit", amongGood(tc.op, tc.blocks...)))
	}
	for name, rec := range badRecords() {
		if len(rec) < maxKeptScratch {
			frames = append(frames, frameOf("#commit", amongGood(createOp("app.bsky.feed.post/a", rec), blockOf(rec))))
		} else if name == "" {
			t.Fatal("unnamed record")
		}
	}
	for _, tc := range referenceCases {
		rec := cborOf(tc.record)
		op := createOp("app.bsky.feed.post/a", rec)
		frames = append(frames, frameOf("#commit", amongGood(op, blockOf(rec))), frameOf("#commit", commitBody(carOf(blockOf(rec)), op, op)))
	}
	frames = append(frames, manyBlocksFrame(200),
		frameOf("#identity", identityBody()),
		frameOf("#account", accountBody().With("status", "a\u2029<b>")),
		frameOf("#commit", cborRaw{0xff}))
	var b Batch
	allocs := testing.AllocsPerRun(20, func() {
		b.Reset()
		for _, frame := range frames {
			tr.AppendFrame(&b, frame)
		}
	})
	if allocs != 0 {
		t.Errorf("%d frames made %v allocations", len(frames), allocs)
	}
	if len(b.Events) < 200 || len(b.References) < 2*len(referenceCases) {
		t.Errorf("only %d events and %d references", len(b.Events), len(b.References))
	}
}

// manyBlocksFrame returns a frame of n creates of n records.
func manyBlocksFrame(n int) []byte {
	var blocks []carBlock
	var ops []any
	for i := range n {
		rec := cborOf(cborMap{{"n", i}, {"$type", "app.bsky.feed.like"}})
		blocks = append(blocks, blockOf(rec))
		ops = append(ops, createOp("app.bsky.feed.like/"+string(rune('a'+i%26)), rec))
	}
	return frameOf("#commit", commitBody(carOf(blocks...), ops...))
}
