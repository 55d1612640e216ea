package relaysim

import "millrace/consume/relaysim/cbor"

// The reasons that docs/input.md groups as "by reason"; the others are spelt as they are there.
const (
	reasonFrame       = "bad frame"
	reasonUnknown     = "unknown kind or op"
	reasonKind        = "by kind"
	reasonInvalidDID  = "invalid_did"
	reasonInvalidRev  = "invalid_rev"
	reasonInvalidTime = "invalid_time"
	reasonInvalidCAR  = "invalid_car"
	reasonInvalidPath = "invalid_path"
	reasonAction      = "unknown action"
	reasonMissingCID  = "missing CID"
	reasonBlock       = "missing_block"
	reasonMismatch    = "cid_mismatch"
	reasonRecord      = "invalid_record"
	reasonTooLarge    = "too_large"
	reasonError       = "error frame"
	reasonRepeat      = "repeat"
)

// bad makes a kind whose message gives no event.
func bad(name, reason string, makeFrame func(k *messageBuilder) []byte) *hostileKind {
	return &hostileKind{name: name, reason: reason, make: func(k *messageBuilder) hostileMessage {
		return hostileMessage{payload: makeFrame(k)}
	}}
}

// unnumbered makes a kind whose message gives no event and has no seq.
func unnumbered(name, reason string, makeFrame func(k *messageBuilder) []byte) *hostileKind {
	return &hostileKind{name: name, reason: reason, make: func(k *messageBuilder) hostileMessage {
		return hostileMessage{payload: makeFrame(k), unnumbered: true}
	}}
}

// good returns the payload of a good commit.
func (k *messageBuilder) good() []byte { return k.commit(nil, k.like(), k.remove()).payload }

// headed returns a good commit's body under another header.
func (k *messageBuilder) headed(header any) []byte {
	return cbor.Append(cbor.Append(nil, header), k.envelope([]hostileOp{k.like(), k.remove()}))
}

// messageKinds are messages that are no frames, or frames of no known kind.
func messageKinds() []*hostileKind {
	noise := func(k *messageBuilder) []byte {
		b := make([]byte, 1+k.rng.IntN(400))
		for i := range b {
			b[i] = byte(k.rng.Uint32())
		}
		b[0] = 0xff // a break: never the beginning of an item
		return b
	}
	text := &hostileKind{name: "text-message", reason: reasonFrame, make: func(*messageBuilder) hostileMessage {
		return hostileMessage{payload: []byte(`{"op":1,"t":"#commit"}`), text: true, unnumbered: true}
	}}
	headed := func(name, reason string, header any) *hostileKind {
		return bad(name, reason, func(k *messageBuilder) []byte { return k.headed(header) })
	}
	edited := func(name string, edit func(body map[string]any)) *hostileKind {
		return unnumbered(name, reasonFrame, func(k *messageBuilder) []byte { return k.commit(edit, k.like()).payload })
	}
	return []*hostileKind{
		unnumbered("empty", reasonFrame, func(*messageBuilder) []byte { return nil }),
		unnumbered("garbage", reasonFrame, noise),
		text,
		unnumbered("header-truncated", reasonFrame, func(k *messageBuilder) []byte { return k.good()[:1+k.rng.IntN(8)] }),
		unnumbered("header-only", reasonFrame, func(*messageBuilder) []byte {
			return cbor.Append(nil, map[string]any{"op": 1, "t": "#commit"})
		}),
		headed("header-array", reasonFrame, []any{1, "#commit"}),
		headed("header-without-op", reasonFrame, map[string]any{"t": "#commit"}),
		headed("header-op-text", reasonFrame, map[string]any{"op": "1", "t": "#commit"}),
		headed("header-without-kind", reasonUnknown, map[string]any{"op": 1}),
		headed("header-kind-number", reasonFrame, map[string]any{"op": 1, "t": 7}),
		headed("unknown-op", reasonUnknown, map[string]any{"op": 2, "t": "#commit"}),
		bad("unknown-kind", reasonUnknown, func(k *messageBuilder) []byte {
			return message("#shiny", map[string]any{"seq": k.seq, "did": k.did, "time": k.time})
		}),
		unnumbered("body-array", reasonFrame, func(k *messageBuilder) []byte { return message("#commit", []any{k.did, k.rev}) }),
		edited("body-without-seq", func(body map[string]any) { delete(body, "seq") }),
		edited("body-seq-text", func(body map[string]any) { body["seq"] = "12" }),
		edited("body-seq-negative", func(body map[string]any) { body["seq"] = int64(-5) }),
		bad("body-truncated", reasonFrame, func(k *messageBuilder) []byte {
			b := k.good()
			return b[:len(b)/2+k.rng.IntN(len(b)/4)]
		}),
		bad("identity-truncated", reasonFrame, func(k *messageBuilder) []byte {
			b := k.identity(k.did, k.time)
			return b[:len(b)-1-k.rng.IntN(10)]
		}),
		unnumbered("info", reasonKind, func(*messageBuilder) []byte {
			return message("#info", map[string]any{"name": "OutdatedCursor", "message": "just so"})
		}),
	}
}

