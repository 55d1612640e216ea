package relaysim

// oldBy is how far the numbers of old frames lie below the newest one.
const oldBy = 100_000

// streamKinds are messages about the stream: error frames that the relay does not end the
// connection behind, and frames with old numbers. The frames have no events, so that one is
// harmless even to a consumer that begins with it.
func streamKinds() []*hostileKind {
	failed := func(name, code string) *hostileKind {
		return unnumbered(name, reasonError, func(*messageBuilder) []byte { return errorMessage(code, "and the stream goes on") })
	}
	old := func(k *messageBuilder) []byte {
		return k.commit(func(b map[string]any) {
			b["seq"] = min(k.seq-1, max(1, k.seq-oldBy))
			b["tooBig"], b["ops"], b["blocks"] = true, []any{}, []byte{}
		}).payload
	}
	return []*hostileKind{
		failed("error-unknown", "Fnord"),
		failed("error-future-cursor", "FutureCursor"),
		failed("error-too-slow", "ConsumerTooSlow"),
		unnumbered("seq-old", reasonRepeat, old),
		bad("seq-old-for-new", reasonRepeat, old), // the number that it should have is left out
	}
}
