package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"millrace/public"
	"millrace/replay/links"
	"millrace/replay/references"
)

// uidStrings is how many URIs are in the UID store.
func (b *linksBench) uidStrings() int { return min(b.edges/500*500, 1_000_000) }

// linkName returns the name of a UID.
func linkName(uid uint64) string {
	digits := fmt.Sprintf("%016x", uid)
	if isAccount(uid) {
		return "did:plc:aaaaaaaa" + digits
	}
	return "at://did:plc:aaaaaaaabbbbbbbbcccccccc/app.bsky.feed.post/" + digits
}

// serve measures requests over HTTP.
func (b *linksBench) serve(ctx context.Context) (err error) {
	s, err := b.open(references.LinksAsStored)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := awaitRest(b.store()); err != nil {
		return err
	}
	add := func(c *public.Config) error {
		c.Links = links.New(s)
		for _, subject := range []uint64{linkAccounts + 1, 1} {
			source, number := linkSource(subject)
			if n, _ := c.Log.SourceNumber([]byte(source)); n != number {
				return fmt.Errorf("source %s has number %d, not %d", source, n, number)
			}
		}
		return nil
	}
	return serveView(ctx, b.work, viewNames{count: b.uidStrings(), name: linkName}, add, b.ask)
}

// ask asks for the links of subjects that were drawn by their links: for half of them to warm up.
func (b *linksBench) ask(ctx context.Context, host string) error {
	client, err := dialHTTP(ctx, host)
	if err != nil {
		return err
	}
	defer client.Close()
	var counts, pages lags
	var found int64
	draws := b.stream.drawn
	b.stream.rng.Shuffle(len(draws), func(i, k int) { draws[i], draws[k] = draws[k], draws[i] })
	for i, subject := range draws {
		if i == len(draws)/2 {
			counts, pages = lags{}, lags{}
		}
		uid := b.stream.subjects[subject].uid
		source, _ := linkSource(uid)
		query := "?" + url.Values{"subject": {linkName(uid)}, "source": {source}}.Encode()
		count, err := client.total("getBacklinksCount"+query, &counts)
		if err != nil {
			return err
		}
		listed, err := client.total("getBacklinks"+query, &pages)
		if err != nil {
			return err
		}
		if made := int64(b.stream.subjects[subject].links); count != listed || count > made {
			return fmt.Errorf("subject %d: %d links are counted and %d listed; %d were made", subject, count, listed, made)
		}
		found += count
		b.report("%s of %s subjects", grouped(i), grouped(len(draws)))
	}
	if found == 0 {
		return errors.New("no subject has links")
	}
	b.row("getBacklinksCount, µs, p99", grouped(counts.quantile(0.99).Microseconds()))
	b.row("first page of getBacklinks, ms, p99", pages.p99())
	return nil
}

// total asks for links, adds how long it took until the answer's last byte, and returns its total.
func (c *httpClient) total(query string, took *lags) (int64, error) {
	begun := time.Now()
	body, err := c.get("/xrpc/blue.microcosm.links." + query)
	if err != nil {
		return 0, err
	}
	took.add(time.Since(begun))
	var answer struct{ Total int64 }
	err = json.Unmarshal(body, &answer)
	return answer.Total, err
}
