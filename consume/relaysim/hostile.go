package relaysim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"millrace/consume/relaysim/cbor"
)

// hostileKind is one way in which a message can be wrong, or be odd and yet right.
type hostileKind struct {
	name   string // as in --hostile-kinds
	reason string // what a correct consumer counts it as; "": it is odd but right
	make   func(k *messageBuilder) hostileMessage
	huge   bool // megabytes: comes rarely in the mix
}

// hostileMessage is what a kind makes.
type hostileMessage struct {
	payload    []byte
	text       bool          // a text message
	unnumbered bool          // no seq can be read from it, so it takes none
	keep       []expectation // the events that a correct consumer holds
}

// hugeRounds is in how many rounds of a mix the huge kinds come once.
const hugeRounds = 64

// hostileMix puts hostile messages among the good ones: all kinds in turn, every so often. It is
// not safe for concurrent use.
type hostileMix struct {
	cadence
	kinds   []*hostileKind
	syncs   bool // the truth has events of #sync
	builder *messageBuilder

	next  int
	round int
}

// cadence is how often a message of a sort comes.
type cadence struct {
	every int64 // one of so many messages; 0: never
	count int64 // messages so far
}

// isDue counts a message, and says whether it must be one of that sort.
func (c *cadence) isDue() bool {
	c.count++
	return c.every > 0 && c.count%c.every == 0
}

// nextKind returns the kind whose turn it is.
func (h *hostileMix) nextKind() *hostileKind {
	for {
		kind := h.kinds[h.next]
		round := h.round
		if h.next++; h.next == len(h.kinds) {
			h.next = 0
			h.round++
		}
		if !kind.huge || round%hugeRounds == 0 || len(h.kinds) == 1 {
			return kind
		}
	}
}

// append adds a message of kind to b and returns the newest seq, which was seq before.
func (h *hostileMix) append(b *batch, kind *hostileKind, epoch uint32, seq int64) int64 {
	h.builder.begin(seq + 1)
	m := kind.make(h.builder)
	number := seq + 1
	if m.unnumbered {
		number = 0
	}
	b.add(number, m.text, m.payload)
	for _, e := range m.keep {
		if e.event.Sync != nil && !h.syncs {
			continue
		}
		b.truth = appendTruthLine(b.truth, epoch, number, e)
	}
	return max(seq, number)
}

