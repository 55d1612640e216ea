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
	"time"

	"github.com/klauspost/compress/zstd"

	"millrace/dict"
)

// maxMessageBytes is the largest message that is taken, decompressed. The largest event is a record of
// 1 MiB with every byte escaped.
const maxMessageBytes = 8 << 20

// maxDictionaries bounds what a server can make a client keep.
const maxDictionaries = 64

const fetchTimeout = 15 * time.Second

// decoder decompresses messages, and gets the dictionaries that it needs. One goroutine uses it.
type decoder struct {
	subscribe *url.URL
	dir       string // "": memory only
	known     []*dict.Dictionary
	dec       *dict.Decoder // of known; nil: to be made
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
	out, err := d.dec.Append(nil, msg)
	if errors.Is(err, dict.ErrUnknownDictionary) {
		if err = d.learn(ctx, msg); err != nil {
			return nil, err
		}
		out, err = d.dec.Append(nil, msg)
	}
	if errors.Is(err, dict.ErrTooLarge) {
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
	dec, err := dict.NewDecoder(maxMessageBytes, d.known...)
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
	if len(d.known) == maxDictionaries {
		return fmt.Errorf("%w %d: the server has used %d others", ErrDictionary, h.DictionaryID, maxDictionaries)
	}
	got := d.load(h.DictionaryID)
	if got == nil {
		var err error
		if got, err = d.fetch(ctx, h.DictionaryID); err != nil {
			return err
		}
		d.save(got)
	}
	d.known = append(d.known, got)
	return d.make()
}

// file returns where a dictionary is kept. IDs are a server's own, so its address is part of the name.
func (d *decoder) file(id uint32) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, endpoint(d.subscribe, "")) // never fails
	return filepath.Join(d.dir, fmt.Sprintf("%d-%016x.zdict", id, h.Sum64()))
}

// load returns a dictionary that was kept, nil if there is none that is whole.
func (d *decoder) load(id uint32) *dict.Dictionary {
	if d.dir == "" {
		return nil
	}
	raw, err := os.ReadFile(d.file(id))
	if err != nil {
		return nil
	}
	kept, err := dict.Parse(raw)
	if err != nil || kept.ID() != id {
		return nil
	}
	return kept
}

// save keeps a dictionary, if it can: it is a cache.
func (d *decoder) save(got *dict.Dictionary) {
	if d.dir == "" || os.MkdirAll(d.dir, 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(d.dir, "fetched-*")
	if err != nil {
		return
	}
	defer os.Remove(f.Name()) // what was renamed is not there any more
	_, err = f.Write(got.Bytes())
	if err = errors.Join(err, f.Close()); err == nil {
		_ = os.Rename(f.Name(), d.file(got.ID()))
	}
}

// fetch gets a dictionary from the server.
func (d *decoder) fetch(ctx context.Context, id uint32) (*dict.Dictionary, error) {
	d.fetches()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	address := endpoint(d.subscribe, fmt.Sprintf("/dictionaries/%d", id))
	body, err := get(ctx, d.http, d.header, address, dict.MaxBytes+1)
	var refused *RefusedError
	if errors.As(err, &refused) && refused.permanent() {
		return nil, fmt.Errorf("%w %d: %s: %w (give its file, if you have it)", ErrDictionary, id, address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch dictionary %d: %w", id, err)
	}
	got, err := dict.Parse(body)
	if err == nil && got.ID() != id {
		err = fmt.Errorf("its ID is %d", got.ID())
	}
	if err != nil {
		return nil, fmt.Errorf("%w %d: %s: %w", ErrDictionary, id, address, err)
	}
	return got, nil
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
