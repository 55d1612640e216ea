package relaysim

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// TestPLC: indigo reads the directory's documents, and finds the keys that the accounts sign with.
func TestPLC(t *testing.T) {
	r := signedRelay(t, Config{Seed: 4, Generate: 100, Accounts: 20})
	server := httptest.NewServer(r.handler())
	defer server.Close()
	directory := identity.BaseDirectory{PLCURL: server.URL, SkipHandleVerification: true}
	commits := 0
	for _, m := range r.Take(100) {
		c := decode(t, m.Payload).RepoCommit
		if c == nil || c.TooBig {
			continue
		}
		commits++
		id, err := directory.LookupDID(t.Context(), syntax.DID(c.Repo))
		if err != nil {
			t.Fatal(err)
		}
		key, err := id.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		if err := verifySignature(t, c.Blocks).VerifySignature(key); err != nil {
			t.Fatalf("signature of %s: %v", c.Repo, err)
		}
	}
	did := syntax.DID("did:plc:" + strings.Repeat("a", 24))
	r.PLC().SetKeyOf(did.String(), did.String()+"x")
	id, err := directory.LookupDID(t.Context(), did)
	if err != nil {
		t.Fatal(err)
	}
	key, err := id.PublicKey()
	if other, _ := PublicKey(did.String() + "x"); err != nil || !key.Equal(other) {
		t.Errorf("the key of another account: %v, %v", key, err)
	}
	if err := r.PLC().SetFault("tombstone"); err != nil {
		t.Fatal(err)
	}
	if _, err := directory.LookupDID(t.Context(), did); err == nil || errors.Is(err, identity.ErrDIDNotFound) {
		t.Errorf("a tombstone: %v", err)
	}
	if err := r.PLC().SetFault("nice"); err == nil {
		t.Error("an unknown fault")
	}
	if got := r.PLC().Requests(); got != int64(commits)+2 {
		t.Errorf("%d requests", got)
	}
}
