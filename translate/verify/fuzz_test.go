package verify

import (
	"testing"

	"millrace/consume/relaysim"
	"millrace/translate"
)

// maxFuzzBytes keeps the fuzzers from inputs that only take time.
const maxFuzzBytes = 64 << 10

// FuzzFrame holds the verdicts on any bytes against indigo's, but for the differences.
func FuzzFrame(f *testing.F) {
	for _, m := range stream(f, relaysim.Config{Seed: 3, Generate: 100, Accounts: 20, Signed: true, FaultyEvery: 3}, 200) {
		if kind, _ := splitFrame(m.Payload); kind == translate.FrameCommit || kind == translate.FrameSync {
			f.Add(m.Payload)
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var v Verifier
		if did := v.Open(message); len(message) <= maxFuzzBytes && did != nil {
			compare(t, message, publicKey(t, string(did)), testNow())
		}
	})
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
