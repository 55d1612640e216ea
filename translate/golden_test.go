package translate

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestGolden holds the captured frames against what production Jetstream served for them, byte for
// byte but for time_us, which the test takes over from there.
func TestGolden(t *testing.T) {
	frames, lines := corpusFrames(t), corpusLines(t)
	tr := newTranslator(t)
	var b Batch
	for _, frame := range frames {
		owned := bytes.Clone(frame)
		tr.AppendFrame(&b, owned)
		for i := range owned { // nothing of the frame may be kept
			owned[i] = 0xee
		}
	}
	if len(b.Events) != len(lines) {
		t.Fatalf("%d frames gave %d events, production served %d", len(frames), len(b.Events), len(lines))
	}
	for i, line := range lines {
		var want struct {
			DID    string `json:"did"`
			TimeUS int64  `json:"time_us"`
			Commit struct{ Operation, Collection, RKey string }
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		b.Stamp(i, want.TimeUS)
		if got := b.Payload(i); !bytes.Equal(got, line) {
			t.Errorf("event %d:\n got %s\nwant %s", i, got, line)
		}
		e := &b.Events[i]
		if string(b.DID(i)) != want.DID || string(b.Collection(i)) != want.Commit.Collection ||
			string(b.RecordKey(i)) != want.Commit.RKey || e.Operation.String() != want.Commit.Operation ||
			e.Kind != KindCommit || e.TimeUS != want.TimeUS {
			t.Errorf("event %d: %+v with %q %q %q does not describe %s", i, *e, b.DID(i), b.Collection(i), b.RecordKey(i), line)
		}
	}
	if b.Counts.Frames[FrameCommit] != uint64(len(frames)) {
		t.Errorf("counted %d commits of %d frames", b.Counts.Frames[FrameCommit], len(frames))
	}
	if drops := (Counts{}).Drops; b.Counts.Drops != drops {
		t.Errorf("dropped something: %v", b.Counts.Drops)
	}
}

// TestCorpusRecords holds the corpus's larger set of real records. Each, put back into DAG-CBOR,
// has its CID, and the frame that creates it gives its line.
func TestCorpusRecords(t *testing.T) {
	tr := newTranslator(t)
	var b Batch
	for _, c := range corpusCommits(t) {
		e := c.event.Commit
		if cid := cidText(cidOf(c.record)); cid != e.CID {
			t.Fatalf("%s: CID %s", c.line, cid)
		}
		op := createOp(e.Collection+"/"+e.RKey, c.record).With("action", e.Operation)
		b.Reset()
		tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blockOf(c.record)), op).With("repo", c.event.DID).With("rev", e.Rev)))
		if len(b.Events) != 1 {
			t.Fatalf("%s: drops %v", c.line, dropsOf(&b.Counts))
		}
		b.Stamp(0, c.event.TimeUS)
		if !bytes.Equal(b.Payload(0), c.line) {
			t.Fatalf("got  %s\nwant %s", b.Payload(0), c.line)
		}
	}
}
