package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	lexutil "github.com/bluesky-social/indigo/lex/util"

	"millrace/consume"
	"millrace/translate"
)

// TestPipelineLargeFrames: a frame larger than a block is not copied. Handle returns when it is
// translated, and its caller may use the memory again. The order of frames is kept.
func TestPipelineLargeFrames(t *testing.T) {
	log := &fakeLog{}
	large := func(seq int64) consume.Frame {
		return frameOf(t, seq, "#commit", &comatproto.SyncSubscribeRepos_Commit{
			Repo: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Rev: "3k4duaz5vfs2b", Seq: seq, Time: "2026-11-20T00:00:00Z",
			Ops:   []*comatproto.SyncSubscribeRepos_RepoOp{{Action: "delete", Path: "a.b.c/x"}},
			Blobs: []lexutil.LexLink{}, Blocks: make([]byte, 1<<20), Commit: lexutil.LexLink(testCID(t)),
		})
	}
	frames := []consume.Frame{
		deletesFrame(t, 1, 3), large(2), large(3), deletesFrame(t, 4, 1), deletesFrame(t, 5, 1), large(6), deletesFrame(t, 7, 2),
	}
	err := runPipelineWith(t, Config{Log: log, InFlightBytes: 1 << 20}, func(ctx context.Context, p *Pipeline) error {
		for _, f := range frames {
			if err := p.Handle(ctx, f); err != nil {
				return err
			}
			clear(f.Data)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var seqs []int64
	for _, b := range log.blocks() {
		seqs = append(seqs, b.seqs...)
	}
	if got := fmt.Sprint(seqs); got != "[1 1 1 2 3 4 5 6 7 7]" {
		t.Errorf("events of frames %s", got)
	}
}

// A job waits before the disk until there is room for its JSON and its references.
func TestPipelineJSONShare(t *testing.T) {
	t.Run("JSON", func(t *testing.T) {
		testPipelineShare(t, func(b *translate.Batch, size int) { b.JSON = make([]byte, size) })
	})
	t.Run("references", func(t *testing.T) {
		testPipelineShare(t, func(b *translate.Batch, size int) { b.References = make([]translate.Reference, size) })
	})
}

func testPipelineShare(t *testing.T, fill func(b *translate.Batch, size int)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 1 << 20, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		first, second := newJob(), newJob()
		fill(&first.batch, p.frameBytes)
		fill(&second.batch, 1)
		go func() { // ends with the second forward
			_ = p.forward(t.Context(), first)
			_ = p.forward(t.Context(), second)
		}()
		synctest.Wait()
		if n := len(p.commits); n != 1 {
			t.Errorf("%d jobs are on their way, want 1", n)
		}
		p.room.Release(first.room)
		synctest.Wait()
		if n := len(p.commits); n != 2 {
			t.Errorf("%d jobs are on their way once there is room, want 2", n)
		}
	})
}
