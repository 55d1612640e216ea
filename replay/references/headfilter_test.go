package references

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/postings"
)

// TestHeads: a link of a small set reads no head. The head of a large set counts all its links,
// also after a restart.
func TestHeads(t *testing.T) {
	cfg := Config{Links: LinksOn, FS: vfs.NewMem()}
	cfg.hooks.chunkLinks, cfg.hooks.checkLinks = 2, 1
	s := openTest(t, cfg)
	apply(t, s, hydrate(t, s, 1, like(1, 10, 1, 100)))
	b := hydrate(t, s, 10, like(1, 11, 2, 200))
	s.cfg.hooks.checkLinks = 1000 // which would read the chunk
	before := lookUps(t, s)
	apply(t, s, b)
	if n := lookUps(t, s) - before; n != 0 {
		t.Errorf("%d look-ups for a small set", n)
	}
	s.cfg.hooks.checkLinks = 1
	for i := range uint64(3) {
		do(t, s, int64(20+10*i), like(1, 20+i, 3+i, 100))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, cfg)
	do(t, s, 60, like(1, 30, 8, 100))
	value, err := s.lookUp(postings.AppendSet(nil, s.codec, postings.RangeHead, postings.Set{Path: 1, Subject: 100}))
	if err != nil {
		t.Fatal(err)
	}
	head, err := postings.DecodeHead(value)
	if err != nil || head.Records != 5 || head.Accounts != 1 {
		t.Errorf("%+v, %v", head, err)
	}
}
