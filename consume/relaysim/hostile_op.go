package relaysim

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/ipfs/go-cid"

	"millrace/consume/relaysim/cbor"
)

// carKinds are commits whose CAR is missing or broken: a consumer holds their deletes only.
func carKinds() []*hostileKind {
	with := func(name string, change func(k *messageBuilder, car []byte) any) *hostileKind {
		return &hostileKind{name: name, reason: reasonInvalidCAR, make: func(k *messageBuilder) hostileMessage {
			lost, lostToo := k.like(), k.put("update", "app.bsky.feed.post", k.likeRecord())
			lost.keep, lostToo.keep = false, false
			return k.commit(func(b map[string]any) {
				if b["blocks"] = change(k, b["blocks"].([]byte)); b["blocks"] == nil {
					delete(b, "blocks")
				}
			}, k.remove(), lost, k.remove(), lostToo)
		}}
	}
	return []*hostileKind{
		with("car-absent", func(*messageBuilder, []byte) any { return nil }),
		with("car-empty", func(*messageBuilder, []byte) any { return []byte{} }),
		with("car-garbage", func(k *messageBuilder, _ []byte) any { return []byte("this is not a CAR, not even nearly") }),
		with("car-header-length", func(_ *messageBuilder, car []byte) any {
			return append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, car[1:]...)
		}),
		with("car-header-only-half", func(_ *messageBuilder, car []byte) any { return car[:20] }),
		with("car-version-9", func(_ *messageBuilder, car []byte) any {
			return bytes.Replace(car, []byte("gversion\x01"), []byte("gversion\x09"), 1)
		}),
		with("car-truncated", func(k *messageBuilder, car []byte) any { return car[:len(car)-1-k.rng.IntN(100)] }),
		with("car-block-length", func(_ *messageBuilder, car []byte) any { return append(car, 0x80, 0x80, 0x04, 1, 2, 3) }),
	}
}

// amid makes a kind that puts a bad op between good ones, which a consumer holds.
func amid(name, reason string, makePart func(k *messageBuilder) hostileOp) *hostileKind {
	return &hostileKind{name: name, reason: reason, make: func(k *messageBuilder) hostileMessage {
		before, wrong, after, last := k.like(), makePart(k), k.like(), k.remove()
		wrong.keep = reason == ""
		return k.commit(nil, before, wrong, after, last)
	}}
}

// opKinds are commits with one bad op, most of them a good one that is changed.
func opKinds() []*hostileKind {
	changed := func(name, reason string, change func(k *messageBuilder, p *hostileOp)) *hostileKind {
		return amid(name, reason, func(k *messageBuilder) hostileOp {
			p := k.like()
			change(k, &p)
			return p
		})
	}
	path := func(name, path string) *hostileKind {
		return changed(name, reasonInvalidPath, func(_ *messageBuilder, p *hostileOp) { p.path = path })
	}
	return []*hostileKind{
		path("path-empty", ""),
		path("path-no-slash", "app.bsky.feed.like"),
		path("path-two-slashes", "app.bsky.feed.like/3mptbyplj5d2a/more"),
		path("path-leading-slash", "/app.bsky.feed.like/3mptbyplj5d2a"),
		path("path-no-collection", "/3mptbyplj5d2a"),
		path("path-no-rkey", "app.bsky.feed.like/"),
		path("path-bad-nsid", "like/3mptbyplj5d2a"),
		path("path-nsid-space", "app.bsky.feed.li ke/3mptbyplj5d2a"),
		path("path-bad-rkey", "app.bsky.feed.like/a b"),
		path("path-rkey-dot", "app.bsky.feed.like/.."),
		path("path-rkey-long", "app.bsky.feed.like/"+strings.Repeat("x", 513)),
		path("path-rkey-unicode", "app.bsky.feed.like/émoji🙂"),
		amid("path-delete", reasonInvalidPath, func(*messageBuilder) hostileOp {
			return hostileOp{action: "delete", path: "app.bsky.feed.like"}
		}),
		changed("action-unknown", reasonAction, func(_ *messageBuilder, p *hostileOp) { p.action = "purge" }),
		changed("action-empty", reasonAction, func(_ *messageBuilder, p *hostileOp) { p.action = "" }),
		changed("create-without-cid", reasonMissingCID, func(_ *messageBuilder, p *hostileOp) { p.id, p.data = cid.Undef, nil }),
		changed("update-without-cid", reasonMissingCID, func(_ *messageBuilder, p *hostileOp) {
			p.action, p.id, p.data = "update", cid.Undef, nil
		}),
		changed("block-missing", reasonBlock, func(_ *messageBuilder, p *hostileOp) { p.data = nil }),
		changed("block-other", reasonMismatch, func(k *messageBuilder, p *hostileOp) { p.data = k.likeRecord() }),
		changed("block-bit", reasonMismatch, func(_ *messageBuilder, p *hostileOp) {
			p.data = bytes.Clone(p.data)
			p.data[len(p.data)/2] ^= 1
		}),
	}
}

