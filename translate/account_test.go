package translate

import (
	"bytes"
	"encoding/json"
	"testing"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
)

// jetstreamEvent is an event as Jetstream marshals it.
type jetstreamEvent struct {
	DID      string                                  `json:"did"`
	TimeUS   int64                                   `json:"time_us"`
	Kind     string                                  `json:"kind,omitempty"`
	Commit   *jetstreamCommit                        `json:"commit,omitempty"`
	Account  *comatproto.SyncSubscribeRepos_Account  `json:"account,omitempty"`
	Identity *comatproto.SyncSubscribeRepos_Identity `json:"identity,omitempty"`
	Sync     *comatproto.SyncSubscribeRepos_Sync     `json:"sync,omitempty"`
}

type jetstreamCommit struct {
	Rev        string          `json:"rev,omitempty"`
	Operation  string          `json:"operation,omitempty"`
	Collection string          `json:"collection,omitempty"`
	RKey       string          `json:"rkey,omitempty"`
	Record     json.RawMessage `json:"record,omitempty"`
	CID        string          `json:"cid,omitempty"`
}

// marshal returns the event's JSON with time_us as AppendFrame writes it.
func (e *jetstreamEvent) marshal(tb testing.TB) []byte {
	tb.Helper()
	e.TimeUS = MinTimeUS
	b, err := json.Marshal(e)
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.Replace(b, []byte(`"time_us":1000000000000000`), []byte(`"time_us":0000000000000000`), 1)
}

// oddTexts are handles and status values that a relay may pass on.
var oddTexts = []string{
	"alice.example.com", "handle.invalid", "", "xn--bcher-kva.example", "bücher.example", "deactivated", "takendown",
	`<script>alert("&")</script>`, "back\\slash", "tab\tnew\nline\rfeed\fback\bbell\x07del\x7fnul\x00", "line\u2028para\u2029",
	"\u00e9\u4e16\U0001f600", "\ufffd", "\ue000\uffff", "seven77<", "eight888<", "nine99999<", "\u20278\u202a",
}

// TestAccountAndIdentity holds the events of accounts and identities against encoding/json of
// indigo's structs, decoded by indigo from the same frames.
func TestAccountAndIdentity(t *testing.T) {
	values := []any{nil}
	for _, s := range oddTexts {
		values = append(values, s)
	}
	var bodies []cborMap
	var kinds []string
	add := func(kind string, body cborMap) { kinds, bodies = append(kinds, kind), append(bodies, body) }
	for _, v := range values {
		add("#identity", identityBody().With("handle", v))
		add("#account", accountBody().With("active", false).With("status", v))
		add("#account", accountBody().With("status", v).With("unknown", 1))
	}
	add("#identity", identityBody().Without("handle"))
	add("#account", accountBody())
	for _, did := range []string{"did:web:example.com%3A8080", "did:web:a_b.c-d", "did:x:y"} {
		add("#identity", identityBody().With("did", did).With("seq", 1))
		add("#account", accountBody().With("did", did).With("seq", uint64(1<<63-1)))
	}
	for _, time := range []string{"2026-07-04T14:38:08Z", "2026-07-04T14:38:08.123456789+05:30", "0000-01-01T00:00:00-00:01"} {
		add("#identity", identityBody().With("time", time))
	}

	tr := newTranslator(t, "none.of.these")
	for i, body := range bodies {
		want := jetstreamEvent{Kind: kinds[i][1:]}
		var err error
		if kinds[i] == "#identity" {
			want.Identity = &comatproto.SyncSubscribeRepos_Identity{}
			err = want.Identity.UnmarshalCBOR(bytes.NewReader(cborOf(body)))
			want.DID = want.Identity.Did
		} else {
			want.Account = &comatproto.SyncSubscribeRepos_Account{}
			err = want.Account.UnmarshalCBOR(bytes.NewReader(cborOf(body)))
			want.DID = want.Account.Did
		}
		if err != nil {
			t.Fatal(err)
		}
		var b Batch
		tr.AppendFrame(&b, frameOf(kinds[i], body))
		if len(b.Events) != 1 || !bytes.Equal(b.JSON, want.marshal(t)) {
			t.Errorf("%s %v\n got %s\nwant %s", kinds[i], body, b.JSON, want.marshal(t))
			continue
		}
		if e := b.Events[0]; e.Operation != OpNone || e.Op != 0 || e.Kind.String() != want.Kind {
			t.Errorf("%s: %+v", kinds[i], e)
		}
		checkBatch(t, &b)
	}
}
