package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"golang.org/x/sync/errgroup"

	"millrace/consume/relaysim"
	"millrace/intern"
	"millrace/intern/kv/pebblekv"
	"millrace/public"
)

// names gives synthetic UIDs names, which have the UID in their last characters. For each it asks a
// UID store for another string, so that a look-up costs what it costs.
type names struct {
	*intern.Interner
	viewNames
	uids    []uint64 // the UIDs that are looked up
	strings []byte   // of uids, one after the other: the garbage collector would mark pointers
	ends    []int    // where each string begins; the last: where the last one ends
}

// viewNames says which strings the UID store of a view has.
type viewNames struct {
	count int  // of strings
	dids  bool // they are DIDs, and not AT URIs
	name  func(uid uint64) string
}

// serveView serves what add adds, over HTTP, while ask asks it at a host and port. Names come from
// a UID store in dir, and the log there has no events. Garbage is collected as by `millrace serve`.
func serveView(ctx context.Context, dir string, view viewNames, add func(*public.Config) error, ask func(ctx context.Context, host string) error) (err error) {
	debug.SetGCPercent(300)
	uids, err := pebblekv.Open(pebblekv.Config{Dir: filepath.Join(dir, "uids"), CacheBytes: 2 * linksTwentieth / 4, MemTableBytes: 2 * linksTwentieth / 4})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, uids.Close()) }()
	names, err := openNames(ctx, uids, view)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	if _, err := awaitRest(filepath.Join(dir, "uids")); err != nil {
		return err
	}
	dicts := newDictionaries()
	defer dicts.Close()
	log, err := openReplayLog(filepath.Join(dir, logDirectory), dicts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cfg := public.Config{Log: log, Dictionaries: dicts, UIDs: names}
	if err := add(&cfg); err != nil {
		return err
	}
	server, err := public.New(cfg)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var serving errgroup.Group
	serving.Go(func() error { return server.Serve(ln) })
	err = ask(ctx, ln.Addr().String())
	return errors.Join(err, server.Shutdown(context.WithoutCancel(ctx)), serving.Wait())
}

func openNames(ctx context.Context, store *pebblekv.Store, view viewNames) (*names, error) {
	in, err := intern.Open(ctx, intern.Config{Store: store, Alone: true,
		CacheBytes: 2 * linksTwentieth / 4 * 3, NameBytes: 2 * linksTwentieth / 4})
	if err != nil {
		return nil, err
	}
	l := &names{Interner: in, viewNames: view, ends: []int{0}}
	source, b := newTraffic(), newBatch(500)
	for len(l.uids) < l.count {
		if l.dids {
			for i := range b.reqs {
				b.reqs[i] = intern.Request{DID: appendDID(nil, uint64(len(l.uids)+i))}
			}
		} else {
			source.next(b)
		}
		if err := in.Resolve(ctx, b.reqs, b.out); err != nil {
			return nil, errors.Join(err, in.Close())
		}
		for i := range b.out {
			uid, s := b.out[i].DIDUID, b.reqs[i].DID
			if !l.dids {
				uid, s = b.out[i].URIUID, uri(&b.reqs[i])
			}
			l.uids = append(l.uids, uid)
			l.strings = append(l.strings, s...)
			l.ends = append(l.ends, len(l.strings))
		}
	}
	return l, nil
}

// LookupStrings implements public.UIDs for the names of name.
func (l *names) LookupStrings(ctx context.Context, names []string, uids []uint64) error {
	others := make([]string, len(names))
	for i, name := range names {
		uid, err := strconv.ParseUint(name[max(0, len(name)-16):], 16, 64)
		if err != nil {
			return fmt.Errorf("look up %q: %w", name, err)
		}
		k := relaysim.Mix(uid) % uint64(len(l.uids))
		uids[i], others[i] = uid, string(l.strings[l.ends[k]:l.ends[k+1]])
	}
	return l.Interner.LookupStrings(ctx, others, make([]uint64, len(others)))
}

// LookupUIDs implements public.UIDs.
func (l *names) LookupUIDs(ctx context.Context, uids []uint64, strings []string) error {
	others := make([]uint64, len(uids))
	for i, uid := range uids {
		others[i] = l.uids[relaysim.Mix(uid)%uint64(len(l.uids))]
	}
	if err := l.Interner.LookupUIDs(ctx, others, strings); err != nil {
		return err
	}
	for i, uid := range uids {
		strings[i] = l.name(uid)
	}
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

// get does a request and returns the body of the answer, which must have status 200.
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
		return nil, fmt.Errorf("get %s: %s: %.300s", path, resp.Status, body)
	}
	return body, nil
}

// httpGet does one request on a connection of its own.
func httpGet(host, path string) ([]byte, error) {
	client, err := dialHTTP(context.Background(), host) // on this machine, and answered in time
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.get(path)
}
