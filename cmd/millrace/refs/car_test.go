package refs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/google/go-cmp/cmp"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	blockstore "github.com/ipfs/go-ipfs-blockstore"
	"github.com/klauspost/compress/zstd"
	"github.com/multiformats/go-multihash"

	"millrace/consume/relaysim/cbor"
)

const (
	testDID = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
	testRev = "3mptbypluud2a"
	subject = "at://did:plc:z72i7hdynmk6r22z27h6tvur/app.bsky.feed.post/3l6oveex3ii2l"
)

// carFile is a CAR file that a test builds, and breaks.
type carFile struct {
	blockstore.Blockstore // of which only Put is called

	root   cid.Cid
	order  []cid.Cid
	blocks map[cid.Cid][]byte
}

func cidOf(data []byte) cid.Cid {
	sum := sha256.Sum256(data)
	mh, _ := multihash.Encode(sum[:], multihash.SHA2_256)
	return cid.NewCidV1(cid.DagCBOR, mh)
}

func (c *carFile) add(data []byte) cid.Cid {
	id := cidOf(data)
	c.set(id, data)
	return id
}

func (c *carFile) set(id cid.Cid, data []byte) {
	if _, ok := c.blocks[id]; !ok {
		c.order = append(c.order, id)
	}
	c.blocks[id] = data
}

// Put implements blockstore.Blockstore.
func (c *carFile) Put(_ context.Context, b blocks.Block) error {
	c.set(b.Cid(), b.RawData())
	return nil
}

func (c *carFile) bytes() []byte {
	out := cbor.AppendCARHeader(nil, c.root.Bytes())
	for _, id := range c.order {
		out = cbor.AppendCARSection(out, id.Bytes(), c.blocks[id])
	}
	return out
}

