package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
)

// maxMessageBytes is the largest message that is taken, decompressed. The largest event is a record
// of 1 MiB with every byte escaped.
const maxMessageBytes = 8 << 20

// maxDictionaries bounds what a server can make a client keep.
const maxDictionaries = 64

// maxDictionaryBytes is the largest dictionary that is taken.
const maxDictionaryBytes = 2 << 20

const fetchTimeout = 15 * time.Second

// A millrace is asked for its built-in dictionary by ID. A plain Jetstream ignores the parameter.
const (
	dictionaryParameter = "zstdDictionary"
	builtInDictionary   = 51001
)

// decoder decompresses messages, and gets the dictionaries that it needs. One goroutine uses it.
type decoder struct {
	subscribe *url.URL
	v2        bool   // it is of Jetstream v2's wire
	asked     uint32 // on v2's wire: the dictionary that is asked for; 0: it must be fetched
	refused   bool   // the server has refused one since the last connection
	dir       string // "": memory only
	given     [][]byte
	known     [][]byte      // those given, and what was fetched
	dec       *zstd.Decoder // with the known dictionaries; nil: not made yet
	http      *http.Client
	header    http.Header
	fetches   func() // counts one
}

// use makes the server at the URL the one that is asked for dictionaries.
func (d *decoder) use(subscribe *url.URL) {
	if d.subscribe != subscribe {
		d.subscribe, d.asked, d.refused = subscribe, 0, false
	}
}

// decode decompresses one message to memory of its own.
func (d *decoder) decode(ctx context.Context, msg []byte) ([]byte, error) {
	if d.dec == nil {
		if err := d.make(); err != nil {
			return nil, err
		}
	}
	out, err := d.dec.DecodeAll(msg, nil)
	if errors.Is(err, zstd.ErrUnknownDictionary) {
		if err = d.learn(ctx, msg); err != nil {
			return nil, err
		}
		out, err = d.dec.DecodeAll(msg, nil)
	}
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, fmt.Errorf("decompress: %w: %w", ErrTooLarge, err)
	}
	if err != nil {
		return nil, fmt.Errorf("decompress: %w: %w", ErrUnreadable, err)
	}
	return out, nil
}

// make makes the decoder of what is known.
func (d *decoder) make() error {
	d.close()
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxMessageBytes), zstd.WithDecoderDicts(d.known...))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDictionary, err)
	}
	d.dec = dec
	return nil
}

func (d *decoder) close() {
	if d.dec != nil {
		d.dec.Close()
		d.dec = nil
	}
}

// forget makes all dictionaries but those given be fetched anew. One that was cut on its way has
// its ID, and makes messages unreadable.
func (d *decoder) forget() {
	if d.dir != "" {
		for _, raw := range d.known {
			id, _ := dictionaryID(raw, 0) // it was checked
			_ = os.Remove(d.file(id))     // if it was kept
		}
	}
	d.known, d.asked = slices.Clone(d.given), 0
	d.close()
}

// learn gets the dictionary that the frame is made with.
func (d *decoder) learn(ctx context.Context, frame []byte) (err error) {
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		return fmt.Errorf("decompress: %w: %w", ErrUnreadable, err)
	}
	if len(d.known) >= maxDictionaries {
		return fmt.Errorf("%w %d: the server has used %d others", ErrDictionary, h.DictionaryID, maxDictionaries)
	}
	got := d.load(h.DictionaryID)
	if got == nil {
		if got, err = d.fetch(ctx, h.DictionaryID); err != nil {
			return err
		}
		d.save(h.DictionaryID, got)
	}
	d.known = append(d.known, got)
	return d.make()
}

// file returns where a dictionary is kept. IDs are a server's own, so its address is part of the
// name.
func (d *decoder) file(id uint32) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, endpoint(d.subscribe, "")) // never fails
	return filepath.Join(d.dir, fmt.Sprintf("%d-%016x.zdict", id, h.Sum64()))
}

// load returns a dictionary that was kept, nil if there is none that is whole.
func (d *decoder) load(id uint32) []byte {
	if d.dir == "" {
		return nil
	}
	raw, err := os.ReadFile(d.file(id))
	if err != nil {
		return nil
	}
	if _, err := dictionaryID(raw, id); err != nil {
		return nil
	}
	return raw
}

// dictionaryID returns the ID of a whole zstd dictionary, which must be want unless that is 0.
func dictionaryID(raw []byte, want uint32) (uint32, error) {
	if len(raw) > maxDictionaryBytes {
		return 0, fmt.Errorf("it has more than %d bytes", maxDictionaryBytes)
	}
	d, err := zstd.InspectDictionary(raw)
	switch {
	case err != nil:
		return 0, err
	case want != 0 && d.ID() != want:
		return 0, fmt.Errorf("its ID is %d", d.ID())
	}
	return d.ID(), nil
}

// save keeps a dictionary, if it can: it is a cache.
func (d *decoder) save(id uint32, raw []byte) {
	if d.dir == "" || os.MkdirAll(d.dir, 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(d.dir, "fetched-*")
	if err != nil {
		return
	}
	defer os.Remove(f.Name()) // does nothing once it is renamed
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err == nil {
		_ = os.Rename(f.Name(), d.file(id))
	}
}

// current returns the dictionary that a server of v2's wire compresses with, which it gets if it
// must.
func (d *decoder) current(ctx context.Context) (id uint32, err error) {
	if d.asked != 0 {
		return d.asked, nil
	}
	raw, err := d.fetch(ctx, 0)
	if err != nil {
		return 0, err
	}
	d.asked, _ = dictionaryID(raw, 0) // fetch has checked it
	d.save(d.asked, raw)
	// of several servers, or after a change back, it may be known
	d.known = slices.DeleteFunc(d.known, func(k []byte) bool { return bytes.Equal(k, raw) })
	if len(d.known) < maxDictionaries { // else learn says so
		d.known = append(d.known, raw)
	}
	return d.asked, d.make()
}

// outdated forgets the dictionary that current returned, since the server refuses it. It says
// whether to try another: not twice for one connection.
func (d *decoder) outdated() bool {
	again := !d.refused
	d.asked, d.refused = 0, true
	return again
}

// fetch gets a dictionary from the server; ID 0: the one that it compresses with.
func (d *decoder) fetch(ctx context.Context, id uint32) ([]byte, error) {
	d.fetches()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	address := endpoint(d.subscribe, fmt.Sprintf("/dictionaries/%d", id))
	if d.v2 {
		address = endpoint(d.subscribe, v2DictionaryPath)
		if id != 0 {
			address += fmt.Sprintf("?id=%d", id)
		}
	}
	raw, err := get(ctx, d.http, d.header, address, maxDictionaryBytes+1)
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.permanent() {
		return nil, fmt.Errorf("%w %d: %s: %w (give its file, if you have it)", ErrDictionary, id, address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch dictionary %d: %w", id, err)
	}
	if _, err := dictionaryID(raw, id); err != nil {
		return nil, fmt.Errorf("%w %d: %s: %w", ErrDictionary, id, address, err)
	}
	return raw, nil
}

// get asks one of the server's endpoints. An answer that is not 200 is a RefusedError.
func get(ctx context.Context, hc *http.Client, header http.Header, address string, maxBytes int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	resp, err := hc.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, refusalOf(resp)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxBytes))
}
