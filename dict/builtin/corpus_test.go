package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// packed writes a zstd-compressed file of lines.
func packed(t *testing.T, path string, lines ...string) string {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	if err := os.WriteFile(path, enc.EncodeAll([]byte(strings.Join(lines, "\n")), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEachLine: each line is passed on; an error says which line of which file.
func TestEachLine(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 3<<20)
	path := packed(t, filepath.Join(dir, "lines.zst"), "one", long, "three")
	var got []string
	if err := eachLine(path, func(line []byte) error { got = append(got, string(line)); return nil }); err != nil || !slices.Equal(got, []string{"one", long, "three"}) {
		t.Errorf("%d lines, %v", len(got), err)
	}
	errTest := errors.New("enough")
	at := 0
	err := eachLine(path, func([]byte) error {
		if at++; at == 2 {
			return errTest
		}
		return nil
	})
	if !errors.Is(err, errTest) || !strings.Contains(err.Error(), path+": line 2: ") || at != 2 {
		t.Errorf("an error of line 2: %v, after %d lines", err, at)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.zst")
	if err := os.WriteFile(cut, whole[:len(whole)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{cut, packed(t, filepath.Join(dir, "long.zst"), long+long), filepath.Join(dir, "none")} {
		if err := eachLine(bad, func([]byte) error { return nil }); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestLoad: an author contributes a few posts and references, each text counts once, and all of an
// author is on one side.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	var records, refs []string
	record := func(did, collection, text string) {
		records = append(records, fmt.Sprintf(`{"did":%q,"commit":{"collection":%q,"rkey":"1","cid":"c","record":{"text":%q}}}`, did, collection, text))
	}
	var dids []string
	for i := range 40 {
		dids = append(dids, fmt.Sprintf("did:plc:%d", i))
		for n := range maxPostsPerAuthor + 2 {
			record(dids[i], "app.bsky.feed.post", fmt.Sprintf("text %d of %d", n, i))
		}
		for range maxRefsPerAuthor + 2 {
			refs = append(refs, fmt.Sprintf(`{"uri":"at://%s/app.bsky.feed.post/1","cid":"c"}`, dids[i]))
		}
		record(dids[i], "app.bsky.feed.like", "")
		record(dids[i], "app.bsky.graph.list", "")
	}
	record("did:plc:late", "app.bsky.feed.post", "text 0 of 0")
	packed(t, filepath.Join(dir, "records.ndjson.zst"), records...)
	packed(t, filepath.Join(dir, "post_refs.ndjson.zst"), refs...)
	train, held, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	authors := 0
	for _, c := range []*corpus{train, held} {
		posts, references := map[string]int{}, map[string]int{}
		for _, p := range c.posts {
			if posts[p.did]++; heldOut(p.did) != (c == held) || !strings.HasPrefix(p.text, "text ") || p.cid != "c" || p.rkey != "1" {
				t.Errorf("a post on the wrong side, or not as it was: %+v", p)
			}
		}
		for _, r := range c.refs {
			did, _, _ := strings.Cut(strings.TrimPrefix(r.URI, "at://"), "/")
			if references[did]++; heldOut(did) != (c == held) || r.CID != "c" {
				t.Errorf("a reference on the wrong side: %+v", r)
			}
		}
		for _, did := range dids {
			if n := posts[did]; n != references[did] || n != 0 && n != maxPostsPerAuthor {
				t.Errorf("%s has %d posts and %d references", did, n, references[did])
			}
		}
		authors += len(posts)
		if len(c.others) != len(posts) || c.others[0].collection != "app.bsky.graph.list" {
			t.Errorf("%d other records of %d authors", len(c.others), len(posts))
		}
	}
	if n := len(train.events) + len(held.events); authors != len(dids) || n != len(records) || len(held.posts) == 0 {
		t.Errorf("%d authors; %d events of %d", authors, n, len(records))
	}
	for _, wrong := range [][2]string{{"post_refs.ndjson.zst", `{"uri":1}`}, {"records.ndjson.zst", `{"did":1}`}} { // the last one is read first
		packed(t, filepath.Join(dir, wrong[0]), wrong[1])
		if _, _, err := load(dir); err == nil || !strings.Contains(err.Error(), wrong[0]) {
			t.Errorf("%s: %v", wrong[0], err)
		}
	}
	packed(t, filepath.Join(dir, "records.ndjson.zst"), `{"commit":{"collection":"app.bsky.feed.post","record":{"text":1}}}`)
	if _, _, err := load(dir); err == nil {
		t.Error("a post without text is taken")
	}
}
