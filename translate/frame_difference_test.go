package translate

import (
	"bytes"
	"context"
	"crypto/sha512"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/google/go-cmp/cmp"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	blockstore "github.com/ipfs/go-ipfs-blockstore"

	"millrace/consume/relaysim/cbor"
)

// putStore keeps the blocks that are put into it; the rest of a block store is not there.
type putStore struct {
	blockstore.Blockstore
	blocks []carBlock
}

func (s *putStore) Put(_ context.Context, b blocks.Block) error {
	s.blocks = append(s.blocks, carBlock{b.Cid().Bytes(), b.RawData()})
	return nil
}

// keyed is a record's CID, its block and where it is.
type keyed struct {
	path  string
	block carBlock
}

// repoBlocks returns the blocks of a repository with the records, commit first, the Merkle search
// tree and the commit by indigo.
func repoBlocks(tb testing.TB, records ...keyed) []carBlock {
	tb.Helper()
	tree := mst.NewEmptyTree()
	store := &putStore{}
	for _, r := range records {
		c, err := cid.Cast(r.block.cid)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := tree.Insert([]byte(r.path), c); err != nil {
			tb.Fatal(err)
		}
	}
	root, err := tree.WriteDiffBlocks(context.Background(), store)
	if err != nil {
		tb.Fatal(err)
	}
	commit := repo.Commit{DID: testDID, Version: repo.ATPROTO_REPO_VERSION, Data: *root, Rev: testRev, Sig: []byte("unchecked")}
	var buf bytes.Buffer
	if err := commit.MarshalCBOR(&buf); err != nil {
		tb.Fatal(err)
	}
	out := append([]carBlock{blockOf(buf.Bytes())}, store.blocks...)
	for _, r := range records {
		out = append(out, r.block)
	}
	return out
}

// repoBody returns the body of a commit that creates the records, with the ops given beside.
func repoBody(tb testing.TB, ops []any, records ...keyed) cborMap {
	tb.Helper()
	all := []any{}
	for _, r := range records {
		all = append(all, createOp(r.path, nil).With("cid", cborLink(r.block.cid)))
	}
	return commitBody(carOf(repoBlocks(tb, records...)...), append(all, ops...)...)
}

// frameDifference is a frame of which this package serves other events than indigo's general path.
type frameDifference struct {
	name   string
	why    string // as in difference
	frame  []byte
	ours   []string // the rkeys of the events served here, or their kind
	indigo []string
}

