package verify

import (
	"testing"

	"millrace/consume/relaysim"
	"millrace/translate"
)

// maxFuzzBytes keeps the fuzzers from inputs that only take time.
const maxFuzzBytes = 64 << 10

// FuzzFrame holds the verdicts on frames that package translate keeps against indigo's, but for the
// differences. On any others there is one.
func FuzzFrame(f *testing.F) {
	for _, m := range stream(f, relaysim.Config{Seed: 3, Generate: 100, Accounts: 20, Signed: true, FaultyEvery: 3}, 200) {
		if kind, _ := splitFrame(m.Payload); kind == translate.FrameCommit || kind == translate.FrameSync {
			f.Add(m.Payload)
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var v Verifier
		did := v.Open(message)
		if len(message) > maxFuzzBytes || did == nil {
			return
		}
		key := publicKey(t, string(did))
		if v.Check(key, testNow()); isTranslated(t, message) {
			compare(t, message, key, testNow())
		}
	})
}

// isTranslated reports whether package translate does not drop the frame as a whole.
func isTranslated(t *testing.T, message []byte) bool {
	tr, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var b translate.Batch
	tr.AppendFrame(&b, message)
	for _, n := range b.Counts.Drops[:translate.ReasonInvalidCAR] {
		if n > 0 {
			return false
		}
	}
	return true
}

// FuzzGenerated holds the verdicts on generated commits against indigo's and what is true.
func FuzzGenerated(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		checkGenerated(t, seed, testKey(seed))
	})
}
