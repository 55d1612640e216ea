package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// counted is what the tests expect of a counter, by step.
type counted map[int64]uint32

func (n counted) count(step int64) Count {
	var c Count
	for _, events := range n {
		c.Total += int64(events)
	}
	c.Recent = []uint32{}
	for i := max(step-CountSteps+1, 0); i <= step; i++ {
		c.Recent = append(c.Recent, n[i])
	}
	return c
}

// TestCounts appends blocks at random moments and compares every counter with a plain map by step.
func TestCounts(t *testing.T) {
	clock := newTestClock()
	l := mustOpen(t, testConfig(t, vfs.NewMem(), clock))
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[string]counted{}
	add := func(what string, step int64) {
		if want[what] == nil {
			want[what] = counted{}
		}
		want[what][step]++
	}
	var plain, zstd int64
	seq := int64(0)
	for range 400 {
		clock.advance(time.Duration(rng.Int64N(int64(3 * CountStep))))
		if rng.IntN(20) == 0 {
			clock.advance(CountStep * time.Duration(rng.Int64N(CountSteps)))
		}
		clock.step(time.Duration(rng.Int64N(int64(time.Second)))) // the wall clock does not matter
		step := int64(clock.mono / CountStep)
		b := testBlock{epoch: 1, firstSeq: seq + 1}
		for range rng.IntN(20) {
			seq++
			e := testEvent{Place: format.Place{Epoch: 1, Seq: seq, Op: 0}, timeUS: testStart.UnixMicro() + seq, did: "did:web:example.com", payload: `{"a":1}`}
			switch k := rng.IntN(6); k {
			case 3:
				e.kind = translate.KindIdentity
				add("identity", step)
			case 4:
				e.kind = translate.KindAccount
				add("account", step)
			case 5:
				e.kind = translate.KindSync
				add("sync", step)
			default:
				e.kind, e.operation = translate.KindCommit, translate.OpCreate+translate.Operation(k)
				e.collection = fmt.Sprintf("com.example.c%d", rng.IntN(5))
				add(e.operation.String(), step)
				add(e.collection, step)
			}
			b.events = append(b.events, e)
		}
		seq++
		b.lastSeq = seq
		sealed := b.seal(t, l)
		plain, zstd = plain+int64(len(sealed.plain)), zstd+int64(len(sealed.zstd))
		if err := l.Append(sealed); err != nil {
			t.Fatal(err)
		}
	}
	got := l.Counts()
	step := int64(clock.mono/CountStep) - 1
	wanted := Counts{
		Since: testStart, Until: clock.wall, Step: step,
		Creates: want["create"].count(step), Updates: want["update"].count(step), Deletes: want["delete"].count(step),
		Identities: want["identity"].count(step), Accounts: want["account"].count(step), Syncs: want["sync"].count(step),
		Other: counted{}.count(step), PlainBytes: plain, ZstdBytes: zstd,
	}
	for i, c := range got.Collections {
		wanted.Collections = append(wanted.Collections, CollectionCount{Name: c.Name, Count: want[c.Name].count(step)})
		if i > 0 && c.Total > got.Collections[i-1].Total {
			t.Errorf("collection %d is more frequent than the one before", i)
		}
	}
	if diff := cmp.Diff(wanted, got); diff != "" || len(got.Collections) != 5 {
		t.Errorf("%d collections; -want +got\n%s", len(got.Collections), diff)
	}
}

func TestDiskBytes(t *testing.T) {
	l := mustOpen(t, testConfig(t, vfs.NewMem(), newTestClock()))
	if got := l.DiskBytes(); got <= 0 {
		t.Errorf("%d bytes", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := l.DiskBytes(); got != 0 {
		t.Errorf("%d bytes after Close", got)
	}
}
