package refs

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/replay"
	"millrace/replay/references"
	"millrace/translate"
)

// TestImportStale: a repository that is older than --as-of says is refused, if the table knows a
// later commit that the log has no more.
func TestImportStale(t *testing.T) {
	w := followedWorld(t, 3, 45, references.Position{Epoch: 1})
	w.log.begin = 40
	refused := 0
	for did := range w.states[19] {
		if rev := w.revs[44][did]; w.revs[19][did] == rev || w.revs[39][did] != rev {
			continue
		}
		before := w.rows(did)
		done, err := w.run([][]byte{w.file(did, 19, false)}, w.at, -1)
		if err != nil || done.Refused != 1 || !maps.Equal(before, w.rows(did)) {
			t.Errorf("%s: %+v, %v", did, done, err)
		}
		refused++
	}
	if refused == 0 {
		t.Error("no account has its last commit among those that were trimmed")
	}
}

// TestImportLate: a repository that is older than --as-of says has laid over it all that the log
// has above it. It is refused if the log does not reach back to it, but not if --as-of is right.
func TestImportLate(t *testing.T) {
	laid, refused, idle := 0, 0, 0
	for seed := range uint64(40) {
		w := followedWorld(t, seed, 45, references.Position{Epoch: 1})
		w.log.begin = int64(w.rng.IntN(20)) // trimmed
		for did := range w.states[19] {
			rev := w.revs[19][did]
			if rev == 0 || w.revs[33][did] == rev {
				continue // its next commit is within the clocks' slack
			}
			asOf, late := time.UnixMicro(w.log.events[19].TimeUS), seed%2 == 0
			if late {
				asOf = w.at
			}
			done, err := w.run([][]byte{w.file(did, 19, false)}, asOf, -1)
			if diff := cmp.Diff(w.states[44][did], w.rows(did), cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Fatalf("seed %d: %s: %+v, %v -want +got\n%s", seed, did, done, err, diff)
			}
			old := int64(rev>>10) < w.log.events[w.log.begin].TimeUS
			if done.Refused == 1 != (old && late) {
				t.Errorf("seed %d: %s: %+v, old: %t, late: %t", seed, did, done, old, late)
			}
			if old && !late {
				idle++
			}
			laid += int(done.Laid)
			refused += int(done.Refused)
		}
		_ = w.store.Close()
	}
	if laid == 0 || refused == 0 || idle == 0 {
		t.Errorf("%d laid, %d refused, %d idle", laid, refused, idle)
	}
}

// TestImportTwice: of two repositories of one account the first is imported, with the log laid over
// it, as if it came alone: also if the second is the same, or older.
func TestImportTwice(t *testing.T) {
	tried := 0
	for seed := range uint64(20) {
		for did := range followedWorld(t, seed, 45, references.Position{Epoch: 1}).states[19] {
			rows := func(states ...int) map[string]string {
				w := followedWorld(t, seed, 45, references.Position{Epoch: 1})
				var files [][]byte
				for _, n := range states {
					if w.revs[n][did] == 0 {
						return nil
					}
					files = append(files, w.file(did, n, false))
				}
				done, err := w.run(files, time.UnixMicro(w.log.events[19].TimeUS), -1)
				if err != nil || done.Refused != 0 {
					t.Fatalf("seed %d, %s: states %v: %+v, %v", seed, did, states, done, err)
				}
				return w.rows(did)
			}
			for _, second := range []int{19, 10} {
				alone, both := rows(19), rows(19, second)
				if alone == nil || both == nil {
					continue
				}
				if diff := cmp.Diff(alone, both); diff != "" {
					t.Errorf("seed %d, %s: with state %d after it (-alone +both):\n%s", seed, did, second, diff)
				}
				tried++
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d imports", tried)
	}
}

// TestImportOlderThanSync: what is from before a #sync does not make its account exact, whether
// commits follow it or not, even if a repository's --as-of is later. What is from after it does.
func TestImportOlderThanSync(t *testing.T) {
	const did, key = "did:web:9.example.com", "app.bsky.feed.like/a"
	for _, commits := range []int{0, 1} {
		w := newImportWorld(t, 7)
		event := func(member string) {
			w.at = w.at.Add(time.Hour)
			e := replay.Change{Seq: int64(len(w.log.events) + 1), TimeUS: w.at.UnixMicro(), DIDUID: w.uids.uid(did), Kind: translate.KindSync}
			if member == "commit" {
				e.Kind, e.Operation, e.URIUID = translate.KindCommit, translate.OpCreate, w.uids.uid("at://"+did+"/"+key)
			}
			e.Payload = fmt.Appendf(nil, `{"did":%q,"time_us":%d,"kind":%q,%q:{"rev":%q}}`, did, e.TimeUS, member, member, syntax.NewTID(e.TimeUS, 0))
			w.log.events = append(w.log.events, e)
		}
		event("commit")
		before, rev := w.at.Add(30*time.Minute), w.at.UnixMicro()
		event("sync")
		sync, after := w.at.UnixMicro(), w.at.Add(30*time.Minute)
		for range commits {
			event("commit")
		}
		if err := errors.Join(w.store.Begin("", references.Position{Epoch: 1}), w.store.Follow(t.Context(), w.log, nil)); err != nil {
			t.Fatal(err)
		}
		row := fmt.Appendf(nil, "%s,app.bsky.feed.like,b,subject.uri,did:web:s.example.com\n", did)
		repository := func(rev int64) []byte { return buildCAR(t, did, syntax.NewTID(rev, 0).String(), nil).bytes() }
		for n, file := range []struct {
			data []byte
			asOf time.Time
			want int64
		}{{repository(rev), w.at.Add(time.Hour), sync}, {row, before, sync}, {row, after, 0}} {
			done, err := w.run([][]byte{file.data}, file.asOf, -1)
			if got := w.store.InexactSince(); err != nil || done.Imported != 1 || got != file.want {
				t.Errorf("%d commits, file %d: inexact since %d, want %d; %+v, %v", commits, n, got, file.want, done, err)
			}
		}
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
