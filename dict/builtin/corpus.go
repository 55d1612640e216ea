package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// corpus is the real material that events are composed of: one side of the split by author.
type corpus struct {
	posts  []post
	others []post // profiles, lists, generators: whatever else there are real records of
	refs   []ref
	events [][]byte // one of each real record, unchanged
}

// post is a real record with the DID of its author and its real CID.
type post struct {
	did, collection, rkey, cid string
	record                     json.RawMessage
	text                       string // of a post, unescaped
}

// ref points to a real post.
type ref struct {
	URI string `json:"uri"`
	CID string `json:"cid"`
}

// Limits of how much one author contributes, so that the dictionary describes the network and not
// its most eager posters. Test postings and bots repeat themselves: each text is taken once.
const (
	maxPostsPerAuthor = 4
	maxRefsPerAuthor  = 4
)

// heldOutPercent of the authors are kept from training.
const heldOutPercent = 25

// heldOut reports which side of the split an author is on. Everything of one author, and every
// reference to one, is on the same side.
func heldOut(did string) bool {
	h := fnv.New32a()
	io.WriteString(h, did)
	return h.Sum32()%100 < heldOutPercent
}

// load reads the corpus and splits it by author.
func load(dir string) (train, held *corpus, err error) {
	train, held = &corpus{}, &corpus{}
	side := func(did string) *corpus {
		if heldOut(did) {
			return held
		}
		return train
	}
	perAuthor := make(map[string]int)
	texts := make(map[string]bool)
	err = eachLine(filepath.Join(dir, "records.ndjson.zst"), func(line []byte) error {
		var e struct {
			DID    string
			Commit struct {
				Collection, Rkey, CID string
				Record                json.RawMessage
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		p := post{did: e.DID, collection: e.Commit.Collection, rkey: e.Commit.Rkey, cid: e.Commit.CID, record: e.Commit.Record}
		s := side(p.did)
		s.events = append(s.events, bytes.Clone(line))
		switch p.collection {
		case "app.bsky.feed.post":
			var r struct{ Text string }
			if err := json.Unmarshal(p.record, &r); err != nil {
				return err
			}
			p.text = r.Text
			if texts[p.text] || perAuthor[p.did] == maxPostsPerAuthor {
				return nil
			}
			texts[p.text] = true
			perAuthor[p.did]++
			s.posts = append(s.posts, p)
		case "app.bsky.feed.like", "app.bsky.feed.repost", "app.bsky.graph.follow", "app.bsky.graph.block":
			// These are composed.
		default:
			s.others = append(s.others, p)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	clear(perAuthor)
	err = eachLine(filepath.Join(dir, "post_refs.ndjson.zst"), func(line []byte) error {
		var r ref
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		did, _, _ := strings.Cut(strings.TrimPrefix(r.URI, "at://"), "/")
		if perAuthor[did] < maxRefsPerAuthor {
			perAuthor[did]++
			side(did).refs = append(side(did).refs, r)
		}
		return nil
	})
	return train, held, err
}

// eachLine calls f for each line of a zstd-compressed file. The line is valid during the call.
func eachLine(path string, f func(line []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	dec, err := zstd.NewReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer dec.Close()
	lines := bufio.NewScanner(dec)
	lines.Buffer(nil, 4<<20)
	for n := 1; lines.Scan(); n++ {
		if err := f(lines.Bytes()); err != nil {
			return fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
