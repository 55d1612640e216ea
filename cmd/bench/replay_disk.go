package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay"
	"millrace/translate"
)

// driveEvents is how many events a block has at 1,500 events/s: one is sealed every 5 ms.
const driveEvents = 8

// frameFeeder makes blocks out of the kept frames, again and again.
type frameFeeder struct {
	frames     [][]byte
	next       int
	seq        int64
	translator *translate.Translator
	batch      translate.Batch
}

func (b *replayBench) newFeeder(after int64) (*frameFeeder, error) {
	raw, err := os.ReadFile(filepath.Join(b.kept, framesFile))
	if err != nil {
		return nil, err
	}
	f := &frameFeeder{seq: after}
	for len(raw) >= 4 {
		n := binary.LittleEndian.Uint32(raw)
		f.frames = append(f.frames, raw[4:4+n])
		raw = raw[4+n:]
	}
	if len(f.frames) == 0 {
		return nil, errors.New("no frames are kept")
	}
	f.translator, err = translate.New(translate.Config{})
	return f, err
}

// block makes a block of some frames, with so many events or a few more. stamp gives them their
// stamps.
func (f *frameFeeder) block(log *replay.Log, events int, stamp func(b *translate.Batch)) (*replay.Block, int, error) {
	f.batch.Reset()
	first := f.seq + 1
	for len(f.batch.Events) < events {
		f.seq++
		from := len(f.batch.Events)
		f.translator.AppendFrame(&f.batch, f.frames[f.next])
		f.next = (f.next + 1) % len(f.frames)
		for i := from; i < len(f.batch.Events); i++ {
			e := &f.batch.Events[i]
			e.Seq, e.DIDUID = f.seq, uint64(len(f.batch.DID(i)))
			if e.Kind == translate.KindCommit {
				e.URIUID = uint64(f.seq)<<8 | uint64(e.Op&0xff)
			}
		}
	}
	stamp(&f.batch)
	block, err := log.Seal(replay.Input{Epoch: log.Progress().Epoch, FirstSeq: first, LastSeq: f.seq, Batch: &f.batch})
	return block, len(f.batch.Events), err
}

// measureDisk shows what the log takes and what was written for it.
func (b *replayBench) measureDisk(ctx context.Context) error {
	m := b.m
	logDir := filepath.Join(b.data, "log")
	total, err := tableBytesIn(logDir)
	if err != nil {
		return err
	}
	parts, err := rangeBytes(logDir)
	if err != nil {
		return err
	}
	each := func(n int64) string { return fmt.Sprintf("%.0f", float64(n)/float64(m.Events)) }
	base := &m.Baseline
	basePerEvent := float64(base.Stored.Disk) / float64(base.Events)
	ours := float64(total) / float64(m.Events)
	b.row(reachRow{
		what: "disk, bytes an event", ratio: fmt.Sprintf("%.2f of baseline", ours/basePerEvent), reach: "less than baseline", met: ours < basePerEvent,
		ours:     fmt.Sprintf("%.0f (plain %s, zstd %s, index %s, rest %s)", ours, each(parts[1]), each(parts[2]), each(parts[0]), each(total-parts[0]-parts[1]-parts[2])),
		baseline: fmt.Sprintf("%.0f", basePerEvent),
	})
	b.row(writtenRow("write amplification at full speed", m.Log.Given, m.Log.Disk, m.Log.Written, &base.Stored))
	driven, err := b.drive(ctx)
	if err != nil {
		return err
	}
	b.row(writtenRow(fmt.Sprintf("write amplification at 1,500 events/s (%d events a block)", driveEvents), driven.Given, driven.Disk, driven.Written, &base.Stored))
	return nil
}

// writtenRow shows what was written by what was given, which tables compress, and by what lies on
// disk then.
func writtenRow(what string, given, disk int64, w writtenBytes, base *replayStored) reachRow {
	factor := func(tables, wal, disk, given int64) string {
		return fmt.Sprintf("tables %.2f, WAL %.2f of what was given; tables %.2f of what lies on disk",
			float64(tables)/float64(given), float64(wal)/float64(given), float64(tables)/float64(max(disk, 1)))
	}
	beyond := float64(w.Tables) / float64(given)
	return reachRow{
		what: what, ours: factor(w.Tables, w.WAL, disk, given), baseline: factor(base.Written.Tables, base.Written.WAL, base.Disk, base.Given),
		reach: "≤ 1.5 of what was given, beyond the WAL", met: beyond <= 1.5,
	}
}

// rangeBytes is what the index with the slim index, the plain and the zstd parts take on disk
// (their ranges: replay/internal/format).
func rangeBytes(dir string) (parts [3]int64, err error) {
	db, err := pebble.Open(dir, &pebble.Options{ReadOnly: true, FormatMajorVersion: pebble.FormatNewest, Logger: quietPebble{}})
	if err != nil {
		return parts, err
	}
	for r, part := range map[byte]int{0x10: 0, 0x11: 1, 0x12: 2, 0x18: 0} {
		n, err := db.EstimateDiskUsage([]byte{r}, []byte{r + 1})
		if err != nil {
			return parts, errors.Join(err, db.Close())
		}
		parts[part] += int64(n)
	}
	return parts, db.Close()
}

// drive appends small blocks as a quiet relay makes them, stamped 1,500 events a second but as fast
// as it goes and without syncs, which change no byte of what is written.
func (b *replayBench) drive(ctx context.Context) (stored replayStored, err error) {
	dicts, err := newDictionaries()
	if err != nil {
		return stored, err
	}
	defer dicts.Close()
	files := newCountingFS(true)
	dir := filepath.Join(b.work, "drive")
	log, err := openReplayLog(dir, dicts, files)
	if err != nil {
		return stored, err
	}
	feeder, err := b.newFeeder(0)
	if err != nil {
		return stored, errors.Join(err, log.Close())
	}
	us := time.Now().UnixMicro()
	stamp := func(batch *translate.Batch) {
		for i := range batch.Events {
			us += eventStepUS
			batch.Stamp(i, us)
		}
	}
	begun := time.Now()
	for done := 0; done < b.f.drive && ctx.Err() == nil; {
		block, n, err := feeder.block(log, driveEvents, stamp)
		if err == nil {
			err = log.Append(block)
		}
		if err != nil {
			return stored, errors.Join(err, log.Close())
		}
		done += n
	}
	stored.Seconds = time.Since(begun).Seconds()
	restOf(files)
	stored.Given, stored.Written = log.Range().Bytes, files.written()
	if err := log.Close(); err != nil {
		return stored, err
	}
	// What is in the memtable was written to the write-ahead log only: count what is in tables.
	stored.Disk, err = tableBytesIn(dir)
	return stored, errors.Join(err, ctx.Err())
}
