package identity

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/bluesky-social/indigo/atproto/atcrypto"

	"millrace/dict"
)

// Bounds of reading an export.
const (
	maxLineBytes   = 1 << 20
	maxWindowBytes = 8 << 20 // of a zstd frame; levels up to 19 need no more
	batchBytes     = 256 << 10
)

var (
	// ErrExport means that the export's file cannot be opened.
	ErrExport      = errors.New("open PLC export")
	errNoExport    = errors.New("no line of it is an operation of a PLC directory")
	errNotExported = errors.New("the PLC export does not have the account")
)

// export is the file of a PLC directory's operations, one JSON line each, oldest first.
type export struct {
	file   *os.File
	source string // identifies the content, by size and time
}

// openExport opens the file; nil if path is "".
func openExport(path string) (*export, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrExport, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no regular file", ErrExport, path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &export{file: f, source: fmt.Sprintf("export %d %d", info.Size(), info.ModTime().UnixNano())}, nil
}

// CheckExport says whether Open can open an export's file: nil, or ErrExport.
func CheckExport(path string) error {
	e, err := openExport(path)
	return errors.Join(err, e.close())
}

func (e *export) close() error {
	if e == nil {
		return nil
	}
	return e.file.Close()
}

// source names where the cache is filled from.
func (c *Config) source(e *export) string {
	if e == nil {
		return "plc " + c.PLC
	}
	return e.source
}

// load fills the store from the export, unless it was before, and closes the file. Without an
// export it only notes the source.
func (e *export) load(ctx context.Context, s *store, source string, logger *slog.Logger) error {
	defer e.close()
	loaded, err := s.hasSource()
	if err != nil || loaded {
		return err
	}
	if e != nil {
		logger.Info("reading the PLC export", "file", e.file.Name())
		lines, invalid, err := s.readExport(ctx, e.file)
		if err != nil {
			return fmt.Errorf("read %s: %w", e.file.Name(), err)
		}
		logger.Info("the PLC export is read", "lines", lines, "invalid", invalid)
	}
	return s.setSource(source)
}

// operation is a line of an export.
type operation struct {
	DID       string `json:"did"`
	Nullified bool   `json:"nullified"`
	Operation struct {
		Type       string            `json:"type"`
		Methods    map[string]string `json:"verificationMethods"`
		SigningKey string            `json:"signingKey"` // of type create
	} `json:"operation"`
}

// key returns the signing key that the operation sets, as a did:key; "": none. ok is false for what
// is no operation.
func (o *operation) key() (key string, ok bool) {
	switch o.Operation.Type {
	case "plc_operation":
		return o.Operation.Methods["atproto"], true
	case "create":
		return o.Operation.SigningKey, true
	case "plc_tombstone":
		return "", true
	}
	return "", false
}

// readExport writes the key of each account that the operations of in lead to.
func (s *store) readExport(ctx context.Context, in io.Reader) (lines, invalid int, err error) {
	plain, err := dict.NewFileReader(in, maxWindowBytes)
	if err != nil {
		return 0, 0, err
	}
	defer plain.Close()
	scanner := bufio.NewScanner(plain)
	scanner.Buffer(nil, maxLineBytes)
	b := s.db.Pebble().NewBatch()
	defer func() { s.db.CloseBatch(b) }()
	for scanner.Scan() {
		lines++
		var o operation
		err := json.Unmarshal(scanner.Bytes(), &o)
		key, ok := o.key()
		if err != nil || !ok || !strings.HasPrefix(o.DID, "did:plc:") || len(o.DID) > maxDID {
			invalid++
			continue
		}
		if o.Nullified {
			continue
		}
		if err := b.Set(exportKey(o.DID), []byte(key), nil); err != nil {
			return lines, invalid, err
		}
		if b.Len() < batchBytes {
			continue
		}
		if err := errors.Join(ctx.Err(), s.db.Commit(b, false)); err != nil {
			return lines, invalid, err
		}
		s.db.CloseBatch(b)
		b = s.db.Pebble().NewBatch()
	}
	if err := scanner.Err(); err != nil {
		return lines, invalid, fmt.Errorf("line %d: %w", lines+1, err)
	}
	if lines == invalid {
		return lines, invalid, errNoExport
	}
	return lines, invalid, s.db.Commit(b, false)
}

// exported returns the key of an account of the export. It needs no lock.
func (s *store) exported(did string) (atcrypto.PublicKey, error) {
	value, ok, err := s.db.Value(exportKey(did))
	switch {
	case err != nil:
		return nil, s.db.FailOn("read the PLC export", err)
	case !ok:
		return nil, errNotExported // it may be newer than the export
	}
	key, err := atcrypto.ParsePublicDIDKey(string(value))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoSigningKey, err)
	}
	return key, nil
}

// exportKey returns the store's key for what the export has of a did:plc.
func exportKey(did string) []byte {
	return append([]byte{prefixExport}, did[len("did:plc:"):]...)
}