func frameDifferences(tb testing.TB) []frameDifference {
	good := keyed{"app.bsky.feed.post/a", blockOf(testRecord("a"))}
	odd := blockOf(testRecord("odd"))
	sum := sha512.Sum512(odd.data)
	oddHash := keyed{"app.bsky.feed.post/odd", carBlock{append([]byte{1, codecDAGCBOR, 0x13, 64}, sum[:]...), odd.data}}
	oddCodec := keyed{"app.bsky.feed.post/odd", carBlock{append([]byte{1, 0x70}, odd.cid[2:]...), odd.data}}
	body := repoBody(tb, nil, good)
	withBlocks := func(car []byte) []byte { return frameOf("#commit", body.With("blocks", car)) }
	tampered := append(repoBlocks(tb, good), carBlock{odd.cid, []byte("other")})
	other := repoBlocks(tb, keyed{"app.bsky.feed.post/b", good.block})
	deletes := make([]any, MaxOps+1)
	for i := range deletes {
		deletes[i] = deleteOp("app.bsky.feed.post/x")
	}
	manyServed := strings.Split(strings.Repeat("x ", len(deletes))+"x", " ")[:len(deletes)]
	roots := cborRaw{0x9f}
	roots = append(cbor.Append(roots, cborLink(good.block.cid)), 0xff)
	header := cbor.AppendCARSection(nil, cborOf(cborMap{{"roots", roots}, {"version", 1}}))
	for i, b := range repoBlocks(tb, good) {
		if i == 0 { // the header must name the commit
			roots = append(cbor.Append(cborRaw{0x9f}, cborLink(b.cid)), 0xff)
			header = cbor.AppendCARSection(nil, cborOf(cborMap{{"roots", roots}, {"version", 1}}))
		}
		header = cbor.AppendCARSection(header, b.cid, b.data)
	}
	large := append(repoBlocks(tb, good), blockOf(make([]byte, 2<<20)))
	twice := append(cborRaw{0xd8, tagCID}, cborOf(cborLink(odd.cid))...)
	const bySiblings = "a bad operation is dropped, its siblings go on"
	const unasked = "only what operations name is looked at"
	return []frameDifference{
		{diffTrailing, "garbage frame", append(frameOf("#commit", body), 0), nil, []string{"a"}},
		{diffTwice, "not DAG-CBOR", frameOf("#commit", append(cborMap{{"rev", testRev}}, body...)), nil, []string{"a"}},
		{diffSeq, "positions need it", frameOf("#commit", body.With("seq", 0)), nil, []string{"a"}},
		{diffSeq, "positions need it", frameOf("#identity", identityBody().Without("seq")), nil, []string{"identity"}},
		{diffActive, "unknown is not inactive", frameOf("#account", accountBody().Without("active")), nil, []string{"account"}},
		{diffTime, "time (RFC 3339) invalid", frameOf("#commit", body.With("time", "2026-11-24T03:00:00,5Z")), nil, []string{"a"}},
		{diffTime, "time (RFC 3339) invalid", frameOf("#identity", identityBody().With("time", "2026-11-24T03:00:00+24:00")), nil, []string{"identity"}},
		{diffBodyUTF8, "not CBOR", frameOf("#identity", identityBody().With("handle", "\xff")), nil, []string{"identity"}},
		{diffBodyUTF8, "not CBOR", frameOf("#account", accountBody().With("status", "\xff")), nil, []string{"account"}},
		{diffSimple, "not DAG-CBOR", frameOf("#identity", identityBody().With("more", cborRaw{0xef})), nil, []string{"identity"}},
		{diffSimple, "not DAG-CBOR", frameOf("#commit", body.With("more", cborRaw{0xf8, 0x20})), nil, []string{"a"}},
		{diffOtherCID, "its SHA-256 is not the op's CID", frameOf("#commit", repoBody(tb, nil, good, oddHash)), []string{"a"}, []string{"a", "odd"}},
		{diffOtherCID, "the protocol's CIDs", frameOf("#commit", repoBody(tb, nil, good, oddCodec)), []string{"a"}, []string{"a", "odd"}},
		{diffCARHeader, "not DAG-CBOR", withBlocks(header), nil, []string{"a"}},
		{"an op of another type", bySiblings, frameOf("#commit", repoBody(tb, []any{"op"}, good)), []string{"a"}, nil},
		{"an op whose CID is none", bySiblings, frameOf("#commit", repoBody(tb, []any{createOp("app.bsky.feed.post/b", nil).With("cid", 1)}, good)), []string{"a"}, nil},
		{"an op whose CID is tagged twice", bySiblings, frameOf("#commit", repoBody(tb, []any{createOp("app.bsky.feed.post/b", nil).With("cid", twice)}, good)), []string{"a"}, nil},
		{"another block's SHA-256 is wrong", unasked, withBlocks(carOf(tampered...)), []string{"a"}, nil},
		{"no commit, no tree", unasked, withBlocks(carOf(good.block)), []string{"a"}, nil},
		{"a tree that says otherwise", unasked, withBlocks(carOf(other...)), []string{"a"}, nil},
		{"wide integers", "non-canonical integer width", frameOf("#commit", body.With("seq", cborRaw{0x19, 0, 7})), []string{"a"}, nil},
		{"unused fields of another type", unasked, frameOf("#commit", body.With("commit", 1)), []string{"a"}, nil},
		{diffManyOps, "ten bits number an op", frameOf("#commit", commitBody(carOf(repoBlocks(tb)...), deletes...)), nil, manyServed},
		{"blocks over 2 MiB", "5 MiB are allowed", withBlocks(carOf(large...)), []string{"a"}, nil},
	}
}

