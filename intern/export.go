package intern

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"millrace/intern/kv"
)

// errWritten means: the store was written while it was exported or verified.
var errWritten = errors.New("UID store was written meanwhile: stop the servers that use it, then run this again")

// exportStep is how many keys one transaction of an export scans.
const exportStep = 2000

// File is what Export writes to; *os.File is one.
type File interface {
	io.ReadWriteSeeker
	Truncate(size int64) error
}

// Summary is what a dump holds.
type Summary struct {
	StoreID     string
	PrefixBits  int
	Names       uint64 // DIDs and URIs
	Collections uint64
	Sequences   uint64
	Bytes       int64
}

// Export writes a dump of a store that is not written meanwhile. If the file holds the beginning of
// a dump of the same store, it goes on after the last good segment. A complete dump is only
// checked. The caller syncs and closes the file. progress, if not nil, gets the number of names
// written so far.
func Export(ctx context.Context, store kv.Store, f File, progress func(names uint64)) (*Summary, error) {
	x := &exporter{store: store, progress: progress}
	if err := x.run(ctx, f); err != nil {
		return nil, fmt.Errorf("export UID store: %w", err)
	}
	return x.header.summary(x.w.counts, x.bytes), nil
}

type exporter struct {
	store    kv.Store
	header   dumpHeader
	old      *dumpReader // what the file held
	w        *dumpWriter
	segment  segment // being filled
	bytes    int64
	progress func(uint64)
}

func (x *exporter) run(ctx context.Context, f File) error {
	header, err := storeHeader(ctx, x.store)
	if err != nil {
		return err
	}
	x.header = header
	complete, err := x.resume(ctx, f)
	if err != nil || complete {
		return err
	}
	for _, step := range []func(context.Context) error{x.collections, x.uids, x.sequences} {
		if err := step(ctx); err != nil {
			return err
		}
		if err := x.flush(); err != nil {
			return err
		}
	}
	if now, err := storeHeader(ctx, x.store); err != nil || now != header {
		return errors.Join(err, errWritten)
	}
	if err := x.w.end(); err != nil {
		return err
	}
	x.bytes, err = f.Seek(0, io.SeekCurrent)
	return err
}

// storeHeader reads the header and the counters.
func storeHeader(ctx context.Context, store kv.Store) (h dumpHeader, err error) {
	err = kv.Run(ctx, store, func(txn kv.Txn) (err error) {
		if h.header, err = loadHeader(ctx, txn); err != nil {
			return err
		}
		h.skipped, err = storedNumber(ctx, txn, []byte(keySkipped))
		return err
	})
	if err != nil {
		return h, err
	}
	err = kv.ScanAll(ctx, store, tagRange(tagSequence), exportStep, func(p kv.Pair) error {
		n, err := number(p.Value)
		h.counters++
		h.total += n
		return err
	})
	return h, err
}

// resume reads what the file holds and leaves it at the end of the last good segment.
func (x *exporter) resume(ctx context.Context, f File) (complete bool, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	x.old = newDumpReader(f)
	x.w = &dumpWriter{w: bufio.NewWriterSize(f, 1<<20), sum: x.old.sum}
	start, err := x.old.r.Peek(int(min(size, int64(len(dumpMagic)))))
	if err != nil || !strings.HasPrefix(dumpMagic, string(start)) {
		return false, x.old.damage(err, noDump)
	}
	head := segment{segHeader, x.header.appendTo(nil)}
	begun := size >= int64(len(dumpMagic)+segHeadBytes+len(head.payload)) // else not even a header
	if begun {
		if err := x.old.open(); err != nil {
			return false, err
		}
		if x.old.header != x.header {
			return false, errors.New("the file holds a dump of another store, or of this one at another time; remove it to begin anew")
		}
	}
	for begun && err == nil {
		if err = context.Cause(ctx); err == nil {
			_, err = x.old.segment()
		}
	}
	if begun && !errors.Is(err, io.EOF) && !errors.Is(err, errDump) {
		return false, err
	}
	x.w.counts, x.bytes = x.old.counts, x.old.offset
	if err := f.Truncate(x.old.offset); err != nil {
		return false, err
	}
	if x.old.kind == segEnd {
		return true, nil
	}
	if _, err := f.Seek(x.old.offset, io.SeekStart); err != nil {
		return false, err
	}
	if begun {
		return false, nil
	}
	x.old.sum = sha256.New()
	x.w.sum = x.old.sum
	if err := x.w.write([]byte(dumpMagic)); err != nil {
		return false, err
	}
	return false, x.w.segment(head)
}

// fill adds to the segment of a kind and writes it when it is full.
func (x *exporter) fill(kind byte, add func(dst []byte) []byte) error {
	x.segment.kind = kind
	x.segment.payload = add(x.segment.payload)
	if len(x.segment.payload) < fillSegment {
		return nil
	}
	return x.flush()
}

func (x *exporter) flush() error {
	if len(x.segment.payload) == 0 {
		return nil
	}
	err := x.w.segment(x.segment)
	x.segment.payload = x.segment.payload[:0]
	if x.progress != nil {
		x.progress(x.w.counts.names)
	}
	return err
}

// collections are few: after an interruption all are scanned again, and those written left out.
func (x *exporter) collections(ctx context.Context) error {
	if x.old.kind == segUIDs || x.old.kind == segSequences {
		return nil
	}
	skip := x.w.counts.collections
	return kv.ScanAll(ctx, x.store, tagRange(tagCollNumber), exportStep, func(p kv.Pair) error {
		if skip > 0 {
			skip--
			return nil
		}
		if len(p.Key) != 5 {
			return broken("collection key", p.Key)
		}
		x.w.counts.collections++
		return x.fill(segCollections, func(dst []byte) []byte {
			dst = binary.AppendUvarint(dst, uint64(binary.BigEndian.Uint32(p.Key[1:])))
			return append(binary.AppendUvarint(dst, uint64(len(p.Value))), p.Value...)
		})
	})
}

func (x *exporter) uids(ctx context.Context) error {
	if x.old.kind == segSequences {
		return nil
	}
	from := tagRange(tagUIDs)
	if x.old.next > 0 {
		from.Begin = appendUIDKey(nil, x.old.next)
	}
	return kv.ScanAll(ctx, x.store, from, exportStep, func(p kv.Pair) error {
		_, count, err := openChunk(x.header.codec, p.Value)
		if err != nil || len(p.Key) != uidKeyBytes {
			return broken("chunk", p.Value)
		}
		x.w.counts.names += uint64(count)
		return x.fill(segUIDs, func(dst []byte) []byte {
			dst = append(dst, p.Key[1:]...)
			return append(binary.AppendUvarint(dst, uint64(len(p.Value))), p.Value...)
		})
	})
}

func (x *exporter) sequences(ctx context.Context) error {
	skip := x.w.counts.sequences
	return kv.ScanAll(ctx, x.store, tagRange(tagSequence), exportStep, func(p kv.Pair) error {
		if skip > 0 {
			skip--
			return nil
		}
		x.w.counts.sequences++
		return x.fill(segSequences, func(dst []byte) []byte {
			return append(append(dst, bytes.TrimPrefix(p.Key, []byte{tagSequence})...), p.Value...)
		})
	})
}

func (h *dumpHeader) summary(c dumpCounts, size int64) *Summary {
	return &Summary{StoreID: h.ID(), PrefixBits: int(h.prefixBits), Names: c.names, Collections: c.collections,
		Sequences: c.sequences, Bytes: size}
}
