package client

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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

// lacksDictionary reports whether err is a millrace's answer that it does not have the dictionary
// that it was asked for.
func lacksDictionary(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Status == http.StatusBadRequest && strings.Contains(refused.Reason, "unknown "+dictionaryParameter)
}

// decoder decompresses messages, and gets the dictionaries that it needs. One goroutine uses it.
type decoder struct {
	subscribe *url.URL
	dir       string // "": memory only
	known     [][]byte
	dec       *zstd.Decoder // of known; nil: to be made
	http      *http.Client
	header    http.Header
	fetches   func() // counts one
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

// learn gets the dictionary that the frame is made with.
func (d *decoder) learn(ctx context.Context, frame []byte) error {
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		return fmt.Errorf("decompress: %w: %w", ErrUnreadable, err)
	}
	if len(d.known) >= maxDictionaries {
		return fmt.Errorf("%w %d: the server has used %d others", ErrDictionary, h.DictionaryID, maxDictionaries)
	}
	got := d.load(h.DictionaryID)
	if got == nil {
		var err error
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
	if checkDictionary(raw, id) != nil {
		return nil
	}
	return raw
}

// checkDictionary checks that raw is a whole zstd dictionary with that ID.
func checkDictionary(raw []byte, id uint32) error {
	if len(raw) > maxDictionaryBytes {
		return fmt.Errorf("it has more than %d bytes", maxDictionaryBytes)
	}
	d, err := zstd.InspectDictionary(raw)
	if err != nil {
		return err
	}
	if d.ID() != id {
		return fmt.Errorf("its ID is %d", d.ID())
	}
	return nil
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

// fetch gets a dictionary from the server.
func (d *decoder) fetch(ctx context.Context, id uint32) ([]byte, error) {
	d.fetches()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	address := endpoint(d.subscribe, fmt.Sprintf("/dictionaries/%d", id))
	raw, err := get(ctx, d.http, d.header, address, maxDictionaryBytes+1)
	var refused *RefusedError
	if errors.As(err, &refused) && refused.permanent() {
		return nil, fmt.Errorf("%w %d: %s: %w (give its file, if you have it)", ErrDictionary, id, address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch dictionary %d: %w", id, err)
	}
	if err := checkDictionary(raw, id); err != nil {
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
	for k, v := range header {
		req.Header[k] = v
	}
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
