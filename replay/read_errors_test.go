package replay

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/dict"
)

// readings are ways to read a whole log, by name. Each returns what it gave.
var readings = map[string]func(t *testing.T, w *world, l *Log) ([]string, error){
	"all": func(t *testing.T, w *world, l *Log) ([]string, error) {
		return drainOf(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 12})
	},
	"references": func(t *testing.T, w *world, l *Log) ([]string, error) {
		return drainOf(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 12, Extended: true, References: true})
	},
	"compressed": func(t *testing.T, w *world, l *Log) ([]string, error) {
		return drainOf(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 12, Dictionary: dict.BuiltIn().ID()})
	},
	"accounts": func(t *testing.T, w *world, l *Log) ([]string, error) {
		f, err := NewFilter(FilterConfig{DIDs: []string{testDID(1), testDID(2)}})
		if err != nil {
			t.Fatal(err)
		}
		return drainOf(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 12, Filter: f})
	},
	"subject": func(t *testing.T, w *world, l *Log) ([]string, error) {
		f, err := NewFilter(FilterConfig{Subjects: []uint64{testSubject(1).UID}})
		if err != nil {
			t.Fatal(err)
		}
		return drainOf(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 12, Filter: f})
	},
	"collection": func(t *testing.T, w *world, l *Log) ([]string, error) {
		f, err := NewFilter(FilterConfig{Collections: testCollections[4:5]})
		if err != nil {
			t.Fatal(err)
		}
		return drainOf(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 12, Filter: f})
	},
	"source": func(t *testing.T, w *world, l *Log) ([]string, error) {
		f, err := NewFilter(FilterConfig{Sources: []string{testSource(testCollections[0], 1), testSource(testCollections[1], 2)}})
		if err != nil {
			t.Fatal(err)
		}
		return drainOf(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 12, Filter: f})
	},
	"from a position": func(t *testing.T, w *world, l *Log) ([]string, error) {
		events := w.m.blocks[len(w.m.blocks)/2].events
		for i := len(w.m.blocks) / 2; len(events) == 0; i++ {
			events = w.m.blocks[i].events
		}
		return drainOf(t, l, ReaderConfig{Cursor: PositionCursor(pointOf(events[0]).Position), MaxChunkBytes: 1 << 12})
	},
	"changes": func(t *testing.T, w *world, l *Log) (got []string, err error) {
		err = l.Changes(t.Context(), EpochEnd{Epoch: firstEpoch}, func(c *Changes) error {
			for _, e := range c.Events {
				got = append(got, fmt.Sprintf("%d %s %v", e.Seq, e.Payload, e.References))
			}
			got = append(got, fmt.Sprint(c.Through, c.Gap))
			return nil
		})
		return got, err
	},
}

// drainOf returns what a reader gives until it is live or fails.
func drainOf(t *testing.T, l *Log, cfg ReaderConfig) (got []string, err error) {
	t.Helper()
	r, err := l.NewReader(cfg)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	opcode := byte(0x81)
	if cfg.Dictionary != 0 {
		opcode = 0x82
	}
	for c := (Chunk{}); !c.Live; {
		if err := r.Next(&c); err != nil {
			return got, err
		}
		if c.Gap != nil {
			got = append(got, fmt.Sprint(*c.Gap))
		}
		for _, p := range parseFrames(t, &c, opcode) {
			got = append(got, string(p))
		}
	}
	return got, nil
}

// TestReadErrors fails each read of the disk in turn, also those while the log opens. What a reader
// gives then is whole, or ends with the error: no event is passed over.
func TestReadErrors(t *testing.T) {
	w := newWorld(t, 22)
	_ = w.log.Close()
	w.cfg.hooks.blobValue = 64 // parts are in files of their own
	w.cfg.CacheBytes, w.cfg.Retention, w.cfg.RetentionBytes = 1, 36*time.Hour, 0
	w.open()
	for range 6 {
		w.append()
		w.clock.advance(20 * time.Minute)
		if err := errors.Join(w.log.Trim(t.Context()), w.log.store.Pebble().Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.log.Close(); err != nil {
		t.Fatal(err)
	}
	readings["open"] = readings["all"]
	for _, name := range []string{"collection", "accounts", "subject"} {
		readings[name+", ahead"] = readings[name]
	}
	for name, read := range readings {
		t.Run(name, func(t *testing.T) {
			var want []string
			failed := 0
			for i := int64(-1); ; i++ {
				var n atomic.Int64
				faults := &failingFS{fails: func(op errorfs.Op) bool {
					return (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpFileRead || op.Kind == errorfs.OpOpen) && n.Add(1) == i+1
				}}
				cfg := w.cfg
				cfg.hooks.alwaysSlow = strings.HasSuffix(name, ", ahead")
				cfg.FS = faults.wrap(w.fs.CrashClone(vfs.CrashCloneCfg{})) // a store that failed keeps its lock
				faults.armed.Store(name == "open")
				l, err := Open(cfg)
				if err != nil && name != "open" {
					t.Fatal(err)
				}
				var got []string
				if err == nil {
					faults.armed.Store(name != "open")
					got, err = read(t, w, l)
					_ = l.Close()
				}
				faults.armed.Store(false)
				if i < 0 {
					if want = got; err != nil || len(want) == 0 {
						t.Fatalf("%d events, %v", len(want), err)
					}
					continue
				}
				if n.Load() <= i {
					break
				}
				if err != nil {
					failed++
				}
				var damage *CorruptionError // which a failed read does not show
				if err == nil && !slices.Equal(got, want) || err != nil && (!errors.Is(err, errDisk) || errors.As(err, &damage) || len(got) > len(want) || !slices.Equal(got, want[:len(got)])) {
					t.Fatalf("read %d fails: %d of %d events, %v", i, len(got), len(want), err)
				}
			}
			if failed == 0 {
				t.Error("no read has failed")
			}
		})
	}
}