// syncKinds are #sync frames; the first is good.
func syncKinds() []*hostileKind {
	sync := func(k *messageBuilder, edit func(body map[string]any)) []byte {
		car, _ := k.car(nil)
		body := map[string]any{"seq": k.seq, "did": k.did, "rev": k.rev, "time": k.time, "blocks": car}
		edit(body)
		return message("#sync", body)
	}
	with := func(name, reason, field string, value any) *hostileKind {
		return bad(name, reason, func(k *messageBuilder) []byte {
			return sync(k, func(body map[string]any) { body[field] = value })
		})
	}
	return []*hostileKind{
		{name: "sync", make: func(k *messageBuilder) hostileMessage {
			payload := sync(k, func(map[string]any) {})
			keep, err := expect(payload)
			if err != nil || len(keep) != 1 {
				panic("relaysim: the reference drops a good #sync")
			}
			return hostileMessage{payload: payload, keep: keep}
		}},
		with("sync-did-invalid", reasonInvalidDID, "did", "did:plc"),
		with("sync-rev-invalid", reasonInvalidRev, "rev", "3kabc"),
		with("sync-time-invalid", reasonInvalidTime, "time", "yesterday"),
		bad("sync-car-absent", reasonInvalidCAR, func(k *messageBuilder) []byte {
			return sync(k, func(body map[string]any) { delete(body, "blocks") })
		}),
		bad("sync-car-truncated", reasonInvalidCAR, func(k *messageBuilder) []byte {
			return sync(k, func(body map[string]any) {
				car := body["blocks"].([]byte)
				body["blocks"] = car[:len(car)-1-k.rng.IntN(20)]
			})
		}),
		bad("sync-too-large", reasonTooLarge, func(k *messageBuilder) []byte {
			return sync(k, func(body map[string]any) {
				data := make([]byte, maxSyncBytes)
				body["blocks"] = cbor.AppendCARSection(body["blocks"].([]byte), cbor.CID(data), data)
			})
		}),
	}
}

func (k *messageBuilder) identity(did, time string) []byte {
	return message("#identity", map[string]any{"seq": k.seq, "did": did, "time": time, "handle": "someone.example.com"})
}

// account returns a message that an account has a status; "": it is active.
func (k *messageBuilder) account(did, time, status string) []byte {
	body := map[string]any{"seq": k.seq, "did": did, "time": time, "active": status == ""}
	if status != "" {
		body["status"] = status
	}
	return message("#account", body)
}

// envelopeKinds are commits, identities and accounts with a field that is not what it must be.
func envelopeKinds() []*hostileKind {
	set := func(name, reason, key string, value any) *hostileKind {
		return bad(name, reason, func(k *messageBuilder) []byte {
			return k.commit(func(b map[string]any) { b[key] = value }, k.like(), k.remove()).payload
		})
	}
	tooBig := func(k *messageBuilder) []byte {
		return k.commit(func(b map[string]any) { b["tooBig"], b["ops"], b["blocks"] = true, []any{}, []byte{} }).payload
	}
	return []*hostileKind{
		set("did-empty", reasonInvalidDID, "repo", ""),
		set("did-bare", reasonInvalidDID, "repo", "did:plc:"),
		set("did-handle", reasonInvalidDID, "repo", "alice.example.com"),
		set("did-space", reasonInvalidDID, "repo", "did:plc:with a space in it"),
		set("did-quote", reasonInvalidDID, "repo", `did:plc:"},{"x":"`),
		set("did-control", reasonInvalidDID, "repo", "did:plc:a\nb"),
		set("rev-empty", reasonInvalidRev, "rev", ""),
		set("rev-short", reasonInvalidRev, "rev", "3mptbypluud2"),
		set("rev-alphabet", reasonInvalidRev, "rev", "3mptbypluud20"),
		set("rev-top-bit", reasonInvalidRev, "rev", "zzzzzzzzzzzzz"),
		set("time-empty", reasonInvalidTime, "time", ""),
		set("time-words", reasonInvalidTime, "time", "yesterday evening"),
		set("time-date", reasonInvalidTime, "time", "2026-07-04"),
		set("time-no-zone", reasonInvalidTime, "time", "2026-07-04T14:38:08.999"),
		set("time-month-13", reasonInvalidTime, "time", "2026-13-04T14:38:08.999Z"),
		bad("identity-did", reasonInvalidDID, func(k *messageBuilder) []byte { return k.identity("did:", k.time) }),
		bad("identity-time", reasonInvalidTime, func(k *messageBuilder) []byte { return k.identity(k.did, "now") }),
		bad("account-did", reasonInvalidDID, func(k *messageBuilder) []byte { return k.account("nobody", k.time, "") }),
		bad("account-time", reasonInvalidTime, func(k *messageBuilder) []byte { return k.account(k.did, "1783175888", "") }),
		bad("too-big", reasonKind, tooBig),
		bad("too-big-with-ops", reasonKind, func(k *messageBuilder) []byte {
			return k.commit(func(b map[string]any) { b["tooBig"] = true }, k.like(), k.remove()).payload
		}),
	}
}
