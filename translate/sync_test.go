package translate

import (
	"bytes"
	"fmt"
	"testing"

	comatproto "github.com/bluesky-social/indigo/api/atproto"

	"millrace/consume/relaysim/cbor"
)

// TestSync holds the events of #sync frames against encoding/json of indigo's struct, decoded by
// indigo from the same frames.
func TestSync(t *testing.T) {
	var largest []byte
	for n := maxSyncBytes; len(largest) != maxSyncBytes; n-- {
		largest = carOf(blockOf(make([]byte, n)))
	}
	tr := newTranslator(t, "none.of.these")
	for i, body := range []cborMap{
		syncBody(), syncBody().With("did", "did:web:example.com%3A8080").With("seq", uint64(1<<63-1)), syncBody().With("unknown", 1),
		syncBody().With("time", "2026-07-04T14:38:08.123456789+05:30").With("rev", "2222222222222"),
		syncBody().With("blocks", largest), syncBody().With("blocks", carOf()),
	} {
		want := jetstreamEvent{Kind: "sync", Sync: &comatproto.SyncSubscribeRepos_Sync{}}
		if err := want.Sync.UnmarshalCBOR(bytes.NewReader(cborOf(body))); err != nil {
			t.Fatal(err)
		}
		want.DID = want.Sync.Did
		var b Batch
		tr.AppendFrame(&b, frameOf("#sync", body))
		if len(b.Events) != 1 || !bytes.Equal(b.JSON, want.marshal(t)) {
			t.Errorf("body %d\n got %s\nwant %s", i, b.JSON, want.marshal(t))
			continue
		}
		if e := b.Events[0]; e.Operation != OpNone || e.Op != 0 || e.Kind != KindSync || string(b.DID(0)) != want.DID {
			t.Errorf("body %d: %+v", i, e)
		}
		if b.Counts.Frames[FrameSync] != 1 || b.Counts.Events[EventSync] != 1 || string(b.Time) != want.Sync.Time {
			t.Errorf("body %d: counted %+v, sent at %s", i, b.Counts, b.Time)
		}
		checkBatch(t, &b)
		b.Stamp(0, MinTimeUS+int64(i))
		rev, us, ok := PayloadSync(b.Payload(0))
		commit := fmt.Appendf(nil, `{"did":"d","time_us":1,"kind":"commit","commit":{"rev":"%s"`, want.Sync.Rev)
		if r, _ := PayloadRev(commit); !ok || rev != r || us != MinTimeUS+int64(i) {
			t.Errorf("body %d: rev %d at %d, %t", i, rev, us, ok)
		}
	}
	for _, payload := range []string{"", "{}", `{"time_us":1,"sync":{"rev":"3k"}}`, `{"time_us":1,"sync":{"rev":"3KABCDEFGHI2A"}}`} {
		if _, _, ok := PayloadSync([]byte(payload)); ok {
			t.Errorf("%s has a rev", payload)
		}
	}
}

// TestBadSync: what is wrong with a #sync drops the frame, and is counted by its reason.
func TestBadSync(t *testing.T) {
	car := carOf(blockOf([]byte("commit")))
	for name, tc := range map[string]struct {
		body   any
		reason Reason
	}{
		"no seq":          {syncBody().Without("seq"), ReasonInvalidSeq},
		"no DID":          {syncBody().Without("did"), ReasonInvalidDID},
		"a handle":        {syncBody().With("did", "alice.example.com"), ReasonInvalidDID},
		"no rev":          {syncBody().Without("rev"), ReasonInvalidRev},
		"a short rev":     {syncBody().With("rev", "3kabc"), ReasonInvalidRev},
		"no time":         {syncBody().Without("time"), ReasonInvalidTime},
		"a day":           {syncBody().With("time", "2026-07-04"), ReasonInvalidTime},
		"no blocks":       {syncBody().Without("blocks"), ReasonInvalidCAR},
		"blocks as text":  {syncBody().With("blocks", string(car)), ReasonInvalidCAR},
		"blocks are none": {syncBody().With("blocks", []byte{}), ReasonInvalidCAR},
		"a CAR cut short": {syncBody().With("blocks", car[:len(car)-1]), ReasonInvalidCAR},
		"no root":         {syncBody().With("blocks", cbor.AppendCARSection(nil, cborOf(cborMap{{"roots", []any{}}, {"version", 1}}))), ReasonInvalidCAR},
		"too many bytes":  {syncBody().With("blocks", carOf(blockOf(make([]byte, maxSyncBytes)))), ReasonTooLarge},
		"no map":          {[]any{1}, ReasonInvalidBody},
		"a key twice":     {append(cborMap{{"rev", testRev}}, syncBody()...), ReasonInvalidBody},
	} {
		t.Run(name, func(t *testing.T) {
			var b Batch
			tr := newTranslator(t)
			tr.AppendFrame(&b, frameOf("#identity", identityBody()))
			tr.AppendFrame(&b, frameOf("#sync", tc.body))
			tr.AppendFrame(&b, frameOf("#sync", syncBody()))
			if got := dropsOf(&b.Counts); len(b.Events) != 2 || got[tc.reason.String()] != 1 || len(got) != 1 || b.Counts.Frames[FrameSync] != 2 {
				t.Errorf("%d events, dropped %v, want %s", len(b.Events), got, tc.reason)
			}
			checkBatch(t, &b)
		})
	}
}
