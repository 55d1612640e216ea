package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	"github.com/ipfs/go-cid"

	"millrace/cmd/millrace/ingest"
	"millrace/consume"
	"millrace/consume/relaysim/cbor"
	"millrace/intern"
	"millrace/intern/kv/simkv"
	"millrace/replay"
	"millrace/replay/references"
	"millrace/translate"
)

// createFrame is a frame that creates a record.
func createFrame(t *testing.T, seq int64, record cbor.Map) consume.Frame {
	t.Helper()
	data := cbor.Append(nil, record)
	id := cbor.CID(data)
	car := cbor.AppendCARSection(cbor.AppendCARHeader(nil, id), id, data)
	parsed, err := cid.Cast(id)
	if err != nil {
		t.Fatal(err)
	}
	link := lexutil.LexLink(parsed)
	return frameOf(t, seq, "#commit", &comatproto.SyncSubscribeRepos_Commit{
		Repo: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Rev: "3k4duaz5vfs2b", Seq: seq, Time: "2026-11-20T00:00:00Z",
		Ops:   []*comatproto.SyncSubscribeRepos_RepoOp{{Action: "create", Path: fmt.Sprintf("a.b.c/%d", seq), Cid: &link}},
		Blobs: []lexutil.LexLink{}, Blocks: car, Commit: link,
	})
}

// referenceLog is a log that checks the references of what is sealed: their UIDs are durable by
// then, and stand for their subjects and authorities.
type referenceLog struct {
	t      *testing.T
	reader *intern.Interner // without a cache

	mu    sync.Mutex
	seen  map[string]int // by path
	uidOf map[string]uint64
}

func (l *referenceLog) Progress() replay.Progress               { return replay.Progress{Epoch: 1} }
func (l *referenceLog) StreamOfEpoch(e uint32) translate.Stream { return translate.Stream(e) }
func (l *referenceLog) Append(...*replay.Block) error           { return nil }
func (l *referenceLog) SourceNumber([]byte) (uint32, bool)      { return 1, true }

// noReferences is a reference store that knows nothing.
type noReferences struct{}

func (noReferences) Hydrated() uint64                                 { return 0 }
func (noReferences) Hydrate(context.Context, *references.Batch) error { return nil }
func (noReferences) Apply(*references.Batch) error                    { return nil }

func (l *referenceLog) Seal(in replay.Input) (*replay.Block, error) {
	b := in.Batch
	for i := range b.References {
		r := &b.References[i]
		authority := string(b.Authority(i))
		if !strings.HasPrefix(authority, "did:") {
			authority = "at://" + authority
		}
		l.check(string(b.Subject(i)), r.SubjectUID)
		l.check(authority, r.AuthorityUID)
		l.mu.Lock()
		l.seen[string(b.ReferencePath(i))]++
		l.mu.Unlock()
	}
	return &replay.Block{}, nil
}

func (l *referenceLog) check(s string, uid uint64) {
	stored := make([]string, 1)
	if err := l.reader.LookupUIDs(context.Background(), []uint64{uid}, stored); err != nil || stored[0] != s {
		l.t.Errorf("%s has UID %d, which the store has for %q: %v", s, uid, stored[0], err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, ok := l.uidOf[s]; ok && was != uid {
		l.t.Errorf("%s has UIDs %d and %d", s, was, uid)
	}
	l.uidOf[s] = uid
}

// TestReferenceUIDs takes frames through the pipeline and a UID store whose commits conflict and
// have unknown outcomes. When a batch is sealed, its references have their UIDs, durable.
func TestReferenceUIDs(t *testing.T) {
	store := simkv.New(simkv.Config{Seed: 1})
	open := func(cacheBytes int64) *intern.Interner {
		in, err := intern.Open(t.Context(), intern.Config{Store: store, CacheBytes: cacheBytes})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close() })
		return in
	}
	writer := open(1 << 20)
	log := &referenceLog{t: t, reader: open(-1), seen: make(map[string]int), uidOf: make(map[string]uint64)}
	store.SetFaults(simkv.Faults{Conflict: 0.1, UnknownApplied: 0.1, UnknownLost: 0.1, UnknownLate: 0.1, LateBy: time.Millisecond})
	p, err := ingest.New(ingest.Config{
		Log: log, References: noReferences{}, InFlightBytes: 8 << 20,
		NewResolver: func() ingest.Resolver { return &batchResolver{interner: writer} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	const frames = 200
	for seq := int64(1); seq <= frames; seq++ {
		did := fmt.Sprintf("did:web:%d.example.com", seq%17)
		handle := fmt.Sprintf("%d.example.com", seq%13)
		record := cbor.Map{
			{Key: "did", Value: did},
			{Key: "uri", Value: fmt.Sprintf("at://%s/a.b.c/%d", did, seq%29)},
			{Key: "new", Value: fmt.Sprintf("at://did:web:%d.net/a.b.c", seq)},
			{Key: "named", Value: fmt.Sprintf("at://%s/a.b.c/%d", handle, seq)},
			{Key: "handle", Value: "at://" + handle},
			{Key: "authority", Value: "at://" + did},
		}
		if err := p.Handle(t.Context(), createFrame(t, seq, record)); err != nil {
			t.Fatal(err)
		}
	}
	p.Finish()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"did", "uri", "new", "named", "handle", "authority"} {
		if log.seen[path] != frames {
			t.Errorf("%d references of path %s, want %d", log.seen[path], path, frames)
		}
	}
	if stats := store.Stats(); stats.Injected == 0 {
		t.Errorf("the store had no faults: %+v", stats)
	}
}
