package replay

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// TestAbout: a log says what its format is, whom it follows and whose UIDs it has.
func TestAbout(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	l := mustOpen(t, cfg)
	want := About{Version: format.Version, Relay: testRelay, UIDStore: "store-1"}
	if got, err := l.About(); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.About(); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestNewestUIDs has a log name the UIDs of its newest block, before it has begun as well.
func TestNewestUIDs(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	l := mustOpen(t, cfg)
	if uids, err := l.NewestUIDs(); len(uids) > 0 || err != nil {
		t.Errorf("an empty log: %v, %v", uids, err)
	}
	for seq := int64(1); seq <= 2; seq++ {
		clock.advance(time.Second)
		place, uid := format.Place{Epoch: 1, Seq: seq}, uint64(10*seq)
		b := testBlock{epoch: 1, firstSeq: seq, lastSeq: seq, events: []testEvent{{Place: place, timeUS: clock.us(),
			kind: translate.KindCommit, collection: testCollections[0], did: testDID(1), didUID: uid, uriUID: uid + 1, payload: "{}"}}}
		if err := l.Append(b.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.NewestUIDs(); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	l, err := Prepare(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if uids, err := l.NewestUIDs(); !slices.Equal(uids, []uint64{20, 21}) || err != nil {
		t.Errorf("%v, %v", uids, err)
	}
}