// TestFrameDifferences proves each difference by example, and that the search for them finds those
// that the fuzzer relies on.
func TestFrameDifferences(t *testing.T) {
	tr := newTranslator(t)
	label := func(b *Batch, i int) string {
		if rkey := b.RecordKey(i); len(rkey) > 0 {
			return string(rkey)
		}
		return b.Events[i].Kind.String()
	}
	for _, d := range frameDifferences(t) {
		var b Batch
		tr.AppendFrame(&b, d.frame)
		var ours, theirs []string
		served := map[int]bool{}
		for i := range b.Events {
			ours = append(ours, label(&b, i))
			served[int(b.Events[i].Op)] = true
		}
		indigo, err := indigoFrame(t, d.frame, true)
		f := readFrame(t, d.frame)
		for i := range indigo {
			parts := strings.Split(string(indigo[i].payload), `"rkey":"`)
			if len(parts) == 2 {
				rkey, _, _ := strings.Cut(parts[1], `"`)
				theirs = append(theirs, rkey)
			} else {
				theirs = append(theirs, f.header.entries["t"].text[1:])
			}
			if !served[indigo[i].op] && !cmp.Equal(frameDivergences(f, &indigo[i]), []string{d.name}) {
				t.Errorf("%s: divergences %v", d.name, frameDivergences(f, &indigo[i]))
			}
		}
		if diff := cmp.Diff(d.ours, ours); diff != "" {
			t.Errorf("%s (%s): ours, %v (-want +got):\n%s", d.name, d.why, dropsOf(&b.Counts), diff)
		}
		if diff := cmp.Diff(d.indigo, theirs); diff != "" {
			t.Errorf("%s (%s): indigo's, %v (-want +got):\n%s", d.name, d.why, err, diff)
		}
	}
}

// generatedFrame makes a commit of a few records, and in some wild ways spoils it.
func (g *generator) generatedFrame(tb testing.TB) []byte {
	tb.Helper()
	var records []keyed
	for i := range g.IntN(6) {
		g.wild = g.IntN(4) == 0
		rec := cborOf(g.object(3))
		records = append(records, keyed{fmt.Sprintf("app.bsky.feed.post/%d", i), blockOf(rec)})
	}
	ops := []any{}
	for range g.IntN(3) {
		ops = append(ops, deleteOp("app.bsky.graph.follow/x"))
	}
	body := repoBody(tb, ops, records...)
	if g.IntN(3) > 0 {
		return frameOf("#commit", body)
	}
	all := body[0].Value.([]any)
	spoil := []any{nil, 1, "x", []byte("x"), []any{}, cborMap{{"a", 1}}, cborLink(cidOf(nil)), true, -1, uint64(1 << 63), 1.5}
	bad := spoil[g.IntN(len(spoil))]
	if len(all) > 0 && g.IntN(2) == 0 {
		i := g.IntN(len(all))
		o := all[i].(cborMap)
		all[i] = o.With(o[g.IntN(len(o))].Key.(string), bad)
		return frameOf("#commit", body)
	}
	frame := frameOf("#commit", body.With(body[g.IntN(len(body))].Key.(string), bad))
	switch g.IntN(4) {
	case 0:
		return frame[:g.IntN(len(frame)+1)]
	case 1:
		frame[g.IntN(len(frame))] ^= 1 << g.IntN(8)
	}
	return frame
}

// TestGeneratedFrames holds generated frames, whole and spoilt, against indigo. It prints its seed.
func TestGeneratedFrames(t *testing.T) {
	seed := rand.Uint64()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	tr := newTranslator(t)
	for i := range 600 {
		checkFrame(t, tr, g.generatedFrame(t))
		if t.Failed() {
			t.Fatalf("seed %d, frame %d", seed, i)
		}
	}
}

// FuzzFrame holds the events of frames against indigo's, but for the differences.
func FuzzFrame(f *testing.F) {
	g := &generator{Rand: rand.New(rand.NewPCG(1, 2))}
	for range 50 {
		f.Add(g.generatedFrame(f))
	}
	for _, d := range frameDifferences(f) {
		if len(d.frame) < maxFuzzBytes {
			f.Add(d.frame)
		}
	}
	for _, s := range oddTexts {
		f.Add(frameOf("#identity", identityBody().With("handle", s)))
		f.Add(frameOf("#account", accountBody().With("status", s)))
	}
	f.Add(frameOf("#sync", syncBody()))
	f.Add(frameOf("#sync", syncBody().Without("blocks")))
	for _, frame := range corpusSeeds(f) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) > maxFuzzBytes {
			return // large inputs slow the fuzzer down and have tests of their own
		}
		checkFrame(t, newTranslator(t), frame)
	})
}
