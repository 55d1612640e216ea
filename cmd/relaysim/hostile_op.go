package main

import (
	"bytes"
	"strings"

	"github.com/ipfs/go-cid"
)

// carKinds are commits whose CAR is missing or broken: a consumer holds their deletes only.
func carKinds() []*hostileKind {
	with := func(name string, change func(k *kit, car []byte) any) *hostileKind {
		return &hostileKind{name: name, reason: reasonInvalidCAR, make: func(k *kit) hostileMessage {
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
		with("car-absent", func(*kit, []byte) any { return nil }),
		with("car-empty", func(*kit, []byte) any { return []byte{} }),
		with("car-garbage", func(k *kit, _ []byte) any { return []byte("this is not a CAR, not even nearly") }),
		with("car-header-length", func(_ *kit, car []byte) any {
			return append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, car[1:]...)
		}),
		with("car-header-only-half", func(_ *kit, car []byte) any { return car[:20] }),
		with("car-version-9", func(_ *kit, car []byte) any {
			return bytes.Replace(car, []byte("gversion\x01"), []byte("gversion\x09"), 1)
		}),
		with("car-truncated", func(k *kit, car []byte) any { return car[:len(car)-1-k.rng.IntN(100)] }),
		with("car-block-length", func(_ *kit, car []byte) any { return append(car, 0x80, 0x80, 0x04, 1, 2, 3) }),
	}
}

// amid makes a kind that puts a bad op between good ones, which a consumer holds.
func amid(name, reason string, makePart func(k *kit) part) *hostileKind {
	return &hostileKind{name: name, reason: reason, make: func(k *kit) hostileMessage {
		before, wrong, after, last := k.like(), makePart(k), k.like(), k.remove()
		wrong.keep = reason == ""
		return k.commit(nil, before, wrong, after, last)
	}}
}

// opKinds are commits with one bad op.
func opKinds() []*hostileKind {
	path := func(name, path string) *hostileKind {
		return amid(name, reasonInvalidPath, func(k *kit) part {
			p := k.like()
			p.path = path
			return p
		})
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
		amid("path-delete", reasonInvalidPath, func(*kit) part {
			return part{action: "delete", path: "app.bsky.feed.like"}
		}),
		amid("action-unknown", reasonAction, func(k *kit) part {
			p := k.like()
			p.action = "purge"
			return p
		}),
		amid("action-empty", reasonAction, func(k *kit) part {
			p := k.like()
			p.action = ""
			return p
		}),
		amid("create-without-cid", reasonMissingCID, func(k *kit) part {
			p := k.like()
			p.id = cid.Undef
			p.data = nil
			return p
		}),
		amid("update-without-cid", reasonMissingCID, func(k *kit) part {
			p := k.like()
			p.action, p.id, p.data = "update", cid.Undef, nil
			return p
		}),
		amid("block-missing", reasonBlock, func(k *kit) part {
			p := k.like()
			p.data = nil
			return p
		}),
		amid("block-other", reasonMismatch, func(k *kit) part {
			p := k.like()
			p.data = k.likeRecord()
			return p
		}),
		amid("block-bit", reasonMismatch, func(k *kit) part {
			p := k.like()
			p.data = bytes.Clone(p.data)
			p.data[len(p.data)/2] ^= 1
			return p
		}),
	}
}

// hugeKinds are larger than the protocol allows.
func hugeKinds() []*hostileKind {
	ops := &hostileKind{name: "ops-10001", reason: reasonTooLarge, huge: true, make: func(k *kit) hostileMessage {
		parts := make([]part, 10_001)
		for i := range parts {
			parts[i] = k.remove()
			parts[i].keep = false
		}
		return k.commit(nil, parts...)
	}}
	frame := &hostileKind{name: "frame-over-5-mib", reason: reasonTooLarge, huge: true, make: func(k *kit) hostileMessage {
		p := k.like()
		p.keep = false
		return k.commit(func(b map[string]any) { b["blobs"] = make([]byte, 5<<20) }, p)
	}}
	record := amid("record-over-1-mib", reasonRecord, func(k *kit) part {
		return k.put("create", "app.bsky.feed.post", appendValue(nil, map[string]any{
			"$type": "app.bsky.feed.post", "text": strings.Repeat("a", 1<<20),
		}))
	})
	record.huge = true
	return []*hostileKind{ops, record, frame}
}
