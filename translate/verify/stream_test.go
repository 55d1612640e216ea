package verify

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/ipfs/go-cid"

	"millrace/consume/relaysim"
	"millrace/translate"
)

// chains is the model of what Follow keeps: the root that each account has signed last.
type chains map[string]cid.Cid

// TestFaults follows a stream of both curves with all faults injected. Each frame has the reason
// that it must have, and indigo's verdict.
func TestFaults(t *testing.T) {
	model, states := make(chains), make(map[string]State)
	seen, curves := make(map[string]int), make(map[string]bool)
	var v Verifier
	for i, m := range stream(t, relaysim.Config{Seed: 5, Generate: 200, Accounts: 60, Signed: true, FaultyEvery: 5}, 2500) {
		did := string(v.Open(m.Payload))
		if did == "" {
			continue // an #identity or #account
		}
		key := publicKey(t, did)
		verdict := v.Check(key, testNow())
		compare(t, m.Payload, key, testNow())
		reason, state := verdict.Follow(states[did])
		states[did] = state
		want := model.next(t, m)
		if reason.String() != want {
			t.Fatalf("message %d of %s, with fault %q: %v, want %s", i, did, m.Fault, reason, want)
		}
		seen[m.Fault+" "+want]++
		curves[fmt.Sprintf("%T", key)] = true
	}
	for _, fault := range relaysim.CommitFaults() {
		name := fault.Name
		if name == "lost" {
			name = ""
		}
		if seen[name+" "+fault.Reason] < 3 {
			t.Errorf("%s is %s only %d times", fault.Name, fault.Reason, seen[name+" "+fault.Reason])
		}
	}
	for _, fine := range []string{" valid", " broken_chain", " too_big"} {
		if seen[fine] < 3 {
			t.Errorf("good frames are%s only %d times", fine, seen[fine])
		}
	}
	if len(curves) != 2 {
		t.Errorf("keys of %v only", curves)
	}
}

// next returns the reason that a message must get.
func (m chains) next(t *testing.T, message relaysim.Message) string {
	t.Helper()
	own := ""
	replaces := false
	for _, fault := range relaysim.CommitFaults() {
		if fault.Name == message.Fault {
			own, replaces = fault.Reason, fault.Signed()
		}
	}
	c := decode(t, message.Payload)
	if own != "" && !replaces {
		return own
	}
	if c != nil && c.TooBig {
		return "too_big"
	}
	blocks, did := syncOf(t, message.Payload)
	if c != nil {
		blocks, did = c.Blocks, c.Repo
	}
	var car translate.CAR // indigo reads nothing of one with a broken block
	block, _ := car.Block(car.Open(blocks))
	var commit repo.Commit
	if err := commit.UnmarshalCBOR(bytes.NewReader(block)); err != nil {
		t.Fatal(err)
	}
	last, known := m[did]
	m[did] = commit.Data
	switch {
	case own != "" && own != "valid":
		return own
	case c != nil && known && cid.Cid(*c.PrevData) != last:
		return "broken_chain"
	}
	return "valid"
}
