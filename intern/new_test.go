package intern

import (
	"testing"

	"millrace/intern/kv/simkv"
)

// newRequest asks for a record of one account.
func newRequest(key string) Request {
	return Request{DID: []byte("did:web:a.example"), Collection: []byte("app.bsky.feed.like"), RecordKey: []byte(key)}
}

// TestNew: a URI is new in the calls that share the transaction that gave it its UID, however often
// they name it, and in no other.
func TestNew(t *testing.T) {
	for name, cfg := range map[string]simkv.Config{"alone": {}, "shared": {Shared: true}} {
		t.Run(name, func(t *testing.T) {
			in := openOn(t, simkv.New(cfg), Config{Workers: 2, CacheBytes: -1})
			out := make([]Result, 4)
			twice := []Request{newRequest("1"), newRequest("2"), newRequest("1"), {Name: []byte("at://did:web:a.example/app.bsky.feed.like/3")}}
			for i, want := range []bool{true, false} {
				if err := in.Resolve(ctx, twice, out); err != nil {
					t.Fatal(err)
				}
				for _, r := range out {
					if r.New != want || r.URIUID == 0 {
						t.Errorf("call %d: %+v", i, out)
					}
				}
			}
			if err := in.Resolve(ctx, []Request{newRequest("3"), newRequest("4")}, out[:2]); err != nil || out[0].New || !out[1].New {
				t.Errorf("one known, one not: %+v, %v", out[:2], err)
			}
		})
	}
}

// TestNewAfterUnknownOutcome: a URI is not new if an attempt of unknown outcome gave it its UID.
func TestNewAfterUnknownOutcome(t *testing.T) {
	for name, shared := range map[string]bool{"direct": false, "workers": true} {
		t.Run(name, func(t *testing.T) {
			sim := simkv.New(simkv.Config{Shared: shared})
			store := &hookedStore{Store: sim}
			in := openOn(t, store, Config{Workers: 1, Alone: true})
			resolve(t, in, "at://did:web:a.example/app.bsky.feed.like/0")
			unknown := 1.0
			store.beforeCommit = func() error {
				sim.SetFaults(simkv.Faults{UnknownApplied: unknown})
				unknown = 0
				return nil
			}
			var out [1]Result
			if err := in.Resolve(ctx, []Request{newRequest("1")}, out[:]); err != nil || out[0].New {
				t.Errorf("%+v, %v", out[0], err)
			}
			if unknown != 0 {
				t.Error("nothing was committed")
			}
		})
	}
}
