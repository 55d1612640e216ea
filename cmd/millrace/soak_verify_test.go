package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/gorilla/websocket"

	"millrace/consume/relaysim"
	"millrace/translate"
	"millrace/translate/verify"
)

// checkVerified holds the reasons of the log's events against those of a verifier that takes the
// relay's frames one after the other.
func (r *round) checkVerified(log []truthEvent) {
	t := r.t
	t.Helper()
	o := newReasonOracle(t, log)
	last := r.floor
	for tries := 0; len(o.got) > 0; tries++ { // the relay may end a connection
		if tries == 100 {
			t.Fatalf("the relay does not have the frames of %d events", len(o.got))
		}
		conn, _, err := websocket.DefaultDialer.Dial(fmt.Sprintf("%s/xrpc/com.atproto.sync.subscribeRepos?cursor=%d", r.sim.url, last), nil)
		if err != nil {
			t.Fatal(err)
		}
		for len(o.got) > 0 {
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			_, frame, err := conn.ReadMessage()
			if err != nil {
				break
			}
			if seq := seqOf(frame); seq > last {
				last = seq
				o.take(seq, frame)
			}
		}
		conn.Close()
	}
	for reason, n := range o.counts {
		r.total.add("events checked, "+reason, n)
	}
	if o.counts["verified"] == 0 {
		t.Error("no event is verified")
	}
}

// seqOf returns the number of a frame, 0 if it has none.
func seqOf(frame []byte) int64 {
	_, d, _ := translate.ReadHeader(frame)
	for range d.Map() {
		if string(d.Text()) == "seq" {
			return int64(d.Uint())
		}
		d.Skip()
	}
	return 0
}

// eventPlace is where an event is in one numbering.
type eventPlace struct {
	seq int64
	op  uint32
}

// reasonOracle knows why frames must fail. Whether the server had an account's key is its own
// matter: of each frame it is known from the events, or both are possible if there are none.
type reasonOracle struct {
	t          *testing.T
	translator *translate.Translator
	verifier   verify.Verifier
	got        map[eventPlace]string
	states     map[string][]verify.State // of accounts: all that are possible
	counts     map[string]int
}

func newReasonOracle(t *testing.T, log []truthEvent) *reasonOracle {
	t.Helper()
	translator, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := &reasonOracle{t: t, translator: translator, got: make(map[eventPlace]string), states: make(map[string][]verify.State), counts: make(map[string]int)}
	for _, e := range log {
		o.got[eventPlace{e.Seq, e.Op}] = e.Unverified
	}
	return o
}

// take takes the next frame, and its events from got.
func (o *reasonOracle) take(seq int64, frame []byte) {
	var b translate.Batch
	o.translator.AppendFrame(&b, frame)
	reasons := make(map[string]bool)
	for _, e := range b.Events {
		at := eventPlace{seq, e.Op}
		reason, there := o.got[at]
		if !there {
			o.t.Fatalf("event %v is not in the log", at)
		}
		delete(o.got, at)
		reasons[reason] = true
		o.counts[cmpOr(reason, "verified")]++
	}
	did := string(o.verifier.Open(frame))
	switch {
	case len(reasons) > 1:
		o.t.Fatalf("events of frame %d have several reasons: %v", seq, reasons)
	case len(b.Events) > 0 && (b.Events[0].Kind == translate.KindIdentity || b.Events[0].Kind == translate.KindAccount):
		if !reasons[""] {
			o.t.Fatalf("frame %d, no commit, is unverified: %v", seq, reasons)
		}
		return
	case did == "" && len(b.Events) > 0:
		did = string(b.DID(0))
	case did == "":
		return
	}
	var next []verify.State
	for _, v := range o.verdicts(did, frame) {
		for _, last := range o.states[did] {
			reason, state := v.Follow(last)
			name := reason.String()
			if reason == verify.Valid {
				name = ""
			}
			if (reasons[name] || len(reasons) == 0) && !slices.Contains(next, state) {
				next = append(next, state)
			}
		}
	}
	if len(next) == 0 {
		o.t.Fatalf("frame %d of %s has the reason %v, which none of %v can lead to", seq, did, reasons, o.states[did])
	}
	o.states[did] = next
}

// verdicts returns what may be found in a frame: with the account's key, without one, and when the
// directory has none.
func (o *reasonOracle) verdicts(did string, frame []byte) []verify.Verdict {
	key, err := relaysim.PublicKey(did)
	if err != nil {
		o.t.Fatal(err)
	}
	if o.states[did] == nil {
		o.states[did] = []verify.State{{}}
	}
	var all []verify.Verdict
	for _, k := range []atcrypto.PublicKey{key, nil} {
		o.verifier.Open(frame)
		all = append(all, o.verifier.Check(k, time.Now()))
	}
	if absent := all[1]; absent.Reason == verify.NoKey && !relaysim.HasKey(did) {
		absent.Reason = verify.BadSignature
		all = append(all, absent)
	}
	return all
}
