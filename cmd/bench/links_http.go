package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/intern"
	"millrace/intern/kv/pebblekv"
	"millrace/public"
	"millrace/replay/links"
	"millrace/replay/references"
)

// names gives synthetic UIDs names, which have the UID in their last characters. For each it asks a
// UID store for another string, so that a look-up costs what it costs.
type names struct {
	*intern.Interner
	name    func(uid uint64) string
	uids    []uint64 // of the store
	strings []byte   // of uids, one after the other, as the garbage collector marks pointers
	ends    []int    // of each
}

// uidStrings is how many URIs are in the UID store.
func (b *linksBench) uidStrings() int { return min(b.edges/500*500, 1_000_000) }

func openNames(ctx context.Context, store *pebblekv.Store, n int, name func(uid uint64) string) (*names, error) {
	in, err := intern.Open(ctx, intern.Config{Store: store, Alone: true,
		CacheBytes: 2 * linksTwentieth / 4 * 3, NameBytes: 2 * linksTwentieth / 4})
	if err != nil {
		return nil, err
	}
	l := &names{Interner: in, name: name, ends: []int{0}}
	source, b := newTraffic(), newBatch(500)
	for len(l.uids) < n {
		source.next(b)
		if err := in.Resolve(ctx, b.reqs, b.out); err != nil {
			return nil, errors.Join(err, in.Close())
		}
		for i := range b.out {
			l.uids = append(l.uids, b.out[i].URIUID)
			l.strings = append(l.strings, uri(&b.reqs[i])...)
			l.ends = append(l.ends, len(l.strings))
		}
	}
	return l, nil
}

// linkName returns the name of a UID.
func linkName(uid uint64) string {
	digits := fmt.Sprintf("%016x", uid)
	if isAccount(uid) {
		return "did:plc:aaaaaaaa" + digits
	}
	return "at://did:plc:aaaaaaaabbbbbbbbcccccccc/app.bsky.feed.post/" + digits
}

// LookupStrings implements public.UIDs for the names of name.
func (l *names) LookupStrings(ctx context.Context, strings []string, uids []uint64) error {
	others := make([]string, len(strings))
	for i, name := range strings {
		uid, err := strconv.ParseUint(name[max(0, len(name)-16):], 16, 64)
		if err != nil {
			return fmt.Errorf("look up %q: %w", name, err)
		}
		k := mix(uid) % uint64(len(l.uids))
		uids[i], others[i] = uid, string(l.strings[l.ends[k]:l.ends[k+1]])
	}
	return l.Interner.LookupStrings(ctx, others, make([]uint64, len(others)))
}

// LookupUIDs implements public.UIDs.
func (l *names) LookupUIDs(ctx context.Context, uids []uint64, strings []string) error {
	others := make([]uint64, len(uids))
	for i, uid := range uids {
		others[i] = l.uids[mix(uid)%uint64(len(l.uids))]
	}
	if err := l.Interner.LookupUIDs(ctx, others, strings); err != nil {
		return err
	}
	for i, uid := range uids {
		strings[i] = l.name(uid)
	}
	return nil
}

// serve measures requests over HTTP.
func (b *linksBench) serve(ctx context.Context) (err error) {
	s, err := b.open(references.LinksAsStored)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	uids, err := pebblekv.Open(pebblekv.Config{Dir: filepath.Join(b.work, "uids"), CacheBytes: 2 * linksTwentieth / 4, MemTableBytes: 2 * linksTwentieth / 4})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, uids.Close()) }()
	names, err := openNames(ctx, uids, b.uidStrings(), linkName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	dicts, err := newDictionaries()
	if err != nil {
		return err
	}
	defer dicts.Close()
	log, err := openReplayLog(filepath.Join(b.work, logDirectory), dicts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	for _, subject := range []uint64{linkAccounts + 1, 1} {
		source, number := linkSource(subject)
		if n, _ := log.SourceNumber([]byte(source)); n != number {
			return fmt.Errorf("source %s has number %d, not %d", source, n, number)
		}
	}
	if _, err := awaitRest(b.store()); err != nil {
		return err
	}
	server, err := public.New(public.Config{Log: log, Dictionaries: dicts, UIDs: names, Links: links.New(s)})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Serve(ctx, ln) })
	g.Go(func() error {
		defer stop()
		return b.ask(ctx, ln.Addr().String())
	})
	return g.Wait()
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
			counts.reset()
			pages.reset()
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
		b.progress("%s of %s subjects", grouped(i), grouped(len(draws)))
	}
	if found == 0 {
		return errors.New("no subject has links")
	}
	b.row("getBacklinksCount, µs, p99", grouped(counts.quantile(0.99).Microseconds()))
	b.row("first page of getBacklinks, ms, p99", pages.p99())
	return nil
}

// httpClient is one connection that is kept. It takes no goroutine beside its caller's: what those
// of http.Client cost would be measured with the server.
type httpClient struct {
	net.Conn
	answers *bufio.Reader
}

// dialHTTP connects to a host and port. ctx bounds the connection's life.
func dialHTTP(ctx context.Context, host string) (*httpClient, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return &httpClient{conn, bufio.NewReader(conn)}, nil
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

// get does a request and returns the body of the answer, which is to have status 200.
func (c *httpClient) get(path string) ([]byte, error) {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", path); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	switch {
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", path, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("get %s: %s: %s", path, resp.Status, body)
	}
	return body, nil
}