// chooseHostile returns the kinds of these names, which are between commas; "": all. A name may end
// in *.
func chooseHostile(names string) (chosen []*hostileKind, err error) {
	if names == "" {
		return hostileKinds(), nil
	}
	for name := range strings.SplitSeq(names, ",") {
		before := len(chosen)
		prefix, many := strings.CutSuffix(name, "*")
		for _, kind := range hostileKinds() {
			if kind.name == name || many && strings.HasPrefix(kind.name, prefix) {
				chosen = append(chosen, kind)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("--hostile-kinds: no kind is called %q; --list-hostile names them", name)
		}
	}
	return chosen, nil
}

// findHostile returns the kind of that name.
func findHostile(name string) (*hostileKind, error) {
	for _, kind := range hostileKinds() {
		if kind.name == name {
			return kind, nil
		}
	}
	return nil, fmt.Errorf("unknown hostile kind %q; --list-hostile names them", name)
}

// hostileKinds returns the whole library, in the order of docs/input.md.
func hostileKinds() []*hostileKind {
	return slices.Concat(messageKinds(), streamKinds(), envelopeKinds(), syncKinds(), carKinds(), opKinds(),
		shapeKinds(), numberKinds(), linkKinds(), oddKinds(), hugeKinds())
}

// messageBuilder makes the parts of one hostile message.
type messageBuilder struct {
	clock      *clock
	population *population
	rng        *rand.Rand

	seq  int64
	did  string
	time string
	rev  string
}

// begin sets up the envelope of the next message.
func (k *messageBuilder) begin(seq int64) {
	k.seq = seq
	// no other commits are of this account: their revs would not rise
	k.did = k.population.did(k.population.count + k.population.draw())
	k.time = string(k.clock.tick())
	k.rev = k.clock.tid().String()
}

// rkey returns a fresh record key.
func (k *messageBuilder) rkey() string { return k.clock.tid().String() }

// hostileOp is one op of a hostile commit with what belongs to it.
type hostileOp struct {
	action string
	path   string
	id     cid.Cid // the op's CID; undefined: none
	record []byte  // the record, also where it is not sent
	data   []byte  // the block in the CAR under id; nil: none
	keep   bool    // a correct consumer holds it
}

// put returns a good op that puts a record.
func (k *messageBuilder) put(action, collection string, record []byte) hostileOp {
	id := blockCID(record)
	return hostileOp{action: action, path: collection + "/" + k.rkey(), id: id, record: record, data: record, keep: true}
}

// like returns a good op that creates a like.
func (k *messageBuilder) like() hostileOp {
	return k.put("create", "app.bsky.feed.like", k.likeRecord())
}

func (k *messageBuilder) likeRecord() []byte {
	subject := k.population.did(k.population.draw())
	rkey := k.rkey()
	return cbor.Append(nil, map[string]any{
		"$type":     "app.bsky.feed.like",
		"createdAt": k.time,
		"subject":   strongRef(postRef{uri: "at://" + subject + "/app.bsky.feed.post/" + rkey, cid: blockCID([]byte(subject + rkey)).String()}),
	})
}

// remove returns a good op that deletes a record.
func (k *messageBuilder) remove() hostileOp {
	return hostileOp{action: "delete", path: "app.bsky.feed.repost/" + k.rkey(), keep: true}
}

// envelope returns the body of a good commit of parts.
func (k *messageBuilder) envelope(parts []hostileOp) map[string]any {
	ops := make([]any, 0, len(parts))
	for _, p := range parts {
		op := map[string]any{"action": p.action, "path": p.path, "cid": nil}
		if p.id.Defined() {
			op["cid"] = p.id
		}
		ops = append(ops, op)
	}
	car, root := k.car(parts)
	return map[string]any{
		"ops": ops, "rev": k.rev, "seq": k.seq, "repo": k.did, "time": k.time, "blobs": []any{},
		"since": nil, "blocks": car, "commit": root, "rebase": false, "tooBig": false,
	}
}

// car returns a CAR of a stand-in for the commit and the blocks of parts, and its root.
func (k *messageBuilder) car(parts []hostileOp) (car []byte, root cid.Cid) {
	commit := cbor.Append(nil, map[string]any{"did": k.did, "rev": k.rev, "version": 3})
	root = blockCID(commit)
	car = cbor.AppendCARSection(cbor.AppendCARHeader(nil, root.Bytes()), root.Bytes(), commit)
	for _, p := range parts {
		if p.data != nil {
			car = cbor.AppendCARSection(car, p.id.Bytes(), p.data)
		}
	}
	return car, root
}

// commit returns the message of a commit of parts, its body changed by edit if that is not nil.
func (k *messageBuilder) commit(edit func(body map[string]any), parts ...hostileOp) hostileMessage {
	body := k.envelope(parts)
	if edit != nil {
		edit(body)
	}
	return hostileMessage{payload: message("#commit", body), keep: k.kept(parts)}
}

// kept returns the events of the parts that a correct consumer holds.
func (k *messageBuilder) kept(parts []hostileOp) (keep []expectation) {
	for i, p := range parts {
		if !p.keep {
			continue
		}
		e, ok := expectOp(k.did, k.rev, p.action, p.path, p.id, p.record)
		if !ok {
			panic("relaysim: the reference drops the good op " + p.path)
		}
		keep = append(keep, expectation{op: i, event: e})
	}
	return keep
}

// message returns a message frame.
func message(kind string, body any) []byte {
	payload := cbor.Append(nil, map[string]any{"op": 1, "t": kind})
	return cbor.Append(payload, body)
}

// errorMessage returns an error frame.
func errorMessage(name, text string) []byte {
	return cbor.Append(cbor.Append(nil, map[string]any{"op": -1}), map[string]any{"error": name, "message": text})
}

// blockCID returns the CID of a DAG-CBOR block.
func blockCID(data []byte) cid.Cid {
	id, err := cid.NewPrefixV1(cid.DagCBOR, multihash.SHA2_256).Sum(data)
	if err != nil {
		panic("relaysim: " + err.Error())
	}
	return id
}