// buildCAR makes the repository of an account.
func buildCAR(t testing.TB, did, rev string, records map[string]cbor.Map) *carFile {
	t.Helper()
	c := &carFile{blocks: make(map[cid.Cid][]byte)}
	tree := mst.NewEmptyTree()
	for path, record := range records {
		if _, err := tree.Insert([]byte(path), c.add(cbor.Append(nil, record))); err != nil {
			t.Fatal(err)
		}
	}
	root, err := tree.WriteDiffBlocks(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.sign(t, did, rev, *root)
	return c
}

// sign makes a tree's root the repository's state.
func (c *carFile) sign(t testing.TB, did, rev string, root cid.Cid) {
	t.Helper()
	key, err := atcrypto.GeneratePrivateKeyK256()
	if err != nil {
		t.Fatal(err)
	}
	commit := repo.Commit{DID: did, Version: repo.ATPROTO_REPO_VERSION, Data: root, Rev: rev}
	if err := commit.Sign(key); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := commit.MarshalCBOR(&buf); err != nil {
		t.Fatal(err)
	}
	c.root = c.add(buf.Bytes())
}

// addNode adds a node of the tree.
func (c *carFile) addNode(t testing.TB, n mst.NodeData) cid.Cid {
	t.Helper()
	data, id, err := n.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	c.set(*id, data)
	return *id
}

// gathered is a Sink that keeps all, as lines.
type gathered struct {
	did   string
	rev   uint64
	lines []string
}

func (g *gathered) Begin(did string, rev uint64) error {
	g.did, g.rev = did, rev
	return nil
}

func (g *gathered) Add(r *Record) error {
	line := fmt.Sprintf("%s/%s/%s", g.did, r.Collection, r.Key)
	for _, ref := range r.References {
		line += fmt.Sprintf(" %s=%s", ref.Path, ref.Subject)
	}
	g.lines = append(g.lines, line)
	return nil
}

func like(uri string) cbor.Map {
	return cbor.Map{{Key: "subject", Value: cbor.Map{{Key: "uri", Value: uri}}}}
}

// TestReadCAR: all records of a repository come, in order, with what they point at, however the
// file is compressed; what translate drops is counted.
func TestReadCAR(t *testing.T) {
	records := make(map[string]cbor.Map)
	var want []string
	for i := range 300 {
		path := fmt.Sprintf("app.bsky.feed.like/%05d", i)
		uri := fmt.Sprintf("%s%d", subject, i)
		records[path] = like(uri)
		want = append(want, fmt.Sprintf("%s/%s subject.uri=%s", testDID, path, uri))
	}
	records["app.bsky.feed.post/a"] = cbor.Map{{Key: "text", Value: "nothing"}}
	want = append(want, testDID+"/app.bsky.feed.post/a")
	records["no path"] = like(subject)
	c := buildCAR(t, testDID, testRev, records)
	missing := cidOf(cbor.Append(nil, records["app.bsky.feed.like/00000"]))
	delete(c.blocks, missing)
	c.order = c.order[:0]
	for id := range c.blocks {
		c.order = append(c.order, id)
	}
	c.blocks[cidOf(cbor.Append(nil, records["app.bsky.feed.like/00001"]))] = []byte("other")
	want = want[2:]
	plain := c.bytes()
	enc, _ := zstd.NewWriter(nil)
	var zip bytes.Buffer
	z := gzip.NewWriter(&zip)
	_, _ = z.Write(plain)
	_ = z.Close()
	for name, file := range map[string][]byte{"plain": plain, "zstd": enc.EncodeAll(plain, nil), "gzip": zip.Bytes()} {
		var r Reader
		var g gathered
		if err := r.Read(t.Context(), bytes.NewReader(file), &g); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, g.lines); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		if g.rev>>10 == 0 {
			t.Errorf("%s: rev %d", name, g.rev)
		}
		if diff := cmp.Diff(map[string]uint64{"missing_block": 1, "cid_mismatch": 1, "invalid_path": 1}, r.Counts.Dropped); diff != "" {
			t.Errorf("%s: dropped -want +got\n%s", name, diff)
		}
		if is, err := IsRepository(bytes.NewReader(file)); err != nil || !is {
			t.Errorf("%s: it is no repository: %v", name, err)
		}
	}
	var g gathered
	r := Reader{Collections: []string{"app.bsky.feed.post"}}
	if err := r.Read(t.Context(), bytes.NewReader(plain), &g); err != nil || len(g.lines) != 1 || r.Counts.Filtered != 298 {
		t.Errorf("one collection: %v, %q, %+v", err, g.lines, r.Counts)
	}
}

// TestOtherKindOfBlock: a record under a CID that the protocol does not allow is dropped, and
// counted.
func TestOtherKindOfBlock(t *testing.T) {
	record := cbor.Append(nil, like(subject))
	c := &carFile{blocks: make(map[cid.Cid][]byte)}
	id := cid.NewCidV1(cid.DagProtobuf, cidOf(record).Hash())
	c.set(id, record)
	c.sign(t, testDID, testRev, c.addNode(t, mst.NodeData{Entries: []mst.EntryData{{KeySuffix: []byte("app.bsky.feed.like/a"), Value: id}}}))
	var r Reader
	var g gathered
	err := r.Read(t.Context(), bytes.NewReader(c.bytes()), &g)
	if diff := cmp.Diff(map[string]uint64{"invalid_cid": 1}, r.Counts.Dropped); err != nil || len(g.lines) > 0 || diff != "" {
		t.Errorf("%v, %q, dropped -want +got\n%s", err, g.lines, diff)
	}
}

// TestRepeatedBlocks: of two blocks under one CID the first counts; both count against the limit.
func TestRepeatedBlocks(t *testing.T) {
	c := buildCAR(t, testDID, testRev, map[string]cbor.Map{"app.bsky.feed.like/a": like(subject)})
	file := c.bytes()
	c.order = []cid.Cid{cidOf(cbor.Append(nil, like(subject)))}
	c.blocks[c.order[0]] = bytes.Repeat([]byte{1}, 1000)
	again := c.bytes()
	header := len(again) - len(c.order[0].Bytes()) - 1000 - 2
	file = append(file, again[header:]...)
	var g gathered
	var r Reader
	if err := r.Read(t.Context(), bytes.NewReader(file), &g); err != nil || len(g.lines) != 1 || len(r.Counts.Dropped) > 0 {
		t.Errorf("%v, %q, %+v", err, g.lines, r.Counts)
	}
	for most, ok := range map[int]bool{len(file) + 10*blockOverhead: true, len(file): false} {
		if _, err := loadRepository(bufio.NewReader(bytes.NewReader(file)), most); (err == nil) != ok {
			t.Errorf("a file of %d bytes, at most %d: %v", len(file), most, err)
		}
	}
}

