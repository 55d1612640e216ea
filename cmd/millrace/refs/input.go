package refs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"millrace/dict"
)

// Record is a record that is alive, with what it points at. Its bytes are good until the call ends.
type Record struct {
	Collection, Key []byte
	References      []Reference
}

// Reference is a value of a record that is, as a whole, a DID or AT URI.
type Reference struct{ Path, Subject []byte }

// Sink takes what is read of a file. An error of its ends the reading.
type Sink interface {
	// Begin begins an account; its records follow. rev is that of its repository, as a packed TID;
	// 0: the file does not say.
	Begin(did string, rev uint64) error
	Add(r *Record) error
}

// Limits of what is read. They bound the memory that a file can take.
const (
	maxRepositoryBytes = 1 << 30
	maxWindowBytes     = 128 << 20 // of zstd
	maxRowBytes        = 256 << 10
)

// Counts says what was left out of files: references over translate's limits, records of
// collections that are not kept, and records that translate drops, by its reasons.
type Counts struct {
	Excess, Filtered uint64
	Dropped          map[string]uint64
}

// Reader reads files. It belongs to one goroutine.
type Reader struct {
	Counts Counts
	// The collections that are kept: NSIDs, or prefixes such as app.bsky.*; none: all.
	Collections []string
}

// Read reads a file: a repository as a CAR file, or references as rows, in NDJSON or CSV; plain or
// compressed with gzip or zstd. Its first bytes show which. A repository's structure is checked
// before sink sees anything; rows come as they are read. An error says where in the file it is
// wrong.
func (r *Reader) Read(ctx context.Context, in io.Reader, sink Sink) error {
	plain, err := dict.NewFileReader(in, maxWindowBytes)
	if err != nil {
		return err
	}
	defer plain.Close()
	b := bufio.NewReaderSize(plain, 64<<10)
	if start, _ := b.Peek(len(byteOrderMark)); string(start) == byteOrderMark {
		_, _ = b.Discard(len(byteOrderMark)) // what was peeked
	}
	start, err := b.Peek(4)
	switch {
	case len(start) == 0 && errors.Is(err, io.EOF):
		return errors.New("the file is empty")
	case len(start) == 0:
		return fmt.Errorf("read: %w", err)
	case start[0] == '{' || start[0] == '\n' || start[0] == '\r':
		return r.readRows(ctx, jsonRows(b), sink)
	case bytes.HasPrefix(bytes.TrimPrefix(start, []byte(`"`)), []byte("did")):
		return r.readRows(ctx, csvRows(b), sink)
	case isCAR(b):
		return r.readCAR(ctx, b, sink)
	}
	return errors.New("it is neither a CAR file of a repository, nor rows of references as NDJSON or CSV, which begin with { or did")
}

// byteOrderMark is what some programs begin a text in UTF-8 with.
const byteOrderMark = "\ufeff"

// IsRepository says whether a file is a repository, and not rows.
func IsRepository(in io.Reader) (bool, error) {
	plain, err := dict.NewFileReader(in, maxWindowBytes)
	if err != nil {
		return false, err
	}
	defer plain.Close()
	return isCAR(bufio.NewReader(plain)), nil
}

// carHeaderRoots is how the header of a CAR file begins, after its length: a map of two, roots.
const carHeaderRoots = "\xa2eroots"

// maxCARHeader is the longest header that is read: that of one root has some 60 bytes.
const maxCARHeader = 4 << 10

// isCAR says whether what follows begins as a CAR file does.
func isCAR(b *bufio.Reader) bool {
	start, _ := b.Peek(binary.MaxVarintLen16 + len(carHeaderRoots))
	length, n := binary.Uvarint(start)
	return n > 0 && length <= maxCARHeader && bytes.HasPrefix(start[n:], []byte(carHeaderRoots))
}

// Spool copies what can be read once only to a temporary file in dir, which is removed as soon as
// it is closed.
func Spool(in io.Reader, dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "references-*.tmp")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = io.Copy(f, in)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