// hugeKinds are at or beyond the limits of a frame.
func hugeKinds() []*hostileKind {
	frame := &hostileKind{name: "frame-over-5-mib", reason: reasonTooLarge, make: func(k *messageBuilder) hostileMessage {
		p := k.like()
		p.keep = false
		return k.commit(func(b map[string]any) { b["blobs"] = make([]byte, 5<<20) }, p)
	}}
	padded := &hostileKind{name: "odd-frame-4-mib", make: func(k *messageBuilder) hostileMessage {
		return k.commit(func(b map[string]any) {
			for _, unknown := range []string{"x", "y", "z"} {
				b[unknown] = make([]byte, 4<<20/3)
			}
		}, k.like(), k.remove())
	}}
	record := amid("record-over-1-mib", reasonRecord, func(k *messageBuilder) hostileOp {
		return k.put("create", "app.bsky.feed.post", post(strings.Repeat("a", 1<<20)))
	})
	controls := &hostileKind{name: "control-characters", reason: reasonTooLarge, make: func(k *messageBuilder) hostileMessage {
		return k.dropped(
			k.put("create", "app.bsky.feed.post", post(strings.Repeat("\x01", 1<<20-1024))),
			k.put("create", "app.bsky.feed.post", post(strings.Repeat("\x02", 1<<20-1024))))
	}}
	quarters := &hostileKind{name: "odd-records-of-256-kib", make: func(k *messageBuilder) hostileMessage {
		var ops []hostileOp
		for range 4 {
			noise := make([]byte, 192<<10)
			for i := range noise {
				noise[i] = byte(k.rng.Uint32())
			}
			ops = append(ops, k.put("create", "app.bsky.feed.post", post(base64.StdEncoding.EncodeToString(noise))))
		}
		return k.commit(nil, ops...)
	}}
	manyOps := &hostileKind{name: "odd-ops-1023", make: func(k *messageBuilder) hostileMessage { return k.commit(nil, k.manyOps(1023, 300)...) }}
	all := []*hostileKind{
		tooMany("ops-1024", 1024, 300), tooMany("ops-10000", 10_000, 1200), manyOps,
		record, controls, tooMany("records-of-1-mib", 17, 1<<20-1024), quarters, padded, frame,
	}
	for _, kind := range all {
		kind.huge = true
	}
	return all
}

// post returns a post record of that text.
func post(text string) []byte {
	return cbor.Append(nil, map[string]any{"$type": "app.bsky.feed.post", "text": text})
}

// manyOps returns a commit of n creates that name one record, of about so many bytes.
func (k *messageBuilder) manyOps(n, bytes int) []hostileOp {
	ops := make([]hostileOp, n)
	ops[0] = k.put("create", "app.bsky.feed.post", post(strings.Repeat("x", bytes)))
	for i := 1; i < n; i++ {
		ops[i] = ops[0]
		ops[i].path, ops[i].data = "app.bsky.feed.post/"+k.rkey(), nil
	}
	return ops
}

// dropped returns a commit of ops that a consumer drops whole.
func (k *messageBuilder) dropped(ops ...hostileOp) hostileMessage {
	for i := range ops {
		ops[i].keep = false
	}
	return k.commit(nil, ops...)
}

// tooMany makes a kind with too many ops, or too many of that size.
func tooMany(name string, n, bytes int) *hostileKind {
	return &hostileKind{name: name, reason: reasonTooLarge, make: func(k *messageBuilder) hostileMessage {
		return k.dropped(k.manyOps(n, bytes)...)
	}}
}