// keyOn returns a key on a level of the tree, from a number on.
func keyOn(level, n int) []byte {
	for ; ; n++ {
		if key := []byte(fmt.Sprintf("a.b.c/%08d", n)); mst.HeightForKey(key) == level {
			return key
		}
	}
}

// TestHostileCAR: of a file that is no repository nothing is taken, and it is said what is wrong.
func TestHostileCAR(t *testing.T) {
	record := cbor.Append(nil, like(subject))
	tree := func(build func(c *carFile, value cid.Cid) cid.Cid) []byte {
		c := &carFile{blocks: make(map[cid.Cid][]byte)}
		c.sign(t, testDID, testRev, build(c, c.add(record)))
		return c.bytes()
	}
	leaf := func(c *carFile, value cid.Cid, keys ...[]byte) cid.Cid {
		var n mst.NodeData
		for _, k := range keys {
			n.Entries = append(n.Entries, mst.EntryData{KeySuffix: k, Value: value})
		}
		return c.addNode(t, n)
	}
	header := func(version int, roots ...cid.Cid) []byte {
		links := []any{}
		for _, r := range roots {
			links = append(links, cbor.Link(r.Bytes()))
		}
		b := cbor.Append(nil, cbor.Map{{Key: "roots", Value: links}, {Key: "version", Value: version}})
		return append([]byte{byte(len(b))}, b...)
	}
	good := buildCAR(t, testDID, testRev, map[string]cbor.Map{"a.b.c/1": like(subject), "a.b.c/2": like(subject + "x")}).bytes()
	for name, tc := range map[string]struct {
		file []byte
		says string
	}{
		"empty":          {nil, "empty"},
		"garbage":        {[]byte("garbage"), "neither"},
		"a cut block":    {good[:len(good)-3], "unexpected EOF"},
		"a cut header":   {good[:20], "unexpected EOF"},
		"an empty block": {append(bytes.Clone(good), 0), "after"},
		"a long block":   {append(bytes.Clone(good), 0xff, 0xff, 0xff, 0xff, 0x7f), "after"},
		"a bad DID":      {buildCAR(t, "did:x", testRev, nil).bytes(), "commit"},
		"a bad rev":      {buildCAR(t, testDID, "3", nil).bytes(), "commit"},
		"a rev of rows":  {buildCAR(t, testDID, "2222222222222", nil).bytes(), "its rev 2222222222222 is no time"},
		"no commit":      {(&carFile{root: cidOf(nil)}).bytes(), "is missing"},
		"a weak hash": {func() []byte {
			c := buildCAR(t, testDID, testRev, nil)
			mh, _ := multihash.Encode(c.blocks[c.root], multihash.IDENTITY)
			id := cid.NewCidV1(cid.DagCBOR, mh)
			c.set(id, c.blocks[c.root])
			c.root = id
			return c.bytes()
		}(), "do not match its CID"},
		"a changed node": {func() []byte {
			c := buildCAR(t, testDID, testRev, map[string]cbor.Map{"a.b.c/1": like(subject)})
			for id, b := range c.blocks {
				if n, err := mst.NodeDataFromCBOR(bytes.NewReader(b)); err == nil && len(n.Entries) == 1 {
					c.blocks[id] = append(bytes.Clone(b), 0)
				}
			}
			return c.bytes()
		}(), "do not match its CID"},
		"a missing node": {tree(func(c *carFile, _ cid.Cid) cid.Cid { return cidOf([]byte("x")) }), "is missing"},
		"a negative prefix": {tree(func(c *carFile, v cid.Cid) cid.Cid {
			return c.addNode(t, mst.NodeData{Entries: []mst.EntryData{{PrefixLen: -1, KeySuffix: keyOn(0, 0), Value: v}}})
		}), "malformed"},
		"a long prefix": {tree(func(c *carFile, v cid.Cid) cid.Cid {
			return c.addNode(t, mst.NodeData{Entries: []mst.EntryData{{PrefixLen: 5, KeySuffix: keyOn(0, 0), Value: v}}})
		}), "malformed"},
		"keys out of order": {tree(func(c *carFile, v cid.Cid) cid.Cid { return leaf(c, v, keyOn(0, 500), keyOn(0, 0)) }), "is not after"},
		"a key twice":       {tree(func(c *carFile, v cid.Cid) cid.Cid { return leaf(c, v, keyOn(0, 0), keyOn(0, 0)) }), "is not after"},
		"a key too high":    {tree(func(c *carFile, v cid.Cid) cid.Cid { return leaf(c, v, keyOn(1, 0), keyOn(0, 5000)) }), "belongs on level"},
		"a node too deep": {tree(func(c *carFile, v cid.Cid) cid.Cid {
			below := leaf(c, v, keyOn(0, 0))
			return c.addNode(t, mst.NodeData{Left: &below, Entries: []mst.EntryData{{KeySuffix: keyOn(0, 500), Value: v}}})
		}), "lowest level"},
		"a record as the tree": {tree(func(_ *carFile, v cid.Cid) cid.Cid { return v }), "has no keys"},
		"a node without keys": {tree(func(c *carFile, v cid.Cid) cid.Cid {
			below := c.addNode(t, mst.NodeData{})
			return c.addNode(t, mst.NodeData{Left: &below, Entries: []mst.EntryData{{KeySuffix: keyOn(1, 0), Value: v}}})
		}), "has no keys"},
		"a long chain": {tree(func(c *carFile, v cid.Cid) cid.Cid {
			id := leaf(c, v, keyOn(0, 0))
			for range 20_000 {
				id = c.addNode(t, mst.NodeData{Left: &id})
			}
			return id
		}), "has no keys"},
		"a key that is none":  {tree(func(c *carFile, v cid.Cid) cid.Cid { return leaf(c, v, nil) }), "of 0 bytes, is not valid"},
		"a node that is none": {tree(func(c *carFile, _ cid.Cid) cid.Cid { return c.add([]byte{0xff}) }), "tree: node "},
		"no root":             {header(1), "it has version 1 and 0 roots"},
		"another version":     {header(2, cidOf(nil)), "it has version 2 and 1 roots"},
		"a node many times": {tree(func(c *carFile, v cid.Cid) cid.Cid {
			id := leaf(c, v, keyOn(0, 0))
			for level := 1; level < 4; level++ {
				below := id
				id = c.addNode(t, mst.NodeData{Left: &below, Entries: []mst.EntryData{{KeySuffix: keyOn(level, 1000), Value: v, Right: &below}}})
			}
			return id
		}), "is not after"},
	} {
		t.Run(name, func(t *testing.T) {
			var r Reader
			var g gathered
			err := r.Read(t.Context(), bytes.NewReader(tc.file), &g)
			if err == nil || !strings.Contains(err.Error(), tc.says) || g.did != "" {
				t.Errorf("%v, which should say %q; the sink has %q", err, tc.says, g.did)
			}
		})
	}
	// A file with a changed byte is refused, or records are missing.
	for i := rand.IntN(5); i < len(good); i += 5 {
		if i == 10 {
			continue // the tag of the link in the header, which the library passes over
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x55
		var r Reader
		var g gathered
		if err := r.Read(t.Context(), bytes.NewReader(bad), &g); err == nil && len(g.lines) == 2 {
			t.Errorf("byte %d of %d was changed, and all was taken", i, len(good))
		}
	}
}
